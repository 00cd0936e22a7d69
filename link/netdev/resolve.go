package netdev

import (
	"fmt"
	"net/netip"
	"strings"
)

// Spec is what stands behind --device: a name for the device and what to put it on.
type Spec struct {
	Device string
	// Target is the name of a network interface, or an IP address to restrict the device to.
	Target string
}

// ParseSpec takes NAME=NETDEV-or-IP apart.
func ParseSpec(s string) (Spec, error) {
	name, target, ok := strings.Cut(s, "=")
	if !ok || name == "" || target == "" {
		return Spec{}, fmt.Errorf("device %q: want NAME=INTERFACE or NAME=ADDRESS, softnic0=eth0 for example", s)
	}
	if strings.ContainsAny(name, "/ \t\n") || len(name) > 63 {
		// The name becomes a file name in sysfs look-alikes and a field of 64 bytes in ibv_device.
		return Spec{}, fmt.Errorf("device name %q: at most 63 characters, no slash and no space", name)
	}
	return Spec{name, target}, nil
}

// Resolve finds the interface that a target means: by name, or by an address that it has, to which Addrs is then
// restricted. The error is a *NotFoundError if there is none.
//
// Every address of the loopback's network is the host's own without being listed: 127.0.0.2 means lo.
func Resolve(target string) (Interface, error) {
	addr, err := netip.ParseAddr(target)
	if err != nil {
		return ByName(target)
	}
	zone := addr.Zone()
	addr = addr.Unmap().WithZone("")
	i, err := find(target, func(i *Interface) bool {
		if zone != "" && zone != i.Name && zone != fmt.Sprint(i.Index) {
			return false
		}
		for _, p := range i.prefixes {
			if p.Addr() == addr || i.Loopback && p.Contains(addr) {
				return true
			}
		}
		return false
	})
	if err != nil {
		return Interface{}, err
	}
	i.Addrs = []netip.Addr{addr}
	return i, nil
}

// NotFoundError says that the host has no such interface or address, and what it has.
type NotFoundError struct {
	Target string
	Have   []Interface
}

func (e *NotFoundError) Error() string {
	var b strings.Builder
	what := "network interface"
	if _, err := netip.ParseAddr(e.Target); err == nil {
		what = "interface with the address"
	}
	fmt.Fprintf(&b, "this host has no %s %s", what, e.Target)
	separator := "; it has "
	for _, i := range e.Have {
		b.WriteString(separator)
		separator = ", "
		b.WriteString(i.Name)
		var notes []string
		for _, a := range i.Addrs {
			notes = append(notes, a.String())
		}
		if !i.Up() {
			notes = append(notes, "down")
		}
		if len(notes) > 0 {
			fmt.Fprintf(&b, " (%s)", strings.Join(notes, " "))
		}
	}
	return b.String()
}
