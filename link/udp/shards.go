package udp

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/link/internal/batch"
	"github.com/softnic/softnicd/nic"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Shards are the ports of a device that has several shards, one for each. For every address each has a socket, all bound
// to the same port, and the kernel chooses among them by the queue pair number in the datagram.
//
// The first socket is bound as that of a single port, exclusively, so that a port which is taken is an error. Only then it
// lets others join it (SO_REUSEPORT): those of this user, from where on the kernel tells them from nobody else's.
type Shards struct {
	ports []*Port
	steer func(shards int) []bpf.Instruction
}

var _ nic.Grouper = (*Shards)(nil)

// OpenShards binds the sockets of n ports. The errors are those of Open. steer makes the program that chooses a socket by
// its number, given the UDP payload; nil is ByQPN. Another, for tests, makes datagrams arrive at wrong shards.
func OpenShards(cfg Config, n int, steer func(shards int) []bpf.Instruction) (*Shards, error) {
	if steer == nil {
		steer = ByQPN
	}
	s := &Shards{steer: steer}
	for range n {
		p, err := newPort(cfg)
		if err != nil {
			s.Close()
			return nil, err
		}
		// The peer's device is likely to have as many. A group arrives whole, at the shard of its first packet, and what it has
		// for others would be handed over.
		p.out.Mixed = n == 1
		s.ports = append(s.ports, p)
	}
	if err := s.SetAddrs(cfg.Addrs); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// ByQPN is the program that steers datagrams to the shard of their destination, as nic.ShardOf has it. What is too short to
// have one goes to the first.
func ByQPN(shards int) []bpf.Instruction {
	mask := uint32(1)<<bits.Len(uint(shards-1)) - 1
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 4}, // BTH: a reserved byte, and the number
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: mask},
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: uint32(shards), SkipFalse: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetA{},
	}
}

// Ports returns the ports, in order of the shards. Each is used by one goroutine; the device closes it.
func (s *Shards) Ports() []*Port { return s.ports }

// SetAddrs is that of Port, for all of them, while nobody uses any.
func (s *Shards) SetAddrs(addrs []netip.Addr) (err error) {
	changes := make([]*change, len(s.ports))
	defer func() {
		for _, c := range changes {
			if c != nil && err != nil {
				c.undo()
			}
		}
	}()
	for i, p := range s.ports {
		open := p.openReceiver
		if i > 0 {
			open = p.openFollower
		}
		c, err := p.prepare(addrs, func(a netip.Addr) (*batch.Socket, error) {
			r, err := open(a)
			if err == nil && i == 0 && len(s.ports) > 1 {
				if err = share(r.FD); err != nil {
					unix.Close(r.FD)
				}
			}
			return r, err
		})
		if err != nil {
			return err
		}
		changes[i] = c
	}
	if len(s.ports) > 1 {
		for _, r := range changes[0].opened {
			// Any of those that share the port serves.
			if err := batch.Attach(r.FD, unix.SO_ATTACH_REUSEPORT_CBPF, s.steer(len(s.ports))); err != nil {
				return fmt.Errorf("steering of UDP port on %s: %w", r.Addr, err)
			}
		}
	}
	for i, p := range s.ports {
		p.adopt(changes[i])
	}
	return nil
}

// SetInterface is that of Port, for all of them, while nobody uses any.
func (s *Shards) SetInterface(index int) error {
	return s.each(func(p *Port) error { return p.SetInterface(index) })
}

func (s *Shards) each(f func(*Port) error) error {
	var errs []error
	for _, p := range s.ports {
		errs = append(errs, f(p))
	}
	return errors.Join(errs...)
}

// openFollower makes a socket beside one that is bound to the same address.
func (p *Port) openFollower(a netip.Addr) (*batch.Socket, error) {
	return p.receiver(a, func(fd int, a netip.Addr) error {
		if err := share(fd); err != nil {
			return err
		}
		return batch.BindDevice(fd, a, p.cfg.Port, p.cfg.Interface)
	})
}

func share(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return fmt.Errorf("SO_REUSEPORT: %w", err)
	}
	return nil
}

// ReceiveBuffer is that of Port: each shard has as much.
func (s *Shards) ReceiveBuffer() int { return s.ports[0].ReceiveBuffer() }

// Join implements nic.Grouper: what comes for groups, the first port receives.
func (s *Shards) Join(group ib.GID) error { return s.ports[0].Join(group) }

// Leave implements nic.Grouper.
func (s *Shards) Leave(group ib.GID) { s.ports[0].Leave(group) }

// Close closes all ports.
func (s *Shards) Close() error { return s.each((*Port).Close) }
