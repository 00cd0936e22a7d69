package hosts

import (
	"encoding/binary"
	"net/netip"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/nettest"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/wire"
)

// Every service on one host: between two addresses of 127.0.0.0/8, over sockets, and at ::1, of which there is one.
func TestLoopback(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: daemons in network namespaces")
	}
	for _, c := range []struct {
		name, family string
		addrs        [2]string
	}{{"127.0.0.0", "v4", [2]string{"127.0.0.1", "127.0.0.2"}}, {"::1", "v6", [2]string{"::1", "::1"}}} {
		t.Run(c.name, func(t *testing.T) {
			ns := newNamespace(t)
			check(t, ns.LinkSetUp(must(ns.LinkByName("lo"))))
			a := &host{t: t, ns: ns, number: 1, fixed: netip.MustParseAddr(c.addrs[0]), socket: filepath.Join(t.TempDir(), "s")}
			b := &host{t: t, ns: ns, number: 2, fixed: netip.MustParseAddr(c.addrs[1]), socket: a.socket}
			if a.fixed == b.fixed {
				a.launch("s0=" + c.addrs[0])
				a.open("s0")
				b.open("s0")
			} else {
				a.launch("s0="+c.addrs[0], "s1="+c.addrs[1])
				a.open("s0")
				b.open("s1")
			}
			for _, s := range services {
				if s.carry != nil {
					t.Run(s.name, func(t *testing.T) {
						s.carry(t, a, b, c.family)
						s.carry(t, b, a, c.family)
					})
				}
			}
		})
	}
}

// Hosts whose IPv6 is switched off have their IPv4 addresses, and nothing else is missing.
func TestWithoutIPv6(t *testing.T) {
	w := makeNetwork(t, 2, false)
	a, b := w.hosts[0], w.hosts[1]
	for _, s := range services {
		if s.carry != nil {
			t.Run(s.name, func(t *testing.T) { s.carry(t, a, b, "v4") })
		}
	}
	for _, h := range w.hosts {
		if list := must(h.ctx.QueryGIDTable(1)); len(list) != 1 || !list[0].GID.Is4() {
			t.Errorf("host %d: GIDs %v", h.number, list)
		}
	}
}

// A RoCEv2 packet may have no UDP checksum over IPv6 either: ConnectX and rxe send none, for the ICRC covers more (RFC 6936). What a
// raw socket sends, to the last byte, reaches the queue pair; with a checksum that is wrong it does not.
func TestNoChecksumOverIPv6(t *testing.T) {
	w := newNetwork(t, 2)
	from, to := w.hosts[0], w.hosts[1]
	s := newSide(t, to, "v6", ib.QPTypeUD)
	check(t, s.qp.ActivateUD(verbs.UDAttr{QKey: qkey, PSN: s.end.PSN}))
	payload := []byte("no checksum over IPv6")
	for i, c := range []struct {
		checksum uint16
		comes    bool
	}{{0x1234, false}, {0, true}} {
		id := uint64(i)
		if i == 0 {
			check(t, s.qp.PostRecv(s.recv(7, verbs.GRHSize+len(payload))))
		}
		before := to.counters()["port_rcv_packets"]
		sendRaw(t, from, to, datagram(from, to, s.end.QPN, ib.PSN(id), payload), c.checksum)
		if !c.comes {
			continue // it would be in front of the next one
		}
		s.expect(7)
		if got := string(s.mem[verbs.GRHSize:][:len(payload)]); got != string(payload) {
			t.Errorf("%q came", got)
		}
		if n := to.counters()["port_rcv_packets"] - before; n != 1 {
			t.Errorf("%d packets came, want 1", n)
		}
	}
}

// rawPort is the UDP port that raw packets come from.
const rawPort = 50000

// datagram is a UD packet from one host to a queue pair of the other, as UDP payload.
func datagram(from, to *host, dest ib.QPN, psn ib.PSN, payload []byte) []byte {
	f := wire.NewBurst(1).Next()
	h := f.SetHeader(wire.UDSendOnly)
	f.BTH().SetPKey(ib.DefaultPKey)
	f.BTH().SetDestQP(dest)
	f.BTH().SetPSN(psn)
	deth := (*wire.DETH)(h[wire.BTHSize:])
	deth.SetQKey(qkey)
	deth.SetSourceQP(0x123)
	f.Path = &wire.Path{Source: ib.GIDFromAddr(from.addr("v6")), Dest: ib.GIDFromAddr(to.addr("v6")), SourcePort: rawPort, HopLimit: 64}
	f.Add(&wire.Buffer{B: payload}, 0, len(payload))
	return must(f.AppendTo(nil, 0))
}

// sendRaw sends UDP payload with a checksum of one's own choice.
func sendRaw(t *testing.T, from, to *host, payload []byte, checksum uint16) {
	t.Helper()
	packet := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(packet[0:], rawPort)
	binary.BigEndian.PutUint16(packet[2:], 4791)
	binary.BigEndian.PutUint16(packet[4:], uint16(8+len(payload)))
	binary.BigEndian.PutUint16(packet[6:], checksum)
	packet = append(packet, payload...)
	check(t, nettest.Inside(int(from.ns.ns), func() error {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Bind(fd, &unix.SockaddrInet6{Addr: from.addr("v6").As16()}); err != nil {
			return err
		}
		return unix.Sendto(fd, packet, 0, &unix.SockaddrInet6{Addr: to.addr("v6").As16()})
	}))
}
