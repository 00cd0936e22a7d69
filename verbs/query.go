package verbs

import (
	"errors"
	"syscall"

	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/ib"
)

// QueryDevice returns the limits and the identity of the device.
func (c *Context) QueryDevice() (ib.DeviceAttr, error) {
	var r ctl.QueryDeviceReply
	if err := c.call(ctl.OpQueryDevice, &ctl.Empty{}, &r); err != nil {
		return ib.DeviceAttr{}, err
	}
	return ctl.ToDeviceAttr(&r)
}

// QueryPort returns the attributes of a port. Ports count from 1.
func (c *Context) QueryPort(port uint8) (ib.PortAttr, error) {
	var r ctl.QueryPortReply
	if err := c.call(ctl.OpQueryPort, &ctl.QueryPort{Port: uint32(port)}, &r); err != nil {
		return ib.PortAttr{}, err
	}
	return ctl.ToPortAttr(&r)
}

// GIDEntry is an entry of a port's GID table.
type GIDEntry struct {
	Index   int
	GID     ib.GID
	Type    ib.GIDType
	Ifindex int // of the network interface
}

// QueryGID returns an entry of a port's GID table. ENODATA if it is empty.
func (c *Context) QueryGID(port uint8, index int) (GIDEntry, error) {
	if index < 0 {
		index = 1<<31 - 1 // EINVAL, by the device's own sentence
	}
	var r ctl.QueryGIDReply
	if err := c.call(ctl.OpQueryGID, &ctl.QueryGID{Port: uint32(port), Index: uint32(index)}, &r); err != nil {
		return GIDEntry{}, err
	}
	return GIDEntry{index, r.GID, ib.GIDType(r.Type), int(r.Ifindex)}, nil
}

// QueryGIDTable returns the entries of a port's GID table that are not empty.
func (c *Context) QueryGIDTable(port uint8) ([]GIDEntry, error) {
	attr, err := c.QueryPort(port)
	if err != nil {
		return nil, err
	}
	var list []GIDEntry
	for i := range int(attr.GIDTblLen) {
		switch e, err := c.QueryGID(port, i); {
		case err == nil:
			list = append(list, e)
		case !errors.Is(err, syscall.ENODATA):
			return nil, err
		}
	}
	return list, nil
}

// QueryPKey returns an entry of a port's P_Key table.
func (c *Context) QueryPKey(port uint8, index int) (ib.PKey, error) {
	if index < 0 {
		index = 1<<31 - 1
	}
	var r ctl.QueryPKeyReply
	err := c.call(ctl.OpQueryPKey, &ctl.QueryPKey{Port: uint32(port), Index: uint32(index)}, &r)
	return ib.PKey(r.PKey), err
}

// Counter is one of the device's counters.
type Counter struct {
	Name  string
	Value uint64
}

// QueryCounters returns all counters of the device.
func (c *Context) QueryCounters() ([]Counter, error) {
	return c.counters(ctl.OpQueryCounters, func(first uint32) any { return &ctl.QueryCounters{First: first} })
}

// Counters returns the queue pair's part of what the device counts for all of them, under the names that Linux has for it:
// retransmissions, timeouts, NAKs of each kind. They count on across RESET.
func (q *QP) Counters() ([]Counter, error) {
	return q.ctx.counters(ctl.OpQueryQPCounters, func(first uint32) any {
		return &ctl.QueryQPCounters{QP: q.handle, First: first}
	})
}

// counters asks for pages of counters until it has all.
func (c *Context) counters(op ctl.Op, request func(first uint32) any) ([]Counter, error) {
	return pages(func(first uint32, r *ctl.QueryCountersReply) error { return c.call(op, request(first), r) })
}
