package verbs_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// side is one end of a connection, with all that it needs.
type side struct {
	t   testing.TB
	ctx *verbs.Context
	pd  *verbs.PD
	ch  *verbs.CompChannel
	cq  *verbs.CQ
	qp  *verbs.QP
	buf *verbs.Buffer
	mr  *verbs.MR
	end verbs.Endpoint
}

const everything = ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic

var smallCap = verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 64}

// newSide makes everything but the connection.
func newSide(t testing.TB, ctx *verbs.Context, entries int, cap verbs.QPCap) *side {
	t.Helper()
	s := &side{t: t, ctx: ctx}
	s.pd = must(ctx.AllocPD())
	s.ch = must(ctx.CreateCompChannel())
	s.cq = must(ctx.CreateCQ(entries, verbs.WithChannel(s.ch)))
	s.qp = must(s.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: s.cq, RecvCQ: s.cq, Cap: cap}))
	s.buf = must(s.pd.AllocBuffer(1 << 16))
	s.mr = must(s.pd.RegMR(s.buf.Bytes(), everything))
	s.end = verbs.Endpoint{QPN: s.qp.QPN(), PSN: verbs.RandomPSN(), GID: must(ctx.QueryGID(1, 0)).GID}
	return s
}

func connectSides(t testing.TB, a, b *side, attr verbs.RCAttr) {
	t.Helper()
	check(t, a.qp.ConnectRC(a.end, b.end, attr))
	check(t, b.qp.ConnectRC(b.end, a.end, attr))
}

// newPair makes two devices on one network and connects a queue pair of each.
func newPair(t testing.TB) (a, b *side) {
	t.Helper()
	var net embedded.Network
	a = newSide(t, openDevice(t, embedded.Options{Network: &net}), 256, smallCap)
	b = newSide(t, openDevice(t, embedded.Options{Network: &net}), 256, smallCap)
	connectSides(t, a, b, verbs.RCAttr{})
	return a, b
}

func openDevice(t testing.TB, o embedded.Options) *verbs.Context {
	t.Helper()
	if o.Wrap != nil {
		faulty(t)
	}
	d := must(newDevice(o))
	ctx := must(d.Open())
	t.Cleanup(func() {
		check(t, ctx.Close())
		check(t, d.Close())
	})
	return ctx
}

// next waits for one completion.
func (s *side) next() verbs.WC {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var wc [1]verbs.WC
	if _, err := s.cq.Wait(ctx, wc[:]); err != nil {
		s.t.Fatalf("no completion: %v", err)
	}
	return wc[0]
}

// expect waits for one completion, and wants this.
func (s *side) expect(id uint64, status ib.WCStatus) verbs.WC {
	s.t.Helper()
	wc := s.next()
	if wc.WRID != id || wc.Status != status {
		s.t.Fatalf("completion of %d: %v (vendor %#x), want %d: %v", wc.WRID, wc.Status, wc.VendorErr, id, status)
	}
	return wc
}

func (s *side) send(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: ib.WRSend, Flags: ib.SendSignaled, SGList: []verbs.SGE{s.mr.SGE(0, n)}}
}

func (s *side) recv(id uint64, off, n int) verbs.RecvWR {
	return verbs.RecvWR{WRID: id, SGList: []verbs.SGE{s.mr.SGE(off, n)}}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func wantErrno(t testing.TB, err error, errno syscall.Errno) {
	t.Helper()
	if !errors.Is(err, errno) {
		t.Fatalf("error %v, want %v", err, errno)
	}
}
