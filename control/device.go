package control

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/shm"
	"github.com/softnic/softnicd/nic"
)

// Device is a device as applications see it: the NIC and the page that it publishes.
type Device struct {
	NIC  *nic.Device
	Page *Page
	// ReclaimOnCompletion gives send slots back when a request completes, as Linux rxe does, instead of when its
	// completion is polled, as hardware does. So does a profile that says it.
	ReclaimOnCompletion bool
}

// reclaimsOnCompletion tells when slots come back.
func (d *Device) reclaimsOnCompletion() bool {
	return d.ReclaimOnCompletion || d.NIC.Profile().ReclaimOnCompletion
}

// Page is a device page: written by the daemon, mapped read-only by every application.
type Page struct {
	Mem []byte // what nic.Config.Page takes
	fd  int
	own *shm.RobustWord
}

// Heartbeat is how often a page tells that the daemon lives and is not stuck.
const Heartbeat = 250 * time.Millisecond

// NewPage publishes a page. Until it is closed, or the process dies, it says that the device lives.
func NewPage() (*Page, error) {
	fd, mem, err := shm.Published("softnic-device", abi.DevicePageSize)
	if err != nil {
		return nil, fmt.Errorf("device page: %w", err)
	}
	p := &Page{Mem: mem, fd: fd}
	view, err := abi.NewDevicePage(mem)
	if err == nil {
		p.own, err = shm.StartRobust(mem[deathOffset:deathOffset+4], Heartbeat, func() { view.SetHeartbeat(monotonic()) })
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("device page: %w", err), unix.Close(fd), shm.Unmap(mem))
	}
	return p, nil
}

// NewPrivatePage makes the page of a device that only applications in this process will see.
func NewPrivatePage() *Page { return &Page{Mem: make([]byte, abi.DevicePageSize), fd: -1} }

// deathOffset is where the device page has its robust futex word, see abi.DevicePage.
const deathOffset = 64

// monotonic reads CLOCK_MONOTONIC in milliseconds, which applications compare with their own.
func monotonic() uint64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return uint64(t.Nano()) / uint64(time.Millisecond)
}

// Close says that the device is no more. The device that writes the page has been closed before.
func (p *Page) Close() error {
	if p.own == nil {
		return nil
	}
	p.own.Close()
	return errors.Join(unix.Close(p.fd), shm.Unmap(p.Mem))
}

// listDevices answers with one page of names; it needs no open device.
func (s *Session) listDevices(q *ctl.ListDevices) (any, error) {
	r := &ctl.ListDevicesReply{Count: uint32(len(s.devices))}
	for i := uint64(q.First); i < uint64(len(s.devices)) && int(r.N) < len(r.Names); i++ {
		d := s.devices[i].NIC
		copy(r.Names[r.N][:ctl.NameSize-1], d.Name())
		r.GUIDs[r.N] = d.Attr().NodeGUID
		r.N++
	}
	return r, nil
}

func (s *Session) find(name [ctl.NameSize]byte) (*Device, error) {
	n, _, _ := bytes.Cut(name[:], []byte{0})
	if len(s.devices) == 0 {
		return nil, fmt.Errorf("the daemon has no device: %w", syscall.ENODEV)
	}
	if len(n) == 0 {
		return s.devices[0], nil
	}
	for _, d := range s.devices {
		if d.NIC.Name() == string(n) {
			return d, nil
		}
	}
	return nil, fmt.Errorf("no device is named %q: %w", n, syscall.ENODEV)
}

func (s *Session) open(q *ctl.Open, in *attachments) (_ any, out []ctl.Attachment, err error) {
	switch {
	case s.ctx != nil:
		return nil, nil, fmt.Errorf("this session has %s open already: %w", s.dev.NIC.Name(), syscall.EBUSY)
	case q.ABIVersion != abi.Version:
		return nil, nil, fmt.Errorf("the daemon speaks version %d of the queue layout, this program %d; use builds of one release: %w",
			abi.Version, q.ABIVersion, syscall.EPROTONOSUPPORT)
	}
	dev, err := s.find(q.Name)
	if err != nil {
		return nil, nil, err
	}
	var undo []func()
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				undo[i]()
			}
		}
	}()
	var bell []byte
	if err = s.mapAttached(&bell, in, abi.DoorbellSize); err != nil {
		return nil, nil, fmt.Errorf("doorbell page: %w", err)
	}
	if !s.peer.Embedded {
		undo = append(undo, func() { shm.Unmap(bell) })
	}
	events, fd, err := newAsync()
	if err != nil {
		return nil, nil, err
	}
	undo = append(undo, events.box.close)
	out = []ctl.Attachment{{FD: -1}, {FD: -1}, {FD: fd}}
	undo = append(undo, func() { closeAll(out); out = nil })
	record := s.recorder(dev)
	ctx, err := dev.NIC.OpenContext(nic.ContextConfig{
		Tenant: uint64(s.peer.UID), Process: s.peer.PID, Owner: !s.foreign, Privileged: s.peer.UID == 0,
		Doorbell: bell, Async: func(t ib.EventType, handle uint32, cookie uint64) {
			events.raise(t, handle, cookie)
			record.record(t, handle)
		},
	})
	if err != nil {
		return nil, nil, err
	}
	undo = append(undo, func() { ctx.Close() })
	if err = s.show(dev, ctx, out); err != nil {
		return nil, nil, err
	}
	s.ctx, s.dev, s.bell, s.async, s.record = ctx, dev, bell, events, record
	record.opened(ctx.Serial())
	s.descriptors++ // our end of the event socket
	s.log.Info("device opened", "device", dev.NIC.Name(), "uid", s.peer.UID, "pid", s.peer.PID)
	r := &ctl.OpenReply{NodeGUID: dev.NIC.Attr().NodeGUID, Shards: uint32(dev.NIC.Shards()), ReclaimPoll: 1, Context: uint32(ctx.Serial())}
	copy(r.Name[:ctl.NameSize-1], dev.NIC.Name())
	if view, e := abi.NewDevicePage(dev.Page.Mem); e == nil {
		r.Generation = view.Generation()
	}
	if s.peer.Embedded {
		r.Embedded = 1
	}
	if dev.reclaimsOnCompletion() {
		r.ReclaimPoll = 0
	}
	return r, out, nil
}

// show puts the device page and the context's doorbell eventfd in out, duplicates, so that whoever passes them on may close
// them. Shards watch the eventfd for edges and never read or write it: its holder cannot make a shard wait.
func (s *Session) show(dev *Device, ctx *nic.Context, out []ctl.Attachment) (err error) {
	if s.peer.Embedded {
		out[0].Memory = dev.Page.Mem
	} else if out[0].FD, err = dup(dev.Page.fd); err != nil {
		return err
	}
	if bell := ctx.BellFD(); bell >= 0 {
		out[1].FD, err = dup(bell)
	} else if !s.peer.Embedded {
		out[1].FD, err = shm.NewEvent() // a device turned by hand never sleeps; the message has its place all the same
	}
	return err
}

// dup duplicates a descriptor; -1 comes with the error.
func dup(fd int) (int, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("duplicate a descriptor: %w", err)
	}
	return n, nil
}
