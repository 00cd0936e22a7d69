package verbs_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// wantPost wants the work request at index to be refused.
func wantPost(t *testing.T, err error, index int, errno syscall.Errno) {
	t.Helper()
	var p *verbs.PostError
	if !errors.As(err, &p) || p.Index != index || !errors.Is(err, errno) {
		t.Fatalf("error %v, want work request %d: %v", err, index, errno)
	}
}

// Which states take posts: reference 6.4.
func TestPostStates(t *testing.T) {
	ctx := openDevice(t, embedded.Options{})
	a, b := newSide(t, ctx, 64, smallCap), newSide(t, ctx, 64, smallCap)
	attr := verbs.QPAttr{State: ib.StateInit, PortNum: 1}
	wantPost(t, a.qp.PostSend(a.send(1, 1)), 0, syscall.EINVAL)
	wantPost(t, a.qp.PostRecv(a.recv(1, 0, 1)), 0, syscall.EINVAL)
	check(t, a.qp.Modify(&attr, ib.QPAttrState|ib.QPAttrPKeyIndex|ib.QPAttrPort|ib.QPAttrAccessFlags))
	wantPost(t, a.qp.PostSend(a.send(1, 1)), 0, syscall.EINVAL)
	check(t, a.qp.PostRecv(a.recv(2, 0, 8)))
	connectSides(t, a, b, verbs.RCAttr{})
	check(t, a.qp.PostSend()) // an empty list
	check(t, b.qp.PostSend(b.send(3, 8)))
	a.expect(2, ib.WCSuccess)
	b.expect(3, ib.WCSuccess)
	attr.State = ib.StateErr
	check(t, a.qp.Modify(&attr, ib.QPAttrState))
	check(t, a.qp.PostRecv(a.recv(4, 0, 8)))
	a.expect(4, ib.WCWRFlushErr)
	check(t, a.qp.PostSend(a.send(5, 8)))
	a.expect(5, ib.WCWRFlushErr)
}

// The failing work request is named, and those before it run. Inline data that is too long is refused here (field bug B32).
func TestPostList(t *testing.T) {
	a, b := newPair(t)
	check(t, b.qp.PostRecv(b.recv(1, 0, 64), b.recv(2, 64, 64)))
	long := a.send(12, 8)
	long.SGList = make([]verbs.SGE, 3)
	wantPost(t, a.qp.PostSend(a.send(10, 8), a.send(11, 8), long, a.send(13, 8)), 2, syscall.EINVAL)
	a.expect(10, ib.WCSuccess)
	a.expect(11, ib.WCSuccess)
	b.expect(1, ib.WCSuccess)
	b.expect(2, ib.WCSuccess)
	wantPost(t, b.qp.PostRecv(verbs.RecvWR{SGList: make([]verbs.SGE, 3)}), 0, syscall.EINVAL)
	inline := verbs.SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, InlineData: make([]byte, 65)}
	wantPost(t, a.qp.PostSend(inline), 0, syscall.EINVAL)
	inline.InlineData, inline.SGList = nil, []verbs.SGE{a.mr.SGE(0, 1)}
	wantPost(t, a.qp.PostSend(inline), 0, syscall.EINVAL)
}

// A slot comes back when its completion is polled, as on hardware; where the device says so, when the request completes.
func TestSlots(t *testing.T) {
	for _, onCompletion := range []bool{false, true} {
		var net embedded.Network
		o := embedded.Options{Network: &net, ReclaimOnCompletion: onCompletion}
		a := newSide(t, openDevice(t, o), 256, smallCap)
		b := newSide(t, openDevice(t, o), 256, smallCap)
		connectSides(t, a, b, verbs.RCAttr{})
		write := a.send(0, 8)
		write.Opcode, write.RemoteAddr, write.RKey = ib.WRRDMAWrite, b.mr.Addr(), b.mr.RKey()
		depth := int(a.qp.Cap().MaxSendWR)
		list := make([]verbs.SendWR, depth+1)
		for i := range list {
			list[i] = write
			list[i].WRID = uint64(i)
		}
		if !onCompletion {
			wantPost(t, a.qp.PostSend(list...), depth, syscall.ENOMEM)
		} else {
			check(t, a.qp.PostSend(list[:depth]...))
		}
		for end := time.Now().Add(5 * time.Second); must(a.cq.Peek(100)) < depth; {
			if time.Now().After(end) {
				t.Fatal("they do not complete")
			}
			time.Sleep(time.Millisecond)
		}
		// All are done with, none is polled.
		if err := a.qp.PostSend(list[depth]); onCompletion {
			check(t, err)
		} else {
			wantPost(t, err, 0, syscall.ENOMEM)
			a.expect(0, ib.WCSuccess)
			check(t, a.qp.PostSend(list[depth]))
			wantPost(t, a.qp.PostSend(list[depth]), 0, syscall.ENOMEM)
		}
	}
}

