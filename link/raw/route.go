package raw

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/softnic/softnicd/link/internal/batch"
	"github.com/softnic/softnicd/wire"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// firstRetry doubles up to lastRetry: an answer on a local network takes some hundred microseconds.
	firstRetry = 500 * time.Microsecond
	lastRetry  = 100 * time.Millisecond
	giveUp     = 3 * time.Second // the kernel sends three solicitations, a second apart
	// discardPort is where datagrams go that make the kernel find a neighbour (RFC 863).
	discardPort = 9
)

// resolver answers questions about where flows go, from the kernel's routes and neighbours. Its sockets are those of the
// network namespace that it was made in.
type resolver struct {
	netlink *netlink.Handle
	v4, v6  int // UDP sockets to provoke with; -1 where there is no such family
	ifindex atomic.Int64
	asks    chan *neighbour
	done    chan struct{}
	waiting []*question
	// An answer where there was none makes the event readable, and then sets the mark.
	answered int
	mark     atomic.Bool
}

type question struct {
	n     *neighbour
	begun time.Time
	next  time.Time
	delay time.Duration
}

func newResolver(ifindex int) (*resolver, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("routes and neighbours: %w", err)
	}
	_ = h.SetSocketTimeout(time.Second)
	r := &resolver{netlink: h, asks: make(chan *neighbour, maxAsking), done: make(chan struct{})}
	if r.answered, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		h.Close()
		return nil, fmt.Errorf("routes and neighbours: %w", err)
	}
	r.ifindex.Store(int64(ifindex))
	r.v4, r.v6 = provoker(true), provoker(false)
	return r, nil
}

// provoker makes a UDP socket whose datagrams do not leave the link.
func provoker(is4 bool) int {
	fd, err := batch.NewUDP(is4)
	if err != nil {
		return -1
	}
	opt := batch.Option{unix.IPPROTO_IP, unix.IP_TTL, 1}
	if !is4 {
		opt = batch.Option{unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 1}
	}
	if batch.SetOptions(fd, []batch.Option{opt}) != nil || batch.RefuseAll(fd) != nil {
		unix.Close(fd)
		return -1
	}
	return fd
}

// close ends the sockets, and run if it was started.
func (r *resolver) close(started bool) {
	close(r.asks)
	if started {
		<-r.done
	}
	r.netlink.Close()
	for _, fd := range []int{r.v4, r.v6, r.answered} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// run answers until asks is closed.
func (r *resolver) run() {
	defer close(r.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := time.Hour
		now := time.Now()
		for _, q := range r.waiting {
			wait = min(wait, max(0, q.next.Sub(now)))
		}
		timer.Reset(wait)
		select {
		case n, ok := <-r.asks:
			if !ok {
				return
			}
			r.waiting = append(r.waiting, &question{n: n, begun: now, next: now, delay: firstRetry})
		case <-timer.C:
		}
		r.waiting = slices.DeleteFunc(r.waiting, r.try)
	}
}

// try looks for the answer to a question if its time has come, and reports whether it is done with.
func (r *resolver) try(q *question) (done bool) {
	now := time.Now()
	if now.Before(q.next) {
		return false
	}
	h, err := r.look(q.n.flow)
	if h == nil && unanswered(err) && now.Sub(q.begun) < giveUp {
		// What was known is used until there is no hope.
		q.next, q.delay = now.Add(q.delay), min(2*q.delay, lastRetry)
		return false
	}
	old := q.n.hop.Load()
	if old == nil || h == nil || *old != *h {
		q.n.hop.Store(h)
	}
	q.n.asking.Store(false)
	if old == nil {
		one := [8]byte{1, 7: 1} // either byte order
		_, _ = unix.Write(r.answered, one[:])
		r.mark.Store(true)
	}
	return true
}

// told reports whether there were answers since it was last called.
func (r *resolver) told() bool {
	if !r.mark.Load() || !r.mark.Swap(false) {
		return false
	}
	// Readable again before the mark is set again: nothing is left over for good.
	var count [8]byte
	_, _ = unix.Read(r.answered, count[:])
	return true
}

// errUnresolved says that the kernel knows the way but not the neighbour.
var errUnresolved = errors.New("neighbour not resolved yet")

// unanswered reports whether it is worth asking again: nobody knows yet, or the kernel was too busy to tell, as it is for
// seconds while namespaces come and go.
func unanswered(err error) bool {
	return errors.Is(err, errUnresolved) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) ||
		errors.Is(err, unix.ENOBUFS) || errors.Is(err, netlink.ErrDumpInterrupted)
}

