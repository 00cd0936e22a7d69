package nic

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/softnic/softnicd/ib"
)

// GIDShape is how a device lays out its GID table. The zero value is one RoCE v2 entry for each address.
type GIDShape struct {
	// Types are the entries that each address has, in this order; none means RoCE v2 alone. ConnectX lists every address
	// twice, and a program that takes the first entry it likes gets RoCE v1.
	Types []ib.GIDType
	// DefaultFirst keeps the first entries for the default GID, which is made of the MAC address, whether or not the
	// interface has that address: as drivers do, since the kernel fills it in before there is any address.
	DefaultFirst bool
}

func (s *GIDShape) types() []ib.GIDType {
	if len(s.Types) == 0 {
		return onlyV2
	}
	return s.Types
}

var onlyV2 = []ib.GIDType{ib.GIDTypeRoCEv2}

// gidEntry is an entry of the table; an empty one has no GID.
type gidEntry struct {
	gid ib.GID
	typ ib.GIDType
	// unbound says that the interface does not have the address, so that no packet can be sent from it.
	unbound bool
}

// gidTable is the port's GID table. A table is never changed once it is published; a change makes another. An entry
// keeps its index while it exists; what leaves makes an empty entry, which the next newcomer takes, as in Linux.
type gidTable struct {
	entries  []gidEntry
	length   int // entries there can be
	shape    GIDShape
	reserved int // entries that the default GID has for itself
}

// newGIDTable puts the addresses into an empty table: the default GID, which is the link-local address, first, the others
// in order of configuration.
func newGIDTable(length int, addrs []netip.Addr) *gidTable {
	return shapedTable(length, GIDShape{}, &Link{Addrs: addrs})
}

// shapedTable is the same for a device that lays its table out in another way.
func shapedTable(length int, shape GIDShape, l *Link) *gidTable {
	t := &gidTable{length: length, shape: shape}
	if shape.DefaultFirst && guid(l.MAC) != 0 {
		t.reserved = min(len(shape.types()), length)
		t.entries = make([]gidEntry, t.reserved)
	}
	return t.update(l)
}

// update returns the table after the interface has become l: t itself if nothing changes.
func (t *gidTable) update(l *Link) *gidTable {
	addrs := gidsOf(l.Addrs)
	n := &gidTable{entries: append([]gidEntry(nil), t.entries...), length: t.length, shape: t.shape, reserved: t.reserved}
	first, changed := defaultGID(l.MAC), false
	put := func(i int, e gidEntry) {
		changed = changed || n.entries[i] != e
		n.entries[i] = e
	}
	for i := range n.reserved {
		if first.IsZero() {
			put(i, gidEntry{})
			continue
		}
		put(i, gidEntry{first, t.shape.types()[i], !contains(addrs, first)})
	}
	for i := n.reserved; i < len(n.entries); i++ {
		if !contains(addrs, n.entries[i].gid) || n.reserved > 0 && n.entries[i].gid == first {
			put(i, gidEntry{})
		}
	}
	for _, g := range addrs {
		if n.reserved > 0 && g == first {
			continue
		}
		for _, typ := range t.shape.types() {
			if e := (gidEntry{gid: g, typ: typ}); n.index(e) < 0 && n.add(e) {
				changed = true
			}
		}
	}
	if !changed {
		return t
	}
	return n
}

// defaultGID is the link-local address of a MAC address: zero if there is none.
func defaultGID(mac net.HardwareAddr) (g ib.GID) {
	if id := guid(mac); id != 0 {
		g[0], g[1] = 0xfe, 0x80
		binary.BigEndian.PutUint64(g[8:], id)
	}
	return g
}

// gidsOf returns the GIDs of addresses that can be one, the default GID first.
func gidsOf(addrs []netip.Addr) []ib.GID {
	var first, rest []ib.GID
	for _, a := range addrs {
		a = a.WithZone("")
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() {
			continue
		}
		if g := ib.GIDFromAddr(a); a.Is6() && a.IsLinkLocalUnicast() && !a.Is4In6() {
			first = append(first, g)
		} else {
			rest = append(rest, g)
		}
	}
	return append(first, rest...)
}

func contains(gids []ib.GID, g ib.GID) bool {
	for i := range gids {
		if gids[i] == g {
			return true
		}
	}
	return false
}

// index returns where e is, -1 if it is nowhere.
func (t *gidTable) index(e gidEntry) int {
	for i := range t.entries {
		if t.entries[i] == e {
			return i
		}
	}
	return -1
}

// add puts e into the first empty entry and reports whether there was one.
func (t *gidTable) add(e gidEntry) bool {
	for i := t.reserved; i < len(t.entries); i++ {
		if t.entries[i].gid.IsZero() {
			t.entries[i] = e
			return true
		}
	}
	if len(t.entries) == t.length {
		return false
	}
	t.entries = append(t.entries, e)
	return true
}

// entry returns the one with this index: EINVAL outside of the table, ENODATA where it is empty.
func (t *gidTable) entry(index int) (gidEntry, error) {
	if index < 0 || index >= t.length {
		return gidEntry{}, fmt.Errorf("GID index %d: the table has %d entries: %w", index, t.length, syscall.EINVAL)
	}
	if index >= len(t.entries) || t.entries[index].gid.IsZero() {
		return gidEntry{}, fmt.Errorf("GID index %d: the entry is empty: %w", index, syscall.ENODATA)
	}
	return t.entries[index], nil
}

// at returns the GID with this index if packets can be sent from it. The error wraps ENODATA for an empty entry, else
// EINVAL.
func (t *gidTable) at(index int) (ib.GID, error) {
	e, err := t.entry(index)
	if err != nil {
		return ib.GID{}, err
	}
	switch {
	case e.typ != ib.GIDTypeRoCEv2:
		hint := "no entry of that type has the address"
		if i := t.index(gidEntry{e.gid, ib.GIDTypeRoCEv2, e.unbound}); i >= 0 {
			hint = fmt.Sprintf("index %d has the address for it", i)
		}
		return ib.GID{}, fmt.Errorf("GID index %d is of type %s, packets here are RoCE v2: %s: %w", index, e.typ, hint, syscall.EINVAL)
	case e.unbound:
		return ib.GID{}, fmt.Errorf("GID index %d is the default GID %s, which is no address of the interface: choose an entry that is one: %w",
			index, e.gid.Addr(), syscall.EINVAL)
	}
	return e.gid, nil
}

// has reports whether g is an address of the device. Tables are short.
func (t *gidTable) has(g *ib.GID) bool {
	for i := range t.entries {
		if t.entries[i].gid == *g {
			return !t.entries[i].unbound
		}
	}
	return false
}

// GID returns an entry of the GID table, its type, and the index of the network interface it belongs to. The error wraps
// ENODATA for an empty entry and EINVAL beyond the table.
func (d *Device) GID(index int) (ib.GID, ib.GIDType, int, error) {
	e, err := d.gids.Load().entry(index)
	if err != nil {
		return ib.GID{}, 0, 0, fmt.Errorf("device %s: %w", d.name, err)
	}
	return e.gid, e.typ, d.link.Load().Index, nil
}

// IsLocal reports whether g is one of the device's own GIDs.
func (d *Device) IsLocal(g ib.GID) bool { return !g.IsZero() && d.gids.Load().has(&g) }
