package live

import (
	"crypto/sha256"
	"crypto/sha3"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// ours is the side of softnicd: a program with a queue pair of the daemon.
type ours struct {
	gid     int
	ctx     *verbs.Context
	pd      *verbs.PD
	cq      *verbs.CQ
	mr      *verbs.MR
	kind    string
	qp      *verbs.QP
	srq     *verbs.SRQ
	ah      *verbs.AH
	remote  ib.QPN
	window  *verbs.MW
	pending []*time.Timer
}

var _ side = (*ours)(nil)

// access are the rights of queue pairs and memory.
const access = ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic

// newOurs opens the daemon's device, with the GID of an address family.
func newOurs(t *testing.T, d *daemon, v6 bool) *ours {
	t.Helper()
	o := &ours{gid: -1}
	var err error
	if o.ctx, err = verbs.Open("", verbs.WithSocket(d.socket)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range o.pending {
			p.Stop()
		}
		_ = o.ctx.Close()
	})
	want := ib.GID(bridge4.As16())
	if v6 {
		want = ib.GID(bridge6.As16())
	}
	table, err := o.ctx.QueryGIDTable(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range table {
		if e.GID == want {
			o.gid = e.Index
		}
	}
	if o.gid < 0 {
		t.Fatalf("the device has no GID %v", want)
	}
	if o.pd, err = o.ctx.AllocPD(); err != nil {
		t.Fatal(err)
	}
	if o.cq, err = o.ctx.CreateCQ(512); err != nil {
		t.Fatal(err)
	}
	b, err := o.pd.AllocBuffer(memory)
	if err != nil {
		t.Fatal(err)
	}
	if o.mr, err = o.pd.RegMR(b.Bytes(), access|ib.AccessMWBind); err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *ours) make(kind string, shared bool) (endpoint, error) {
	if o.qp != nil {
		if err := o.qp.Close(); err != nil {
			return endpoint{}, err
		}
	}
	if o.srq != nil {
		if err := o.srq.Close(); err != nil {
			return endpoint{}, err
		}
	}
	o.qp, o.srq, o.ah, o.kind = nil, nil, nil, kind
	for wc := make([]verbs.WC, 16); ; {
		if n, err := o.cq.Poll(wc); n == 0 || err != nil {
			break
		}
	}
	init := verbs.QPInitAttr{SendCQ: o.cq, RecvCQ: o.cq,
		Type: map[string]ib.QPType{"rc": ib.QPTypeRC, "uc": ib.QPTypeUC, "ud": ib.QPTypeUD}[kind],
		Cap:  verbs.QPCap{MaxSendWR: 128, MaxRecvWR: 128, MaxSendSGE: 1, MaxRecvSGE: 1}}
	var err error
	if shared {
		if o.srq, err = o.pd.CreateSRQ(verbs.SRQAttr{MaxWR: 64, MaxSGE: 1}); err != nil {
			return endpoint{}, err
		}
		init.SRQ, init.Cap.MaxRecvWR, init.Cap.MaxRecvSGE = o.srq, 0, 0
	}
	if o.qp, err = o.pd.CreateQP(init); err != nil {
		return endpoint{}, err
	}
	e, err := o.ctx.QueryGID(1, o.gid)
	return endpoint{o.qp.QPN(), netip.AddrFrom16(e.GID).StringExpanded(), o.mr.RKey(), o.mr.Addr()}, err
}

func (o *ours) connect(peer endpoint, a attr) error {
	addr, err := netip.ParseAddr(peer.GID)
	if err != nil {
		return err
	}
	gid := ib.GID(addr.As16())
	mtu := ib.MTU4096
	if a.mtu == 1024 {
		mtu = ib.MTU1024
	}
	local, remote := verbs.Endpoint{PSN: a.sqPSN}, verbs.Endpoint{QPN: peer.QPN, PSN: a.rqPSN, GID: gid}
	switch o.kind {
	case "ud":
		o.remote = peer.QPN
		if o.ah, err = o.pd.CreateAH(verbs.AHAttr{IsGlobal: true, PortNum: 1,
			GRH: ib.GlobalRoute{DGID: gid, SGIDIndex: uint8(o.gid), HopLimit: 64}}); err != nil {
			return err
		}
		return o.qp.ActivateUD(verbs.UDAttr{QKey: qkey})
	case "uc":
		return o.qp.ConnectUC(local, remote, verbs.UCAttr{SGIDIndex: uint8(o.gid), PathMTU: mtu})
	}
	// ConnectRC takes 0 for its own choice, so the numbers of retries are set here.
	q := verbs.QPAttr{State: ib.StateInit, PortNum: 1, AccessFlags: access, PathMTU: mtu, DestQPN: peer.QPN, SQPSN: a.sqPSN,
		RQPSN: a.rqPSN, MaxRDAtomic: 8, MaxDestRDAtomic: 8, MinRNRTimer: a.rnrTimer, Timeout: a.timeout, RetryCnt: a.retry,
		RNRRetry: a.rnrRetry, AH: ib.AHAttr{IsGlobal: true, PortNum: 1,
			GRH: ib.GlobalRoute{DGID: gid, SGIDIndex: uint8(o.gid), HopLimit: 64}}}
	if err := o.qp.Modify(&q, ib.QPAttrState|ib.QPAttrPKeyIndex|ib.QPAttrPort|ib.QPAttrAccessFlags); err != nil {
		return err
	}
	q.State = ib.StateRTR
	if err := o.qp.Modify(&q, ib.QPAttrState|ib.QPAttrAV|ib.QPAttrPathMTU|ib.QPAttrDestQPN|ib.QPAttrRQPSN|
		ib.QPAttrMaxDestRDAtomic|ib.QPAttrMinRNRTimer); err != nil {
		return err
	}
	q.State = ib.StateRTS
	return o.qp.Modify(&q, ib.QPAttrState|ib.QPAttrTimeout|ib.QPAttrRetryCnt|ib.QPAttrRNRRetry|ib.QPAttrSQPSN|ib.QPAttrMaxRDAtomic)
}

func (o *ours) fill(at, n int, seed string) error {
	copy(o.mr.Bytes()[at:at+n], sha3.SumSHAKE128([]byte(seed), n))
	return nil
}

func (o *ours) clear(at, n int) error {
	clear(o.mr.Bytes()[at : at+n])
	return nil
}

func (o *ours) sum(at, n int) (string, error) {
	return fmt.Sprintf("%x", sha256.Sum256(o.mr.Bytes()[at:at+n])), nil
}

func (o *ours) word(at int) (uint64, error) {
	return binary.LittleEndian.Uint64(o.mr.Bytes()[at:]), nil
}

func (o *ours) setWord(at int, v uint64) error {
	binary.LittleEndian.PutUint64(o.mr.Bytes()[at:], v)
	return nil
}

func (o *ours) recv(n, at, length int, later time.Duration) error {
	post := func() error {
		for range n {
			w := verbs.RecvWR{WRID: 900, SGList: []verbs.SGE{o.mr.SGE(at, length)}}
			var err error
			if o.srq != nil {
				err = o.srq.PostRecv(w)
			} else {
				err = o.qp.PostRecv(w)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if later == 0 {
		return post()
	}
	o.pending = append(o.pending, time.AfterFunc(later, func() { _ = post() }))
	return nil
}

var opcodes = map[string]ib.WROpcode{
	"SEND": ib.WRSend, "SEND_WITH_IMM": ib.WRSendWithImm, "SEND_WITH_INV": ib.WRSendWithInv, "RDMA_WRITE": ib.WRRDMAWrite,
	"RDMA_WRITE_WITH_IMM": ib.WRRDMAWriteWithImm, "RDMA_READ": ib.WRRDMARead, "ATOMIC_CMP_AND_SWP": ib.WRAtomicCmpAndSwp,
	"ATOMIC_FETCH_AND_ADD": ib.WRAtomicFetchAdd,
}

func (o *ours) post(w work) error {
	s := verbs.SendWR{WRID: w.WRID, Opcode: opcodes[w.Op], Flags: ib.SendSignaled, ImmData: w.Imm, InvalidateRKey: ib.RKey(w.Imm),
		RemoteAddr: w.Remote, RKey: w.RKey, CompareAdd: w.Add, Swap: w.Swap, AH: o.ah, RemoteQPN: o.remote, RemoteQKey: qkey}
	if w.Length > 0 {
		s.SGList = []verbs.SGE{o.mr.SGE(w.At, w.Length)}
	}
	return o.qp.PostSend(s)
}

func (o *ours) poll(n int, wait time.Duration) (got []completion, err error) {
	late := time.Now().Add(wait)
	for wc := make([]verbs.WC, n); len(got) < n; {
		k, err := o.cq.Poll(wc[:n-len(got)])
		if err != nil {
			return got, err
		}
		for i := range wc[:k] {
			c := completion{wc[i].WRID, wc[i].Status, int(wc[i].ByteLen), wc[i].ImmData, wc[i].SrcQP}
			if wc[i].Flags&ib.WCWithInv != 0 {
				c.Imm = uint32(wc[i].InvalidatedKey)
			}
			got = append(got, c)
		}
		if k == 0 {
			if time.Now().After(late) {
				break
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
	return got, nil
}

func (o *ours) bind(at, n int) (ib.RKey, error) {
	var err error
	if o.window, err = o.pd.AllocMW(ib.MWType2); err != nil {
		return 0, err
	}
	err = o.qp.PostSend(verbs.SendWR{WRID: 500, Opcode: ib.WRBindMW, Flags: ib.SendSignaled, MW: o.window,
		RKey: o.window.RKey() + 1, Bind: verbs.MWBindInfo{MR: o.mr, Addr: o.mr.Addr() + uint64(at), Length: uint64(n),
			Access: ib.AccessRemoteWrite | ib.AccessRemoteRead}})
	if err != nil {
		return 0, err
	}
	c, err := o.poll(1, patience)
	if err != nil || len(c) != 1 || c[0].Status != ib.WCSuccess {
		return 0, fmt.Errorf("bind: %v, %v", c, err)
	}
	return o.window.RKey(), nil
}

func (o *ours) unbind() error { return o.window.Dealloc() }
