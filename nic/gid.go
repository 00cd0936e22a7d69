package nic

import (
	"fmt"
	"net/netip"
	"syscall"

	"github.com/softnic/softnicd/ib"
)

// gidTable is the port's GID table. A table is never changed once it is published; a change makes another. An entry
// keeps its index while it exists; what leaves makes an empty entry, which the next newcomer takes, as in Linux.
type gidTable struct {
	entries []ib.GID // empty: zero
	length  int      // entries there can be
}

// newGIDTable puts the addresses into an empty table: the default GID, which is the link-local address, first, the others
// in order of configuration.
func newGIDTable(length int, addrs []netip.Addr) *gidTable {
	t := &gidTable{length: length}
	return t.update(addrs)
}

// update returns the table after the interface's addresses have become addrs: t itself if nothing changes.
func (t *gidTable) update(addrs []netip.Addr) *gidTable {
	want := gidsOf(addrs)
	n := &gidTable{entries: append([]ib.GID(nil), t.entries...), length: t.length}
	changed := false
	for i, g := range n.entries {
		if !g.IsZero() && !contains(want, g) {
			n.entries[i] = ib.GID{}
			changed = true
		}
	}
	for _, g := range want {
		if !n.has(&g) && n.add(g) {
			changed = true
		}
	}
	if !changed {
		return t
	}
	return n
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

// add puts g into the first empty entry and reports whether there was one.
func (t *gidTable) add(g ib.GID) bool {
	for i := range t.entries {
		if t.entries[i].IsZero() {
			t.entries[i] = g
			return true
		}
	}
	if len(t.entries) == t.length {
		return false
	}
	t.entries = append(t.entries, g)
	return true
}

// at returns the GID with this index: EINVAL outside of the table, ENODATA where the entry is empty.
func (t *gidTable) at(index int) (ib.GID, error) {
	if index < 0 || index >= t.length {
		return ib.GID{}, fmt.Errorf("GID index %d: the table has %d entries: %w", index, t.length, syscall.EINVAL)
	}
	if index >= len(t.entries) || t.entries[index].IsZero() {
		return ib.GID{}, fmt.Errorf("GID index %d: the entry is empty: %w", index, syscall.ENODATA)
	}
	return t.entries[index], nil
}

// has reports whether g is in the table. Tables are short.
func (t *gidTable) has(g *ib.GID) bool {
	for i := range t.entries {
		if t.entries[i] == *g {
			return true
		}
	}
	return false
}

// GID returns an entry of the GID table, its type, and the index of the network interface it belongs to. The error wraps
// ENODATA for an empty entry and EINVAL beyond the table.
func (d *Device) GID(index int) (ib.GID, ib.GIDType, int, error) {
	g, err := d.gids.Load().at(index)
	if err != nil {
		return ib.GID{}, 0, 0, fmt.Errorf("device %s: %w", d.name, err)
	}
	return g, ib.GIDTypeRoCEv2, d.link.Load().Index, nil
}

// IsLocal reports whether g is one of the device's own GIDs.
func (d *Device) IsLocal(g ib.GID) bool { return !g.IsZero() && d.gids.Load().has(&g) }

// PKey returns an entry of the P_Key table, which has one: the default partition.
func (d *Device) PKey(index int) (ib.PKey, error) {
	if index != 0 {
		return 0, fmt.Errorf("device %s: P_Key index %d: the table has 1 entry: %w", d.name, index, syscall.EINVAL)
	}
	return ib.DefaultPKey, nil
}
