package nic

import (
	"fmt"
	"syscall"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// ModifyQP changes attributes and state of a queue pair (ibv_modify_qp): the transition is looked up in the state table,
// then every value is judged, and if one of them does not do nothing changes. The error wraps EINVAL; EOPNOTSUPP for an
// alternate path, which Ethernet does not have; EIO if the queue pair's context failed.
func (c *Context) ModifyQP(q *QP, a *ib.QPAttr, mask ib.QPAttrMask) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ownsQP(q); err != nil {
		return fmt.Errorf("modify qp: %w", err)
	}
	var err error
	q.shard.do(q.shard.modify(q.real(), a, mask, &err))
	if err != nil {
		return fmt.Errorf("modify qp %#x: %w", uint32(q.qpn), err)
	}
	return nil
}

// change is a modification that was found right: what the queue pair will be.
type change struct {
	attr ib.QPAttr
	path *wire.Path // new with mask&ib.QPAttrAV
	mask ib.QPAttrMask
}

// check judges a modification of q and works out what comes of it. It changes nothing.
func (q *QP) check(d *Device, a *ib.QPAttr, mask ib.QPAttrMask) (*change, error) {
	cur, next := q.state, q.state
	if mask&ib.QPAttrState != 0 {
		next = a.State
	}
	if mask&ib.QPAttrCurState != 0 {
		if err := checkCurState(cur, a.CurState); err != nil {
			return nil, err
		}
	}
	if mask&ib.QPAttrAltPath != 0 {
		return nil, fmt.Errorf("alternate path: there is no path migration on Ethernet: %w", syscall.EOPNOTSUPP)
	}
	if err := checkTransition(q.typ, cur, next, mask); err != nil {
		return nil, err
	}
	// IBA 10.3.1.6: while the send queue drains, it can only be told to end.
	if cur == ib.StateSQD && next == ib.StateSQD && !q.drained && mask&^(ib.QPAttrState|ib.QPAttrCurState) != 0 {
		return nil, fmt.Errorf("SQD from SQD: the send queue is not drained yet: %w", syscall.EINVAL)
	}
	if err := d.checkValues(a, mask); err != nil {
		return nil, err
	}
	if mask&ib.QPAttrQKey != 0 && a.QKey.Controlled() && !q.ctx.cfg.Owner && !q.ctx.cfg.Privileged {
		return nil, fmt.Errorf("Q_Key %#x is a controlled one, with the top bit set, for the privileged: %w", uint32(a.QKey), syscall.EPERM)
	}
	ch := &change{attr: q.attr, path: q.path, mask: mask}
	if next == ib.StateReset {
		// Everything is forgotten but number and capacities.
		ch.attr, ch.path = ib.QPAttr{Cap: q.cap}, nil
		ch.mask |= ib.QPAttrState
		return ch, nil
	}
	ch.attr.State, ch.attr.CurState = next, next
	if cur == ib.StateRTS && next == ib.StateSQD {
		ch.attr.EnSQDAsyncNotify = false // each way into SQD asks for its event, or does not
	}
	merge(&ch.attr, a, mask)
	if mask&ib.QPAttrAV != 0 {
		p, err := d.gids.Load().newPath(&ch.attr.AH, q.qpn, ch.attr.DestQPN)
		if err != nil {
			d.badVectors.Add(1)
			return nil, err
		}
		p.PKey = d.pkeys[ch.attr.PKeyIndex]
		ch.path = p
	} else if mask&ib.QPAttrPKeyIndex != 0 && q.path != nil {
		// The packets of a way bear the key: it is another way then.
		p := *q.path
		p.PKey = d.pkeys[ch.attr.PKeyIndex]
		ch.path, ch.mask = &p, ch.mask|ib.QPAttrAV
	}
	return ch, nil
}

// checkCurState judges what the application believes the state to be. It helps who races with the device: a belief that
// is out of date fails instead of doing something else than was meant.
func checkCurState(cur, claim ib.QPState) error {
	switch claim {
	case ib.StateRTR, ib.StateRTS, ib.StateSQD, ib.StateSQE:
	default:
		return fmt.Errorf("current state %s: it must be RTR, RTS, SQD or SQE: %w", claim, syscall.EINVAL)
	}
	if claim != cur {
		return fmt.Errorf("current state %s: it is %s: %w", claim, cur, syscall.EINVAL)
	}
	return nil
}

