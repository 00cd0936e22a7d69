package nic

import (
	"net"
	"net/netip"

	"github.com/softnic/softnicd/ib"
)

// Link is the network interface below a device, as netlink describes it.
type Link struct {
	Name  string
	Index int
	MTU   int // bytes of an IP packet
	MAC   net.HardwareAddr
	Up    bool
	// Addrs are the interface's addresses in order of configuration; for a device restricted to one address, that one.
	Addrs []netip.Addr
}

// physical states of a port.
const (
	physDisabled = 3
	physLinkUp   = 5
)

// portNum is the number of the only port.
const portNum = 1

// SetLink tells the device what became of its network interface. GIDs keep their index; contexts hear GID_CHANGE,
// PORT_ACTIVE and PORT_ERR. Queue pairs stay as they are: what cannot be sent any more ends in exceeded retries.
func (d *Device) SetLink(l Link) {
	d.linkMu.Lock()
	defer d.linkMu.Unlock()
	before, mtu := d.portState(), d.link.Load().MTU
	oldTable := d.gids.Load()
	table := oldTable.update(&l)
	l.Addrs = append([]netip.Addr(nil), l.Addrs...)
	d.link.Store(&l)
	d.portFailed.Store(false) // it gets another chance
	d.gids.Store(table)
	d.publishPort()
	switch after := d.portState(); {
	case after == ib.PortActive && before != ib.PortActive:
		d.raise(ib.EventPortActive)
	case after != ib.PortActive && before == ib.PortActive:
		d.raise(ib.EventPortErr)
	}
	if table != oldTable {
		d.raise(ib.EventGIDChange)
	}
	if l.MTU != mtu {
		// No asynchronous event tells of it: applications ask for the active MTU when they connect.
		d.watchers.tell(Change{Kind: ChangeMTU, Value: uint64(max(l.MTU, 0))})
	}
}

// raise tells every context of something that concerns the port.
func (d *Device) raise(e ib.EventType) {
	d.watchers.tell(Change{Kind: ChangeEvent, Event: e})
	for _, c := range d.snapshot() {
		c.event(e, portNum, 0)
	}
}

func (d *Device) portState() ib.PortState {
	if d.link.Load().Up && !d.portFailed.Load() {
		return ib.PortActive
	}
	return ib.PortDown
}

// PortAttr returns the attributes of the port.
func (d *Device) PortAttr() ib.PortAttr {
	l := d.link.Load()
	a := ib.PortAttr{
		State:         d.portState(),
		PhysState:     physDisabled,
		MaxMTU:        ib.MTU4096,
		ActiveMTU:     ib.MTUForLink(l.MTU),
		GIDTblLen:     d.limits.GIDTableLen,
		PKeyTblLen:    d.limits.PKeyTableLen,
		PortCapFlags:  d.profile.PortCaps,
		MaxMsgSz:      uint32(min(d.limits.MaxMessage, 1<<31)),
		BadPKeyCntr:   saturate16(d.refused(refusedPKey)),
		QKeyViolCntr:  saturate16(d.refused(refusedQKey)),
		ActiveWidth:   2,  // 4x
		ActiveSpeed:   32, // EDR
		LinkLayer:     2,  // Ethernet
		Flags:         1,  // GRH required
		NetdevIfindex: uint32(l.Index),
		LinkMTU:       uint32(l.MTU),
	}
	if a.State == ib.PortActive {
		a.PhysState = physLinkUp
	}
	copy(a.Netdev[:len(a.Netdev)-1], l.Name)
	return a
}

// The counters of a port are 16 bits wide and stay at their maximum.
func saturate16(n uint64) uint32 { return uint32(min(n, 0xffff)) }

// guid makes an EUI-64 of a MAC address: ff:fe in the middle, the universal/local bit inverted. It returns 0 if there is no
// address.
func guid(mac net.HardwareAddr) uint64 {
	if len(mac) != 6 || [6]byte(mac) == [6]byte{} {
		return 0
	}
	b := [8]byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]}
	var v uint64
	for _, x := range b {
		v = v<<8 | uint64(x)
	}
	return v
}
