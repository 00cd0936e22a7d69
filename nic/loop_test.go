package nic

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

// live is a device that runs, and its page.
type live struct {
	*host
	page *abi.DevicePage
}

func newLivePair(t *testing.T) (a, b *live) {
	pa, pb := newCables(1024)
	for _, p := range []*cable{pa, pb} {
		fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		p.fd = fd
		t.Cleanup(func() { _ = unix.Close(fd) })
	}
	make1 := func(name, addr string, p *cable) *live {
		mem := make([]byte, abi.DevicePageSize)
		h := newHost(t, name, addr, p, func(c *Config) { c.Manual, c.Page, c.Limits.AckFloor = false, mem, 0 })
		view, err := abi.NewDevicePage(mem)
		if err != nil {
			t.Fatal(err)
		}
		h.dev.Start()
		t.Cleanup(func() { _ = h.dev.Close() })
		return &live{h, view}
	}
	return make1("softnic0", "10.0.0.1", pa), make1("softnic1", "10.0.0.2", pb)
}

// ring wakes the device if it sleeps, as applications do after they rang the doorbell page.
func (l *live) ring() {
	if l.page.Sleeping(0) {
		_, _ = unix.Write(l.ctx.BellFD(), []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// await polls until n completions are there.
func (l *live) await(t *testing.T, n int) (all []abi.CQE) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); len(all) < n; {
		all = append(all, l.poll(t)...)
		if time.Now().After(end) {
			t.Fatalf("%d completions after 5 s, want %d", len(all), n)
		}
		runtime.Gosched()
	}
	for _, c := range all {
		if c.Status != 0 {
			t.Fatalf("completion %+v", c)
		}
	}
	return all
}

// Messages between two devices in real time, back to back and after sleeping.
func TestLivePair(t *testing.T) {
	a, b := newLivePair(t)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	for i := range 200 {
		if i%20 == 0 {
			asleep(t, a)
			asleep(t, b)
		}
		y.postRecv(uint64(i), y.sge(0, 10000))
		b.ring()
		x.postSend(sendWQE(uint64(i)), x.sge(0, 10000))
		a.ring()
		if c := a.await(t, 1); c[0].WRID != uint64(i) {
			t.Fatalf("completion %+v", c)
		}
		b.await(t, 1)
	}
}

// asleep waits until a device has fallen asleep, and watches that it stays so while nothing happens.
func asleep(t *testing.T, l *live) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !l.page.Sleeping(0); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatal("the device does not fall asleep")
		}
	}
}

// An idle device makes no system call: its thread is in the one that waits, and has not been switched to since.
func TestIdleDeviceSleeps(t *testing.T) {
	a, _ := newLivePair(t)
	for i := range 20 {
		var c app
		c.open(t, a.dev, ContextConfig{Tenant: uint64(i)}, a.addr)
	}
	switches := a.switches(t)
	time.Sleep(20 * time.Millisecond)
	asleep(t, a)
	before := switches()
	time.Sleep(200 * time.Millisecond)
	if after := switches(); after != before {
		t.Errorf("the shard's thread ran %d times while the device was idle", after-before)
	}
}

// switches returns what says how often the thread of the shard has gone to sleep.
func (l *live) switches(t *testing.T) func() int64 {
	var tid int
	l.dev.shards[0].do(func(clock.Time) { tid = unix.Gettid() })
	return func() (n int64) {
		b, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(tid) + "/status")
		if err != nil {
			t.Skip(err)
		}
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, "voluntary_ctxt_switches:"); ok {
				n, _ = strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			}
		}
		return n
	}
}

// Registrations let a shard at rest sleep, and those that it uses end before their memory is somebody else's: the race
// detector tells if not.
func TestGraceAtRest(t *testing.T) {
	a, b := newLivePair(t)
	switches := a.switches(t)
	mem := make([]byte, 64)
	register := func() *MR {
		mr, err := a.ctx.RegMR(a.pd, MRConfig{Region: dma.NewEmbedded(mem), Length: 64})
		if err != nil {
			t.Fatal(err)
		}
		return mr
	}
	deregister := func(mr *MR) {
		if err := a.ctx.DeregMR(mr); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(5 * time.Second); !a.dev.shards[0].rests(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the shard does not rest")
		}
	}
	time.Sleep(time.Millisecond)
	before := switches()
	for range 100 {
		deregister(register())
	}
	if after := switches(); after != before {
		t.Errorf("100 registrations woke the shard %d times", after-before)
	}

	for i := range 200 {
		x, y := a.newQP(t, nil), b.newQP(t, nil)
		x.connect(t, y)
		y.connect(t, x)
		y.postRecv(uint64(i), y.sge(0, 64))
		mr := register()
		x.postSend(sendWQE(uint64(i)), ib.SGE{Length: 64, LKey: mr.LKey()})
		a.ring()
		for range i % 50 {
			runtime.Gosched() // the shard is asleep, about to wake, at it, done or about to sleep
		}
		deregister(mr)
		mem[i%64]++
		for _, q := range []*endpoint{x, y} {
			if err := q.app.ctx.DestroyQP(q.qp); err != nil {
				t.Fatal(err)
			}
		}
		a.poll(t)
		b.poll(t)
	}
}

// restless is a port that looks, whenever it is asked for packets, whether its shard says that it is at rest.
type restless struct {
	Port
	dev    atomic.Pointer[Device]
	asked  atomic.Int64
	rested atomic.Bool
}

func (p *restless) Recv(now clock.Time, packets []wire.Packet) int {
	if d := p.dev.Load(); d != nil {
		p.asked.Add(1)
		if d.shards[0].rests() {
			p.rested.Store(true)
		}
	}
	return p.Port.Recv(now, packets)
}