// checkValues judges the values that mask names, but for the address vector.
func (d *Device) checkValues(a *ib.QPAttr, mask ib.QPAttrMask) error {
	l := &d.limits
	bad := func(name string, value, least, most uint32) error {
		return fmt.Errorf("%s %d: not within %d to %d: %w", name, value, least, most, syscall.EINVAL)
	}
	if mask&ib.QPAttrPKeyIndex != 0 {
		if err := d.checkPKey(a.PKeyIndex); err != nil {
			return err
		}
	}
	switch active := ib.MTUForLink(d.link.Load().MTU); {
	case mask&ib.QPAttrPort != 0 && a.PortNum != portNum:
		return bad("port", uint32(a.PortNum), portNum, portNum)
	case mask&ib.QPAttrPathMTU != 0 && !a.PathMTU.Valid():
		return bad("path MTU", uint32(a.PathMTU), uint32(ib.MTU256), uint32(ib.MTU4096))
	case mask&ib.QPAttrPathMTU != 0 && a.PathMTU > active:
		return fmt.Errorf("path MTU %s: the port's active MTU is %s: %w", a.PathMTU, active, syscall.EINVAL)
	case mask&ib.QPAttrMaxRDAtomic != 0 && uint32(a.MaxRDAtomic) > l.MaxRDAtomic:
		return bad("max_rd_atomic", uint32(a.MaxRDAtomic), 0, l.MaxRDAtomic)
	case mask&ib.QPAttrMaxDestRDAtomic != 0 && uint32(a.MaxDestRDAtomic) > l.MaxRDAtomic:
		return bad("max_dest_rd_atomic", uint32(a.MaxDestRDAtomic), 0, l.MaxRDAtomic)
	case mask&ib.QPAttrTimeout != 0 && a.Timeout > 31:
		return bad("timeout", uint32(a.Timeout), 0, 31)
	case mask&ib.QPAttrRetryCnt != 0 && a.RetryCnt > 7:
		return bad("retry_cnt", uint32(a.RetryCnt), 0, 7)
	case mask&ib.QPAttrRNRRetry != 0 && a.RNRRetry > 7:
		return bad("rnr_retry", uint32(a.RNRRetry), 0, 7)
	case mask&ib.QPAttrMinRNRTimer != 0 && a.MinRNRTimer > 31:
		return bad("min_rnr_timer", uint32(a.MinRNRTimer), 0, 31)
	case mask&ib.QPAttrPathMigState != 0 && a.PathMigState != 0:
		return fmt.Errorf("path migration state %d: there is only 0, migrated, on Ethernet: %w", a.PathMigState, syscall.EINVAL)
	case mask&ib.QPAttrAccessFlags != 0 && a.AccessFlags&^(accessRights|accessMissing|ib.AccessOptional) != 0:
		return fmt.Errorf("access %s: unknown bits: %w", a.AccessFlags, syscall.EINVAL)
	}
	return nil
}

// merge takes over the attributes that mask names.
func merge(dst, a *ib.QPAttr, mask ib.QPAttrMask) {
	for bit := ib.QPAttrMask(1); bit <= ib.QPAttrRateLimit; bit <<= 1 {
		switch bit & mask {
		case ib.QPAttrEnSQDAsyncNotify:
			dst.EnSQDAsyncNotify = a.EnSQDAsyncNotify
		case ib.QPAttrAccessFlags:
			dst.AccessFlags = a.AccessFlags
		case ib.QPAttrPKeyIndex:
			dst.PKeyIndex = a.PKeyIndex
		case ib.QPAttrPort:
			dst.PortNum = a.PortNum
		case ib.QPAttrQKey:
			dst.QKey = a.QKey
		case ib.QPAttrAV:
			dst.AH = a.AH
		case ib.QPAttrPathMTU:
			dst.PathMTU = a.PathMTU
		case ib.QPAttrTimeout:
			dst.Timeout = a.Timeout
		case ib.QPAttrRetryCnt:
			dst.RetryCnt = a.RetryCnt
		case ib.QPAttrRNRRetry:
			dst.RNRRetry = a.RNRRetry
		case ib.QPAttrRQPSN:
			dst.RQPSN = a.RQPSN & ib.PSNMask
		case ib.QPAttrMaxRDAtomic:
			dst.MaxRDAtomic = a.MaxRDAtomic
		case ib.QPAttrMinRNRTimer:
			dst.MinRNRTimer = a.MinRNRTimer
		case ib.QPAttrSQPSN:
			dst.SQPSN = a.SQPSN & ib.PSNMask
		case ib.QPAttrMaxDestRDAtomic:
			dst.MaxDestRDAtomic = a.MaxDestRDAtomic
		case ib.QPAttrPathMigState:
			dst.PathMigState = a.PathMigState
		case ib.QPAttrDestQPN:
			dst.DestQPN = a.DestQPN & ib.QPNMask
		case ib.QPAttrRateLimit:
			dst.RateLimit = a.RateLimit
		}
	}
}

// modify is ModifyQP on the shard.
func (s *shard) modify(q *QP, a *ib.QPAttr, mask ib.QPAttrMask, err *error) func(clock.Time) {
	return func(now clock.Time) {
		if q.dead {
			*err = fmt.Errorf("its context failed earlier: %w", syscall.EIO)
			return
		}
		var ch *change
		if ch, *err = q.check(s.dev, a, mask); *err != nil {
			return
		}
		s.apply(now, q, ch)
		if q.dead {
			*err = fmt.Errorf("its context failed: %w", syscall.EIO)
		}
	}
}

// apply makes q what ch says.
func (s *shard) apply(now clock.Time, q *QP, ch *change) {
	if ch.mask&ib.QPAttrAV != 0 {
		ch.path = q.congestion.route(ch.path, &s.dev.limits)
		q.local = StaysHere(s.port, ch.path)
		if _, ok := q.engine.(transport.RunReceiver); ok {
			// Of the headers in the middle of a message those of XRC are the longest.
			size := wire.BTHSize + wire.XRCETHSize + ch.attr.PathMTU.Bytes() + wire.ICRCSize
			ch.path.MaxRun = LongestRun(s.port, ch.path, size)
		}
	}
	q.attr, q.path = ch.attr, ch.path
	if ch.attr.State == ib.StateReset {
		q.congestion.reset()
	}
	q.congestion.limit(now, &q.attr)
	if ch.mask&ib.QPAttrState != 0 && (ch.attr.State != ib.StateSQD || q.state != ib.StateSQD) {
		q.drained = false
	}
	// Before the engine is told, which may enter another state at once.
	s.setState(q, ch.attr.State)
	active := s.engineModify(now, q, ch.mask)
	if ch.attr.State == ib.StateReset && !q.dead {
		s.forgetWork(q)
		// What a congested port has not taken is of a life that is over.
		s.burst.Cancel(q.qpn)
	}
	s.after(q, active)
}
