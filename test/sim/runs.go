package sim

import (
	"bytes"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
)

// In some worlds the ports take runs of packets, as the link within a device does. The network sees their packets: every
// fault is one of single packets. What arrives in good order becomes runs again, now and then.

// LongestRun is what nic.LongestRun asks.
func (p *port) LongestRun(*wire.Path, int) int {
	if !p.node.w.plan.Runs {
		return 0
	}
	return wire.MaxRun
}

// StaysHere is what nic.StaysHere asks: runs count as those of a device.
func (p *port) StaysHere(*wire.Path) bool { return p.node.w.plan.Runs }

// apart takes a frame apart.
func (p *port) apart(f *wire.Frame) []wire.Frame {
	if p.single == nil {
		p.single = wire.NewBurst(wire.MaxRun)
	}
	p.single.Consume(p.single.Len())
	p.single.Split(f)
	return p.single.Frames()
}

// sendRun sends the packets of a run, all of them or none.
func (p *port) sendRun(f *wire.Frame) error {
	singles := p.apart(f)
	if err := dma.ReadPieces(make([]byte, f.PayloadLen()), f.Payload()); err != nil {
		// As of a single frame that cannot be read, its numbers are used up: those behind it may be in the burst already.
		if end := p.node.endpointOf(f.QPN); end != nil {
			for i := range singles {
				end.look(&singles[i])
			}
		}
		return &nic.FrameFault{Err: err}
	}
	for i := range singles {
		if err := p.node.w.net.accept(p.node, &singles[i]); err != nil {
			return &nic.FrameFault{Err: err}
		}
	}
	p.counters.SentPackets.Add(uint64(len(singles)))
	p.node.w.census["runs that were sent"]++
	return nil
}

// join makes b part of the run a, or of a and b a run, if it follows a.
func (p *port) join(a, b *wire.Packet) bool {
	if !p.node.w.plan.Runs || !follows(a, b) || p.node.dice.chance(200) {
		return false
	}
	var all []wire.Piece
	for _, x := range append(a.Payload[:len(a.Payload):len(a.Payload)], b.Payload...) {
		all = append(all, wire.Piece{Mem: &wire.Buffer{B: x.Mem.Bytes(x.Off, x.Len)}, Len: x.Len})
	}
	a.Header = bytes.Clone(a.Header)
	a.BTH().SetAckReq(b.BTH().AckReq())
	a.Payload, a.Len = all, a.Len+b.Len
	a.SetRun(len(all))
	p.node.w.census["runs that came"]++
	return true
}

// follows reports whether b can be the packet behind a in a run.
func follows(a, b *wire.Packet) bool {
	n := a.Packets()
	if !a.Opcode.IsMiddle() || a.Opcode.Service() != wire.ServiceRC && a.Opcode.Service() != wire.ServiceXRC || n == wire.MaxPieces {
		return false
	}
	want := wire.BTH(b.Header[:wire.BTHSize])
	want.SetPSN(a.PSN())
	want.SetAckReq(false)
	return a.Source == b.Source && a.Dest == b.Dest && a.TrafficClass == b.TrafficClass && a.Local == b.Local &&
		want == *a.BTH() && bytes.Equal(a.Header[wire.BTHSize:], b.Header[wire.BTHSize:]) &&
		b.PSN() == a.PSN().Add(uint32(n)) && b.Len == a.Len/n && b.Len%4 == 0 && len(b.Payload) == 1
}
