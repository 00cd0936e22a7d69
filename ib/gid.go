package ib

import "net/netip"

// GID is a global identifier: an IPv6 address, or an IPv4 address in its v4-mapped form (::ffff:a.b.c.d).
type GID [16]byte

// GIDFromAddr returns the GID of an IP address; an IPv4 address is v4-mapped.
func GIDFromAddr(a netip.Addr) GID { return a.As16() }

// Addr returns the IP address that the GID stands for, IPv4 unmapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// IsZero reports whether g is the empty entry of a GID table.
func (g GID) IsZero() bool { return g == GID{} }

// Is4 reports whether packets to or from g travel over IPv4.
func (g GID) Is4() bool { return g.Addr().Is4() }

// IsMulticast reports whether g is a multicast group: ff00::/8 or v4-mapped 224.0.0.0/4.
func (g GID) IsMulticast() bool { return g.Addr().IsMulticast() }

// String prints all eight groups of four digits, as ibv_devinfo and sysfs do.
func (g GID) String() string {
	const digits = "0123456789abcdef"
	b := make([]byte, 0, 39)
	for i, v := range g {
		if i > 0 && i%2 == 0 {
			b = append(b, ':')
		}
		b = append(b, digits[v>>4], digits[v&15])
	}
	return string(b)
}

// GIDType says how packets of a GID are framed. Values as ibv_gid_type.
type GIDType uint32

// GID types. softnicd speaks RoCEv2 alone.
const (
	GIDTypeIB GIDType = iota
	GIDTypeRoCEv1
	GIDTypeRoCEv2
)

// String prints the type as sysfs does.
func (t GIDType) String() string {
	if t == GIDTypeRoCEv2 {
		return "RoCE v2"
	}
	return "IB/RoCE v1"
}
