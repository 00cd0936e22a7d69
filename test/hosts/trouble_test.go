package hosts

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// stream is a connection that carries numbered messages without end: whatever arrives is the next one, whole.
type stream struct {
	a, b    *side
	arrived atomic.Uint64
	stop    context.CancelFunc
	ended   chan struct{} // nobody sends or receives any more
	status  ib.WCStatus   // of the send that failed, once ended is closed
}

// message is the bytes of one: several packets of any MTU but 4096.
const message = 4000

// slots is how many messages are under way.
const slots = 8

// newStream connects two hosts and begins. It ends with the test, or with the first error.
func newStream(t *testing.T, from, to *host, family string) *stream {
	t.Helper()
	s := &stream{a: newSide(t, from, family, ib.QPTypeRC), b: newSide(t, to, family, ib.QPTypeRC), ended: make(chan struct{})}
	joinRC(s.a, s.b)
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	for i := range slots {
		check(t, s.b.qp.PostRecv(s.slot(s.b, i)))
	}
	received := make(chan struct{})
	go func() { defer close(received); s.receive(ctx) }()
	go func() { defer close(s.ended); s.send(ctx); stop(); <-received }()
	t.Cleanup(func() { stop(); <-s.ended })
	s.moves()
	return s
}

func (s *stream) slot(at *side, i int) verbs.RecvWR {
	return verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{at.mr.SGE(i*message, message)}}
}

// send posts a message for each that has completed.
func (s *stream) send(ctx context.Context) {
	post := func(slot int, number uint64) error {
		b := s.a.mem[slot*message:][:message]
		for i := 0; i < len(b); i += 8 {
			binary.NativeEndian.PutUint64(b[i:], number<<16|uint64(i))
		}
		wr := s.slot(s.a, slot)
		return s.a.qp.PostSend(verbs.SendWR{WRID: wr.WRID, Opcode: ib.WRSend, SGList: wr.SGList})
	}
	number := uint64(0)
	for i := range slots / 2 {
		if err := post(i, number); err != nil {
			s.a.t.Errorf("send %d: %v", number, err)
			return
		}
		number++
	}
	var wc [1]verbs.WC
	for {
		if _, err := s.a.cq.Wait(ctx, wc[:]); err != nil {
			return
		}
		if s.status = wc[0].Status; s.status != ib.WCSuccess {
			return
		}
		if err := post(int(wc[0].WRID), number); err != nil {
			s.a.t.Errorf("send %d: %v", number, err)
			return
		}
		number++
		time.Sleep(200 * time.Microsecond) // the machine has other things to do
	}
}

// receive judges what arrives.
func (s *stream) receive(ctx context.Context) {
	var wc [1]verbs.WC
	for number := uint64(0); ; number++ {
		if _, err := s.b.cq.Wait(ctx, wc[:]); err != nil || wc[0].Status != ib.WCSuccess {
			return
		}
		slot := int(wc[0].WRID)
		b := s.b.mem[slot*message:][:message]
		for i := 0; i < len(b); i += 8 {
			if got := binary.NativeEndian.Uint64(b[i:]); got != number<<16|uint64(i) || wc[0].ByteLen != message {
				s.b.t.Errorf("message %d of %d bytes: %#x at %d", number, wc[0].ByteLen, got, i)
				return
			}
		}
		if err := s.b.qp.PostRecv(s.slot(s.b, slot)); err != nil && ctx.Err() == nil {
			s.b.t.Errorf("receive %d: %v", number, err)
			return
		}
		s.arrived.Add(1)
	}
}

// moves waits until more has arrived.
func (s *stream) moves() {
	s.a.t.Helper()
	n := s.arrived.Load()
	eventually(s.a.t, "messages arrive", func() bool {
		select {
		case <-s.ended:
			s.a.t.Fatalf("the stream has ended: %v", s.status)
		default:
		}
		return s.arrived.Load() > n+20
	})
}

// fails waits until the stream has ended in this way, and both its queue pairs can be closed.
func (s *stream) fails(want ib.WCStatus) {
	s.a.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(2 * patience):
		s.a.t.Fatal("the stream goes on")
	}
	if s.status != want {
		s.a.t.Fatalf("the stream ended with %v, want %v", s.status, want)
	}
	if state := s.a.qp.State(); state != ib.StateErr {
		s.a.t.Errorf("the sender is in %s", state)
	}
	check(s.a.t, errors.Join(s.a.qp.Close(), s.b.qp.Close()))
}

// end ends a stream that is well. Its queue pairs go too: what they still had to send would go on beside later troubles.
func (s *stream) end() {
	s.a.t.Helper()
	s.moves()
	s.stop()
	<-s.ended
	check(s.a.t, errors.Join(s.a.qp.Close(), s.b.qp.Close()))
}

