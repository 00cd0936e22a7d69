package scripts

import (
	"encoding/binary"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/transport/rc"
	"github.com/softnic/softnicd/transport/uc"
	"github.com/softnic/softnicd/transport/ud"
	"github.com/softnic/softnicd/wire"
)

// The services besides RC. A script chooses one with s.with.

const (
	qkey      = 0x1234567
	activeMTU = 2048 // of the port, the bound of datagrams
	grhSize   = ib.GRHSize

	ours   = 5 // an SRQ number of this side's XRC domain, whose keys are those of the region
	others = 6 // another of the domain, of another protection domain
	nobody = 7 // none of this domain
)

func v4(n byte) ib.GID { return ib.GID{10: 0xff, 11: 0xff, 12: 10, 15: n} }
func v6(n byte) ib.GID { return ib.GID{0x20, 1, 15: n} }

// unreliableOf is what both unreliable services are made of.
func unreliableOf(c *choice) uc.Config {
	return uc.Config{
		QPN: c.cfg.QPN, Cap: c.cfg.Cap, Domain: c.cfg.Domain, Table: c.cfg.Table, QP: c.cfg.QP, Counters: c.cfg.Counters,
		MaxMessage: c.cfg.Limits.MaxMessage,
	}
}

func overUC(c *choice) {
	c.engine = func(_ *script, c *choice) transport.Engine { return uc.New(unreliableOf(c)) }
}

// overSharedUC takes receives from a shared queue.
func overSharedUC(c *choice) {
	c.engine = func(s *script, c *choice) transport.Engine {
		s.qp.shared = true
		cfg := unreliableOf(c)
		cfg.SharedRecv = true
		return uc.New(cfg)
	}
}

func overUD(c *choice) {
	c.attr.QKey = qkey
	c.engine = func(_ *script, c *choice) transport.Engine {
		return ud.New(ud.Config{Common: unreliableOf(c), ActiveMTU: func() int { return activeMTU }})
	}
}

// initiator and target are the halves of an extended connection.
func initiator(c *choice) { c.cfg.Service = wire.ServiceXRC }

func target(c *choice) {
	c.cfg.Service = wire.ServiceXRC
	c.engine = func(s *script, c *choice) transport.Engine {
		s.qp.shared = true
		cfg := c.cfg
		cfg.Domain, cfg.Target = nil, xrcDomain{ours: s.domain, others: &dma.Domain{Handle: 2}}
		return rc.New(cfg)
	}
}

// xrcDomain is the protection domains of shared receive queues.
type xrcDomain map[uint32]*dma.Domain

func (d xrcDomain) Select(n uint32) *dma.Domain { return d[n] }

// Packets of the services: those of RC, in another group.
func inUC(p packet) packet  { p.op |= wire.Opcode(wire.ServiceUC) << 5; return p }
func inXRC(p packet) packet { p.op |= wire.Opcode(wire.ServiceXRC) << 5; return p }

// naming is a packet of XRC that names a shared receive queue.
func (p packet) naming(srqn uint64) packet { return inXRC(p).has(&fieldSRQN, srqn) }

func datagramOnly(psn ib.PSN, n int) packet { return of(wire.UDSendOnly, psn, n) }

func (p packet) qkey(k uint64) packet { return p.has(&fieldQKey, k) }
func (p packet) overIPv6() packet     { p.v6 = true; return p }

// addressed makes a datagram of a send.
func addressed(r transport.Request) transport.Request {
	r.Datagram = transport.Datagram{Path: path, QPN: there, QKey: qkey}
	return r
}

func naming(srqn uint32, r transport.Request) transport.Request {
	r.SRQN = srqn
	return r
}

// receivedDatagram is the completion of a receive of n bytes and the 40 in front of them, which came over IPv4.
func receivedDatagram(wrid uint64, n uint32) completion {
	c := received(wrid, grhSize+n)
	c.Flags, c.Network = ib.WCGRH, ib.NetworkIPv4
	return c
}

// networkHeader4 is what stands in front of a datagram of n bytes over IPv4: 20 bytes of zero, and the header with a right
// checksum. networkHeader6 is the header of IPv6.
func networkHeader4(n int) []byte {
	b := make([]byte, grhSize)
	h := b[20:]
	h[0], h[1], h[8], h[9] = 0x45, 0x28, 61, 17
	binary.BigEndian.PutUint16(h[2:], uint16(20+8+20+n+4))
	copy(h[12:], []byte{10, 0, 0, 2, 10, 0, 0, 1})
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	binary.BigEndian.PutUint16(h[10:], ^uint16(sum+sum>>16))
	return b
}

func networkHeader6(n int) []byte {
	b := make([]byte, grhSize)
	b[0], b[1], b[6], b[7] = 0x62, 0x80, 17, 61
	binary.BigEndian.PutUint16(b[4:], uint16(8+20+n+4))
	from, to := v6(2), v6(1)
	copy(b[8:], from[:])
	copy(b[24:], to[:])
	return b
}
