package main

import (
	"fmt"

	"github.com/softnic/softnicd/nic"
)

// limits returns what the configuration says about timers and congestion; the zero value of a field is the device's
// default. Where nothing is said of what may be in flight, it is no more than payload fits in a receive buffer like the
// device's own, half of what the kernel reports: a host that grants little has peers that grant little.
func (c *config) limits(receiveBuffer int) nic.Limits {
	l := nic.Limits{
		AckFloor: c.AckFloor, InFlight: c.InFlight, LineRate: c.LineRate * 1e6, NoCNP: c.CNP == off, NoDCQCN: c.DCQCN == off,
	}
	if half := receiveBuffer / 2; l.InFlight == 0 && half > 0 && half < nic.DefaultLimits().InFlight {
		l.InFlight = half
	}
	return l
}

// onOff is a switch. Nothing said is on.
type onOff string

const (
	on  onOff = "on"
	off onOff = "off"
)

// Set implements pflag.Value.
func (v *onOff) Set(s string) error {
	switch o := onOff(s); o {
	case on, off:
		*v = o
		return nil
	}
	return fmt.Errorf("%q: on or off expected", s)
}

// String implements pflag.Value.
func (v *onOff) String() string { return string(*v) }

// Type implements pflag.Value.
func (v *onOff) Type() string { return "on|off" }

// UnmarshalYAML refuses other words. The file's on and off are words, not booleans.
func (v *onOff) UnmarshalYAML(f func(any) error) error {
	var s string
	if err := f(&s); err != nil {
		return err
	}
	return v.Set(s)
}