func (h *host) portState() ib.PortState { return must(h.ctx.QueryPort(1)).State }

// A cable that is out for less than the retries last: both ends hear of their ports, and nothing is lost. One that stays
// out longer: the sender's retries are exceeded; and when it is in again, a new connection works.
func TestCable(t *testing.T) {
	w := newNetwork(t, 3)
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	for _, family := range families {
		s, beside := newStream(t, a, b, family), newStream(t, a, c, family)
		b.cable(false)
		b.async.expect(ib.EventPortErr)
		if state := b.portState(); state != ib.PortDown {
			t.Errorf("%s: a port without cable is %s", family, state)
		}
		time.Sleep(100 * time.Millisecond)
		b.cable(true)
		b.async.expect(ib.EventPortActive)
		s.moves()
		if state := b.portState(); state != ib.PortActive {
			t.Errorf("%s: a port with cable is %s", family, state)
		}

		b.cable(false)
		b.async.expect(ib.EventPortErr)
		s.fails(ib.WCRetryExcErr)
		beside.moves() // it is nobody else's trouble
		b.cable(true)
		b.async.expect(ib.EventPortActive)
		newStream(t, a, b, family).end()
		beside.end()
	}
	if n := a.counters()["retry_exceeded_err"]; n != 2 {
		t.Errorf("%d connections exceeded their retries, want 2", n)
	}
}

// An address that goes away takes its connections with it and no others; one that comes has an entry of its own.
func TestAddressChange(t *testing.T) {
	w := newNetwork(t, 3)
	a, b := w.hosts[0], w.hosts[1]
	gone, came := b.addr("v4"), netip.MustParseAddr("10.9.0.77")
	v4, v6 := newStream(t, a, b, "v4"), newStream(t, a, b, "v6")
	index := b.gid(gone)
	b.delAddr(gone)
	b.async.expect(ib.EventGIDChange)
	eventually(t, "the GID is gone", func() bool { return b.gid(gone) < 0 })
	if i := b.gid(b.addr("v6")); i < 0 || i == index {
		t.Errorf("the other address is at %d", i)
	}
	v4.fails(ib.WCRetryExcErr)
	v6.moves()

	b.addAddr(came)
	b.async.expect(ib.EventGIDChange)
	eventually(t, "the new GID has the entry of the old one", func() bool { return b.gid(came) == index })
	x, y := newSide(t, a, "v4", ib.QPTypeRC), newSide(t, b, "v6", ib.QPTypeRC)
	y.index, y.end.GID = uint8(index), ib.GIDFromAddr(came)
	joinRC(x, y)
	x.fill(5000)
	check(t, y.qp.PostRecv(y.recv(1, 5000)))
	check(t, x.qp.PostSend(x.send(2, 5000)))
	x.expect(2)
	y.expect(1)
	same(x, y, "SEND", 0, 5000)
	v6.moves()

	// And the address as it was.
	b.delAddr(came)
	b.addAddr(gone)
	eventually(t, "the old GID is back", func() bool { return b.gid(gone) == index })
	newStream(t, a, b, "v4").end()
	v6.end()
}

// The active MTU follows the interface. Connections keep the path MTU they were made with: a larger link changes nothing
// for them, and one that became too small ends them.
func TestMTUChange(t *testing.T) {
	w := newNetwork(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	follow, err := verbs.Follow(verbs.WithSocket(b.socket))
	check(t, err)
	defer follow.Close()
	active := func(want ib.MTU) {
		t.Helper()
		for _, h := range w.hosts {
			eventually(t, "the active MTU is "+want.String(), func() bool { return must(h.ctx.QueryPort(1)).ActiveMTU == want })
		}
	}
	set := func(mtu int, want ib.MTU) {
		t.Helper()
		for _, h := range w.hosts {
			h.setMTU(mtu)
		}
		active(want)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for {
			list, err := follow.Next(ctx)
			check(t, err)
			for _, e := range list {
				if e.Kind == verbs.DaemonMTU && e.Value == uint64(mtu) {
					return
				}
			}
		}
	}
	active(ib.MTU1024)
	small := newStream(t, a, b, "v4")
	set(9000, ib.MTU4096)
	small.moves()
	large := newStream(t, a, b, "v6")
	if attr, _, err := large.a.qp.Query(); err != nil || attr.PathMTU != ib.MTU4096 {
		t.Errorf("path MTU %s, %v", attr.PathMTU, err)
	}
	set(1500, ib.MTU1024)
	small.moves()
	large.fails(ib.WCRetryExcErr)
	newStream(t, a, b, "v6").end()
	small.end()
}
