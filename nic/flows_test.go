package nic

import (
	"net/netip"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// connectUnreliably connects two queue pairs of UC, with an address vector of its own for the first.
func connectUnreliably(t testing.TB, x, y *endpoint, edit func(*ib.AHAttr)) {
	t.Helper()
	for i, e := range [][2]*endpoint{{x, y}, {y, x}} {
		attr := rtrAttr(e[1].addr, e[1].qp.QPN())
		if i == 0 && edit != nil {
			edit(&attr.AH)
		}
		e[0].modify(t, initAttr(), initMask)
		e[0].modify(t, attr, ib.QPAttrState|ib.QPAttrAV|ib.QPAttrPathMTU|ib.QPAttrDestQPN|ib.QPAttrRQPSN)
		e[0].modify(t, rtsAttr(), ib.QPAttrState|ib.QPAttrSQPSN)
	}
}

// A marked datagram is answered by a CNP for the queue pair that its DETH names, each sender by its own, and not more often
// than every 50 us (A17.9.3). The first receives, and nobody needs to have a receive for it.
func TestMarkedDatagramsAreAnsweredByCNPs(t *testing.T) {
	w, a, b, pa, pb := newCongested(t, nil)
	one, two, y := a.newDatagrams(t), a.newDatagrams(t), b.newDatagrams(t)
	ah := a.newAH(t, b.addr)
	pa.keep, pb.every = true, 1
	send := func(e *endpoint) {
		t.Helper()
		e.postSend(datagramWQE(1, ah, y.qp.QPN()), e.sge(0, 100))
		w.run(time.Microsecond)
	}
	want := func(after string, n int) {
		t.Helper()
		if len(pa.cnps) != n {
			t.Fatalf("%d CNPs after %s, want %d", len(pa.cnps), after, n)
		}
	}
	send(one)
	send(one)
	want("two datagrams of one queue pair", 1)
	send(two)
	want("one of another", 2)
	w.now = w.now.Add(cnpSpacing)
	send(one)
	want("another 50 us", 3)
	for i, e := range []*endpoint{one, two, one} {
		qpn := e.qp.QPN()
		cnp := append([]byte{0x81, 0, 0xff, 0xff, 0x40, byte(qpn >> 16), byte(qpn >> 8), byte(qpn)}, make([]byte, 20)...)
		if string(pa.cnps[i]) != string(cnp) || pa.classes[i] != 0xc2 {
			t.Errorf("CNP % x with traffic class %#x, want % x with 0xc2", pa.cnps[i], pa.classes[i], cnp)
		}
	}
	for name, want := range map[string]uint64{"np_cnp_sent": 3, "np_ecn_marked_roce_packets": 4} {
		if got := b.counter(name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	if got := a.counter("rp_cnp_handled"); got != 3 {
		t.Errorf("rp_cnp_handled is %d", got)
	}
}

// What a CNP for datagrams slows down is what goes to the host that it came from.
func TestDatagramsToOthersAreNotSlowed(t *testing.T) {
	var d slowed
	one, two := gid("10.0.0.1"), gid("10.0.0.2")
	const line = 10e9 / 8
	if r := d.rate(0, one, 77); r != 77 {
		t.Errorf("rate %d before any CNP", r)
	}
	d.notify(0, one, line)
	if r := d.rate(0, one, 0); r != line/2 {
		t.Errorf("rate %d after a CNP, want half the line's", r)
	}
	if d.rate(0, one, 5) != 5 || d.rate(0, two, 0) != 0 {
		t.Error("the rate of a handle, or of another destination")
	}
	if r := d.rate(clock.Time(time.Second), one, 0); r != 0 {
		t.Errorf("rate %d a second later", r)
	}
	// More destinations than there are places: those who were silent longest are forgotten.
	for i := range slowedMost + 2 {
		d.notify(clock.Time(i), ib.GIDFromAddr(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})), line)
	}
	limited := 0
	for i := range slowedMost + 2 {
		if d.rate(clock.Time(slowedMost+2), ib.GIDFromAddr(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})), 0) != 0 {
			limited++
		} else if i > 1 {
			t.Errorf("destination %d is forgotten", i)
		}
	}
	if limited != slowedMost {
		t.Errorf("%d destinations are slowed", limited)
	}
}

