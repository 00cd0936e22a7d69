package embedded

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/shm"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
)

// Network is a wire between devices of one process. What travels on it are whole datagrams with their ICRC, as on a real
// one, but none is lost. The zero value is a network without devices.
type Network struct {
	mu    sync.RWMutex
	ports map[ib.GID][]*port // of each device, by shard
	// groups are who has joined each multicast group.
	groups map[ib.GID][]*port
	made   int
}

// attach makes the ports of a new device, and says how many came before it.
func (n *Network) attach(addr netip.Addr, shards int) ([]*port, int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !addr.IsValid() {
		addr = netip.AddrFrom4([4]byte{192, 0, 2, byte(n.made + 1)})
	}
	gid := ib.GIDFromAddr(addr)
	if n.ports[gid] != nil {
		return nil, 0, fmt.Errorf("address %s: another device of the network has it: %w", addr, syscall.EADDRINUSE)
	}
	var ports []*port
	for range shards {
		fd, err := shm.NewEvent()
		if err != nil {
			for _, p := range ports {
				_ = unix.Close(p.fd)
			}
			return nil, 0, err
		}
		p := &port{network: n, addr: addr, gid: gid, fd: fd}
		slab := make([]byte, inboxSize*maxDatagram)
		for i := range p.inbox {
			p.inbox[i].bytes = slab[i*maxDatagram : i*maxDatagram : (i+1)*maxDatagram]
		}
		ports = append(ports, p)
	}
	if n.ports == nil {
		n.ports = map[ib.GID][]*port{}
	}
	n.ports[gid] = ports
	n.made++
	return ports, n.made - 1, nil
}

// find returns the port of the shard that a queue pair belongs to, nil if nobody has the address.
func (n *Network) find(g ib.GID, to ib.QPN) *port {
	n.mu.RLock()
	defer n.mu.RUnlock()
	ports := n.ports[g]
	if len(ports) == 0 {
		return nil
	}
	return ports[nic.ShardOf(to, len(ports))]
}

func (n *Network) detach(p *port) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.Contains(n.ports[p.gid], p) {
		delete(n.ports, p.gid)
	}
	for g := range n.groups {
		n.leave(p, g)
	}
}

// inboxSize is how many datagrams wait at a device; a sender finds the port congested then.
const inboxSize = 256

// maxDatagram is the longest: headers, 4096 bytes and ICRC.
const maxDatagram = wire.MaxHeader + 4096 + wire.ICRCSize

// port is a device's end of the network. It implements nic.Port.
type port struct {
	network  *Network
	addr     netip.Addr
	gid      ib.GID
	fd       int
	counters nic.PortCounters

	mu     sync.Mutex
	inbox  [inboxSize]datagram // ring; buffers are kept for the next round
	first  int                 // of those that wait or are given
	given  int                 // at first: packets that the last Recv gave out refer to them
	waits  int                 // behind them
	rung   bool                // the descriptor is readable
	closed bool
}

// datagram is one on its way.
type datagram struct {
	bytes        []byte
	source, dest ib.GID
	sourcePort   uint16
	trafficClass uint8
	hopLimit     uint8
}

// Send implements nic.Port.
func (p *port) Send(_ clock.Time, frames []wire.Frame) (sent int, err error) {
	for ; sent < len(frames); sent++ {
		f := &frames[sent]
		if f.BTH().DestQP() == ib.MulticastQPN {
			if err := p.flood(f); err != nil {
				return sent, &nic.FrameFault{Err: err}
			}
		} else if to := p.network.find(f.Path.Dest, f.BTH().DestQP()); to != nil {
			ok, err := to.put(f)
			if err != nil {
				return sent, &nic.FrameFault{Err: err}
			}
			if !ok {
				return sent, nil
			}
		}
		p.counters.SentPackets.Add(1)
		p.counters.SentBytes.Add(uint64(f.Len()))
	}
	return sent, nil
}

// flood hands a frame to everybody in a group but the sender. Whose inbox is full loses it, as on a real network.
func (p *port) flood(f *wire.Frame) error {
	p.network.mu.RLock()
	defer p.network.mu.RUnlock()
	for _, to := range p.network.groups[f.Path.Dest] {
		if to.gid == p.gid {
			continue
		}
		if _, err := to.put(f); err != nil {
			return err
		}
	}
	return nil
}

// Join implements nic.Grouper.
func (p *port) Join(group ib.GID) error {
	n := p.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.groups == nil {
		n.groups = map[ib.GID][]*port{}
	}
	n.groups[group] = append(n.groups[group], p)
	return nil
}

// Leave implements nic.Grouper.
func (p *port) Leave(group ib.GID) {
	n := p.network
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leave(p, group)
}

func (n *Network) leave(p *port, group ib.GID) {
	left := slices.DeleteFunc(n.groups[group], func(o *port) bool { return o == p })
	if n.groups[group] = left; len(left) == 0 {
		delete(n.groups, group)
	}
}

// put copies a frame into the inbox, and reports false when that is full.
func (p *port) put(f *wire.Frame) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return true, nil // lost, as on any wire
	}
	if p.given+p.waits == inboxSize {
		return false, nil
	}
	d := &p.inbox[(p.first+p.given+p.waits)%inboxSize]
	b, err := f.AppendTo(d.bytes[:0], 0)
	if err != nil {
		return false, err
	}
	d.bytes = b
	d.source, d.dest, d.sourcePort = f.Path.Source, f.Path.Dest, f.Path.SourcePort
	d.trafficClass, d.hopLimit = f.Path.TrafficClass, f.Path.HopLimit
	p.waits++
	if !p.rung {
		p.rung = true
		shm.Ring(p.fd)
	}
	return true, nil
}

// Recv implements nic.Port.
func (p *port) Recv(_ clock.Time, packets []wire.Packet) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first = (p.first + p.given) % inboxSize
	p.given = 0
	for n < len(packets) && p.waits > 0 {
		d := &p.inbox[(p.first+p.given)%inboxSize]
		p.given++
		p.waits--
		in := wire.Datagram{
			Bytes: d.bytes, Source: d.source, Dest: d.dest, SourcePort: d.sourcePort,
			TrafficClass: d.trafficClass, HopLimit: d.hopLimit, IDKnown: true,
		}
		if drop := wire.Parse(&packets[n], &in); drop != wire.Accepted {
			p.counters.Dropped[drop].Add(1)
			continue
		}
		p.counters.ReceivedPackets.Add(1)
		p.counters.ReceivedBytes.Add(uint64(len(d.bytes)))
		n++
	}
	if p.waits == 0 && p.rung {
		p.rung = false
		shm.Drain(p.fd)
	}
	return n
}

// Descriptor implements nic.Port.
func (p *port) Descriptor() int { return p.fd }

// Counters implements nic.Port.
func (p *port) Counters() *nic.PortCounters { return &p.counters }

// Close implements nic.Port.
func (p *port) Close() error {
	p.network.detach(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	return unix.Close(p.fd)
}
