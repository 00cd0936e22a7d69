package control

import (
	"fmt"
	"syscall"

	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/nic"
)

// onlyPort is the number of a device's port.
const onlyPort = 1

func checkPort(port uint32) error {
	if port != onlyPort {
		return fmt.Errorf("port %d, the device has port 1 alone: %w", port, syscall.EINVAL)
	}
	return nil
}

func (s *Session) queryDevice(*ctl.Empty) (any, error) {
	attr := s.dev.NIC.Attr()
	r := ctl.FromDeviceAttr(&attr)
	return &r, nil
}

func (s *Session) queryPort(q *ctl.QueryPort) (any, error) {
	if err := checkPort(q.Port); err != nil {
		return nil, err
	}
	attr := s.dev.NIC.PortAttr()
	r := ctl.FromPortAttr(&attr)
	return &r, nil
}

func (s *Session) queryGID(q *ctl.QueryGID) (any, error) {
	if err := checkPort(q.Port); err != nil {
		return nil, err
	}
	if n := s.dev.NIC.PortAttr().GIDTblLen; q.Index >= n {
		return nil, fmt.Errorf("index %d of a table of %d: %w", q.Index, n, syscall.EINVAL)
	}
	gid, kind, ifindex, err := s.dev.NIC.GID(int(q.Index))
	if err != nil {
		return nil, err
	}
	return &ctl.QueryGIDReply{GID: gid, Type: uint32(kind), Ifindex: uint32(ifindex)}, nil
}

func (s *Session) queryPKey(q *ctl.QueryPKey) (any, error) {
	if err := checkPort(q.Port); err != nil {
		return nil, err
	}
	if n := s.dev.NIC.PortAttr().PKeyTblLen; q.Index >= n {
		return nil, fmt.Errorf("index %d of a table of %d: %w", q.Index, n, syscall.EINVAL)
	}
	key, err := s.dev.NIC.PKey(int(q.Index))
	if err != nil {
		return nil, err
	}
	return &ctl.QueryPKeyReply{PKey: uint32(key)}, nil
}

func (s *Session) queryCounters(q *ctl.QueryCounters) (any, error) {
	return counterPage(s.dev.NIC.Counters(), q.First), nil
}

func (s *Session) queryQPCounters(q *ctl.QueryQPCounters) (any, error) {
	v, err := s.pairs.get(q.QP)
	if err != nil {
		return nil, err
	}
	all, err := s.ctx.QPCounters(v.qp)
	if err != nil {
		return nil, err
	}
	return counterPage(all, q.First), nil
}

// counterPage returns one page of counters.
func counterPage(all []nic.Counter, first uint32) *ctl.QueryCountersReply {
	r := &ctl.QueryCountersReply{Count: uint32(len(all))}
	for i := uint64(first); i < uint64(len(all)) && int(r.N) < len(r.Names); i++ {
		copy(r.Names[r.N][:ctl.CounterSize-1], all[i].Name)
		r.Values[r.N] = all[i].Value
		r.N++
	}
	return r
}
