package fault

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
)

// outbound is the way out.
type outbound struct {
	// judged are the verdicts on the first frames of the burst, nil to pass: what the port within does not take is
	// offered again, and must not be judged again.
	judged []*rule
	held   []*heldFrame
}

// heldFrame is a frame with memory of its own.
type heldFrame struct {
	hold
	burst *wire.Burst
	path  wire.Path
	body  wire.Buffer
}

// Send implements nic.Port.
func (p *Port) Send(now clock.Time, frames []wire.Frame) (sent int, err error) {
	p.releaseFrames(now)
	if len(p.rules) == 0 {
		return p.inner.Send(now, frames)
	}
	for sent < len(frames) {
		pass, verdict := p.lookAhead(frames[sent:])
		if pass > 0 {
			n, err := p.inner.Send(now, frames[sent:sent+pass])
			p.took(n)
			sent += n
			p.passedFrames(now, n)
			if err != nil || n < pass {
				if isFrameFault(err) {
					p.took(1) // the caller drops it
				}
				return sent, err
			}
		}
		if verdict == nil {
			break
		}
		ok, err := p.spoilFrame(now, &frames[sent], frames[sent:sent+1], verdict)
		if ok || isFrameFault(err) {
			p.took(1)
		}
		if !ok {
			return sent, err
		}
		sent++
	}
	return sent, nil
}

// lookAhead returns how many of the first frames pass, and the verdict on the one behind them.
func (p *Port) lookAhead(frames []wire.Frame) (pass int, verdict *rule) {
	for i := range frames {
		if i == len(p.out.judged) {
			p.out.judged = append(p.out.judged, p.find(Send, frames[i].QPN, frames[i].BTH()))
		}
		if r := p.out.judged[i]; r != nil {
			return i, r
		}
	}
	return len(frames), nil
}

// took forgets the verdicts on the first n frames.
func (p *Port) took(n int) {
	n = min(n, len(p.out.judged))
	p.out.judged = p.out.judged[:copy(p.out.judged, p.out.judged[n:])]
}

// spoilFrame does to a frame what the rule says. It returns false if the frame was not taken.
func (p *Port) spoilFrame(now clock.Time, f *wire.Frame, one []wire.Frame, r *rule) (ok bool, err error) {
	switch r.Action {
	case Drop:
		return true, nil
	case Duplicate:
		if n, err := p.inner.Send(now, one); n == 0 {
			return false, err
		}
		for range r.Copies {
			if n, _ := p.inner.Send(now, one); n == 0 {
				break // congested: a duplicate may get lost
			}
		}
		p.passedFrames(now, 1)
		return true, nil
	}
	b, err := f.AppendTo(nil, 0)
	if err != nil {
		return false, &nic.FrameFault{Err: err}
	}
	var g wire.Packet
	if p.judge(&g, r.spoil(b, f.Path), f.Path) {
		p.out.held = append(p.out.held, newHeldFrame(r.hold(now), f, &g))
		p.releaseFrames(now)
	}
	return true, nil
}

// newHeldFrame makes a frame of a packet that refers to memory of its own.
func newHeldFrame(at hold, of *wire.Frame, g *wire.Packet) *heldFrame {
	h := &heldFrame{hold: at, burst: wire.NewBurst(1), path: *of.Path}
	f := h.burst.Next()
	f.Path, f.QPN, f.Cookie = &h.path, of.QPN, of.Cookie
	copy(f.SetHeader(g.Opcode), g.Header)
	if g.Len > 0 {
		h.body.B = g.Payload[0].Mem.Bytes(g.Payload[0].Off, g.Len)
		f.Add(&h.body, 0, g.Len)
	}
	return h
}

// passedFrames notes that frames went by those held back.
func (p *Port) passedFrames(now clock.Time, n int) {
	if len(p.out.held) == 0 || n == 0 {
		return
	}
	for _, h := range p.out.held {
		for range n {
			h.passed()
		}
	}
	p.releaseFrames(now)
}

// releaseFrames sends what is due, oldest first. What the port within does not take stays.
func (p *Port) releaseFrames(now clock.Time) {
	kept := p.out.held[:0]
	congested := false
	for _, h := range p.out.held {
		if congested || !h.ready(now) {
			kept = append(kept, h)
			continue
		}
		n, err := p.inner.Send(now, h.burst.Frames())
		if n == 0 && err == nil {
			congested = true
			kept = append(kept, h)
		}
	}
	clear(p.out.held[len(kept):])
	p.out.held = kept
}
