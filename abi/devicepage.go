package abi

import (
	"fmt"
	"syscall"
)

// DevicePage is one side's view of the device page: the daemon writes, everybody reads.
type DevicePage struct{ mem words }

// NewDevicePage views the beginning of b as a device page. Nothing is read or written: the daemon calls Init, an
// application Check.
func NewDevicePage(b []byte) (*DevicePage, error) {
	mem, err := newWords(b, DevicePageSize)
	if err != nil {
		return nil, err
	}
	return &DevicePage{mem}, nil
}

// Init makes the page that of a running device, with every shard awake. The magic comes last.
func (p *DevicePage) Init(generation uint64) {
	p.mem.store32(offPageVersion, Version)
	p.mem.store64(offPageGeneration, generation)
	p.mem.store32(offPageState, DeviceRunning)
	for i := range MaxShards {
		p.SetSleeping(i, false)
	}
	p.mem.store32(offPageMagic, DevicePageMagic)
}

// Check tells an application why it must not use the page, if so.
func (p *DevicePage) Check() error {
	if m := p.mem.load32(offPageMagic); m != DevicePageMagic {
		return fmt.Errorf("abi: device page has magic %#x, not %#x: %w", m, uint32(DevicePageMagic), syscall.EPROTO)
	}
	if v := p.mem.load32(offPageVersion); v != Version {
		return fmt.Errorf("abi: the daemon speaks version %d of the layout, this program %d: %w", v, Version, syscall.EPROTONOSUPPORT)
	}
	return nil
}

// SetHeartbeat publishes the daemon's CLOCK_MONOTONIC, in milliseconds.
func (p *DevicePage) SetHeartbeat(ms uint64) { p.mem.store64(offPageHeartbeat, ms) }

// SetDeviceState publishes DeviceRunning, DeviceDraining or DeviceFatal.
func (p *DevicePage) SetDeviceState(s uint32) { p.mem.store32(offPageState, s) }

// SetPortState publishes an ib.PortState.
func (p *DevicePage) SetPortState(s uint32) { p.mem.store32(offPagePortState, s) }

// SetSleeping publishes whether a shard sleeps and wants its doorbell rung. Other shards do not exist and are ignored.
func (p *DevicePage) SetSleeping(shard int, sleeps bool) {
	if shard < 0 || shard >= MaxShards {
		return
	}
	v := uint32(0)
	if sleeps {
		v = 1
	}
	p.mem.store32(offPageSleeping+uint64(shard)*CacheLine, v)
}

// Generation returns the random number that the daemon drew when it started.
func (p *DevicePage) Generation() uint64 { return p.mem.load64(offPageGeneration) }

// Heartbeat returns the daemon's CLOCK_MONOTONIC when it last said so, in milliseconds.
func (p *DevicePage) Heartbeat() uint64 { return p.mem.load64(offPageHeartbeat) }

// DeviceState returns DeviceRunning, DeviceDraining or DeviceFatal.
func (p *DevicePage) DeviceState() uint32 { return p.mem.load32(offPageState) }

// PortState returns an ib.PortState.
func (p *DevicePage) PortState() uint32 { return p.mem.load32(offPagePortState) }

// Dead reports whether the daemon has died: the kernel marks its robust futex word when the thread that owns it ends.
func (p *DevicePage) Dead() bool { return p.mem.load32(offPageDeath)&DeathBit != 0 }

// Sleeping reports whether a shard wants its doorbell rung.
func (p *DevicePage) Sleeping(shard int) bool {
	return shard >= 0 && shard < MaxShards && p.mem.load32(offPageSleeping+uint64(shard)*CacheLine) != 0
}
