package trace

import (
	"fmt"
	"strings"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
)

// Event is one thing that happened to a queue pair. Which fields mean something depends on Kind.
type Event struct {
	Time     clock.Time
	QPN      ib.QPN
	PSN      ib.PSN
	Length   uint32 // bytes of payload, or of a completed message
	Kind     Kind
	Opcode   uint8 // of the BTH; of a completion its ib.WCStatus, of a state change its ib.QPState
	Syndrome uint8 // of the AETH, if the packet has one
	Verdict  Verdict
}

// Kind is what sort of thing happened.
type Kind uint8

// Kinds of events. Packets have an opcode, PSN, syndrome and length.
const (
	None          Kind = iota
	Sent               // a packet was handed to the port
	Retransmitted      // the same, not for the first time
	Received           // a packet was judged; see Verdict
	Lost               // a packet was dropped on its way, by a fault plan or a simulated network
	Timeout            // the local ACK timeout passed; PSN is the oldest that is unacknowledged
	RNRWait            // a receiver was not ready; PSN is the one to be sent again
	Completed          // a work request ended: Opcode is its status
	Entered            // the queue pair entered a state: Opcode is the state
	Faulted            // application memory could not be touched
	numKinds
)

var kinds = [numKinds]string{
	"none", "sent", "retransmitted", "received", "lost", "timeout", "RNR wait", "completed", "entered", "memory fault",
}

func (k Kind) String() string {
	if k < numKinds {
		return kinds[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// IsPacket reports whether an event of this kind is about a packet.
func (k Kind) IsPacket() bool { return k >= Sent && k <= Lost }

// Verdict is what was done with a received packet.
type Verdict uint8

// Verdicts.
const (
	NoVerdict  Verdict = iota
	Accepted           // executed, or what it acknowledges was retired
	Duplicate          // seen before: answered again or ignored
	OutOfOrder         // a packet before it is missing
	Dropped            // not for this queue pair as it is now
	NAKed              // refused for good
	NotReady           // no receive request was there
	numVerdicts
)

var verdicts = [numVerdicts]string{"", "accepted", "duplicate", "out of order", "dropped", "refused", "receiver not ready"}

func (v Verdict) String() string {
	if v < numVerdicts {
		return verdicts[v]
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// Names says what opcodes and syndromes are called: wire.Opcode and wire.Syndrome, which this package does not know. A
// nil function stands for the number.
type Names struct {
	Opcode   func(uint8) string
	Syndrome func(uint8) string
	// HasSyndrome tells which opcodes carry an AETH. Nil: none.
	HasSyndrome func(opcode uint8) bool
}

// String prints the event with numbers for what only the wire can name.
func (e Event) String() string { return Names{}.Format(e) }

// Format prints an event on one line.
func (n Names) Format(e Event) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s qp %v %v", milliseconds(e.Time), e.QPN, e.Kind)
	if label := n.label(e); label != "" {
		b.WriteString(" " + label)
	}
	if e.Kind.IsPacket() || e.Kind == Timeout || e.Kind == RNRWait {
		fmt.Fprintf(&b, " psn %v", e.PSN)
	}
	if e.Length > 0 {
		fmt.Fprintf(&b, " %d B", e.Length)
	}
	if s := n.meaning(e); s != "" {
		b.WriteString(" " + s)
	}
	if e.Verdict != NoVerdict {
		fmt.Fprintf(&b, " (%v)", e.Verdict)
	}
	return b.String()
}

// label names what the event is about: a packet's opcode, a status, a state.
func (n Names) label(e Event) string {
	switch {
	case e.Kind == Completed:
		return ib.WCStatus(e.Opcode).String()
	case e.Kind == Entered:
		return ib.QPState(e.Opcode).String()
	case !e.Kind.IsPacket():
		return ""
	case n.Opcode == nil:
		return fmt.Sprintf("opcode %#02x", e.Opcode)
	}
	return n.Opcode(e.Opcode)
}

// meaning says what an acknowledgement means, "" for other packets.
func (n Names) meaning(e Event) string {
	switch {
	case !e.Kind.IsPacket() || n.HasSyndrome == nil || !n.HasSyndrome(e.Opcode):
		return ""
	case n.Syndrome == nil:
		return fmt.Sprintf("syndrome %#02x", e.Syndrome)
	}
	return n.Syndrome(e.Syndrome)
}

func milliseconds(t clock.Time) string { return fmt.Sprintf("%.3f ms", float64(t)/1e6) }
