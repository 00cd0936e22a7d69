package hosts

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

const everything = ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic

var capacity = verbs.QPCap{MaxSendWR: 32, MaxRecvWR: 32, MaxSendSGE: 1, MaxRecvSGE: 1}

// side is an application on a host, with all that it needs for one queue pair.
type side struct {
	t     *testing.T
	host  *host
	index uint8 // of its GID
	pd    *verbs.PD
	cq    *verbs.CQ
	qp    *verbs.QP
	mem   []byte
	mr    *verbs.MR
	end   verbs.Endpoint
}

// newSide makes everything but the connection. Without a type it has no queue pair.
func newSide(t *testing.T, h *host, family string, typ ib.QPType) *side {
	t.Helper()
	index := h.gid(h.addr(family))
	if index < 0 {
		t.Fatalf("host %d has no GID for %s", h.number, h.addr(family))
	}
	s := &side{t: t, host: h, index: uint8(index)}
	ch := must(h.ctx.CreateCompChannel())
	s.pd = must(h.ctx.AllocPD())
	s.cq = must(h.ctx.CreateCQ(256, verbs.WithChannel(ch)))
	s.mem = must(s.pd.AllocBuffer(1 << 18)).Bytes()
	s.mr = must(s.pd.RegMR(s.mem, everything))
	s.end = verbs.Endpoint{PSN: verbs.RandomPSN(), GID: ib.GIDFromAddr(h.addr(family))}
	init := verbs.QPInitAttr{Type: typ, SendCQ: s.cq, RecvCQ: s.cq, SigAll: true, Cap: capacity}
	if typ == ib.QPTypeXRCSend {
		init.RecvCQ, init.Cap.MaxRecvWR, init.Cap.MaxRecvSGE = nil, 0, 0
	}
	if typ != 0 {
		s.qp = must(s.pd.CreateQP(init))
		s.end.QPN = s.qp.QPN()
	}
	return s
}

// rcAttr has an ACK timeout of 0.27 s: a cable that comes back, and a neighbour that is asked after again, take their time on a
// busy machine.
func (s *side) rcAttr() verbs.RCAttr { return verbs.RCAttr{SGIDIndex: s.index, Timeout: 16} }

// joinRC connects two sides.
func joinRC(a, b *side) {
	a.t.Helper()
	check(a.t, a.qp.ConnectRC(a.end, b.end, a.rcAttr()))
	check(a.t, b.qp.ConnectRC(b.end, a.end, b.rcAttr()))
}

// next waits for one completion.
func (s *side) next() verbs.WC {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var wc [1]verbs.WC
	if _, err := s.cq.Wait(ctx, wc[:]); err != nil {
		s.t.Fatalf("host %d: no completion: %v", s.host.number, err)
	}
	return wc[0]
}

// expect waits for one completion and wants success.
func (s *side) expect(id uint64) verbs.WC {
	s.t.Helper()
	wc := s.next()
	if wc.WRID != id || wc.Status != ib.WCSuccess {
		s.t.Fatalf("host %d: completion of %d: %v, want success of %d", s.host.number, wc.WRID, wc.Status, id)
	}
	return wc
}

func (s *side) send(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: ib.WRSend, SGList: []verbs.SGE{s.mr.SGE(0, n)}}
}

func (s *side) recv(id uint64, n int) verbs.RecvWR {
	return verbs.RecvWR{WRID: id, SGList: []verbs.SGE{s.mr.SGE(0, n)}}
}

// rdma is a READ or WRITE between the beginnings of both sides' memory.
func (s *side) rdma(id uint64, op ib.WROpcode, n int, peer *side) verbs.SendWR {
	wr := s.send(id, n)
	wr.Opcode, wr.RemoteAddr, wr.RKey = op, peer.mr.Addr(), peer.mr.RKey()
	return wr
}

// fill writes bytes that are unlike any others.
func (s *side) fill(n int) {
	r := rand.NewChaCha8([32]byte{byte(s.host.number), byte(n), byte(n >> 8)})
	r.Read(s.mem[:n])
}

// same compares the first n bytes of two sides.
func same(a, b *side, what string, off, n int) {
	a.t.Helper()
	if !bytes.Equal(a.mem[:n], b.mem[off:off+n]) {
		a.t.Errorf("%s of %d bytes from host %d to %d: other bytes arrived", what, n, a.host.number, b.host.number)
	}
}

func pairName(a, b *host, family string) string {
	return fmt.Sprintf("%s/%d-%d", family, a.number, b.number)
}
