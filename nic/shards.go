package nic

import "github.com/softnic/softnicd/clock"

// What concerns the shards of a device together.

// makeShards makes a shard for each port.
func (d *Device) makeShards(random func() uint64) (err error) {
	defer func() {
		if err != nil {
			for _, s := range d.shards {
				_ = s.wait.close()
			}
		}
	}()
	for i, port := range d.cfg.Ports {
		s, err := newShard(d, i, port, random)
		if err != nil {
			return err
		}
		d.shards = append(d.shards, s)
	}
	connect(d.shards)
	if !d.cfg.Manual {
		d.bellFD, err = d.newBell()
	}
	return err
}

// Shards returns how many shards the device has.
func (d *Device) Shards() int { return len(d.shards) }

// everywhere runs f on every shard, at the same time, and returns when it has run on all.
func (d *Device) everywhere(f func(s *shard, now clock.Time)) {
	if len(d.shards) == 1 {
		d.shards[0].do(func(now clock.Time) { f(d.shards[0], now) })
		return
	}
	begun := make([]*command, len(d.shards))
	for i, s := range d.shards {
		begun[i] = s.begin(func(now clock.Time) { f(s, now) })
	}
	for _, c := range begun {
		if c != nil {
			<-c.done
		}
	}
}

// Grace returns when no shard can touch memory any more that was unpublished before the call: all passed a point at which
// their bursts, the local rings and what they handed to each other held nothing older. What a congested port refuses
// meanwhile is lost.
func (d *Device) Grace() {
	d.everywhere((*shard).quiesce)
	if len(d.shards) > 1 {
		// Whatever is older has left its shard by now.
		d.everywhere((*shard).empty)
	}
}

// WithPort runs f while no shard uses the device's ports: to change the addresses they are bound to, say.
func (d *Device) WithPort(f func()) { d.pause(d.shards, f) }

// pause runs f while so many shards do nothing else. They stop in order of their index, so that several calls do not wait
// for each other.
func (d *Device) pause(shards []*shard, f func()) {
	if len(shards) == 0 {
		f()
		return
	}
	shards[0].do(func(clock.Time) { d.pause(shards[1:], f) })
}

// idle reports whether nothing is left to send.
func (d *Device) idle() bool {
	for _, s := range d.shards {
		if !s.idle() {
			return false
		}
	}
	return true
}
