package nic

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/trace"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/transport/rc"
	"golang.org/x/sys/unix"
)

// Config is what a device is made of.
type Config struct {
	Name string
	// Port is the device's network; the device closes it. Ports are as many, one for each shard, at most abi.MaxShards;
	// Port alone makes a device of one shard. A port that knows which shard a packet is for, see [ShardOf], receives there;
	// otherwise the packet is handed over.
	Port  Port
	Ports []Port
	// Now tells the time; nil is the host's monotonic clock, or for a manual device the time of its last Step.
	Now clock.Source
	// Random gives the seed of queue pair numbers and keys; nil is the system's.
	Random io.Reader
	// Groups joins multicast groups; nil for a network that has none. What comes for them, a port of the first shard
	// receives.
	Groups Grouper
	// PKeys are the P_Key table, from entry 0 on; none means the default partition with full membership, alone.
	PKeys []ib.PKey
	// Profile is how the device presents itself; nil is Softnic.
	Profile *Profile
	// Limits are those of the profile where a field is zero.
	Limits Limits
	// Page is the device page, abi.DevicePageSize bytes that applications see too; nil for none. The device initialises
	// and writes it, except for the heartbeat and the word of death.
	Page []byte
	// Link is the network interface as it is now; see SetLink.
	Link   Link
	Logger *slog.Logger
	// Trace takes the engines' decisions, of a device of one shard; nil for none.
	Trace *trace.Ring
	// Manual makes a device without goroutine and descriptors that its owner turns by Step.
	Manual bool
}

// Device is an RDMA NIC. Its methods may be called from any goroutine.
type Device struct {
	name    string
	cfg     Config
	profile Profile
	limits  Limits
	log     *slog.Logger
	page    *abi.DevicePage // nil for none
	keys    *dma.Table
	ledger  *ledger
	pkeys   []ib.PKey
	shards  []*shard
	bellFD  int // see BellFD
	xrc     xrcRegistry
	groups  groups

	linkMu     sync.Mutex // serialises SetLink
	link       atomic.Pointer[Link]
	gids       atomic.Pointer[gidTable]
	portFailed atomic.Bool
	badVectors atomic.Uint64 // address vectors that were refused
	watchers   watchers

	mu       sync.Mutex
	contexts []*Context // in order of opening
	opened   uint64     // contexts, ever
	draining bool
	closed   bool

	// newEngine makes the transport engine of a queue pair that is built otherwise. Tests put theirs here.
	newEngine func(q *QP) transport.Engine
}

// New makes a device. It receives nothing before Start, or Step if it is a manual one.
func New(cfg Config) (*Device, error) {
	if len(cfg.Ports) == 0 && cfg.Port != nil {
		cfg.Ports = []Port{cfg.Port}
	}
	switch n := len(cfg.Ports); {
	case n == 0:
		return nil, fmt.Errorf("device %s: it has no port: %w", cfg.Name, syscall.EINVAL)
	case n > abi.MaxShards:
		return nil, fmt.Errorf("device %s: %d shards: at most %d: %w", cfg.Name, n, abi.MaxShards, syscall.EINVAL)
	case n > 1 && cfg.Trace != nil:
		return nil, fmt.Errorf("device %s: a trace of several shards: each would write it: %w", cfg.Name, syscall.EINVAL)
	}
	if cfg.Now == nil && !cfg.Manual {
		cfg.Now = clock.Monotonic
	}
	if cfg.Random == nil {
		cfg.Random = rand.Reader
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	random, err := newRandom(cfg.Random)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", cfg.Name, err)
	}
	d := &Device{
		name:    cfg.Name,
		cfg:     cfg,
		profile: Softnic(),
		log:     cfg.Logger.With("device", cfg.Name),
		bellFD:  -1,
	}
	if cfg.Profile != nil {
		d.profile = cfg.Profile.fill()
	}
	d.limits = cfg.Limits.fill(d.profile.Limits.fill(DefaultLimits()))
	d.ledger = newLedger(&d.limits)
	d.keys = dma.NewTable(int(d.limits.MaxMR)+int(d.limits.MaxMW), random)
	d.newEngine = d.engineOf
	d.groups.m = make(map[ib.GID]*group)
	link := cfg.Link
	d.link.Store(&link)
	d.gids.Store(shapedTable(int(d.limits.GIDTableLen), d.profile.GIDs, &link))
	if d.pkeys, err = newPKeys(cfg.PKeys, int(d.limits.PKeyTableLen)); err != nil {
		return nil, fmt.Errorf("device %s: %w", cfg.Name, err)
	}
	if cfg.Page != nil {
		if d.page, err = abi.NewDevicePage(cfg.Page); err != nil {
			return nil, fmt.Errorf("device %s: %w", cfg.Name, err)
		}
		d.page.Init(random())
		d.publishPort()
	}
	if err := d.makeShards(random); err != nil {
		return nil, fmt.Errorf("device %s: %w", cfg.Name, err)
	}
	return d, nil
}

