package verbs_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/link/fault"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// Which fields of a completion are valid when: section 7.5 of the reference. Those that are not are 0.
func TestCompletionFields(t *testing.T) {
	a, b := newPair(t)
	for i := range uint64(4) {
		check(t, b.qp.PostRecv(b.recv(i, 0, 256)))
	}
	before := a.ctx.RawClock()
	post := func(op ib.WROpcode, id uint64, n int) {
		t.Helper()
		wr := a.rdma(op, id, n, b, 0)
		wr.ImmData = 0x01020304
		check(t, a.qp.PostSend(wr))
	}
	want := func(s *side, w verbs.WC) {
		t.Helper()
		wc := s.next()
		if wc.Timestamp < before || wc.Timestamp > s.ctx.RawClock() {
			t.Errorf("timestamp %d, the clock was %d before and is %d", wc.Timestamp, before, s.ctx.RawClock())
		}
		if late := time.Since(s.ctx.WallClock(wc.Timestamp)); late < 0 || late > 5*time.Second {
			t.Errorf("it completed %v ago, by the wall clock", late)
		}
		wc.Timestamp, w.QPN = 0, s.qp.QPN()
		if wc != w {
			t.Errorf("got  %+v\nwant %+v", wc, w)
		}
	}
	// Of sends and writes byte_len is open; here it is the length of the message.
	post(ib.WRSend, 10, 100)
	want(a, verbs.WC{WRID: 10, Opcode: ib.WCSend, ByteLen: 100})
	want(b, verbs.WC{WRID: 0, Opcode: ib.WCRecv, ByteLen: 100, SrcQP: a.qp.QPN()})
	post(ib.WRSendWithImm, 11, 0)
	want(a, verbs.WC{WRID: 11, Opcode: ib.WCSend})
	want(b, verbs.WC{WRID: 1, Opcode: ib.WCRecv, Flags: ib.WCWithImm, ImmData: 0x01020304, SrcQP: a.qp.QPN()})
	post(ib.WRRDMAWriteWithImm, 12, 2000)
	want(a, verbs.WC{WRID: 12, Opcode: ib.WCRDMAWrite, ByteLen: 2000})
	want(b, verbs.WC{
		WRID: 2, Opcode: ib.WCRecvRDMAWithImm, Flags: ib.WCWithImm, ImmData: 0x01020304, ByteLen: 2000, SrcQP: a.qp.QPN(),
	})
	post(ib.WRRDMAWrite, 13, 300)
	want(a, verbs.WC{WRID: 13, Opcode: ib.WCRDMAWrite, ByteLen: 300})
	post(ib.WRRDMARead, 14, 300)
	want(a, verbs.WC{WRID: 14, Opcode: ib.WCRDMARead, ByteLen: 300})
	post(ib.WRAtomicFetchAdd, 15, 8)
	want(a, verbs.WC{WRID: 15, Opcode: ib.WCFetchAdd, ByteLen: 8})
	post(ib.WRAtomicCmpAndSwp, 16, 8)
	want(a, verbs.WC{WRID: 16, Opcode: ib.WCCompSwap, ByteLen: 8})
	if !a.ctx.WallClock(0).IsZero() {
		t.Error("a failed work request has a time")
	}
}

// A send completes when the peer has acknowledged it, not when it was sent; a receive when all of it is in memory. After
// that the device does not touch the buffer any more, also when packets come again.
func TestCompletionMeans(t *testing.T) {
	hold := fault.Rule{Action: fault.Drop, Direction: fault.Receive, Opcode: "RC_ACKNOWLEDGE"}
	a, b, set := newFaultyPair(t, fault.Plan{Rules: []fault.Rule{hold}})
	src, dst := a.buf.Bytes(), b.buf.Bytes()
	fill(src[:20000], 1)
	check(t, b.qp.PostRecv(b.recv(1, 0, 20000)))
	check(t, a.qp.PostSend(a.send(2, 20000)))
	b.expect(1, ib.WCSuccess)
	if !bytes.Equal(src[:20000], dst[:20000]) {
		t.Fatal("received, and not all of it is in memory")
	}
	// The buffer is the application's again. The sender knows of no acknowledgement and sends all of it once more.
	clear(dst[:20000])
	resent := func() (n uint64) {
		for _, c := range must(a.ctx.QueryCounters()) {
			if c.Name == "retransmissions" {
				n = c.Value
			}
		}
		return n
	}
	for end := time.Now().Add(5 * time.Second); resent() < 10; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing is sent again")
		}
	}
	if n := must(a.cq.Peek(1)); n != 0 {
		t.Fatal("a send completed without an acknowledgement")
	}
	set(fault.Plan{})
	a.expect(2, ib.WCSuccess)
	if !bytes.Equal(dst[:20000], make([]byte, 20000)) {
		t.Error("the device wrote into a buffer whose receive had completed")
	}
	// And the sender's may be overwritten at once: what the peer gets is what was sent.
	check(t, b.qp.PostRecv(b.recv(3, 0, 8)))
	for i := range byte(50) {
		src[0] = i
		check(t, a.qp.PostSend(a.send(uint64(i)+100, 8)))
		a.expect(uint64(i)+100, ib.WCSuccess)
		src[0] = 0xff
		b.expect(3, ib.WCSuccess)
		if dst[0] != i {
			t.Fatalf("message %d arrived as %d", i, dst[0])
		}
		check(t, b.qp.PostRecv(b.recv(3, 0, 8)))
	}
}

