package hosts

import (
	"net/netip"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

var groupsOf = map[string]string{"v4": "239.5.6.7", "v6": "ff15::5:6:7"}

// carryMulticast sends to a group: to another host, to a neighbour on the sender's own device, and not to the sender.
func carryMulticast(t *testing.T, from, to *host, family string) {
	a, near, far := newSide(t, from, family, ib.QPTypeUD), newSide(t, from, family, ib.QPTypeUD), newSide(t, to, family, ib.QPTypeUD)
	group := ib.GIDFromAddr(netip.MustParseAddr(groupsOf[family]))
	for _, s := range []*side{a, near, far} {
		check(t, s.qp.ActivateUD(verbs.UDAttr{QKey: qkey, PSN: s.end.PSN}))
		check(t, s.qp.AttachMcast(group))
	}
	ah := must(a.pd.CreateAH(verbs.AHAttr{IsGlobal: true, PortNum: 1, GRH: ib.GlobalRoute{DGID: group, SGIDIndex: a.index, HopLimit: 7}}))
	for i, n := range []int{0, 1, 1000} {
		id := uint64(i)
		a.fill(n)
		for _, s := range []*side{a, near, far} {
			check(t, s.qp.PostRecv(verbs.RecvWR{WRID: 100 + id, SGList: []verbs.SGE{s.mr.SGE(8192, verbs.GRHSize+n)}}))
		}
		wr := a.send(id, n)
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, ib.MulticastQPN, qkey
		check(t, a.qp.PostSend(wr))
		a.expect(id)
		for _, s := range []*side{near, far} {
			if wc := s.expect(100 + id); wc.ByteLen != uint32(verbs.GRHSize+n) || wc.SrcQP != a.end.QPN {
				t.Errorf("%d bytes of %d with the header, from queue pair %#x", wc.ByteLen, n, uint32(wc.SrcQP))
			}
			same(a, s, "datagram to a group", 8192+verbs.GRHSize, n)
		}
	}
	if n := must(a.cq.Peek(1)); n != 0 {
		t.Error("the sender hears itself")
	}
	for _, s := range []*side{a, near, far} {
		check(t, s.qp.DetachMcast(group))
		check(t, s.qp.Close())
	}
}
