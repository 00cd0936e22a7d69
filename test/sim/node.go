package sim

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
)

// node is a device and its applications.
type node struct {
	w       *world
	name    string
	gid     ib.GID
	dice    *dice
	dev     *nic.Device
	port    port    // of the first shard
	ports   []*port // of all shards
	apps    []*application
	talkers []*talker
	next    clock.Time // of its next round
	link    nic.Link

	bystanders *bystanders
	groups     membership

	paused clock.Time // until when it stands still
}

func newNode(w *world, index int) *node {
	n := &node{w: w, name: fmt.Sprintf("device %d", index), dice: newDice(w.plan.Seed, streamDevice+uint64(index)), next: clock.Never}
	n.port.node = n
	n.ports = []*port{&n.port}
	for len(n.ports) < w.plan.Shards {
		n.ports = append(n.ports, &port{node: n})
	}
	addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(index + 1)})
	if w.plan.IPv6 {
		addr = netip.AddrFrom16([16]byte{0xfd, 15: byte(index + 1)})
	}
	n.gid = ib.GIDFromAddr(addr)
	n.link = nic.Link{
		Name: "sim", Index: index + 1, MTU: 9000, MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(index)}, Up: true,
		Addrs: []netip.Addr{addr},
	}
	n.boot()
	return n
}

// What a device has to give: two applications with two domains each, and up to four talkers.
const (
	maxContexts = 6
	maxPDs      = 8
	maxAHs      = 2
	maxQPs      = 48
)

// boot makes the device.
func (n *node) boot() {
	w := n.w
	var err error
	n.groups.joined = make(map[ib.GID]bool)
	var ports []nic.Port
	for _, p := range n.ports {
		ports = append(ports, p)
	}
	n.dev, err = nic.New(nic.Config{
		Groups: &n.groups,
		Name:   n.name,
		Ports:  ports,
		Now:    func() clock.Time { return w.now },
		Random: n.dice,
		Limits: nic.Limits{
			// No more than is used, so that what is not given back is missed.
			MaxQP: maxQPs, MaxCQ: 16, MaxSRQ: 4, MaxMR: 128, MaxPD: maxPDs, MaxAH: maxAHs, MaxContexts: maxContexts,
			AckFloor: -1, Window: w.plan.Window, AckEvery: w.plan.AckEvery,
		},
		Link:   n.link,
		Logger: slog.New(deviceLog{n}),
		Manual: true,
	})
	if err != nil {
		w.failf("%v", err)
	}
}

func (w *world) nodeOf(g ib.GID) *node {
	for _, n := range w.nodes {
		if n.gid == g {
			return n
		}
	}
	return nil
}

func (n *node) endpointOf(qpn ib.QPN) *endpoint {
	for _, a := range n.apps {
		for _, e := range a.endpoints {
			if e.role != sibling && e.qp.QPN() == qpn {
				return e
			}
		}
	}
	for _, t := range n.talkers {
		if t.qp.QPN() == qpn {
			return t.end
		}
	}
	return nil
}

// arrive is a packet at the port. The device sees it in its next round.
func (n *node) arrive(p *packet) {
	if deliver := n.w.tamper.Deliver; deliver != nil {
		deliver(n.w, p)
	}
	to := n.steer(p)
	to.inbox = append(to.inbox, p)
	n.wake(n.w.now.Add(n.dice.upTo(n.w.plan.Lag)))
}

// steer returns the port of the shard that a packet is for, or of the next one. All packets for a queue pair go the same
// way, so that they stay in order.
func (n *node) steer(p *packet) *port {
	if len(n.ports) == 1 || len(p.Bytes) < wire.BTHSize {
		return &n.port
	}
	to := (*wire.BTH)(p.Bytes).DestQP()
	i := nic.ShardOf(to, len(n.ports))
	if int(to>>5)%1000 < n.w.plan.Missteer {
		i = (i + 1) % len(n.ports)
	}
	return n.ports[i]
}

// waiting reports whether something waits at a port.
func (n *node) waiting() bool {
	return slices.ContainsFunc(n.ports, func(p *port) bool { return len(p.inbox) > 0 })
}

// wake asks for a round of the device at t.
func (n *node) wake(t clock.Time) {
	if t.Before(n.next) {
		n.next = t
		n.w.events.push(event{at: t, node: n})
	}
}

// turn is a round of the device.
func (n *node) turn(at clock.Time) {
	n.next = clock.Never
	if at.Before(n.paused) {
		n.wake(n.paused)
		return
	}
	next, busy := n.dev.Step(n.w.now)
	if busy || n.waiting() {
		// Work takes time.
		next = n.w.now.Add(200*time.Nanosecond + n.dice.upTo(time.Microsecond))
	}
	if next != clock.Never {
		n.wake(max(next, n.w.now+1))
	}
}

