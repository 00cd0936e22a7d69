package trace

import "github.com/softnic/softnicd/ib"

// Peers names the two ends of a queue pair's connection.
type Peers func(ib.QPN) (self, peer string)

// Steps turns events into steps of a ladder. A packet is drawn when it is sent; one that came from a queue pair whose
// own events are not here is drawn when it is received. The events must be in order of time.
func (n Names) Steps(events []Event, peers Peers) []Step {
	traced := make(map[string]bool)
	for i := range events {
		self, _ := peers(events[i].QPN)
		traced[self] = true
	}
	var steps []Step
	for _, e := range events {
		self, peer := peers(e.QPN)
		s := Step{Time: e.Time, From: self, Label: n.label(e), PSN: e.PSN, Bytes: int(e.Length), Meaning: n.meaning(e)}
		switch e.Kind {
		case None:
			continue
		case Sent:
			s.To = peer
		case Retransmitted:
			s.To, s.Note = peer, "again"
		case Lost:
			s.To, s.Lost = peer, true
		case Received:
			if traced[peer] {
				continue
			}
			s.From, s.To = peer, self
			if e.Verdict != Accepted {
				s.Note = e.Verdict.String()
			}
		case Timeout, RNRWait:
			s.Label = e.Kind.String() + " psn " + e.PSN.String()
		default:
			s.Label = join(e.Kind.String(), s.Label)
		}
		steps = append(steps, s)
	}
	return steps
}

func join(a, b string) string {
	if b == "" {
		return a
	}
	return a + " " + b
}