// A completion gives back the slots of the unsignaled requests before it, too.
func TestUnsignaled(t *testing.T) {
	a, b := newPair(t)
	depth := int(a.qp.Cap().MaxSendWR)
	for round := range 5 {
		for i := range depth {
			write := a.send(uint64(i), 8)
			write.Opcode, write.RemoteAddr, write.RKey = ib.WRRDMAWrite, b.mr.Addr(), b.mr.RKey()
			if i < depth-1 {
				write.Flags = 0
			}
			if err := a.qp.PostSend(write); err != nil {
				t.Fatalf("round %d, request %d: %v", round, i, err)
			}
		}
		a.expect(uint64(depth-1), ib.WCSuccess)
	}
	if n := must(a.cq.Peek(10)); n != 0 {
		t.Errorf("%d completions of unsignaled requests", n)
	}
}

// RESET empties the queues, and completions of before are gone.
func TestReset(t *testing.T) {
	a, b := newPair(t)
	for range 3 {
		check(t, b.qp.PostRecv(b.recv(1, 0, 8), b.recv(2, 0, 8), b.recv(3, 0, 8)))
		check(t, a.qp.PostSend(a.send(1, 8), a.send(2, 8)))
		a.expect(1, ib.WCSuccess)
		b.expect(1, ib.WCSuccess)
		a.expect(2, ib.WCSuccess)
		attr := verbs.QPAttr{State: ib.StateReset}
		check(t, a.qp.Modify(&attr, ib.QPAttrState))
		check(t, b.qp.Modify(&attr, ib.QPAttrState))
		var wc [4]verbs.WC
		if n, err := b.cq.Poll(wc[:]); n != 0 || err != nil {
			t.Fatalf("%d completions after the reset, %v", n, err)
		}
		connectSides(t, a, b, verbs.RCAttr{})
	}
	check(t, b.qp.PostRecv(b.recv(4, 0, 8)))
	check(t, a.qp.PostSend(a.send(4, 8)))
	a.expect(4, ib.WCSuccess)
	b.expect(4, ib.WCSuccess)
}

// A queue pair that was reset may be idle for as long as others fill its completion queue.
func TestResetAndIdle(t *testing.T) {
	a, b := newPair(t)
	attr := verbs.QPAttr{State: ib.StateReset}
	check(t, a.qp.Modify(&attr, ib.QPAttrState))
	check(t, b.qp.Modify(&attr, ib.QPAttrState))
	connectSides(t, a, b, verbs.RCAttr{})
	a.cq.Count(3 << 30)
	b.cq.Count(1<<31 + 5)
	check(t, b.qp.PostRecv(b.recv(1, 0, 8)))
	check(t, a.qp.PostSend(a.send(1, 8)))
	a.expect(1, ib.WCSuccess)
	b.expect(1, ib.WCSuccess)
}

// The data path allocates nothing.
func TestAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools allocate")
	}
	a, b := newPair(t)
	recv := []verbs.RecvWR{b.recv(1, 0, 64)}
	send := []verbs.SendWR{a.send(2, 64)}
	inline := []verbs.SendWR{{Opcode: ib.WRSend, Flags: ib.SendSignaled | ib.SendInline, InlineData: make([]byte, 48)}}
	wc := make([]verbs.WC, 4)
	poll := func(q *verbs.CQ) {
		for {
			if n, err := q.Poll(wc); n > 0 || err != nil {
				return
			}
		}
	}
	for name, f := range map[string]func(){
		"post and poll": func() {
			b.qp.PostRecv(recv...)
			a.qp.PostSend(send...)
			poll(a.cq)
			poll(b.cq)
		},
		"inline": func() {
			b.qp.PostRecv(recv...)
			a.qp.PostSend(inline...)
			poll(a.cq)
			poll(b.cq)
		},
		"literal": func() {
			b.qp.PostRecv(verbs.RecvWR{WRID: 1, SGList: recv[0].SGList})
			a.qp.PostSend(verbs.SendWR{WRID: 1, Opcode: ib.WRSend, Flags: ib.SendSignaled, SGList: send[0].SGList})
			poll(a.cq)
			poll(b.cq)
		},
		"empty poll": func() { a.cq.Poll(wc) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
