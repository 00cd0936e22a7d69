package raw

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/softnic/softnicd/link/internal/batch"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

// wiretap is a packet socket that sends whole frames, and sees those that come in.
type wiretap struct {
	t       testing.TB
	fd      int
	ifindex int
}

func newWiretap(t testing.TB, ifindex int) *wiretap {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
	if err := bind(fd, ifindex); err != nil {
		t.Fatal(err)
	}
	return &wiretap{t, fd, ifindex}
}

func (w *wiretap) send(frame []byte) {
	w.t.Helper()
	if err := unix.Sendto(w.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: w.ifindex}); err != nil {
		w.t.Fatal(err)
	}
}

// next returns the next frame to the port, and its tag.
func (w *wiretap) next() (frame []byte, tagged bool, tci uint16) {
	w.t.Helper()
	b, control := make([]byte, 70000), make([]byte, 128)
	for {
		n, c, _, _, err := unix.Recvmsg(w.fd, b, control, 0)
		if err != nil {
			w.t.Fatal(err)
		}
		udp := offIP + ipv4Header
		if n < udp+udpHeader || b[offIP] != 0x45 || binary.BigEndian.Uint16(b[udp+2:]) != wire.Port {
			continue
		}
		messages, err := unix.ParseSocketControlMessage(control[:c])
		if err != nil {
			w.t.Fatal(err)
		}
		for _, m := range messages {
			// struct tpacket_auxdata: status 0, vlan_tci 16.
			if m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA {
				tagged = binary.NativeEndian.Uint32(m.Data)&unix.TP_STATUS_VLAN_VALID != 0
				tci = binary.NativeEndian.Uint16(m.Data[16:])
			}
		}
		return b[:n], tagged, tci
	}
}

// arrive receives until so many packets came or were refused for a reason, and returns how many came.
func arrive(t *testing.T, to *Port, drop wire.Drop, n int) (came int) {
	t.Helper()
	packets := make([]wire.Packet, 8)
	refused := func() int { return int(to.Counters().Dropped[drop].Load()) }
	first := refused()
	for end := time.Now().Add(time.Second); came+refused()-first < n; {
		came += to.Recv(0, packets)
		if time.Now().After(end) {
			t.Fatalf("of %d, %d packets came: %s", n, came, tell(to.Counters()))
		}
	}
	return came
}

// Whatever identification a foreign sender chooses, its packets are taken, and of its ICRC every bit counts: of 65536 wrong
// ones link/udp would take one, see wire.Parse. IBA A17.3.4.
func TestForeignSender(t *testing.T) {
	_, to, p := openPair(t, Config{})
	w := newWiretap(t, loopback)
	for _, id := range []uint16{0, 1, 0x718c, 0xffff} {
		w.send(frameOf(t, p, wire.Ethernet{}, id, fill(256, 1)))
		if arrive(t, to, wire.DropICRC, 1) != 1 {
			t.Errorf("identification %#x: refused", id)
		}
	}
	// The same packet with another identification than its ICRC was made for.
	frame := frameOf(t, p, wire.Ethernet{}, 0x718c, fill(256, 1))
	frame[offIP+4]++
	fixSum(frame[offIP:])
	w.send(frame)
	if arrive(t, to, wire.DropICRC, 1) != 0 {
		t.Error("an identification that was changed on the way is taken")
	}
	// DF is covered as well.
	frame = frameOf(t, p, wire.Ethernet{}, 0x718c, fill(256, 1))
	frame[offIP+6] &^= 0x40
	fixSum(frame[offIP:])
	w.send(frame)
	if arrive(t, to, wire.DropICRC, 1) != 0 {
		t.Error("DF was taken off, and the packet is taken")
	}
	// What routers may change is not.
	frame = frameOf(t, p, wire.Ethernet{}, 0x718c, fill(256, 1))
	frame[offIP+1], frame[offIP+8] = 3, 9
	fixSum(frame[offIP:])
	w.send(frame)
	if arrive(t, to, wire.DropICRC, 1) != 1 {
		t.Error("TOS and TTL were changed on the way, and the packet is refused")
	}
}

// A foreign sender may leave the UDP checksum out. If it does not, it has to be right.
func TestForeignChecksum(t *testing.T) {
	_, to, p := openPair(t, Config{})
	w := newWiretap(t, loopback)
	for _, n := range []int{0, 1, 2, 255, 256} {
		frame := frameOf(t, p, wire.Ethernet{}, 0x718c, fill(n, 1))
		udp := frame[offIP+ipv4Header:]
		right := ^fold(sum(uint64(pseudoSum(p, true, len(udp))), udp))
		for _, c := range []struct {
			checksum uint16
			want     int
		}{{0, 1}, {right, 1}, {right + 1, 0}, {right ^ 0x8000, 0}} {
			binary.BigEndian.PutUint16(udp[6:], c.checksum)
			w.send(frame)
			if got := arrive(t, to, wire.DropIP, 1); got != c.want {
				t.Errorf("%d bytes, UDP checksum %#x, right would be %#x: %d packets", n, c.checksum, right, got)
			}
		}
	}
}

