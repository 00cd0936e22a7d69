package control

import (
	"fmt"
	"syscall"
)

// table finds the objects of one kind in one session. Handles count up from 1, so that a handle which an application kept
// by mistake does not soon name something else; 0 is no handle.
type table[T any] struct {
	kind string
	last uint32
	m    map[uint32]T
}

func newTable[T any](kind string) table[T] { return table[T]{kind: kind, m: map[uint32]T{}} }

// next reserves a handle: an object learns its own while it is made, and is put in the table once it is whole.
func (t *table[T]) next() uint32 {
	for {
		t.last++
		if _, taken := t.m[t.last]; !taken && t.last != 0 {
			return t.last
		}
	}
}

func (t *table[T]) put(handle uint32, v T) { t.m[handle] = v }

// get returns the object. The handle of another session, or of another kind, names nothing.
func (t *table[T]) get(handle uint32) (v T, err error) {
	v, ok := t.m[handle]
	if !ok {
		return v, fmt.Errorf("no such %s %d in this session: %w", t.kind, handle, syscall.EINVAL)
	}
	return v, nil
}

func (t *table[T]) remove(handle uint32) { delete(t.m, handle) }