// stream posts n messages of size bytes and returns how long it took until they had left.
func stream(t testing.TB, w *world, e *endpoint, n int, post func()) time.Duration {
	t.Helper()
	begun := w.now
	for sent, done := 0, 0; done < n; {
		for ; sent < n && sent-done < 16; sent++ {
			post()
		}
		w.run(10 * time.Microsecond)
		for _, c := range e.poll(t) {
			if c.Status != 0 {
				t.Fatalf("completion %+v", c)
			}
			done++
		}
		if w.now.Sub(begun) > 10*time.Second {
			t.Fatal("it takes for ever")
		}
	}
	return w.now.Sub(begun)
}

// Senders of both unreliable services slow down when they are told, and are back at full speed when they are not any more.
func TestUnreliableSendersHeedCNPs(t *testing.T) {
	for _, typ := range []ib.QPType{ib.QPTypeUC, ib.QPTypeUD} {
		for _, off := range []bool{false, true} {
			w, a, b, pa, pb := newCongested(t, func(c *Config) { c.Limits.NoDCQCN = off })
			var post func()
			var x *endpoint
			if typ == ib.QPTypeUD {
				var y *endpoint
				x, y = a.newDatagrams(t), b.newDatagrams(t)
				ah := a.newAH(t, b.addr)
				post = func() { x.postSend(datagramWQE(1, ah, y.qp.QPN()), x.sge(0, 4000)) }
			} else {
				uc := func(c *QPConfig) { c.Type = ib.QPTypeUC }
				y := b.newQP(t, uc)
				x = a.newQP(t, uc)
				connectUnreliably(t, x, y, nil)
				post = func() {
					x.postSend(abi.SendWQE{Opcode: uint8(ib.WRRDMAWrite), Flags: uint8(ib.SendSignaled), RKey: uint32(b.mr.RKey()),
						RemoteAddr: 0x10000}, x.sge(0, 4000))
				}
			}
			free := stream(t, w, x, 300, post)
			pb.every = 4
			marked := stream(t, w, x, 300, post)
			pb.every = 0
			w.run(time.Second)
			again := stream(t, w, x, 300, post)
			if off {
				if marked > 2*free || b.counter("np_cnp_sent") != 0 || pa.notified != 0 {
					t.Errorf("%v without DCQCN: %v free, %v marked", typ, free, marked)
				}
				continue
			}
			// 1.2 MB at 10 Gbit/s take 1 ms.
			if marked < 3*time.Millisecond || again > 2*free {
				t.Errorf("%v: %v free, %v with marks, %v afterwards", typ, free, marked, again)
			}
		}
	}
}

// Static rates: of the address vector of an unreliable connection, and of each address handle (reference 5.2). Code 2 is
// 2.5 Gbit/s.
func TestStaticRateOfUnreliableServices(t *testing.T) {
	const n, size = 400, 4000
	want := time.Duration(n * size * 80 / 25)
	judge := func(what string, took time.Duration) {
		t.Helper()
		if took < want*95/100 || took > want*108/100 {
			t.Errorf("%s: %d bytes took %v, want about %v", what, n*size, took, want)
		}
	}
	w, a, b := newPair(t, nil)
	uc := func(c *QPConfig) { c.Type = ib.QPTypeUC }
	x, y := a.newQP(t, uc), b.newQP(t, uc)
	connectUnreliably(t, x, y, func(av *ib.AHAttr) { av.StaticRate = 2 })
	judge("UC", stream(t, w, x, n, func() {
		x.postSend(abi.SendWQE{Opcode: uint8(ib.WRRDMAWrite), Flags: uint8(ib.SendSignaled), RKey: uint32(b.mr.RKey()),
			RemoteAddr: 0x10000}, x.sge(0, size))
	}))

	d, to := a.newDatagrams(t), b.newDatagrams(t)
	attr := av(b.addr, 0)
	attr.StaticRate = 2
	slow, err := a.ctx.CreateAH(a.pd, &attr)
	if err != nil {
		t.Fatal(err)
	}
	fast := a.newAH(t, b.addr)
	judge("UD", stream(t, w, d, n, func() { d.postSend(datagramWQE(1, slow, to.qp.QPN()), d.sge(0, size)) }))
	if took := stream(t, w, d, n, func() { d.postSend(datagramWQE(1, fast, to.qp.QPN()), d.sge(0, size)) }); took > want/2 {
		t.Errorf("a handle without a rate: %v", took)
	}
}

