package hosts

import (
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// services are what is carried between hosts.
var services = []struct {
	name  string
	carry func(t *testing.T, from, to *host, family string)
}{
	{"RC", carryRC},
	{"UC", carryUC},
	{"UD", carryUD},
	{"XRC", carryXRC},
	{"multicast", carryMulticast},
}

var families = []string{"v4", "v6"}

// Every service between every two hosts, over both families, with bytes that are looked at.
func TestServices(t *testing.T) {
	w := newNetwork(t, 3)
	for _, s := range services {
		t.Run(s.name, func(t *testing.T) {
			for _, family := range families {
				for _, from := range w.hosts {
					for _, to := range w.hosts {
						if from != to {
							t.Run(pairName(from, to, family), func(t *testing.T) { s.carry(t, from, to, family) })
						}
					}
				}
			}
		})
	}
	for _, h := range w.hosts {
		c := h.counters()
		if c["port_rcv_packets"] == 0 || c["rx_icrc_encapsulated"] != 0 || c["rx_foreign_gid"] != 0 {
			t.Errorf("host %d: %d packets came, %d with a bad ICRC, %d for somebody else", h.number, c["port_rcv_packets"],
				c["rx_icrc_encapsulated"], c["rx_foreign_gid"])
		}
	}
}

// sizes are messages of nothing, of part of a packet, and of many.
var sizes = []int{0, 1, 1000, 100000}

func carryRC(t *testing.T, from, to *host, family string) {
	a, b := newSide(t, from, family, ib.QPTypeRC), newSide(t, to, family, ib.QPTypeRC)
	joinRC(a, b)
	for i, n := range sizes {
		id := uint64(10 * i)
		a.fill(n)
		check(t, b.qp.PostRecv(b.recv(id, n)))
		check(t, a.qp.PostSend(a.send(id+1, n)))
		a.expect(id + 1)
		if wc := b.expect(id); wc.ByteLen != uint32(n) {
			t.Errorf("%d bytes of %d", wc.ByteLen, n)
		}
		same(a, b, "SEND", 0, n)
		clear(b.mem[:n])
		check(t, a.qp.PostSend(a.rdma(id+2, ib.WRRDMAWrite, n, b)))
		a.expect(id + 2)
		same(a, b, "WRITE", 0, n)
		clear(a.mem[:n])
		check(t, a.qp.PostSend(a.rdma(id+3, ib.WRRDMARead, n, b)))
		a.expect(id + 3)
		same(a, b, "READ", 0, n)
	}
}

// carryUC lets the peer look at each message before the next one: what has no receive is lost.
func carryUC(t *testing.T, from, to *host, family string) {
	a, b := newSide(t, from, family, ib.QPTypeUC), newSide(t, to, family, ib.QPTypeUC)
	check(t, a.qp.ConnectUC(a.end, b.end, verbs.UCAttr{SGIDIndex: a.index}))
	check(t, b.qp.ConnectUC(b.end, a.end, verbs.UCAttr{SGIDIndex: b.index}))
	for i, n := range sizes {
		id := uint64(10 * i)
		a.fill(n)
		check(t, b.qp.PostRecv(b.recv(id, n)))
		check(t, a.qp.PostSend(a.send(id+1, n)))
		a.expect(id + 1)
		if wc := b.expect(id); wc.ByteLen != uint32(n) {
			t.Errorf("%d bytes of %d", wc.ByteLen, n)
		}
		same(a, b, "SEND", 0, n)
		clear(b.mem[:n])
		check(t, b.qp.PostRecv(b.recv(id+2, 0)))
		check(t, a.qp.PostSend(a.rdma(id+3, ib.WRRDMAWriteWithImm, n, b)))
		a.expect(id + 3)
		b.expect(id + 2)
		same(a, b, "WRITE", 0, n)
	}
}

const qkey = 0x1122334

// carryUD sends a datagram, which the peer answers with what it learns from it.
func carryUD(t *testing.T, from, to *host, family string) {
	a, b := newSide(t, from, family, ib.QPTypeUD), newSide(t, to, family, ib.QPTypeUD)
	for _, s := range []*side{a, b} {
		check(t, s.qp.ActivateUD(verbs.UDAttr{QKey: qkey, PSN: s.end.PSN}))
	}
	ah := must(a.pd.CreateAH(verbs.AHAttr{IsGlobal: true, PortNum: 1, GRH: ib.GlobalRoute{DGID: b.end.GID, SGIDIndex: a.index, HopLimit: 7}}))
	for i, n := range []int{0, 1, 1024} {
		id := uint64(10 * i)
		a.fill(n)
		check(t, b.qp.PostRecv(b.recv(id, verbs.GRHSize+n)))
		check(t, a.qp.PostRecv(verbs.RecvWR{WRID: id + 3, SGList: []verbs.SGE{a.mr.SGE(4096, verbs.GRHSize+n)}}))
		wr := a.send(id+1, n)
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, b.end.QPN, qkey
		check(t, a.qp.PostSend(wr))
		a.expect(id + 1)
		wc := b.expect(id)
		if wc.ByteLen != uint32(verbs.GRHSize+n) || wc.SrcQP != a.end.QPN {
			t.Errorf("%d bytes of %d with the header, from queue pair %#x", wc.ByteLen, n, uint32(wc.SrcQP))
		}
		same(a, b, "datagram", verbs.GRHSize, n)
		back := must(b.pd.CreateAHFromWC(1, &wc, b.mem[:verbs.GRHSize]))
		wr = verbs.SendWR{WRID: id + 2, Opcode: ib.WRSend, SGList: []verbs.SGE{b.mr.SGE(verbs.GRHSize, n)}, AH: back, RemoteQPN: wc.SrcQP, RemoteQKey: qkey}
		check(t, b.qp.PostSend(wr))
		b.expect(id + 2)
		a.expect(id + 3)
		if string(a.mem[4096+verbs.GRHSize:][:n]) != string(a.mem[:n]) {
			t.Errorf("an answer of %d bytes: other bytes came back", n)
		}
		check(t, back.Destroy())
	}
}

// carryXRC sends to two shared receive queues by one connection.
func carryXRC(t *testing.T, from, to *host, family string) {
	a, b, c := newSide(t, from, family, ib.QPTypeXRCSend), newSide(t, to, family, 0), newSide(t, to, family, 0)
	domain := must(to.ctx.OpenXRCD(verbs.XRCDAttr{Flags: ib.XRCDCreate}))
	target := must(domain.CreateQP())
	b.end.QPN = target.QPN()
	check(t, a.qp.ConnectRC(a.end, b.end, a.rcAttr()))
	check(t, target.ConnectRC(b.end, a.end, b.rcAttr()))
	for i, s := range []*side{b, c} {
		queue := must(s.pd.CreateXSRQ(verbs.SRQAttr{MaxWR: 8, MaxSGE: 1}, domain, s.cq))
		for j, n := range sizes {
			id := uint64(100*i + 10*j)
			a.fill(n)
			check(t, queue.PostRecv(s.recv(id, n)))
			wr := a.send(id+1, n)
			wr.RemoteSRQN = queue.Number()
			check(t, a.qp.PostSend(wr))
			a.expect(id + 1)
			if wc := s.expect(id); wc.ByteLen != uint32(n) {
				t.Errorf("%d bytes of %d", wc.ByteLen, n)
			}
			same(a, s, "SEND", 0, n)
		}
	}
	check(t, target.Close())
}
