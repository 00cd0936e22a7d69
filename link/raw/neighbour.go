package raw

import (
	"sync/atomic"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

const (
	// refreshEvery is how long an answer is used without asking again. The kernel forgets neighbours that it does not
	// speak to itself, and notices when they have moved only if it is made to look.
	refreshEvery = time.Second
	// maxNeighbours bounds the memory. Destinations are those of local queue pairs, so it takes as many of them.
	maxNeighbours = 1 << 14
	maxAsking     = 256
)

// hop is how to reach a destination. It is never changed once published.
type hop struct {
	ifindex  int // that the frame leaves by: below a VLAN interface the one which carries it
	mtu      int // bytes of an IP packet
	ethernet wire.Ethernet
}

// flow is what a route depends on.
type flow struct{ source, dest ib.GID }

// neighbour is what the data path knows about a flow.
type neighbour struct {
	flow   flow
	hop    atomic.Pointer[hop] // nil while nothing is known
	asking atomic.Bool         // the resolver has it
	asked  clock.Time
	held   int // frames that wait for the hop, see hold
}

// neighbours is the data path's memory of where flows go; the resolver answers behind its back.
type neighbours struct {
	known map[flow]*neighbour
	ask   chan<- *neighbour
	// everything, if it is set, goes the same way: on the loopback interface there are no neighbours.
	everything *hop
	// own is the device's interface, by which groups are reached.
	own *hop
}

// find returns where frames of a path go, or nil if that is not known, or not yet. It allocates for a flow that it has
// not seen.
func (t *neighbours) find(now clock.Time, p *wire.Path) *hop {
	if t.everything != nil {
		return t.everything
	}
	k := flow{p.Source, p.Dest}
	n := t.known[k]
	if n == nil {
		if len(t.known) >= maxNeighbours {
			clear(t.known)
		}
		n = &neighbour{flow: k, asked: now.Add(-2 * refreshEvery)}
		if mac, ok := wire.MulticastMAC(&k.dest); ok {
			// Nobody has to be asked, but what the interface is like is looked at again.
			h := *t.own
			h.ethernet.Dest = mac
			n.hop.Store(&h)
		}
		t.known[k] = n
	}
	if now.Sub(n.asked) >= refreshEvery && !n.asking.Load() {
		n.asking.Store(true)
		select {
		case t.ask <- n:
			n.asked = now
		default:
			n.asking.Store(false)
		}
	}
	if n.held > 0 {
		return nil // behind those
	}
	return n.hop.Load()
}

// forget drops what is known: addresses or routes have changed.
func (t *neighbours) forget() { clear(t.known) }