// A bit that flips behind the headers is noticed, whichever it is, but for those of BTH byte 4, which routers may write.
func TestBitFlips(t *testing.T) {
	_, to, p := openPair(t, Config{})
	w := newWiretap(t, loopback)
	good := frameOf(t, p, wire.Ethernet{}, 0x1234, fill(40, 1))
	bth := offIP + ipv4Header + udpHeader
	sent := 0
	for bit := bth * 8; bit < len(good)*8; bit++ {
		if bit/8 == bth+4 {
			continue
		}
		frame := append([]byte(nil), good...)
		frame[bit/8] ^= 1 << (bit % 8)
		w.send(frame)
		sent++
		if sent%64 != 0 && bit != len(good)*8-1 {
			continue
		}
		for to.Recv(0, make([]wire.Packet, 4)) > 0 {
			t.Fatalf("one of bits up to %d flipped, and the packet is taken", bit)
		}
	}
	var refused uint64
	for end := time.Now().Add(time.Second); refused < uint64(sent) && time.Now().Before(end); {
		if to.Recv(0, make([]wire.Packet, 4)) > 0 {
			t.Fatal("a packet with a bit flipped is taken")
		}
		refused = 0
		for i := range to.counters.Dropped {
			refused += to.counters.Dropped[i].Load()
		}
	}
	if refused != uint64(sent) {
		t.Errorf("%d of %d refused: %s", refused, sent, tell(to.Counters()))
	}
}

// Fragments are no packets, and the first of them is counted.
func TestFragments(t *testing.T) {
	_, to, p := openPair(t, Config{})
	w := newWiretap(t, loopback)
	frame := frameOf(t, p, wire.Ethernet{}, 7, fill(256, 1))
	frame[offIP+6] = 0x20
	fixSum(frame[offIP:])
	w.send(frame)
	frame[offIP+6], frame[offIP+7] = 0, 20
	fixSum(frame[offIP:])
	w.send(frame)
	w.send(frameOf(t, p, wire.Ethernet{}, 7, nil))
	if n := arrive(t, to, wire.DropIP, 2); n != 1 || to.Counters().Dropped[wire.DropIP].Load() != 1 {
		t.Errorf("%d packets; %s", n, tell(to.Counters()))
	}
}

// The priority of a frame is its packet's SL: the kernel has taken the tag off and tells of it; a second one, which it leaves
// where it is, is read as well, but not if it is that of a VLAN.
func TestPriority(t *testing.T) {
	n := newNetwork(t, 0)
	from, to := n.raw(t, 0, Config{}), n.raw(t, 1, Config{})
	meet(t, from, to, path(0, false)) // the cable works
	var w *wiretap
	n.at(t, 0, func() error { w = newWiretap(t, n.index[0]); return nil })
	for _, is6 := range []bool{false, true} {
		p := path(0, is6)
		for _, priority := range []uint8{0, 3, 7} {
			e := wire.Ethernet{Dest: [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, Tagged: true, Priority: priority}
			w.send(frameOf(t, p, e, 0x77, fill(100, 1)))
			if sl := arriveOne(t, to).SL; sl != priority {
				t.Errorf("priority %d is SL %d", priority, sl)
			}
		}
		w.send(frameOf(t, p, wire.Ethernet{Dest: [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}, 0x77, fill(100, 1)))
		if sl := arriveOne(t, to).SL; sl != 0 {
			t.Errorf("no tag is SL %d", sl)
		}
	}
	// As a kernel would show it that leaves tags in frames: straight into the port.
	frame := frameOf(t, path(0, false), wire.Ethernet{Tagged: true, Priority: 6}, 0x77, fill(100, 1))
	to.open(&batch.Received{Bytes: append(make([]byte, virtioHeader), frame...)})
	packets := make([]wire.Packet, 1)
	if to.Recv(0, packets) != 1 || packets[0].SL != 6 {
		t.Errorf("a tag in the frame: SL %d", packets[0].SL)
	}
}

// arriveOne waits for a packet.
func arriveOne(t *testing.T, to *Port) *wire.Packet {
	t.Helper()
	packets := make([]wire.Packet, 1)
	for end := time.Now().Add(time.Second); to.Recv(0, packets) == 0; {
		if time.Now().After(end) {
			t.Fatalf("nothing comes: %s", tell(to.Counters()))
		}
	}
	return &packets[0]
}

// The tag is the one of the VLAN, with the service level for a priority. A receiver takes what has no VLAN, for the kernel
// shows it the frames of VLANs too. The interface is made up: the kernel of the test may have none for VLANs.
func TestTag(t *testing.T) {
	n := newNetwork(t, 0)
	from, to := n.raw(t, 0, Config{}), n.raw(t, 1, Config{})
	var w *wiretap
	n.at(t, 1, func() error { w = newWiretap(t, n.index[1]); return nil })
	p := path(0, false)
	meet(t, from, to, p)
	h := *from.out.where.find(0, p)
	h.ethernet.Tagged = true
	p.SL = 5
	for _, vlan := range []uint16{0, 42} {
		h.ethernet.VLAN = vlan
		from.out.where.everything = &h
		for _, count := range []int{1, 8} { // alone, and as a group
			out := wire.NewBurst(16)
			for i := range count {
				add(t, out, p, wire.RCSendOnly, 100+i, true, fill(1000, 1))
			}
			got := 0
			if vlan == 0 {
				for _, r := range exchange(t, from, to, out, count) {
					if got++; r.sl != 5 {
						t.Errorf("a frame with priority 5 has the SL %d", r.sl)
					}
				}
			} else if k, err := from.Send(0, out.Frames()); k != count || err != nil {
				t.Fatalf("Send took %d of %d frames, %v", k, count, err)
			}
			if vlan == 0 && got != count {
				t.Errorf("%d of %d frames with a priority came", got, count)
			}
			for seen := false; !seen; {
				frame, tagged, tci := w.next()
				if len(frame) < 1000 {
					continue // of meet
				}
				if seen = true; !tagged || tci != 5<<13|vlan {
					t.Errorf("tagged %v, %#x", tagged, tci)
				}
			}
		}
	}
	if k := to.Recv(0, make([]wire.Packet, 4)); k != 0 {
		t.Errorf("%d packets of another VLAN came", k)
	}
}
