package nic

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/softnic/softnicd/ib"
)

// newPKeys makes the P_Key table: keys in order, and the rest empty. Without any it holds the default partition with full
// membership, as every Ethernet port does.
func newPKeys(keys []ib.PKey, length int) ([]ib.PKey, error) {
	if len(keys) == 0 {
		keys = []ib.PKey{ib.DefaultPKey}
	}
	if len(keys) > length {
		return nil, fmt.Errorf("%d P_Keys, the table has %d entries: %w", len(keys), length, syscall.EINVAL)
	}
	for i, k := range keys {
		// IBA 10.9.1.1: no partition has the number 0. A partition stands there once, with one membership.
		same := func(o ib.PKey) bool { return o&partition == k&partition }
		switch {
		case k&partition == 0:
			return nil, fmt.Errorf("P_Key %#04x names no partition: %w", uint16(k), syscall.EINVAL)
		case slices.ContainsFunc(keys[:i], same):
			return nil, fmt.Errorf("P_Key %#04x: its partition is in the table already: %w", uint16(k), syscall.EINVAL)
		}
	}
	return append(slices.Clone(keys), make([]ib.PKey, length-len(keys))...), nil
}

// partition are the bits of a P_Key that name one. The other bit is full membership.
const partition ib.PKey = 0x7fff

// PKey returns an entry of the P_Key table, 0 for one that is empty. The error wraps EINVAL.
func (d *Device) PKey(index int) (ib.PKey, error) {
	if index < 0 || index >= len(d.pkeys) {
		return 0, fmt.Errorf("device %s: P_Key index %d: the table's length is %d: %w", d.name, index, len(d.pkeys), syscall.EINVAL)
	}
	return d.pkeys[index], nil
}

// checkPKey judges the P_Key index of a queue pair: the entry must be there and hold a key.
func (d *Device) checkPKey(index uint16) error {
	k, err := d.PKey(int(index))
	if err != nil {
		return err
	}
	if k == 0 {
		return fmt.Errorf("P_Key index %d: the entry is empty: %w", index, syscall.EINVAL)
	}
	return nil
}

// pkey is the key that the queue pair's packets bear, and that those for it must match: the entry that its attributes
// name.
func (q *QP) pkey() ib.PKey { return q.shard.dev.pkeys[q.attr.PKeyIndex] }