// look asks the kernel once.
func (r *resolver) look(f flow) (h *hop, err error) {
	dest, source := f.dest.Addr(), f.source.Addr()
	index, next := int(r.ifindex.Load()), dest
	mac, multicast := wire.MulticastMAC(&f.dest)
	if !multicast {
		if index, next, err = r.route(source, dest); err != nil {
			return nil, err
		}
	}
	link, err := r.netlink.LinkByIndex(index)
	if err != nil {
		return nil, err
	}
	if h, err = leave(link); err != nil || multicast {
		if h != nil {
			h.ethernet.Dest = mac
		}
		return h, err
	}
	switch flags := link.Attrs().RawFlags; {
	case flags&unix.IFF_LOOPBACK != 0:
		return h, nil
	case flags&unix.IFF_NOARP != 0:
		h.ethernet.Dest = h.ethernet.Source
		return h, nil
	}
	mac, fresh, ok := r.neighbour(index, next)
	if !fresh {
		r.provoke(index, next)
	}
	if !ok {
		return nil, errUnresolved
	}
	h.ethernet.Dest = mac
	return h, nil
}

// route asks which interface a flow leaves by, and for the address of the neighbour that it goes to.
func (r *resolver) route(source, dest netip.Addr) (index int, next netip.Addr, err error) {
	o := &netlink.RouteGetOptions{SrcAddr: source.AsSlice()}
	if dest.IsLinkLocalUnicast() {
		o.OifIndex = int(r.ifindex.Load())
	}
	routes, err := r.netlink.RouteGetWithOptions(dest.AsSlice(), o)
	if err != nil {
		return 0, dest, err
	}
	if len(routes) == 0 {
		return 0, dest, unix.ENETUNREACH
	}
	gateway := routes[0].Gw
	if via, ok := routes[0].Via.(*netlink.Via); ok {
		gateway = via.Addr // an IPv4 route through an IPv6 neighbour
	}
	if a, ok := netip.AddrFromSlice(gateway); ok && !a.IsUnspecified() {
		dest = a.Unmap()
	}
	return routes[0].LinkIndex, dest, nil
}

// neighbour looks into the kernel's table. It is fresh if nobody needs to ask for it now.
func (r *resolver) neighbour(index int, addr netip.Addr) (mac [6]byte, fresh, ok bool) {
	family := unix.AF_INET6
	if addr.Is4() {
		family = unix.AF_INET
	}
	list, err := r.netlink.NeighList(index, family)
	if err != nil {
		return mac, false, false
	}
	for _, n := range list {
		a, valid := netip.AddrFromSlice(n.IP)
		if !valid || a.Unmap() != addr || len(n.HardwareAddr) != len(mac) {
			continue
		}
		const usable = netlink.NUD_PERMANENT | netlink.NUD_NOARP | netlink.NUD_REACHABLE | netlink.NUD_STALE |
			netlink.NUD_DELAY | netlink.NUD_PROBE
		return [6]byte(n.HardwareAddr), n.State&(netlink.NUD_STALE|netlink.NUD_FAILED) == 0, n.State&usable != 0
	}
	return mac, false, false
}

// provoke makes the kernel look for a neighbour, by sending something to it. Changing the table itself would need
// CAP_NET_ADMIN.
func (r *resolver) provoke(index int, addr netip.Addr) {
	if addr.Is4() {
		_ = unix.Sendto(r.v4, nil, unix.MSG_DONTWAIT, &unix.SockaddrInet4{Port: discardPort, Addr: addr.As4()})
		return
	}
	to := &unix.SockaddrInet6{Port: discardPort, Addr: addr.As16()}
	if addr.IsLinkLocalUnicast() {
		to.ZoneId = uint32(index)
	}
	_ = unix.Sendto(r.v6, nil, unix.MSG_DONTWAIT, to)
}

// leave says how frames leave by an interface: those of a VLAN interface by the one below, with a tag.
func leave(link netlink.Link) (*hop, error) {
	a := link.Attrs()
	h := &hop{ifindex: a.Index, mtu: a.MTU}
	switch {
	case a.RawFlags&unix.IFF_LOOPBACK != 0:
		return h, nil
	case a.EncapType != "ether" || len(a.HardwareAddr) != 6:
		return nil, fmt.Errorf("interface %s is not Ethernet; use the udp link there", a.Name)
	}
	h.ethernet.Source = [6]byte(a.HardwareAddr)
	if v, ok := link.(*netlink.Vlan); ok && v.VlanProtocol != netlink.VLAN_PROTOCOL_8021AD {
		h.ifindex, h.ethernet.Tagged, h.ethernet.VLAN = a.ParentIndex, true, uint16(v.VlanId)
	}
	return h, nil
}
