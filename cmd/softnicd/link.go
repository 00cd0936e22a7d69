package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"syscall"

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

// netPort is a port to the network under a device.
type netPort interface {
	nic.Port
	SetAddrs([]netip.Addr) error
	ReceiveBuffer() int
}

// move tells a port that its interface has other addresses, or that it is another one.
func move(p netPort, under *netdev.Interface) error {
	if p, ok := p.(*raw.Port); ok { // UDP sockets are bound to addresses only
		if err := p.SetInterface(under.Index); err != nil {
			return err
		}
	}
	return p.SetAddrs(under.Addrs)
}

// openPort opens the port of a device. That it, or the right to it, cannot be had is the machine's state.
func (c *config) openPort(under *netdev.Interface, log *slog.Logger) (netPort, error) {
	var port netPort
	var err error
	if c.Link == linkRaw {
		port, err = raw.Open(raw.Config{Addrs: under.Addrs, Interface: under.Index, Port: c.Port, Log: log})
	} else {
		port, err = udp.Open(udp.Config{Addrs: under.Addrs, Interface: under.Index, Port: c.Port, Log: log})
	}
	if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EPERM) {
		err = taken(err)
	}
	return port, err
}
