package verbs

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/ib"
)

// AHAttr is an address vector: where datagrams go.
type AHAttr = ib.AHAttr

// GRHSize is the bytes in front of a received datagram, which hold the network header it came with. They count in
// WC.ByteLen, and a receive has to have room for them.
const GRHSize = ib.GRHSize

// AH is an address handle: a destination that was looked up once. Send requests of UD queue pairs of the same protection
// domain name it.
type AH struct {
	ctx    *Context
	handle uint32
}

// CreateAH makes an address handle (ibv_create_ah). On RoCE the destination is a GID, so that IsGlobal has to be set.
// EINVAL for a destination of another family than the source, or an SGIDIndex that names no GID.
func (p *PD) CreateAH(attr AHAttr) (*AH, error) {
	m := &ctl.CreateAH{PD: p.handle}
	m.SetAttr(&attr)
	var r ctl.HandleReply
	if err := p.ctx.call(ctl.OpCreateAH, m, &r); err != nil {
		return nil, err
	}
	return &AH{p.ctx, r.Handle}, nil
}

// Destroy destroys the address handle. Requests that name it should have completed: one that the device has not taken yet
// ends with LOC_QP_OP_ERR.
func (a *AH) Destroy() error {
	return a.ctx.call(ctl.OpDestroyAH, &ctl.Handle{Handle: a.handle}, &ctl.Empty{})
}

// InitAHFromWC works out the address vector of an answer to a received datagram (ibv_init_ah_from_wc): wc is its
// completion, grh the first 40 bytes of its receive. EINVAL if they are no network header, or if the datagram was not sent
// to one of the port's own GIDs: to a multicast group, say.
func (c *Context) InitAHFromWC(port uint8, wc *WC, grh []byte) (AHAttr, error) {
	if wc.Flags&ib.WCGRH == 0 || len(grh) < GRHSize {
		return AHAttr{}, fmt.Errorf("init ah from wc: the completion has no GRH: %w", syscall.EINVAL)
	}
	route, own, ok := routeBack(grh)
	if !ok {
		return AHAttr{}, fmt.Errorf("init ah from wc: neither an IPv4 nor an IPv6 header is in front of the datagram: %w", syscall.EINVAL)
	}
	index, err := c.ownGID(port, own)
	if err != nil {
		return AHAttr{}, fmt.Errorf("init ah from wc: %w", err)
	}
	route.SGIDIndex = index
	return AHAttr{GRH: route, SL: wc.SL, SrcPathBits: wc.DLIDPathBits, DLID: wc.SLID, IsGlobal: true, PortNum: port}, nil
}

// CreateAHFromWC makes the address handle of an answer to a received datagram (ibv_create_ah_from_wc), see InitAHFromWC.
// The answer's RemoteQPN is wc.SrcQP; its Q_Key is for the two sides to agree on.
func (p *PD) CreateAHFromWC(port uint8, wc *WC, grh []byte) (*AH, error) {
	attr, err := p.ctx.InitAHFromWC(port, wc, grh)
	if err != nil {
		return nil, err
	}
	return p.CreateAH(attr)
}

// ownGID returns the index of a GID in the port's table.
func (c *Context) ownGID(port uint8, g ib.GID) (uint8, error) {
	p, err := c.QueryPort(port)
	if err != nil {
		return 0, err
	}
	for i := range min(p.GIDTblLen, 256) {
		if e, err := c.QueryGID(port, int(i)); err == nil && e.GID == g {
			return uint8(i), nil
		}
	}
	return 0, fmt.Errorf("it was sent to %s, which is no GID of port %d: %w", g.Addr(), port, syscall.EINVAL)
}

// routeBack reads a network header the other way round. Which it is shows as in rdma-core: 20 bytes of whatever and an
// IPv4 header whose checksum is right, or an IPv6 header.
func routeBack(b []byte) (route ib.GlobalRoute, own ib.GID, ok bool) {
	if h := b[20:GRHSize]; h[0] == 4<<4|5 && sum16(h) == 0xffff {
		route.DGID = ib.GIDFromAddr(netip.AddrFrom4([4]byte(h[12:])))
		own = ib.GIDFromAddr(netip.AddrFrom4([4]byte(h[16:])))
		route.TrafficClass, route.HopLimit = h[1], h[8]
		return route, own, true
	}
	if b[0]>>4 != 6 {
		return route, own, false
	}
	first := binary.BigEndian.Uint32(b)
	route.TrafficClass, route.FlowLabel, route.HopLimit = uint8(first>>20), first&0xfffff, b[7]
	return ib.GlobalRoute{
		DGID: ib.GID(b[8:24]), FlowLabel: route.FlowLabel, TrafficClass: route.TrafficClass, HopLimit: route.HopLimit,
	}, ib.GID(b[24:40]), true
}

// sum16 is the ones' complement sum of a header of IPv4, 0xffff if its checksum is right (RFC 791).
func sum16(h []byte) uint32 {
	var sum uint32
	for i := 0; i+1 < len(h); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return sum
}
