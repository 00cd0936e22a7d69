package nic

import (
	"fmt"
	"syscall"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

const defaultHopLimit = 64

// newPath makes the way that an address vector describes, for packets between the queue pairs local and remote. Every
// error wraps EINVAL.
func (t *gidTable) newPath(av *ib.AHAttr, local, remote ib.QPN) (*wire.Path, error) {
	if g := av.GRH.DGID; g.IsMulticast() {
		return nil, fmt.Errorf("address vector with multicast GID %s: connections are to one peer: %w", g, syscall.EINVAL)
	}
	return t.newWay(av, local, remote)
}

// newWay is newPath for datagrams, which go to groups, too.
func (t *gidTable) newWay(av *ib.AHAttr, local, remote ib.QPN) (*wire.Path, error) {
	r := &av.GRH
	switch {
	case !av.IsGlobal:
		return nil, fmt.Errorf("address vector without GRH, which Ethernet needs: %w", syscall.EINVAL)
	case av.PortNum != 0 && av.PortNum != portNum:
		return nil, fmt.Errorf("address vector with port %d: there is only port 1: %w", av.PortNum, syscall.EINVAL)
	case av.SL > 7:
		return nil, fmt.Errorf("address vector with SL %d: priorities are 0 to 7: %w", av.SL, syscall.EINVAL)
	case r.DGID.Addr().IsUnspecified():
		return nil, fmt.Errorf("address vector with destination GID %s: %w", r.DGID, syscall.EINVAL)
	}
	source, err := t.at(int(r.SGIDIndex))
	if err != nil {
		return nil, fmt.Errorf("address vector: source: %s: %w", err.Error(), syscall.EINVAL) // that one errno alone
	}
	if source.Is4() != r.DGID.Is4() {
		return nil, fmt.Errorf("address vector from %s to %s: one is IPv4, the other IPv6: %w", source.Addr(), r.DGID.Addr(), syscall.EINVAL)
	}
	p := &wire.Path{
		Source:       source,
		Dest:         r.DGID,
		SourcePort:   ib.FlowLabelUDPPort(r.FlowLabel, local, remote),
		TrafficClass: r.TrafficClass,
		HopLimit:     r.HopLimit,
		SL:           av.SL,
		FlowLabel:    r.FlowLabel & 0xfffff,
	}
	if p.HopLimit == 0 {
		p.HopLimit = defaultHopLimit
	}
	return p, nil
}
