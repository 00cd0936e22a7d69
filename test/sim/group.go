package sim

import (
	"net/netip"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// Some talks by datagrams are to a multicast group in which both ends are: what one says the other hears, and itself it
// does not hear. The network brings what is sent to a group to the other device, if that has joined.

// group is the group of all talks in one.
func (w *world) group() ib.GID {
	if w.plan.IPv6 {
		return ib.GIDFromAddr(netip.MustParseAddr("ff0e::51:317"))
	}
	return ib.GIDFromAddr(netip.MustParseAddr("239.5.1.3"))
}

// membership is what the network knows of a device's groups.
type membership struct{ joined map[ib.GID]bool }

var _ nic.Grouper = (*membership)(nil)

// Join implements nic.Grouper.
func (m *membership) Join(g ib.GID) error {
	m.joined[g] = true
	return nil
}

// Leave implements nic.Grouper.
func (m *membership) Leave(g ib.GID) { delete(m.joined, g) }

// destination is where a talker's packets go: to its peer, or to their group.
func (t *talker) destination() (gid ib.GID, qpn ib.QPN) {
	if t.plan.Group {
		return t.w.group(), ib.MulticastQPN
	}
	return t.peer.node.gid, t.peer.qp.QPN()
}

// isHeard reports whether the network has a way for what a talker says.
func (t *talker) isHeard() bool { return !t.plan.Group || t.peer.node.groups.joined[t.w.group()] }

// hearer returns the device that a packet goes to, nil if there is none.
func (w *world) hearer(p *packet) *node {
	if n := w.nodeOf(p.Dest); n != nil {
		return n
	}
	if t := p.end.talker; t != nil && t.plan.Group {
		return t.peer.node
	}
	return nil
}

// join lets a talker be in the group of its talk, and leave takes it out. A queue pair that is in one cannot go.
func (t *talker) join() {
	if t.plan.Group {
		if err := t.ctx.AttachMcast(t.qp, t.w.group(), false); err != nil {
			t.w.failf("%s: %v", t.name, err)
		}
	}
}

func (t *talker) leave() error {
	if !t.plan.Group {
		return nil
	}
	if t.ctx.DestroyQP(t.qp) == nil {
		t.w.failf("%s: a queue pair in a group could be destroyed", t.name)
	}
	return t.ctx.DetachMcast(t.qp, t.w.group())
}
