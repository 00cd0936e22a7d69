package nic

import (
	"bytes"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// congested marks every n-th packet that its cable carries and that may be marked, and keeps the CNPs it sees.
type congested struct {
	*cable
	every, seen int
	notified    int
	keep        bool
	cnps        [][]byte
	classes     []uint8
}

func (c *congested) Recv(now clock.Time, packets []wire.Packet) int {
	n := c.cable.Recv(now, packets)
	for i := range packets[:n] {
		p := &packets[i]
		if p.Opcode == wire.CNP && !c.keep {
			c.notified++
			continue
		}
		if p.Opcode == wire.CNP {
			b := append([]byte(nil), p.Header...)
			for _, piece := range p.Payload {
				b = append(b, piece.Mem.Bytes(piece.Off, piece.Len)...)
			}
			c.cnps, c.classes = append(c.cnps, b), append(c.classes, p.TrafficClass)
			continue
		}
		if c.seen++; c.every > 0 && c.seen%c.every == 0 && p.TrafficClass&ecnMask != 0 {
			p.TrafficClass |= ecnCE
		}
	}
	return n
}

// newCongested makes two hosts whose cables mark packets.
func newCongested(t testing.TB, edit func(*Config)) (w *world, a, b *host, pa, pb *congested) {
	t.Helper()
	ca, cb := newCables(512)
	pa, pb = &congested{cable: ca}, &congested{cable: cb}
	on := func(p Port) func(*Config) {
		return func(c *Config) {
			c.Port = p
			if edit != nil {
				edit(c)
			}
		}
	}
	a = newHost(t, "softnic0", "10.0.0.1", ca, on(pa))
	b = newHost(t, "softnic1", "10.0.0.2", cb, on(pb))
	return &world{devs: []*Device{a.dev, b.dev}}, a, b, pa, pb
}

// A marked packet is answered by a CNP, of the form that hardware sends, and another not before 50 us have passed.
func TestMarksAreAnsweredByCNPs(t *testing.T) {
	w, a, b, pa, pb := newCongested(t, nil)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	pa.keep, pb.every = true, 1
	exchange(t, w, x, y)
	if len(pa.cnps) != 1 {
		t.Fatalf("%d CNPs for two marked packets at a time", len(pa.cnps))
	}
	qpn := x.qp.QPN()
	want := append([]byte{0x81, 0, 0xff, 0xff, 0x40, byte(qpn >> 16), byte(qpn >> 8), byte(qpn)}, make([]byte, 20)...)
	if !bytes.Equal(pa.cnps[0], want) || pa.classes[0] != 0xc2 {
		t.Errorf("CNP % x with traffic class %#x, want % x with 0xc2", pa.cnps[0], pa.classes[0], want)
	}
	w.now = w.now.Add(cnpSpacing)
	exchange(t, w, x, y)
	if len(pa.cnps) != 2 {
		t.Errorf("%d CNPs after another 50 us", len(pa.cnps))
	}
	for name, want := range map[string]uint64{"np_cnp_sent": 2, "np_ecn_marked_roce_packets": 4} {
		if got := b.counter(name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	if got := a.counter("rp_cnp_handled"); got != 2 {
		t.Errorf("rp_cnp_handled is %d, want 2", got)
	}
}

// A sender whose packets are marked slows down, and is back at full speed when they are not any more.
func TestSenderHeedsCNPs(t *testing.T) {
	const n = 2 << 20
	for _, off := range []bool{false, true} {
		w, a, b, _, pb := newCongested(t, func(c *Config) { c.Limits.NoDCQCN = off })
		x, y := a.newQP(t, nil), b.newQP(t, nil)
		x.connect(t, y)
		y.connect(t, x)
		stream := func() time.Duration {
			t.Helper()
			begun := w.now
			x.postSend(abi.SendWQE{WRID: 5, Opcode: uint8(ib.WRRDMAWrite), Flags: uint8(ib.SendSignaled), RKey: uint32(b.mr.RKey()),
				RemoteAddr: 0x10000}, x.sge(0, n))
			for {
				w.run(50 * time.Microsecond)
				if c := x.poll(t); len(c) == 1 && c[0].Status == 0 {
					return w.now.Sub(begun)
				} else if len(c) != 0 || w.now.Sub(begun) > 10*time.Second {
					t.Fatalf("completions %+v after %v", c, w.now.Sub(begun))
				}
			}
		}
		free := stream()
		pb.every = 4
		marked := stream()
		pb.every = 0
		w.run(time.Second)
		again := stream()
		if off {
			if x.qp.congestion.rate != 0 || marked > 2*free || a.counter("rp_cnp_ignored") != 0 || b.counter("np_cnp_sent") != 0 {
				t.Errorf("without DCQCN: %v free, %v marked, rate %d", free, marked, x.qp.congestion.rate)
			}
			continue
		}
		// 2 MiB at 10 Gbit/s take 1.7 ms.
		if marked < 5*time.Millisecond || again > 2*free {
			t.Errorf("%v free, %v with marks, %v afterwards", free, marked, again)
		}
	}
}

// Traffic asks for marks unless its owner said what ECN it wants, or there is nobody to heed them.
func TestTrafficIsECNCapable(t *testing.T) {
	for _, tt := range []struct {
		off         bool
		class, want uint8
	}{{false, 0, 2}, {false, 0x68, 0x6a}, {false, 1, 1}, {true, 0x68, 0x68}} {
		_, a, b, _, _ := newCongested(t, func(c *Config) { c.Limits.NoDCQCN = tt.off })
		x, y := a.newQP(t, nil), b.newQP(t, nil)
		attr := rtrAttr(y.addr, y.qp.QPN())
		attr.AH.GRH.TrafficClass = tt.class
		x.modify(t, initAttr(), initMask)
		x.modify(t, attr, rtrMask)
		if got := x.qp.path.TrafficClass; got != tt.want {
			t.Errorf("traffic class %#x leaves as %#x, want %#x", tt.class, got, tt.want)
		}
		if got, _, _ := a.ctx.QueryQP(x.qp); got.AH.GRH.TrafficClass != tt.class {
			t.Errorf("query says %#x, %#x was set", got.AH.GRH.TrafficClass, tt.class)
		}
	}
}

func TestNoCNP(t *testing.T) {
	w, a, b, pa, pb := newCongested(t, func(c *Config) { c.Limits.NoCNP = true })
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	pb.every = 1
	exchange(t, w, x, y)
	if pa.notified != 0 || b.counter("np_ecn_marked_roce_packets") != 2 {
		t.Errorf("%d CNPs, %d marks counted", pa.notified, b.counter("np_ecn_marked_roce_packets"))
	}
}

// The static rate of the address vector bounds a connection: code 2 is 2.5 Gbit/s.
func TestStaticRate(t *testing.T) {
	w, a, b := newPair(t, nil)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	attr := rtrAttr(y.addr, y.qp.QPN())
	attr.AH.StaticRate = 2
	x.modify(t, initAttr(), initMask)
	x.modify(t, attr, rtrMask)
	x.modify(t, rtsAttr(), rtsMask)
	y.connect(t, x)
	const n = 3 << 20
	begun := w.now
	x.postSend(abi.SendWQE{WRID: 5, Opcode: uint8(ib.WRRDMAWrite), Flags: uint8(ib.SendSignaled), RKey: uint32(b.mr.RKey()), RemoteAddr: 0x10000},
		x.sge(0, n))
	var took time.Duration
	for took == 0 && w.now.Sub(begun) < time.Second {
		w.run(10 * time.Microsecond)
		if c := x.poll(t); len(c) == 1 && c[0].Status == 0 {
			took = w.now.Sub(begun)
		}
	}
	want := time.Duration(n * 80 / 25)
	if took < want*98/100 || took > want*105/100 {
		t.Errorf("3 MiB took %v, want about %v", took, want)
	}
	// RESET forgets it.
	x.modify(t, ib.QPAttr{State: ib.StateReset}, ib.QPAttrState)
	if r := x.qp.congestion.rate; r != 0 {
		t.Errorf("rate %d after RESET", r)
	}
}

func TestCongestionAllocatesNothing(t *testing.T) {
	w, a, b, pa, pb := newCongested(t, nil)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	pb.every = 1
	write := abi.SendWQE{Opcode: uint8(ib.WRRDMAWrite), Flags: uint8(ib.SendSignaled), RKey: uint32(b.mr.RKey()), RemoteAddr: 0x10000}
	list := []ib.SGE{x.sge(0, 20000)}
	var c [4]abi.CQE
	n := testing.AllocsPerRun(100, func() {
		x.block.PutSend(x.sends, &write, list)
		x.sends++
		x.block.PublishSend(x.sends)
		x.bell.Ring(x.qp.Slot())
		w.run(10 * time.Millisecond)
		if n, _ := x.cqr.Poll(c[:]); n != 1 || c[0].Status != 0 {
			panic("test: no completion")
		}
	})
	if pa.notified < 100 || n != 0 {
		t.Errorf("%v allocations a message; %d CNPs", n, pa.notified)
	}
}