// Who asks for marks: datagrams to one host, not those to groups, whose marks nobody answers. A class that is marked already
// leaves unmarked.
func TestHandlesAreECNCapable(t *testing.T) {
	f := &fakeGroups{}
	w, a, b := newPair(t, withGroups(f))
	for _, c := range []struct {
		to          string
		class, want uint8
	}{{b.addr, 0, 2}, {b.addr, 0x68, 0x6a}, {b.addr, 1, 1}, {b.addr, 3, 2}, {testGroup, 0x68, 0x68}} {
		attr := av(c.to, 0)
		attr.GRH.TrafficClass = c.class
		h, err := a.ctx.CreateAH(a.pd, &attr)
		if err != nil {
			t.Fatal(err)
		}
		if got := h.path.TrafficClass; got != c.want {
			t.Errorf("traffic class %#x to %s leaves as %#x, want %#x", c.class, c.to, got, c.want)
		}
	}
	// Somebody else's mark on a datagram to a group is counted, and that is all.
	x, y := a.newDatagrams(t), b.newDatagrams(t)
	y.attach(t, false)
	attr := av(testGroup, 0)
	h, err := a.ctx.CreateAH(a.pd, &attr)
	if err != nil {
		t.Fatal(err)
	}
	h.path.TrafficClass |= ecnCE
	y.postRecv(1, y.sge(0, 100))
	x.postSend(datagramWQE(20, h, ib.MulticastQPN), x.sge(0, 10))
	w.run(time.Millisecond)
	y.wantDatagrams(t, 1)
	if b.counter("np_ecn_marked_roce_packets") != 1 || b.counter("np_cnp_sent") != 0 {
		t.Errorf("%d marks, %d CNPs", b.counter("np_ecn_marked_roce_packets"), b.counter("np_cnp_sent"))
	}
}

// Notices are as many as there are, and a path is left alone while a frame refers to it.
func TestNoticesAreBounded(t *testing.T) {
	var n informed
	burst := wire.NewBurst(4)
	from := func(i int) *wire.Packet {
		var p wire.Packet
		f := wire.NewBurst(1).Next()
		wire.FindDETH(f.SetHeader(wire.UDSendOnly)).SetSourceQP(ib.QPN(i))
		f.Path = &wire.Path{Source: gid("10.0.0.2"), Dest: gid("10.0.0.1")}
		p.FromFrame(f)
		return &p
	}
	for i := range len(n) {
		x := n.find(0, from(i+2), burst)
		if x == nil || x.qpn != ib.QPN(i+2) || x.path.Dest != gid("10.0.0.2") || x.path.Source != gid("10.0.0.1") {
			t.Fatalf("notice %d: %+v", i, x)
		}
		x.next, x.end = clock.Time(cnpSpacing), 1
	}
	if n.find(0, from(1000), burst) != nil || n.find(0, from(2), burst) != nil {
		t.Error("a notice beside those in use, or one before its time")
	}
	later := clock.Time(cnpSpacing)
	if n.find(later, from(1000), burst) != nil || n.find(later, from(2), burst) != nil {
		t.Error("a path was written that a frame refers to")
	}
	burst.Next()
	burst.Consume(1)
	if n.find(later, from(1000), burst) == nil || n.find(later, from(3), burst) == nil {
		t.Error("none is free again")
	}
}

func TestCongestionOfDatagramsAllocatesNothing(t *testing.T) {
	w, a, b, pa, pb := newCongested(t, nil)
	x, y := a.newDatagrams(t), b.newDatagrams(t)
	ah := a.newAH(t, b.addr)
	pb.every = 1
	wqe, list := datagramWQE(1, ah, y.qp.QPN()), []ib.SGE{x.sge(0, 4000)}
	var c [4]abi.CQE
	n := testing.AllocsPerRun(100, func() {
		x.block.PutSend(x.sends, &wqe, list)
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
