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
func (d *Device) everywhere(f func(s *shard, now clock.Time)) { each(d.shards, f) }

// each is everywhere for some shards.
func each(shards []*shard, f func(s *shard, now clock.Time)) {
	if len(shards) == 1 {
		shards[0].do(func(now clock.Time) { f(shards[0], now) })
		return
	}
	begun := make([]*command, len(shards))
	for i, s := range shards {
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
//
// A shard that is at rest is at such a point, and is not woken: it holds nothing, and looks at no key before it has said that
// it is at rest no longer. That comes after we have seen it at rest, and so after the keys went, for these words have one order
// for everybody. As many registrations would wake it as there are, and most devices of those who register rest.
func (d *Device) Grace() {
	d.passed((*shard).rests, (*shard).quiesce)
	if len(d.shards) > 1 {
		// Whatever is older has left its shard by now.
		d.passed((*shard).dealtWith, (*shard).empty)
	}
}

// passed runs f on all shards of which is cannot be said already that they are past it.
func (d *Device) passed(already func(*shard) bool, f func(s *shard, now clock.Time)) {
	var waits []*shard
	for _, s := range d.shards {
		if !already(s) {
			waits = append(waits, s)
		}
	}
	each(waits, f)
}

// rests reports whether the shard is at rest. Everybody may ask.
func (s *shard) rests() bool { return s.wait.atRest.Load() }

// dealtWith reports whether all that was handed to the shard before the call has been dealt with. Everybody may ask.
func (s *shard) dealtWith() bool {
	for _, l := range s.roads.from {
		if l != nil {
			if put := l.put.Load(); int32(l.taken.Load()-put) < 0 {
				return false
			}
		}
	}
	return true
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