// newRandom makes an unpredictable generator from 32 bytes of r: tables draw a number for each of their slots.
func newRandom(r io.Reader) (func() uint64, error) {
	var seed [32]byte
	if _, err := io.ReadFull(r, seed[:]); err != nil {
		return nil, fmt.Errorf("random numbers: %w", err)
	}
	return mathrand.NewChaCha8(seed).Uint64, nil
}

// Name returns the device's name.
func (d *Device) Name() string { return d.name }

// Start lets the device run. It does nothing for a manual device, or twice. It raises GOMAXPROCS by one for each shard until
// Close: the device's threads keep a processor of the Go scheduler.
func (d *Device) Start() {
	if d.cfg.Manual {
		return
	}
	for _, s := range d.shards {
		s.start()
	}
}

// Step turns a manual device by one round at the time now. busy says that the round did something: there may be more to
// do at once. next is when the device wants the next round at the latest, clock.Never if only a packet, a doorbell or a
// call will give it something to do.
func (d *Device) Step(now clock.Time) (next clock.Time, busy bool) {
	next = never
	for _, s := range d.shards {
		t, b := s.step(now)
		next, busy = min(next, t), busy || b
	}
	// What one shard has handed to another that was turned before belongs to this round.
	for range d.shards[1:] {
		for _, s := range d.shards {
			if !s.vacant() {
				s.step(now)
			}
		}
	}
	return next, busy
}

// BellFD returns the eventfd that wakes the device when the owner's applications ring, -1 for a manual one. All shards watch
// it. The device neither reads nor writes it. Contexts have their own: see [Context.BellFD].
func (d *Device) BellFD() int { return d.bellFD }

// Drain ends the device's work: no context is opened any more, every queue pair goes to the error state, what was posted
// is flushed, and the contexts hear DEVICE_FATAL. The error is ctx's if that came first.
func (d *Device) Drain(ctx context.Context) error {
	d.mu.Lock()
	d.draining = true
	d.mu.Unlock()
	if d.page != nil {
		d.page.SetDeviceState(abi.DeviceDraining)
	}
	d.everywhere(func(s *shard, _ clock.Time) { s.failAll() })
	var err error
	for err == nil && !d.idle() {
		if d.cfg.Manual {
			d.Step(d.shards[0].time())
			err = ctx.Err()
			continue
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	if d.page != nil {
		d.page.SetDeviceState(abi.DeviceFatal)
	}
	for _, c := range d.snapshot() {
		c.event(ib.EventDeviceFatal, 0, 0)
	}
	return err
}

// Close closes every context, stops the device and closes its port. Once more does nothing.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed, d.draining = true, true
	d.mu.Unlock()
	for _, c := range d.snapshot() {
		c.Close()
	}
	var errs []error
	for _, s := range d.shards {
		s.stop()
	}
	if d.bellFD >= 0 {
		errs = append(errs, unix.Close(d.bellFD))
		d.bellFD = -1
	}
	for _, s := range d.shards {
		errs = append(errs, s.wait.close(), s.port.Close())
	}
	return errors.Join(errs...)
}

// snapshot returns the contexts there are.
func (d *Device) snapshot() []*Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*Context(nil), d.contexts...)
}

func (d *Device) publishPort() {
	if d.page != nil {
		d.page.SetPortState(uint32(d.portState()))
	}
}

