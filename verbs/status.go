package verbs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/ib"
)

// DaemonStatus is the daemon at one moment.
type DaemonStatus struct {
	PID      int
	Started  time.Time
	Taken    time.Time // when
	Sessions int       // connections of applications, the asker's among them
	Devices  []DeviceStatus
}

// DeviceStatus is a device at one moment: its port, and what all applications together have on it.
type DeviceStatus struct {
	Name, Profile string
	Netdev        string
	Ifindex       int
	LinkMTU       int // bytes of an IP packet
	State         ib.PortState
	ActiveMTU     ib.MTU
	GIDs          int // filled entries of the table

	Contexts, PDs, QPs, CQs, SRQs, MRs, MWs int
	MappedBytes                             uint64

	// What the port has carried; bytes are those of UDP payload.
	SentPackets, SentBytes, ReceivedPackets, ReceivedBytes uint64
}

// Status asks the daemon how it is. The error wraps ErrNoDaemon if there is none.
func Status(opts ...Option) (*DaemonStatus, error) {
	c, err := connect(opts)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return QueryStatus(c)
}

// QueryStatus asks the daemon at the other end of a connection.
func QueryStatus(c ctl.Conn) (*DaemonStatus, error) {
	s := new(DaemonStatus)
	for {
		var r ctl.StatusReply
		if _, err := c.Call(ctl.OpStatus, &ctl.Status{First: uint32(len(s.Devices))}, &r); err != nil {
			return nil, err
		}
		s.PID, s.Sessions = int(r.PID), int(r.Sessions)
		s.Started, s.Taken = time.Unix(0, int64(r.Started)), time.Unix(0, int64(r.Now))
		n := min(int(r.N), len(r.Devices))
		for i := range n {
			s.Devices = append(s.Devices, deviceStatus(&r.Devices[i]))
		}
		if n == 0 || len(s.Devices) >= int(r.Count) {
			return s, nil
		}
	}
}

func deviceStatus(d *ctl.DeviceStatus) DeviceStatus {
	return DeviceStatus{
		Name: text(d.Name[:]), Profile: text(d.Profile[:]), Netdev: text(d.Netdev[:]), Ifindex: int(d.NetdevIfindex),
		LinkMTU: int(d.LinkMTU), State: ib.PortState(d.PortState), ActiveMTU: ib.MTU(d.ActiveMTU), GIDs: int(d.GIDs),
		Contexts: int(d.Contexts), PDs: int(d.PDs), QPs: int(d.QPs), CQs: int(d.CQs), SRQs: int(d.SRQs), MRs: int(d.MRs),
		MWs: int(d.MWs), MappedBytes: d.MappedBytes, SentPackets: d.SentPackets, SentBytes: d.SentBytes,
		ReceivedPackets: d.ReceivedPackets, ReceivedBytes: d.ReceivedBytes,
	}
}

// DeviceCounters returns all counters of the daemon's device with this index in its list, from 0, which need not be open.
func DeviceCounters(index int, opts ...Option) ([]Counter, error) {
	c, err := connect(opts)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return pages(func(first uint32, r *ctl.QueryCountersReply) error {
		_, err := c.Call(ctl.OpDeviceCounters, &ctl.DeviceCounters{Device: uint32(index + 1), First: first}, r)
		return err
	})
}

// pages asks for pages of counters until it has all.
func pages(ask func(first uint32, r *ctl.QueryCountersReply) error) ([]Counter, error) {
	var list []Counter
	for {
		var r ctl.QueryCountersReply
		if err := ask(uint32(len(list)), &r); err != nil {
			return nil, err
		}
		n := min(int(r.N), len(r.Names))
		for i := range n {
			list = append(list, Counter{text(r.Names[i][:]), r.Values[i]})
		}
		if n == 0 || len(list) >= int(r.Count) {
			return list, nil
		}
	}
}

// DaemonEventKind says what a DaemonEvent is.
type DaemonEventKind uint32

// Kinds of events of a daemon.
const (
	DaemonAsync         DaemonEventKind = ctl.EventAsync         // an asynchronous event, of a context or of the port
	DaemonContextOpened DaemonEventKind = ctl.EventContextOpened // an application opened a device
	DaemonContextClosed DaemonEventKind = ctl.EventContextClosed
	DaemonMTU           DaemonEventKind = ctl.EventMTU      // the interface's MTU has changed
	DaemonDraining      DaemonEventKind = ctl.EventDraining // the daemon goes down
	DaemonLost          DaemonEventKind = 1 << 31           // Value events were more than the daemon keeps
)

