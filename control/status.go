package control

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/softnic/softnicd/abi/ctl"
)

// status answers with one page of the devices and what there is on them: sums, which tell nobody about another user.
func (s *Session) status(q *ctl.Status) (any, error) {
	r := &ctl.StatusReply{Count: uint32(len(s.devices)), PID: uint32(os.Getpid()), Now: uint64(time.Now().UnixNano())}
	if s.server != nil {
		r.Sessions, r.Started = uint32(s.server.count()), uint64(s.server.started.UnixNano())
	}
	for i := uint64(q.First); i < uint64(len(s.devices)) && int(r.N) < len(r.Devices); i++ {
		deviceStatus(s.devices[i], &r.Devices[r.N])
		r.N++
	}
	return r, nil
}

func deviceStatus(d *Device, r *ctl.DeviceStatus) {
	p, o, t := d.NIC.PortAttr(), d.NIC.Objects(), d.NIC.Traffic()
	copy(r.Name[:ctl.NameSize-1], d.NIC.Name())
	copy(r.Profile[:ctl.ProfileSize-1], d.NIC.Profile().Name)
	r.Netdev, r.NetdevIfindex, r.LinkMTU = p.Netdev, p.NetdevIfindex, p.LinkMTU
	r.PortState, r.ActiveMTU = uint32(p.State), uint32(p.ActiveMTU)
	r.GIDs, r.MaxQP = uint32(d.NIC.GIDs()), d.NIC.Attr().MaxQP
	r.Contexts, r.PDs, r.QPs, r.CQs, r.SRQs = o.Contexts, o.PDs, o.QPs, o.CQs, o.SRQs
	r.MRs, r.MWs, r.MappedBytes = o.MRs, o.MWs, o.Memory
	r.SentPackets, r.SentBytes = t.SentPackets, t.SentBytes
	r.ReceivedPackets, r.ReceivedBytes = t.ReceivedPackets, t.ReceivedBytes
}

// deviceCounters answers with one page of the counters of a device that need not be open.
func (s *Session) deviceCounters(q *ctl.DeviceCounters) (any, error) {
	if q.Device == 0 || uint64(q.Device) > uint64(len(s.devices)) {
		return nil, fmt.Errorf("device %d of %d: %w", q.Device, len(s.devices), syscall.ENODEV)
	}
	return counterPage(s.devices[q.Device-1].NIC.Counters(), q.First), nil
}

// subscribe answers with a socket that has something to read when there are new events. It does so once in a session.
func (s *Session) subscribe(_ *ctl.Empty, _ *attachments) (any, []ctl.Attachment, error) {
	switch {
	case s.foreign && s.peer.UID != 0:
		return nil, nil, fmt.Errorf("the daemon's own user and root alone see its events: %w", syscall.EPERM)
	case s.server == nil:
		return nil, nil, fmt.Errorf("there is no daemon: %w", syscall.EOPNOTSUPP)
	case s.subscribed:
		return nil, nil, fmt.Errorf("this session has subscribed already: %w", syscall.EBUSY)
	}
	ours, theirs, last, err := s.server.journal.subscribe()
	if err != nil {
		return nil, nil, err
	}
	s.subscription, s.subscribed = ours, true
	return &ctl.SubscribeReply{Last: last}, []ctl.Attachment{{FD: theirs}}, nil
}

// unsubscribe ends the subscription, if there is one.
func (s *Session) unsubscribe() {
	if s.subscribed {
		s.server.journal.unsubscribe(s.subscription)
		s.subscribed = false
	}
}

// events answers with one page of events. Who may not subscribe may not read them either.
func (s *Session) events(q *ctl.Events) (any, error) {
	if !s.subscribed {
		return nil, fmt.Errorf("this session has not subscribed: %w", syscall.EPERM)
	}
	r := new(ctl.EventsReply)
	s.server.journal.after(q.After, r)
	return r, nil
}

// number is the device's place in the daemon's list, from 1; 0 if it is not there.
func (s *Session) number(d *Device) uint32 {
	for i := range s.devices {
		if s.devices[i] == d {
			return uint32(i + 1)
		}
	}
	return 0
}

// recorder returns what writes down the events of a context that is about to be opened; nil where nobody asks.
func (s *Session) recorder(d *Device) *recorder {
	if s.server == nil {
		return nil
	}
	return &recorder{
		journal: &s.server.journal,
		about:   ctl.Event{Device: s.number(d), UID: s.peer.UID, PID: uint32(max(s.peer.PID, 0))},
	}
}
