package verbs

import (
	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/ib"
)

// McastOption is a property of an attachment to a multicast group.
type McastOption func(*ctl.AttachMcast)

// McastLoopback has a queue pair hear what it sends to the group itself, unless it was made with ib.QPCreateBlockSelfMcastLB.
func McastLoopback() McastOption { return func(m *ctl.AttachMcast) { m.Flags |= ctl.McastOwn } }

// AttachMcast attaches a UD queue pair to a multicast group (ibv_attach_mcast): it receives what is sent to the group with
// its Q_Key, from RTR on, by other hosts and by other queue pairs of this device, and what it sends itself only with
// McastLoopback. Once more changes nothing but that.
//
// A group of IPv4 is ::ffff:a.b.c.d, or as older stacks have it ff0e::ffff:a.b.c.d; one of IPv6 is its address. The device
// joins it on its interface. EINVAL for a GID that is no group and a queue pair that is not UD, ENOMEM when there are too
// many, EOPNOTSUPP if the device's network has no groups.
//
// To send, no attachment is needed: an address handle of the group does, and ib.MulticastQPN as SendWR.RemoteQPN.
func (q *QP) AttachMcast(group ib.GID, opts ...McastOption) error {
	m := &ctl.AttachMcast{QP: q.handle, GID: group}
	for _, o := range opts {
		o(m)
	}
	return q.ctx.call(ctl.OpAttachMcast, m, &ctl.Empty{})
}

// DetachMcast detaches the queue pair from a group (ibv_detach_mcast). EINVAL if it is not attached. A queue pair that is
// attached to any cannot be closed: EBUSY.
func (q *QP) DetachMcast(group ib.GID) error {
	return q.ctx.call(ctl.OpDetachMcast, &ctl.AttachMcast{QP: q.handle, GID: group}, &ctl.Empty{})
}