// application is a context of a device, and what an application does with it: one goroutine's worth.
type application struct {
	w    *world
	node *node
	dice *dice
	name string
	ctx  *nic.Context
	bell *abi.Doorbell
	page []byte
	pd   *nic.PD
	pd2  *nic.PD // another; nil for none

	queues    []*queue
	endpoints []*endpoint
	windows   []*window
	handles   uint32 // of windows so far
	pool      *pool  // nil for none
	extended  *pool  // of its XRC domain; nil for none
	xrcd      *nic.XRCD
	shared    *sharedMemory
	manner    manner
	next      clock.Time // of its next turn
	dead      bool
	mad       bool
	raves     int // turns left in which it does harm
}

// manner is how an application learns of completions.
type manner uint8

const (
	polls   manner = iota // it looks every now and then
	sleeps                // it sleeps until an event says that there is something
	naps                  // the same for solicited events, and it looks every now and then besides
	manners = 3
)

func newApplication(n *node, index int) *application {
	w := n.w
	a := &application{
		w: w, node: n, next: clock.Never,
		name: fmt.Sprintf("app %s.%d", n.name[len("device "):], index),
	}
	stream := streamApplication
	for i, other := range w.nodes {
		if other == n {
			stream += 2*i + index
		}
	}
	a.dice = newDice(w.plan.Seed, uint64(stream))
	a.manner = manner(a.dice.below(manners))
	a.open()
	a.pd = must(w, a.ctx.AllocPD)
	a.shared = newSharedMemory(a)
	a.pool = newPool(a)
	return a
}

func must[T any](w *world, f func() (T, error)) T {
	v, err := f()
	if err != nil {
		w.failf("%v", err)
	}
	return v
}

func (a *application) open() {
	var err error
	a.page = make([]byte, abi.DoorbellSize)
	if a.bell, err = abi.NewDoorbell(a.page); err != nil {
		a.w.failf("%v", err)
	}
	a.ctx, err = a.node.dev.OpenContext(nic.ContextConfig{
		Tenant: uint64(a.dice.below(3)), Owner: a.dice.chance(500), Doorbell: a.page, Async: a.event,
	})
	if err != nil {
		a.w.failf("%v", err)
	}
}

// event takes an asynchronous event. In honest company there are none but COMM_EST.
func (a *application) event(t ib.EventType, handle uint32, _ uint64) {
	a.w.record(uint64(a.w.now), uint64(t), uint64(handle))
	if a.isLast(t, handle) {
		return
	}
	if a.mad || concernsQP(t) && a.w.conns[handle].tainted {
		return
	}
	if t == ib.EventCQErr {
		a.overran(handle)
		return
	}
	if t != ib.EventCommEst && !a.isOverrun(t, handle) && !a.pool.isLimit(t) && !a.node.isPortEvent(t) && !a.isFaulty(t, handle) && !a.isOffence(t, handle) && !a.isDrained(t, handle) && !a.isOfExtended(t, handle) {
		a.w.accuse("%s: unexpected event %v of %d", a.name, t, handle)
	}
}

// wake asks for a turn at t.
func (a *application) wake(t clock.Time) {
	if t.Before(a.next) {
		a.next = t
		a.w.events.push(event{at: t, app: a})
	}
}

// turn is the application's turn: it takes completions, posts, and decides when to look again.
func (a *application) turn(at clock.Time) {
	a.next = clock.Never
	if a.mad {
		a.rave()
		return
	}
	for _, e := range a.endpoints {
		if !a.w.now.Before(e.learns) {
			e.checkOrphan()
			e.close()
		}
		e.goOn()
	}
	for _, q := range a.queues {
		if q.small && !q.over && a.dice.chance(900) {
			a.wake(a.w.now.Add(a.dice.upTo(time.Millisecond))) // it forgets to look
			continue
		}
		q.drain()
	}
	for _, p := range a.pools() {
		p.work()
	}
	rang := false
	for _, e := range a.endpoints {
		rang = e.work() || rang
	}
	if rang {
		a.node.wake(a.w.now.Add(a.dice.upTo(a.w.plan.Lag)))
	}
	waits := false
	for _, e := range a.endpoints {
		a.wake(e.wants())
		waits = waits || e.waits()
	}
	if !waits {
		return
	}
	if a.manner != sleeps {
		// Who looks for nothing looks less often while nothing moves at all: devices may stand still for seconds.
		a.wake(a.w.now.Add(time.Microsecond + a.dice.upTo(max(20*time.Microsecond, a.w.now.Sub(a.w.net.latest)/8))))
	}
	if a.manner != polls {
		for _, q := range a.queues {
			q.arm()
		}
	}
}
