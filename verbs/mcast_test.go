package verbs_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

const teamQKey = 0x1234

// newListener replaces the queue pair of a side by one for datagrams.
func newListener(t testing.TB, ctx *verbs.Context) *side {
	s := newSide(t, ctx, 256, smallCap)
	check(t, s.qp.Close())
	s.qp = must(s.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeUD, SendCQ: s.cq, RecvCQ: s.cq, Cap: smallCap}))
	s.activateDatagrams()
	return s
}

// activateDatagrams takes a queue pair for datagrams to RTS and posts receives with wr_ids from 100.
func (s *side) activateDatagrams() {
	t := s.t
	t.Helper()
	check(t, s.qp.Modify(&verbs.QPAttr{State: ib.StateInit, PortNum: 1, QKey: teamQKey},
		ib.QPAttrState|ib.QPAttrPort|ib.QPAttrPKeyIndex|ib.QPAttrQKey))
	check(t, s.qp.Modify(&verbs.QPAttr{State: ib.StateRTR}, ib.QPAttrState))
	check(t, s.qp.Modify(&verbs.QPAttr{State: ib.StateRTS}, ib.QPAttrState|ib.QPAttrSQPSN))
	for i := range uint64(8) {
		check(t, s.qp.PostRecv(s.recv(100+i, 1024*int(1+i), 1024)))
	}
}

// groupOf is one of this process's groups, n from 0 to 3. Every device of a host hears a group at 127.0.0.1, and `go test`
// runs such processes side by side.
func groupOf(own ib.GID, n int) ib.GID {
	k := os.Getpid()<<2 | n // a process's number has at most 22 bits (PID_MAX_LIMIT)
	if own.Is4() {
		return ib.GIDFromAddr(netip.AddrFrom4([4]byte{239, byte(k >> 16), byte(k >> 8), byte(k)}))
	}
	return ib.GIDFromAddr(netip.MustParseAddr(fmt.Sprintf("ff15::7:%x:%x", k>>16, k&0xffff)))
}

// A group of four queue pairs on two devices of a network.
func TestMulticast(t *testing.T) {
	var net embedded.Network
	first, second := openDevice(t, embedded.Options{Network: &net}), openDevice(t, embedded.Options{Network: &net})
	a, b, c := newListener(t, first), newListener(t, first), newListener(t, second)
	outsider := newListener(t, second)
	group := groupOf(a.end.GID, 0)
	older := group
	if group.Is4() {
		older[0], older[1] = 0xff, 0x0e
	}
	check(t, a.qp.AttachMcast(group))
	check(t, b.qp.AttachMcast(older))
	check(t, b.qp.AttachMcast(group))
	check(t, c.qp.AttachMcast(group, verbs.McastLoopback()))
	wantErrno(t, a.qp.AttachMcast(a.end.GID), syscall.EINVAL)
	wantErrno(t, a.qp.DetachMcast(ib.GIDFromAddr(netip.MustParseAddr("ff02::5"))), syscall.EINVAL)
	wantErrno(t, a.qp.Close(), syscall.EBUSY)
	if d := must(first.QueryDevice()); d.MaxMcastGrp == 0 || d.MaxMcastQPAttach == 0 {
		t.Errorf("the device offers %d groups of %d", d.MaxMcastGrp, d.MaxMcastQPAttach)
	}

	say := func(from *side, id uint64, to ib.GID) {
		t.Helper()
		ah := must(from.pd.CreateAH(verbs.AHAttr{IsGlobal: true, PortNum: 1, GRH: ib.GlobalRoute{DGID: to}}))
		fill(from.buf.Bytes()[:500], id)
		wr := from.send(id, 500)
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, ib.MulticastQPN, teamQKey
		check(t, from.qp.PostSend(wr))
	}
	hears := func(s *side, from *side) {
		t.Helper()
		wc := s.next()
		if wc.Status != ib.WCSuccess || wc.Opcode != ib.WCRecv || wc.SrcQP != from.qp.QPN() || wc.ByteLen != 540 {
			t.Fatalf("receive %+v", wc)
		}
		off := 1024 * (1 + int(wc.WRID-100))
		if !bytes.Equal(s.buf.Bytes()[off+40:off+540], from.buf.Bytes()[:500]) {
			t.Error("wrong bytes")
		}
		// One can answer the sender, not the group.
		if _, err := s.ctx.InitAHFromWC(1, &wc, s.buf.Bytes()[off:off+40]); err == nil {
			t.Error("an answer to a group")
		}
	}
	say(a, 1, group)
	a.expect(1, ib.WCSuccess)
	hears(b, a)
	hears(c, a)
	say(c, 2, older)
	for range 2 { // the send, and its own datagram, in either order
		if wc := c.next(); wc.Status != ib.WCSuccess || wc.Opcode == ib.WCRecv && wc.SrcQP != c.qp.QPN() {
			t.Errorf("completion %+v", wc)
		}
	}
	hears(a, c)
	hears(b, c)
	time.Sleep(5 * time.Millisecond)
	for _, s := range []*side{a, b, c, outsider} {
		if n := must(s.cq.Peek(4)); n != 0 {
			t.Errorf("%d completions more", n)
		}
	}
	check(t, a.qp.DetachMcast(older))
	check(t, a.qp.Close())
}

// A queue pair that was made with BLOCK_SELF_MCAST_LB does not hear itself, though it asks; it hears others, and they it.
func TestBlockSelfMulticast(t *testing.T) {
	ctx := openDevice(t, embedded.Options{})
	a, b := newListener(t, ctx), newSide(t, ctx, 256, smallCap)
	check(t, b.qp.Close())
	init := verbs.QPInitAttr{Type: ib.QPTypeUD, SendCQ: b.cq, RecvCQ: b.cq, Cap: smallCap, Flags: ib.QPCreateBlockSelfMcastLB}
	b.qp = must(b.pd.CreateQP(init))
	b.activateDatagrams()
	group := groupOf(a.end.GID, 1)
	for _, s := range []*side{a, b} {
		check(t, s.qp.AttachMcast(group, verbs.McastLoopback()))
	}
	for i, s := range []*side{b, a} {
		wr := s.send(uint64(i), 10)
		wr.Flags = 0
		wr.AH = must(s.pd.CreateAH(verbs.AHAttr{IsGlobal: true, PortNum: 1, GRH: ib.GlobalRoute{DGID: group}}))
		wr.RemoteQPN, wr.RemoteQKey = ib.MulticastQPN, teamQKey
		check(t, s.qp.PostSend(wr))
		a.expect(uint64(100+i), ib.WCSuccess)
	}
	b.expect(100, ib.WCSuccess) // what a said
	b.quiet()

	init.Type = ib.QPTypeRC
	_, err := b.pd.CreateQP(init)
	wantErrno(t, err, syscall.EINVAL)
	init.Type, init.Flags = ib.QPTypeUD, 1<<8
	_, err = b.pd.CreateQP(init)
	wantErrno(t, err, syscall.EOPNOTSUPP)
}