// Attr returns the attributes of the device.
func (d *Device) Attr() ib.DeviceAttr {
	l, id := &d.limits, guid(d.link.Load().MAC)
	if id == 0 {
		// Loopback has no MAC address to make one of: the name serves.
		id = nameGUID(d.name)
	}
	a := ib.DeviceAttr{
		NodeGUID:      id,
		SysImageGUID:  id,
		MaxMRSize:     1<<64 - 1,
		PageSizeCap:   d.profile.PageSizeCap,
		VendorID:      d.profile.VendorID,
		VendorPartID:  d.profile.VendorPartID,
		HWVer:         d.profile.HWVer,
		MaxQP:         l.MaxQP,
		MaxQPWR:       l.MaxQPWR,
		MaxSGE:        l.MaxSGE,
		MaxSGERD:      l.MaxSGE,
		MaxInlineData: l.MaxInlineData,
		DeviceCapFlags: ib.CapBadPKeyCntr | ib.CapBadQKeyCntr | ib.CapCurrQPStateMod | ib.CapPortActiveEvent | ib.CapSysImageGUID | ib.CapRCRNRNakGen |
			ib.CapSRQResize | ib.CapMemWindow | ib.CapMemMgtExt | ib.CapMemWindow2B | ib.CapFlushGlobal | ib.CapAtomicWrite |
			ib.CapXRC,
		MaxCQ:           l.MaxCQ,
		MaxCQE:          l.MaxCQE,
		MaxMR:           l.MaxMR,
		MaxMW:           l.MaxMW,
		MaxPD:           l.MaxPD,
		MaxAH:           l.MaxAH,
		MaxSRQ:          l.MaxSRQ,
		MaxSRQWR:        l.MaxSRQWR,
		MaxSRQSGE:       l.MaxSRQSGE,
		MaxQPRDAtom:     l.MaxRDAtomic,
		MaxResRDAtom:    uint32(min(uint64(l.MaxQP)*uint64(l.MaxRDAtomic), 1<<32-1)),
		MaxQPInitRDAtom: l.MaxRDAtomic,
		AtomicCap:       ib.AtomicHCA,
		MaxPKeys:        max(d.profile.MaxPKeys, l.PKeyTableLen),
		LocalCAAckDelay: d.profile.AckDelay,
		PhysPortCnt:     1,
		NumCompVectors:  l.NumCompVectors,
		MaxCQModCount:   maxModeration,
		MaxCQModPeriod:  maxModeration,
		MinAckTimeout:   uint32(l.AckFloor / time.Microsecond),
		HCACoreClock:    1000000, // kHz: the timestamp counts nanoseconds
		TimestampMask:   1<<64 - 1,
	}
	if d.cfg.Groups != nil {
		a.MaxMcastGrp, a.MaxMcastQPAttach, a.MaxTotalMcastQPAttach = maxGroups, maxGroupQPs, maxAttachments
	}
	copy(a.FWVer[:], d.profile.FWVer)
	return a
}

// nameGUID makes a locally administered EUI-64 of a name.
func nameGUID(name string) uint64 {
	var b [8]byte
	for i := range len(name) {
		b[i%5+3] = b[i%5+3]*31 + name[i]
	}
	b[0] = 2
	return binary.BigEndian.Uint64(b[:])
}

func (d *Device) newRC(q *QP) transport.Engine {
	l := &d.limits
	capacity := q.cap
	var domain, recvDomain *dma.Domain
	var target rc.Target
	switch {
	case q.xrc != nil:
		capacity.MaxRecvSGE, target = abi.MaxSGE, (*served)(q)
	case q.srq != nil:
		capacity.MaxRecvSGE, domain, recvDomain = q.srq.maxSGE, &q.pd.domain, &q.srq.pd.domain
	default:
		domain = &q.pd.domain
	}
	return rc.New(rc.Config{
		QPN:         q.qpn,
		Service:     serviceOf(q.typ),
		Target:      target,
		Cap:         capacity,
		Domain:      domain,
		RecvDomain:  recvDomain,
		Table:       d.keys,
		QP:          (*served)(q),
		Counters:    &q.counters,
		Outstanding: &q.outstanding,
		Trace:       d.cfg.Trace,
		Limits: rc.Limits{
			MaxMessage: l.MaxMessage,
			AckFloor:   l.AckFloor,
			Probe:      l.Probe,
			Window:     l.Window,
			AckEvery:   l.AckEvery,
		},
	})
}
