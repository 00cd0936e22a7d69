package hosts

import (
	"context"
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// trickle is messages of an unreliable service, a numbered one each millisecond. Some may be lost; none comes twice, and
// those that come are in order.
type trickle struct {
	name    string
	a, b    *side
	shape   verbs.SendWR
	header  int // bytes in front of what is received
	arrived atomic.Uint64
}

const trickleSize = 64

// trickles begins one of UC, of UD and of multicast between two hosts. They end with the test.
func trickles(t *testing.T, from, to *host, family string) []*trickle {
	t.Helper()
	uc := &trickle{name: "UC", a: newSide(t, from, family, ib.QPTypeUC), b: newSide(t, to, family, ib.QPTypeUC)}
	check(t, uc.a.qp.ConnectUC(uc.a.end, uc.b.end, verbs.UCAttr{SGIDIndex: uc.a.index}))
	check(t, uc.b.qp.ConnectUC(uc.b.end, uc.a.end, verbs.UCAttr{SGIDIndex: uc.b.index}))
	list := []*trickle{uc}
	group := ib.GIDFromAddr(netip.MustParseAddr(groupsOf[family]))
	for _, name := range []string{"UD", "multicast"} {
		w := &trickle{name: name, a: newSide(t, from, family, ib.QPTypeUD), b: newSide(t, to, family, ib.QPTypeUD), header: verbs.GRHSize}
		for _, s := range []*side{w.a, w.b} {
			check(t, s.qp.ActivateUD(verbs.UDAttr{QKey: qkey, PSN: s.end.PSN}))
		}
		w.shape = verbs.SendWR{RemoteQPN: w.b.end.QPN, RemoteQKey: qkey}
		to := w.b.end.GID
		if name == "multicast" {
			check(t, w.b.qp.AttachMcast(group))
			w.shape.RemoteQPN, to = ib.MulticastQPN, group
		}
		w.shape.AH = must(w.a.pd.CreateAH(verbs.AHAttr{IsGlobal: true, PortNum: 1, GRH: ib.GlobalRoute{DGID: to, SGIDIndex: w.a.index, HopLimit: 7}}))
		list = append(list, w)
	}
	for _, w := range list {
		for i := range slots {
			check(t, w.b.qp.PostRecv(w.slot(i)))
		}
		ctx, stop := context.WithCancel(t.Context())
		sent, received := make(chan struct{}), make(chan struct{})
		go func() { defer close(sent); w.send(ctx) }()
		go func() { defer close(received); w.receive(ctx) }()
		t.Cleanup(func() { stop(); <-sent; <-received })
	}
	for _, w := range list {
		w.moves()
	}
	return list
}

func (w *trickle) slot(i int) verbs.RecvWR {
	return verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{w.b.mr.SGE(i*256, trickleSize+w.header)}}
}

func (w *trickle) send(ctx context.Context) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var wc [1]verbs.WC
	for number := uint64(1); ; number++ {
		binary.NativeEndian.PutUint64(w.a.mem, number)
		wr := w.shape
		wr.WRID, wr.Opcode, wr.SGList = number, ib.WRSend, []verbs.SGE{w.a.mr.SGE(0, trickleSize)}
		if err := w.a.qp.PostSend(wr); err != nil {
			w.a.t.Errorf("%s: send %d: %v", w.name, number, err)
			return
		}
		if _, err := w.a.cq.Wait(ctx, wc[:]); err != nil {
			return
		}
		if wc[0].Status != ib.WCSuccess {
			w.a.t.Errorf("%s: send %d: %v", w.name, number, wc[0].Status)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// receive wants each message once at the most. They may pass each other: what waited for the answer of a neighbour leaves while
// others already go their way.
func (w *trickle) receive(ctx context.Context) {
	var wc [1]verbs.WC
	for seen := map[uint64]bool{0: true}; ; {
		if _, err := w.b.cq.Wait(ctx, wc[:]); err != nil {
			return
		}
		slot := int(wc[0].WRID)
		number := binary.NativeEndian.Uint64(w.b.mem[slot*256+w.header:])
		if wc[0].Status != ib.WCSuccess || seen[number] {
			w.b.t.Errorf("%s: message %d, seen before: %v, %v", w.name, number, seen[number], wc[0].Status)
			return
		}
		seen[number] = true
		if err := w.b.qp.PostRecv(w.slot(slot)); err != nil && ctx.Err() == nil {
			w.b.t.Errorf("%s: receive: %v", w.name, err)
			return
		}
		w.arrived.Add(1)
	}
}

// moves waits until more has arrived.
func (w *trickle) moves() {
	w.a.t.Helper()
	n := w.arrived.Load()
	eventually(w.a.t, w.name+" arrives", func() bool { return w.arrived.Load() > n+5 })
}

// What the unreliable services lose while a cable is out, an address goes or the MTU changes is lost; afterwards the same
// queue pairs go on, and nobody has to do anything about it.
func TestUnreliableTroubles(t *testing.T) {
	for _, family := range families {
		t.Run(family, func(t *testing.T) {
			w := newNetwork(t, 2)
			a, b := w.hosts[0], w.hosts[1]
			list := trickles(t, a, b, family)
			all := func(what string) {
				t.Helper()
				for _, x := range list {
					if x.moves(); t.Failed() {
						t.Fatal("after ", what)
					}
				}
			}
			for _, h := range w.hosts {
				h.cable(false)
				h.async.expect(ib.EventPortErr)
				time.Sleep(50 * time.Millisecond)
				h.cable(true)
				h.async.expect(ib.EventPortActive)
				all("a flap of the link")
			}
			for _, mtu := range []int{9000, 1500} {
				for _, h := range w.hosts {
					h.setMTU(mtu)
				}
				all("another MTU")
			}
			other := netip.MustParseAddr("10.9.0.99")
			b.addAddr(other)
			b.async.expect(ib.EventGIDChange)
			all("an address more")
			b.delAddr(other)
			b.async.expect(ib.EventGIDChange)
			all("an address less")
			own := b.addr(family)
			b.delAddr(own)
			b.async.expect(ib.EventGIDChange)
			eventually(t, "the GID is gone", func() bool { return b.gid(own) < 0 })
			b.addAddr(own)
			eventually(t, "the GID is back", func() bool { return b.gid(own) >= 0 })
			all("the address was away")
		})
	}
}

// An interface that is taken out and put in again has another index, and is the same device: it hears of it, its groups are
// joined again, and what was connected goes on.
func TestInterfaceComesBack(t *testing.T) {
	for _, family := range families {
		t.Run(family, func(t *testing.T) {
			w := newNetwork(t, 2)
			a, b := w.hosts[0], w.hosts[1]
			list := trickles(t, a, b, family)
			old := b.eth().Attrs().Index
			b.pullOut()
			b.async.expect(ib.EventPortErr)
			eventually(t, "the GID is gone", func() bool { return b.gid(b.addr(family)) < 0 })
			// Another interface takes the index that would be next.
			check(t, b.ns.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "other0"}}))
			b.plugIn(true)
			b.async.expect(ib.EventPortActive)
			if b.eth().Attrs().Index == old {
				t.Fatal("the interface has its old index")
			}
			eventually(t, "the GID is back", func() bool { return b.gid(b.addr(family)) >= 0 })
			for _, x := range list {
				x.moves()
			}
			newStream(t, a, b, family).end()
		})
	}
}