// A shard that looks at anything does not say that it is at rest, the last look before it sleeps included.
func TestRestIsRest(t *testing.T) {
	cable, _ := newCables(1024)
	p := new(restless)
	h := newHost(t, "softnic0", "10.0.0.1", cable, func(c *Config) {
		p.Port, c.Manual = c.Port, false
		c.Port = p
	})
	p.dev.Store(h.dev)
	h.dev.Start()
	defer func() { _ = h.dev.Close() }()
	for end := time.Now().Add(5 * time.Second); p.asked.Load() < 20; time.Sleep(100 * time.Microsecond) {
		h.dev.shards[0].do(func(clock.Time) {})
		if time.Now().After(end) {
			t.Fatal("the shard does not look")
		}
	}
	if p.rested.Load() {
		t.Error("the shard was at rest while it looked")
	}
}

// Control calls from many goroutines while data moves.
func TestLiveControl(t *testing.T) {
	a, b := newLivePair(t)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := 0; !stop.Load() || n == 0; n++ {
				var c app
				c.open(t, a.dev, ContextConfig{Tenant: uint64(i)}, a.addr)
				q := c.newQP(t, nil)
				q.connect(t, y)
				mr, err := c.ctx.RegMR(c.pd, MRConfig{Region: dma.NewEmbedded(make([]byte, 64)), Length: 64})
				if err != nil {
					t.Error(err)
					return
				}
				q.postSend(sendWQE(1), ib.SGE{Length: 8, LKey: mr.LKey()})
				if n%2 == 0 {
					if err := c.ctx.DeregMR(mr); err != nil {
						t.Error(err)
					}
					if err := c.ctx.DestroyQP(q.qp); err != nil {
						t.Error(err)
					}
				}
				if err := c.ctx.Close(); err != nil {
					t.Error(err)
				}
				a.dev.Counters()
				a.dev.SetLink(Link{MTU: 9000, Up: true, Addrs: addrs("10.0.0.1")})
			}
		})
	}
	for i := range 60 {
		y.postRecv(uint64(i), y.sge(0, 10000))
		b.ring()
		x.postSend(sendWQE(uint64(i)), x.sge(0, 10000))
		a.ring()
		a.await(t, 1)
		b.await(t, 1)
	}
	stop.Store(true)
	wg.Wait()
}

func TestLiveDrainAndClose(t *testing.T) {
	goroutines, fds := runtime.NumGoroutine(), countFDs(t)
	a, b := newLivePair(t)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	x.postRecv(1)
	x.postSend(sendWQE(2))
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := a.dev.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	if a.page.DeviceState() != abi.DeviceFatal {
		t.Errorf("device state %d in the page", a.page.DeviceState())
	}
	if n := len(a.poll(t)); n != 2 {
		t.Errorf("%d completions, want the two that were posted", n)
	}
	for _, l := range []*live{a, b} {
		if err := l.dev.Close(); err != nil {
			t.Error(err)
		}
		if err := l.dev.Close(); err != nil {
			t.Error(err)
		}
		l.checkEmpty(t)
		l.dev.Grace()
		l.dev.Step(0)
		l.dev.Counters()
		if l.port.late.Load() {
			t.Error("the port was used after it was closed")
		}
	}
	if _, err := a.dev.OpenContext(ContextConfig{}); errno(err) == 0 {
		t.Error("a context was opened on a closed device")
	}
	for end := time.Now().Add(time.Second); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
		}
	}
	if n := countFDs(t); n != fds+2 { // the cables' own
		t.Errorf("%d descriptors, want %d", n, fds+2)
	}
}

// Another user's bell is its own, and gone with the context.
func TestBells(t *testing.T) {
	a, _ := newLivePair(t)
	if fd := a.ctx.BellFD(); fd != a.dev.BellFD() || fd < 0 {
		t.Errorf("the owner's bell is %d, the device's %d", fd, a.dev.BellFD())
	}
	c, err := a.dev.OpenContext(ContextConfig{Tenant: 9})
	if err != nil {
		t.Fatal(err)
	}
	fd := c.BellFD()
	if fd == a.dev.BellFD() || fd < 0 {
		t.Errorf("another user has bell %d, the device %d", fd, a.dev.BellFD())
	}
	asleep(t, a)
	// Filled by a hostile holder, the bell is silent; the device's goes on.
	_, _ = unix.Write(fd, []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
		t.Error("the bell is still open")
	}
}

func countFDs(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}

// A device that is closed while contexts are opened leaves none.
func TestCloseWhileOpening(t *testing.T) {
	a, _ := newLivePair(t)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for {
				if _, err := a.dev.OpenContext(ContextConfig{Tenant: uint64(i)}); err != nil {
					if n := errno(err); n != syscall.EDQUOT && n != syscall.ENODEV {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	if err := a.dev.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	a.checkEmpty(t)
}

// A shard with nothing to do looks for 50 us, and eight times where looks are further apart, but not for ever.
func TestIdleness(t *testing.T) {
	for _, c := range []struct {
		idle  time.Duration
		looks int
		on    bool
	}{
		{0, 0, true},
		{49 * time.Microsecond, 1000, true},
		{50 * time.Microsecond, 8, false},
		{50 * time.Microsecond, 7, true},
		{199 * time.Microsecond, 7, true},
		{200 * time.Microsecond, 0, false},
	} {
		i := idleness{since: 1000, looks: c.looks}
		if on := i.looksOn(i.since.Add(c.idle)); on != c.on {
			t.Errorf("after %v and %d looks: %v", c.idle, c.looks, on)
		}
	}
}