func (k DaemonEventKind) String() string {
	switch k {
	case DaemonAsync:
		return "async"
	case DaemonContextOpened:
		return "context opened"
	case DaemonContextClosed:
		return "context closed"
	case DaemonMTU:
		return "mtu"
	case DaemonDraining:
		return "draining"
	case DaemonLost:
		return "lost"
	}
	return fmt.Sprintf("kind %d", uint32(k))
}

// DaemonEvent is something that happened in the daemon.
type DaemonEvent struct {
	Number  uint64 // counts all events of the daemon, from 1
	Time    time.Time
	Kind    DaemonEventKind
	Device  int          // index in the daemon's list; -1 if it concerns none
	Event   ib.EventType // of DaemonAsync
	Context uint64       // counts the contexts of the device, from 1; 0 if it concerns the port or the daemon
	Handle  int          // of the object in its context
	UID     int
	PID     int
	Value   uint64 // of DaemonMTU: bytes; of DaemonLost: events
}

// EventStream follows what happens in a daemon: asynchronous events of all applications and ports, and what becomes of
// contexts.
type EventStream struct {
	conn *socketConn
	wake *os.File
	last uint64
}

// Follow begins to follow the daemon's events, of which there are those since then. The daemon's own user and root alone
// may: EPERM otherwise. The error wraps ErrNoDaemon if there is no daemon.
func Follow(opts ...Option) (*EventStream, error) {
	c, err := connect(opts)
	if err != nil {
		return nil, err
	}
	var r ctl.SubscribeReply
	out, err := c.Call(ctl.OpSubscribe, &ctl.Empty{}, &r)
	if err != nil {
		c.Close()
		return nil, err
	}
	if len(out) != 1 || out[0].FD < 0 {
		closeAttachments(out)
		c.Close()
		return nil, fmt.Errorf("subscribe: no socket came with the answer: %w", ErrDeviceFatal)
	}
	return &EventStream{conn: c, wake: os.NewFile(uintptr(out[0].FD), "events"), last: r.Last}, nil
}

// Next waits for events and returns them in order, at least one. Where the daemon had more than it keeps the first one is
// DaemonLost. The error is ctx's when that ends, and wraps ErrDeviceFatal when the daemon does.
func (s *EventStream) Next(ctx context.Context) ([]DaemonEvent, error) {
	for {
		var r ctl.EventsReply
		if _, err := s.conn.Call(ctl.OpEvents, &ctl.Events{After: s.last}, &r); err != nil {
			return nil, err
		}
		if list := s.take(&r); len(list) > 0 {
			return list, nil
		}
		if err := s.wait(ctx); err != nil {
			return nil, err
		}
	}
}

func (s *EventStream) take(r *ctl.EventsReply) (list []DaemonEvent) {
	if r.Lost > 0 {
		list = append(list, DaemonEvent{Kind: DaemonLost, Device: -1, Value: r.Lost, Time: time.Now()})
	}
	for i := range min(int(r.N), len(r.Events)) {
		e := &r.Events[i]
		s.last = e.Number
		list = append(list, DaemonEvent{
			Number: e.Number, Time: time.Unix(0, int64(e.Time)), Kind: DaemonEventKind(e.Kind), Device: int(e.Device) - 1,
			Event: ib.EventType(e.Event), Context: e.Context, Handle: int(e.Handle), UID: int(e.UID), PID: int(e.PID), Value: e.Value,
		})
	}
	return list
}

// wait returns when there may be something new.
func (s *EventStream) wait(ctx context.Context) error {
	if err := s.wake.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { s.wake.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := s.wake.SyscallConn()
	if err != nil {
		return err
	}
	ended, woken := false, false
	err = raw.Read(func(fd uintptr) bool {
		// One answer has the events of all bytes that are there.
		var b [16]byte
		for {
			switch n, err := unix.Read(int(fd), b[:]); {
			case err == unix.EINTR:
			case err == unix.EAGAIN:
				return woken
			case err != nil || n == 0:
				ended = true
				return true
			default:
				woken = true
			}
		}
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case ended:
		return ErrDeviceFatal
	}
	return err
}

// Close ends the stream.
func (s *EventStream) Close() error { return errors.Join(s.wake.Close(), s.conn.Close()) }
