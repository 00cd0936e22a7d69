package netdev

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Interface is a network interface as it was when somebody looked.
type Interface struct {
	Index int
	Name  string
	MAC   net.HardwareAddr // empty where there is none; zeros on the loopback
	MTU   int              // bytes of an IP packet
	// AdminUp says that somebody set it up, Carrier that the link below works.
	AdminUp, Carrier bool
	Loopback         bool
	// Hardware says that a device is behind it, be it one of a virtual machine. Linux before 5.14 does not tell.
	Hardware bool
	// Addrs are the usable addresses, without zone, in the order of a GID table: IPv6 link-local ones first, then the
	// others in order of configuration, IPv4 before IPv6, as Linux fills its table for RoCE.
	Addrs []netip.Addr
	// prefixes are those of Addrs.
	prefixes []netip.Prefix
}

// Up reports whether packets can be sent.
func (i *Interface) Up() bool { return i.AdminUp && i.Carrier }

// List returns all interfaces by index.
func List() ([]Interface, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	list := make([]Interface, 0, len(links))
	for _, l := range links {
		list = append(list, describe(l.Attrs(), addrs))
	}
	slices.SortFunc(list, func(a, b Interface) int { return a.Index - b.Index })
	return list, nil
}

// Usable returns the interfaces that are up and have an address: those that get a device when nobody says which.
func Usable() ([]Interface, error) {
	list, err := List()
	return slices.DeleteFunc(list, func(i Interface) bool { return !i.Up() || len(i.Addrs) == 0 }), err
}

// ByIndex returns the interface with that index; the error is a *NotFoundError if it is gone.
func ByIndex(index int) (Interface, error) {
	return find(fmt.Sprintf("number %d", index), func(i *Interface) bool { return i.Index == index })
}

// ByName returns the interface with that name; the error is a *NotFoundError that lists what there is.
func ByName(name string) (Interface, error) {
	return find(name, func(i *Interface) bool { return i.Name == name })
}

func find(target string, is func(*Interface) bool) (Interface, error) {
	list, err := List()
	if err != nil {
		return Interface{}, err
	}
	for i := range list {
		if is(&list[i]) {
			return list[i], nil
		}
	}
	return Interface{}, &NotFoundError{Target: target, Have: list}
}

// dump repeats a listing that a change came in between of.
func dump[T any](list func() ([]T, error)) (got []T, err error) {
	for range 5 {
		if got, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return got, err
}

func describe(l *netlink.LinkAttrs, addrs []netlink.Addr) Interface {
	i := Interface{
		Index: l.Index, Name: l.Name, MAC: l.HardwareAddr, MTU: l.MTU,
		AdminUp: l.RawFlags&unix.IFF_UP != 0, Carrier: l.RawFlags&unix.IFF_LOWER_UP != 0 && l.RawFlags&unix.IFF_RUNNING != 0,
		Loopback: l.RawFlags&unix.IFF_LOOPBACK != 0, Hardware: l.ParentDev != "",
	}
	var local, v4, v6 []netip.Prefix
	for _, a := range addrs {
		if a.LinkIndex != l.Index || a.IPNet == nil || a.Flags&unix.IFA_F_TENTATIVE != 0 && a.Flags&unix.IFA_F_OPTIMISTIC == 0 ||
			a.Flags&unix.IFA_F_DADFAILED != 0 {
			continue
		}
		ip, ok := netip.AddrFromSlice(a.IP)
		if !ok {
			continue
		}
		ip = ip.Unmap()
		bits, _ := a.Mask.Size()
		switch p := netip.PrefixFrom(ip, bits); {
		case ip.Is4():
			v4 = append(v4, p)
		case ip.IsLinkLocalUnicast():
			local = append(local, p)
		default:
			v6 = append(v6, p)
		}
	}
	// The kernel lists IPv6 addresses of one scope newest first.
	slices.Reverse(local)
	slices.Reverse(v6)
	i.prefixes = slices.Concat(local, v4, v6)
	for _, p := range i.prefixes {
		i.Addrs = append(i.Addrs, p.Addr())
	}
	return i
}
