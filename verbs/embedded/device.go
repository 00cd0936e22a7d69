package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/softnic/softnicd/control"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/link/local"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/trace"
	"github.com/softnic/softnicd/verbs"
)

// Options are what a device is made of. The zero value makes one that reaches itself.
type Options struct {
	Name    string     // softnic0, softnic1 ... in order of making on one network
	Network *Network   // nil: a network of its own
	Addr    netip.Addr // its address on the network; 192.0.2.1, 192.0.2.2 ... in order of making
	MTU     int        // bytes of an IP packet on the network; 9000
	Shards  int        // threads that move data, each for a part of the queue pairs; 0 is 1
	// Profile is how the device presents itself; nil is nic.Softnic.
	Profile *nic.Profile
	// Limits of the device where they are not the profile's.
	Limits nic.Limits
	// ReclaimOnCompletion gives send slots back when a request completes, as Linux rxe does, and not when its completion is
	// polled, as hardware does. So does a profile that says it, as nic.RXE.
	ReclaimOnCompletion bool
	Trace               *trace.Ring  // takes the engines' decisions; it has one writer, so there is one shard then
	Log                 *slog.Logger // nil: nothing is logged
	// Wrap, if set, puts something between the device and the network: faults, a capture. If what it returns is a
	// nic.Grouper, that joins multicast groups, and not the network. It is called for each shard, in their order; groups are
	// the first one's.
	Wrap func(nic.Port) nic.Port
}

// Device is a device of this process.
type Device struct {
	nic    *nic.Device
	page   *control.Page
	server *control.Server
}

// localFrames is how many frames wait on their way from the device to itself.
const localFrames = 1024

// New makes a device and starts it.
func New(o Options) (*Device, error) {
	network := o.Network
	if network == nil {
		network = new(Network)
	}
	shards := max(o.Shards, 1)
	links, n, err := network.attach(o.Addr, shards)
	if err != nil {
		return nil, fmt.Errorf("embedded device: %w", err)
	}
	if o.Name == "" {
		o.Name = fmt.Sprintf("softnic%d", n)
	}
	if o.MTU == 0 {
		o.MTU = 9000
	}
	// Frames to the device's own addresses take the short way. The device that knows them comes after its port.
	var self atomic.Pointer[nic.Device]
	isLocal := func(g ib.GID) bool { d := self.Load(); return d != nil && d.IsLocal(g) }
	ports := make([]nic.Port, shards)
	var groups nic.Grouper = links[0]
	for i, link := range links {
		ports[i] = local.Mux(local.New(localFrames), link, isLocal)
		if o.Wrap != nil {
			ports[i] = o.Wrap(ports[i])
		}
	}
	if g, ok := ports[0].(nic.Grouper); ok {
		groups = g
	}
	profile := nic.Softnic()
	if o.Profile != nil {
		profile = *o.Profile
	}
	// A device of the network has its one address, and no link-local one that entry 0 could be kept for.
	profile.GIDs.DefaultFirst = false
	d := &Device{page: control.NewPrivatePage()}
	d.nic, err = nic.New(nic.Config{
		Name: o.Name, Ports: ports, Groups: groups, Profile: &profile, Limits: o.Limits, Page: d.page.Mem, Logger: o.Log, Trace: o.Trace,
		Link: nic.Link{
			Name: o.Name, Index: n + 1, MTU: o.MTU, Up: true,
			MAC:   net.HardwareAddr{2, 0, 0, 0, byte(n >> 8), byte(n)},
			Addrs: []netip.Addr{links[0].addr},
		},
	})
	if err != nil {
		for _, p := range ports {
			err = errors.Join(err, p.Close())
		}
		return nil, err
	}
	self.Store(d.nic)
	d.server, err = control.New(control.Config{
		Devices: []*control.Device{{NIC: d.nic, Page: d.page, ReclaimOnCompletion: o.ReclaimOnCompletion}},
		Log:     o.Log,
	})
	if err != nil {
		return nil, errors.Join(err, d.nic.Close())
	}
	d.nic.Start()
	return d, nil
}

// Open opens the device, as verbs.Open opens one of a daemon.
func (d *Device) Open() (*verbs.Context, error) {
	c, err := newConn(d.server)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", d.nic.Name(), err)
	}
	ctx, err := verbs.OpenConn(c, d.nic.Name())
	if err != nil {
		c.Close()
	}
	return ctx, err
}

// NIC returns the device itself, for tests that look behind the verbs: its counters, or what becomes of a link that goes
// down (SetLink).
func (d *Device) NIC() *nic.Device { return d.nic }

// closing is how long sessions have to end: they do at once, unless the machine is busy.
const closing = 10 * time.Second

// Close takes the device down as a daemon does that is told to end: what was posted is flushed, contexts hear
// DEVICE_FATAL, and whatever they do next fails with verbs.ErrDeviceFatal.
func (d *Device) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	err := d.server.Shutdown(ctx)
	if errors.Is(err, control.ErrServerClosed) {
		return nil
	}
	return errors.Join(err, d.nic.Close())
}
