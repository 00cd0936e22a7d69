package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"syscall"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/link/netdev"
	"github.com/softnic/softnicd/link/raw"
	"github.com/softnic/softnicd/link/udp"
	"github.com/softnic/softnicd/nic"
)

// linkKind is how packets travel. Nothing said is udp.
type linkKind string

const (
	linkUDP linkKind = "udp"
	linkRaw linkKind = "raw"
)

// Set implements pflag.Value.
func (k *linkKind) Set(s string) error {
	switch v := linkKind(s); v {
	case linkUDP, linkRaw:
		*k = v
		return nil
	}
	return fmt.Errorf("%q: udp or raw expected", s)
}

// String implements pflag.Value.
func (k *linkKind) String() string { return string(*k) }

// Type implements pflag.Value.
func (k *linkKind) Type() string { return "udp|raw" }

// UnmarshalYAML refuses other words with their place in the file.
func (k *linkKind) UnmarshalYAML(f func(any) error) error {
	var s string
	if err := f(&s); err != nil {
		return err
	}
	return k.Set(s)
}

// netPorts are the ports to the network under a device, one for each shard.
type netPorts interface {
	nic.Grouper
	SetInterface(index int) error
	SetAddrs([]netip.Addr) error
	ReceiveBuffer() int
	Close() error
}

// move tells ports that their interface has other addresses, or that it is another one. The error is about addresses: a group
// that cannot be joined costs none, and is tried again when something changes.
func move(p netPorts, under *netdev.Interface, log *slog.Logger) error {
	if err := p.SetInterface(under.Index); err != nil {
		log.Warn("not everything could be moved to the interface that came back", "interface", under.Name, "err", err)
	}
	return p.SetAddrs(under.Addrs)
}

// openPorts opens the ports of a device, and lists them. That they, or the right to them, cannot be had is the machine's
// state.
func (c *config) openPorts(under *netdev.Interface, log *slog.Logger) (all netPorts, list []nic.Port, err error) {
	if c.Shards < 1 || c.Shards > abi.MaxShards {
		return nil, nil, usage(fmt.Errorf("%d shards: 1 to %d expected", c.Shards, abi.MaxShards))
	}
	if c.Link == linkRaw {
		var s *raw.Shards
		if s, err = raw.OpenShards(raw.Config{Addrs: under.Addrs, Interface: under.Index, Port: c.Port, Log: log}, c.Shards); err == nil {
			all, list = s, listPorts(s.Ports())
		}
	} else {
		cfg := udp.Config{Addrs: under.Addrs, Interface: under.Index, Hardware: under.Hardware, Port: c.Port, Log: log}
		var s *udp.Shards
		if s, err = udp.OpenShards(cfg, c.Shards, nil); err == nil {
			all, list = s, listPorts(s.Ports())
		}
	}
	if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EPERM) {
		err = taken(err)
	}
	return all, list, err
}

func listPorts[P nic.Port](ports []P) (list []nic.Port) {
	for _, p := range ports {
		list = append(list, p)
	}
	return list
}
