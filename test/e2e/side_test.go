package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

const everything = ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic

// side is one end of a connection, with all that it needs.
type side struct {
	ctx *verbs.Context
	pd  *verbs.PD
	ch  *verbs.CompChannel
	cq  *verbs.CQ
	qp  *verbs.QP
	mem []byte
	mr  *verbs.MR
}

// newSide makes everything but the connection. It panics on errors: test processes use it too.
func newSide(ctx *verbs.Context, size int) *side {
	s := &side{ctx: ctx}
	s.pd = must(ctx.AllocPD())
	s.ch = must(ctx.CreateCompChannel())
	s.cq = must(ctx.CreateCQ(256, verbs.WithChannel(s.ch)))
	s.qp = must(s.pd.CreateQP(verbs.QPInitAttr{
		Type: ib.QPTypeRC, SendCQ: s.cq, RecvCQ: s.cq, SigAll: true,
		Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1},
	}))
	s.mem = must(s.pd.AllocBuffer(size)).Bytes()
	s.mr = must(s.pd.RegMR(s.mem, everything))
	return s
}

func (s *side) endpoint() verbs.Endpoint {
	return verbs.Endpoint{QPN: s.qp.QPN(), PSN: verbs.RandomPSN(), GID: must(s.ctx.QueryGID(1, 0)).GID}
}

// join connects two sides of this process.
func join(a, b *side) {
	ea, eb := a.endpoint(), b.endpoint()
	for _, err := range []error{a.qp.ConnectRC(ea, eb, verbs.RCAttr{}), b.qp.ConnectRC(eb, ea, verbs.RCAttr{})} {
		if err != nil {
			panic(err)
		}
	}
}

// next waits for one completion.
func (s *side) next(ctx context.Context) (verbs.WC, error) {
	var wc [1]verbs.WC
	_, err := s.cq.Wait(ctx, wc[:])
	return wc[0], err
}

// expect waits for one successful completion.
func (s *side) expect(ctx context.Context, id uint64) error {
	wc, err := s.next(ctx)
	if err == nil && (wc.WRID != id || wc.Status != ib.WCSuccess) {
		err = fmt.Errorf("completion of %d: %v, want success of %d", wc.WRID, wc.Status, id)
	}
	return err
}

func (s *side) recv(id uint64, off, n int) error {
	return s.qp.PostRecv(verbs.RecvWR{WRID: id, SGList: []verbs.SGE{s.mr.SGE(off, n)}})
}

func (s *side) send(id uint64, off, n int) error {
	return s.qp.PostSend(verbs.SendWR{WRID: id, Opcode: ib.WRSend, SGList: []verbs.SGE{s.mr.SGE(off, n)}})
}

// rdma posts a READ or WRITE between the own memory at off and the peer's.
func (s *side) rdma(id uint64, op ib.WROpcode, off, n int, addr uint64, key ib.RKey) error {
	return s.qp.PostSend(verbs.SendWR{WRID: id, Opcode: op, RemoteAddr: addr, RKey: key, SGList: []verbs.SGE{s.mr.SGE(off, n)}})
}

// fill writes bytes that a seed gives.
func fill(b []byte, seed uint64) {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	r.Read(b)
}
