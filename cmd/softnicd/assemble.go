package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/softnic/softnicd/control"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/link/capture"
	"github.com/softnic/softnicd/link/fault"
	"github.com/softnic/softnicd/link/local"
	"github.com/softnic/softnicd/link/netdev"
	"github.com/softnic/softnicd/nic"
)

// localFrames is how many frames may wait on a device's way to itself.
const localFrames = 1024

// device is a NIC with what it stands on.
type device struct {
	spec  netdev.Spec
	index int      // of its network interface
	ports netPorts // to the network
	page  *control.Page
	nic   *nic.Device
}

// specs says which devices there are to be: those that were asked for, or one for each interface that is up.
func (c *config) specs() ([]netdev.Spec, error) {
	var specs []netdev.Spec
	for _, s := range c.Device {
		spec, err := netdev.ParseSpec(s)
		if err != nil {
			return nil, usage(err)
		}
		if slices.ContainsFunc(specs, func(o netdev.Spec) bool { return o.Device == spec.Device }) {
			return nil, usage(fmt.Errorf("two devices are named %s", spec.Device))
		}
		specs = append(specs, spec)
	}
	if len(specs) > 0 {
		return specs, nil
	}
	usable, err := netdev.Usable()
	if err != nil {
		return nil, err
	}
	for i, n := range usable {
		specs = append(specs, netdev.Spec{Device: fmt.Sprintf("softnic%d", i), Target: n.Name})
	}
	if len(specs) == 0 {
		return nil, taken(errors.New("no network interface is up and has an address; set one up (ip link set lo up) or name one with --device"))
	}
	return specs, nil
}

// open makes the device: sockets, page, NIC. It is not started yet.
func (c *config) open(spec netdev.Spec, file *capture.File, log *slog.Logger) (_ *device, err error) {
	profile, err := c.profileOf(spec.Device)
	if err != nil {
		return nil, err
	}
	keys, err := c.pkeys(profile)
	if err != nil {
		return nil, err
	}
	under, err := netdev.Resolve(spec.Target)
	if err != nil {
		return nil, taken(fmt.Errorf("device %s: %w", spec.Device, err))
	}
	if len(under.Addrs) == 0 {
		return nil, taken(fmt.Errorf("device %s: interface %s has no address; give it one (ip addr add ... dev %s)", spec.Device, under.Name, under.Name))
	}
	plan, err := c.faults()
	if err != nil {
		return nil, err
	}
	d := &device{spec: spec, index: under.Index}
	var undo []func() error
	defer func() {
		if err != nil {
			for _, f := range slices.Backward(undo) {
				_ = f()
			}
		}
	}()
	var ports []nic.Port
	if d.ports, ports, err = c.openPorts(&under, log.With("device", spec.Device)); err != nil {
		return nil, fmt.Errorf("device %s: %w", spec.Device, err)
	}
	undo = append(undo, d.ports.Close)
	isLocal := func(g ib.GID) bool { return d.nic.IsLocal(g) }
	for i := range ports {
		ports[i] = local.Mux(local.New(localFrames), ports[i], isLocal)
		if file != nil {
			name := spec.Device
			if i > 0 {
				name = fmt.Sprintf("%s shard %d", name, i)
			}
			if ports[i], err = file.Wrap(name, ports[i], isLocal); err != nil {
				return nil, fmt.Errorf("device %s: capture: %w", spec.Device, err)
			}
		}
		if plan != nil {
			// Above the capture: what a rule drops was never on the network.
			if ports[i], err = fault.Wrap(ports[i], *plan); err != nil {
				return nil, fmt.Errorf("device %s: %w", spec.Device, err)
			}
		}
	}
	if d.page, err = control.NewPage(); err != nil {
		return nil, err
	}
	undo = append(undo, d.page.Close)
	d.nic, err = nic.New(nic.Config{
		Name: spec.Device, Ports: ports, Groups: d.ports, Page: d.page.Mem, Profile: profile, PKeys: keys,
		Limits: c.limits(d.ports.ReceiveBuffer()), Link: linkOf(&under), Logger: log,
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// close ends the NIC, which closes its port, and withdraws the page.
func (d *device) close() error { return errors.Join(d.nic.Close(), d.page.Close()) }

// refresh tells the NIC what became of its interface. An interface or address that went away leaves a port that is down.
func (d *device) refresh(log *slog.Logger) {
	under, err := netdev.Resolve(d.spec.Target)
	var gone *netdev.NotFoundError
	if err != nil && !errors.As(err, &gone) {
		log.Warn("the network interface cannot be looked at", "device", d.spec.Device, "err", err)
		return
	}
	if gone != nil {
		d.index = 0 // it may come back with any
	}
	if len(under.Addrs) > 0 {
		d.index = under.Index
		var bind error
		d.nic.WithPort(func() { bind = move(d.ports, &under, log.With("device", d.spec.Device)) })
		if bind != nil {
			log.Warn("the new addresses cannot be bound; the old ones stay", "device", d.spec.Device, "err", bind)
			return
		}
	}
	d.nic.SetLink(linkOf(&under))
}

func linkOf(i *netdev.Interface) nic.Link {
	return nic.Link{Name: i.Name, Index: i.Index, MTU: i.MTU, MAC: i.MAC, Up: i.Up(), Addrs: i.Addrs}
}