// One queue serves many queue pairs: each work queue's completions come in order, whatever is between them.
func TestOrder(t *testing.T) {
	var net embedded.Network
	ctx, peer := openDevice(t, embedded.Options{Network: &net}), openDevice(t, embedded.Options{Network: &net})
	const pairs, messages = 6, 300
	first := newSide(t, ctx, 1024, smallCap)
	type counts struct {
		side, peer *side
		send, recv uint64
		credits    int
	}
	all := map[ib.QPN]*counts{}
	var list []*counts
	for range pairs {
		s := newSide(t, ctx, 64, smallCap)
		check(t, s.qp.Close())
		s.qp = must(s.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: first.cq, RecvCQ: first.cq, Cap: smallCap}))
		s.end.QPN = s.qp.QPN()
		p := newSide(t, peer, 64, smallCap)
		connectSides(t, s, p, verbs.RCAttr{})
		c := &counts{side: s, peer: p, credits: 8}
		all[s.qp.QPN()], list = c, append(list, c)
		for i := range uint64(16) {
			check(t, s.qp.PostRecv(s.recv(1000+i, 0, 64)))
			check(t, p.qp.PostRecv(p.recv(i, 0, 64)))
		}
	}
	sent := make([]uint64, pairs)
	done := 0
	var wc [32]verbs.WC
	for end := time.Now().Add(20 * time.Second); done < pairs*2*messages; {
		if time.Now().After(end) {
			t.Fatalf("%d completions of %d", done, pairs*2*messages)
		}
		for i, c := range list {
			if c.credits > 0 && sent[i] < messages {
				back := c.peer.send(sent[i], 8)
				back.Flags = 0
				if sent[i]%4 == 3 {
					back.Flags = ib.SendSignaled // gives the slots of those before back, too
				}
				if err := c.peer.qp.PostSend(back); !errors.Is(err, syscall.ENOMEM) {
					check(t, err)
					check(t, c.side.qp.PostSend(c.side.send(sent[i], 8)))
					c.credits--
					sent[i]++
				}
			}
			n := must(c.peer.cq.Poll(wc[:]))
			for j := range n {
				if wc[j].Opcode == ib.WCRecv {
					check(t, c.peer.qp.PostRecv(c.peer.recv(0, 0, 64)))
				}
			}
		}
		n := must(first.cq.Poll(wc[:]))
		for i := range n {
			c := all[wc[i].QPN]
			switch {
			case c == nil || wc[i].Status != ib.WCSuccess:
				t.Fatalf("completion %+v", wc[i])
			case wc[i].Opcode == ib.WCSend && wc[i].WRID == c.send:
				c.send++
				c.credits++
			case wc[i].Opcode == ib.WCRecv && wc[i].WRID == 1000+c.recv:
				c.recv++
				check(t, c.side.qp.PostRecv(c.side.recv(1000+c.recv+15, 0, 64)))
			default:
				t.Fatalf("completion of %d, %v, after %d sends and %d receives", wc[i].WRID, wc[i].Opcode, c.send, c.recv)
			}
			done++
		}
	}
}

// Several goroutines poll one queue: each completion goes to one of them.
func TestPollTogether(t *testing.T) {
	a, b := newPair(t)
	const messages = 1000
	var mu sync.Mutex
	seen := map[uint64]int{}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			var wc [2]verbs.WC
			for ctx.Err() == nil {
				n, err := a.cq.Poll(wc[:])
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for i := range n {
					seen[wc[i].WRID]++
				}
				mu.Unlock()
			}
		})
	}
	for i := range uint64(messages) {
		for {
			err := a.qp.PostSend(a.rdma(ib.WRRDMAWrite, i, 8, b, 0))
			if !errors.Is(err, syscall.ENOMEM) {
				check(t, err)
				break
			}
			runtime.Gosched()
		}
	}
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		mu.Lock()
		n := len(seen)
		mu.Unlock()
		if n == messages {
			break
		}
	}
	stop()
	wg.Wait()
	for i := range uint64(messages) {
		if seen[i] != 1 {
			t.Fatalf("completion of %d was polled %d times", i, seen[i])
		}
	}
}

// A send queue of unsignaled requests stays full when they are done, for nothing is polled that would give a slot back:
// ENOMEM, with the request that found no place. One that fails completes all the same.
func TestUnsignaledFull(t *testing.T) {
	a, b := newPair(t)
	depth := int(a.qp.Cap().MaxSendWR)
	list := make([]verbs.SendWR, depth+1)
	for i := range list {
		list[i] = a.rdma(ib.WRRDMAWrite, uint64(i), 8, b, 0)
		list[i].Flags = 0
	}
	wantPost(t, a.qp.PostSend(list...), depth, syscall.ENOMEM)
	time.Sleep(20 * time.Millisecond)
	wantPost(t, a.qp.PostSend(list[depth]), 0, syscall.ENOMEM)
	if n := must(a.cq.Peek(1)); n != 0 {
		t.Error("an unsignaled request completed")
	}

	a, b = newPair(t)
	for i := range list[:depth] {
		list[i] = a.rdma(ib.WRRDMAWrite, uint64(i), 8, b, 0)
		list[i].Flags = 0
	}
	list[5].RKey ^= 0x100
	check(t, a.qp.PostSend(list[:depth]...))
	wantError(a, 5, ib.WCRemAccessErr)
	for i := 6; i < depth; i++ {
		wantError(a, uint64(i), ib.WCWRFlushErr)
	}
	// The entry of the one that failed has given back the slots before it.
	check(t, a.qp.PostSend(list[:depth]...))
}
