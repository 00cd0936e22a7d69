package raw

import (
	"errors"
	"net/netip"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// Shards are the ports of a device that has several shards, one for each. The first receives for all of them, since packet
// sockets see whole frames, whatever is in front of the BTH; the device hands over what is for others. Each sends by itself.
type Shards struct{ ports []*Port }

var _ nic.Grouper = (*Shards)(nil)

// OpenShards opens n ports. The errors are those of Open.
func OpenShards(cfg Config, n int) (*Shards, error) {
	s := new(Shards)
	for i := range n {
		p, err := newPort(cfg, i > 0)
		if err != nil {
			_ = s.Close()
			return nil, err
		}
		s.ports = append(s.ports, p)
	}
	return s, nil
}

// Ports returns the ports, in order of the shards. Each is used by one goroutine; the device closes it.
func (s *Shards) Ports() []*Port { return s.ports }

// SetAddrs is that of Port, while nobody uses any of them; so is SetInterface.
func (s *Shards) SetAddrs(addrs []netip.Addr) error {
	return s.each(func(p *Port) error { return p.SetAddrs(addrs) })
}

// SetInterface moves all ports to another interface.
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

// ReceiveBuffer is that of the port that receives.
func (s *Shards) ReceiveBuffer() int { return s.ports[0].ReceiveBuffer() }

// Join implements nic.Grouper: what comes for groups, the first port receives.
func (s *Shards) Join(group ib.GID) error { return s.ports[0].Join(group) }

// Leave implements nic.Grouper.
func (s *Shards) Leave(group ib.GID) { s.ports[0].Leave(group) }

// Close closes all ports.
func (s *Shards) Close() error { return s.each((*Port).Close) }
