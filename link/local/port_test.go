package local

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

func add(t testing.TB, out *wire.Burst, path *wire.Path, op wire.Opcode, psn uint32, m wire.Memory, n int) {
	t.Helper()
	f := out.Next()
	if f == nil {
		t.Fatal("the burst is full")
	}
	f.Path = path
	f.SetHeader(op)
	f.BTH().SetDestQP(0x11)
	f.BTH().SetPSN(ib.NewPSN(psn))
	f.Add(m, 0, n/2)
	f.Add(m, uint64(n/2), n-n/2)
}

func payload(t testing.TB, p *wire.Packet) []byte {
	t.Helper()
	b := make([]byte, p.Len)
	if err := dma.ReadPieces(b, p.Payload); err != nil {
		t.Fatal(err)
	}
	return b
}

// Everything arrives once and in order, however unevenly it is sent and received; what does not fit waits.
func TestInOrder(t *testing.T) {
	for _, op := range []wire.Opcode{wire.RCSendOnly, wire.UDSendOnly} {
		p := New(8)
		path := &wire.Path{SourcePort: 7, TrafficClass: 3}
		packets := make([]wire.Packet, 3)
		sent, received := 0, 0
		for round := 0; received < 100; round++ {
			if round > 1000 {
				t.Fatal("no progress")
			}
			out := wire.NewBurst(16)
			for i := range 1 + round%7 {
				psn := sent + i
				add(t, out, path, op, uint32(psn), &wire.Buffer{B: bytes.Repeat([]byte{byte(psn)}, 33)}, 33)
			}
			n, err := p.Send(0, out.Frames())
			if err != nil {
				t.Fatal(err)
			}
			// The caller's burst is its own again: what waits must not refer to it.
			out.Consume(out.Len())
			for range 16 {
				add(t, out, path, op, 0xffffff, &wire.Buffer{B: make([]byte, 8)}, 8)
			}
			sent += n
			if round%3 == 0 {
				continue
			}
			for i := range packets[:p.Recv(0, packets)] {
				g := &packets[i]
				want := bytes.Repeat([]byte{byte(received)}, 33)
				if int(g.PSN()) != received || !g.Local || g.SourcePort != 7 || !bytes.Equal(payload(t, g), want) {
					t.Fatalf("packet %d: PSN %d, local %v, % x", received, g.PSN(), g.Local, payload(t, g))
				}
				received++
			}
		}
		for n := 1; n > 0; {
			n = p.Recv(0, packets)
			received += n
		}
		if received != sent || p.Waiting() != 0 {
			t.Errorf("%v: %d sent, %d received, %d wait", op, sent, received, p.Waiting())
		}
		c := p.Counters()
		if c.SentPackets.Load() != uint64(sent) || c.ReceivedBytes.Load() != c.SentBytes.Load() {
			t.Errorf("counters: %d sent, %d bytes in, %d out", c.SentPackets.Load(), c.ReceivedBytes.Load(), c.SentBytes.Load())
		}
	}
}

// Reliable payload is not touched before the receiver does; unreliable payload is the sender's again once it was sent.
func TestWhenPayloadIsRead(t *testing.T) {
	for op, want := range map[wire.Opcode]byte{
		wire.RCSendOnly: 2, wire.RCWriteOnly: 2, wire.RCReadResponseOnly: 2, wire.XRCSendOnly: 2,
		wire.UDSendOnly: 1, wire.UCSendOnly: 1, wire.UCWriteOnly: 1,
	} {
		p := New(4)
		b := []byte{1, 1, 1, 1}
		out := wire.NewBurst(4)
		add(t, out, new(wire.Path), op, 0, dma.NewEmbedded(b), 4)
		if n, err := p.Send(0, out.Frames()); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		copy(b, []byte{2, 2, 2, 2})
		packets := make([]wire.Packet, 4)
		if p.Recv(0, packets) != 1 {
			t.Fatal("nothing came")
		}
		if got := payload(t, &packets[0])[0]; got != want {
			t.Errorf("%v: payload %d, want %d", op, got, want)
		}
	}
}

func TestFault(t *testing.T) {
	gone, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(gone)
	p := New(8)
	out := wire.NewBurst(8)
	path := new(wire.Path)
	add(t, out, path, wire.UDSendOnly, 0, &wire.Buffer{B: make([]byte, 100)}, 100)
	add(t, out, path, wire.UDSendOnly, 1, dma.NewShared(gone, nil), 100)
	add(t, out, path, wire.UDSendOnly, 2, nil, 0)
	n, err := p.Send(0, out.Frames())
	var fault *nic.FrameFault
	if n != 1 || !errors.As(err, &fault) {
		t.Fatalf("Send took %d frames, %v", n, err)
	}
	out.Consume(2)
	if n, err := p.Send(0, out.Frames()); n != 1 || err != nil {
		t.Fatalf("Send took %d frames, %v", n, err)
	}
	packets := make([]wire.Packet, 4)
	if n := p.Recv(0, packets); n != 2 || packets[1].PSN() != 2 {
		t.Errorf("%d packets came", n)
	}
}

// When the room for copies is used up, Send takes fewer; nothing is lost.
func TestCopiesAreBounded(t *testing.T) {
	p := New(256)
	m := &wire.Buffer{B: make([]byte, 4096)}
	out := wire.NewBurst(256)
	for i := range 200 {
		add(t, out, new(wire.Path), wire.UDSendOnly, uint32(i), m, 4096)
	}
	packets := make([]wire.Packet, 256)
	next := 0
	for rounds := 0; next < 200 && rounds < 10; rounds++ {
		n, err := p.Send(0, out.Frames())
		if err != nil {
			t.Fatal(err)
		}
		out.Consume(n)
		for i := range packets[:p.Recv(0, packets)] {
			if int(packets[i].PSN()) != next {
				t.Fatalf("PSN %d, want %d", packets[i].PSN(), next)
			}
			next++
		}
	}
	if next != 200 {
		t.Errorf("%d packets came", next)
	}
}

func TestAllocs(t *testing.T) {
	var path wire.Path
	region := dma.NewEmbedded(make([]byte, 4096))
	remote := New(4)
	for _, port := range []nic.Port{New(64), Mux(New(64), remote, func(ib.GID) bool { return true })} {
		out := wire.NewBurst(32)
		packets := make([]wire.Packet, 16)
		allocs := testing.AllocsPerRun(100, func() {
			for i := range 20 {
				op := wire.RCSendOnly
				if i%2 == 0 {
					op = wire.UDSendOnly
				}
				add(t, out, &path, op, uint32(i), region, 1024)
			}
			n, _ := port.Send(0, out.Frames())
			out.Consume(n)
			for n > 0 {
				n -= port.Recv(0, packets)
			}
		})
		if allocs != 0 {
			t.Errorf("%T: %v allocations", port, allocs)
		}
	}
}

func BenchmarkSendRecv(b *testing.B) {
	p := New(64)
	var path wire.Path
	region := dma.NewEmbedded(make([]byte, 4096))
	out := wire.NewBurst(32)
	packets := make([]wire.Packet, 32)
	b.ReportAllocs()
	for i := 0; i < b.N; i += 32 {
		for range 32 {
			f := out.Next()
			f.Path = &path
			f.SetHeader(wire.RCSendOnly)
			f.Add(region, 0, 4096)
		}
		n, _ := p.Send(0, out.Frames())
		out.Consume(n)
		p.Recv(0, packets)
	}
}

// limited is a port that takes and gives at most so many at a time.
type limited struct {
	*Port
	take int
	err  error
}

func (l *limited) Send(now clock.Time, frames []wire.Frame) (int, error) {
	if len(frames) > l.take {
		n, _ := l.Port.Send(now, frames[:l.take])
		return n, l.err
	}
	return l.Port.Send(now, frames)
}

// A burst with both kinds of destination is split, and what was taken is always a beginning of it.
func TestMuxSend(t *testing.T) {
	home, away := ib.GID{15: 1}, ib.GID{15: 2}
	homes, aways := &wire.Path{Dest: home}, &wire.Path{Dest: away}
	down := errors.New("down")
	for _, c := range []struct {
		take int
		err  error
		sent int
	}{{9, nil, 6}, {1, nil, 3}, {1, down, 3}, {0, nil, 2}, {0, down, 2}} {
		local := New(16)
		remote := &limited{New(16), c.take, c.err}
		m := Mux(local, remote, func(g ib.GID) bool { return g == home })
		out := wire.NewBurst(8)
		for i, p := range []*wire.Path{homes, homes, aways, aways, homes, aways} {
			add(t, out, p, wire.RCSendOnly, uint32(i), nil, 0)
		}
		sent, err := m.Send(0, out.Frames())
		wantErr := c.err
		if sent != c.sent || err != wantErr {
			t.Errorf("take %d: sent %d, %v; want %d, %v", c.take, sent, err, c.sent, wantErr)
		}
		if n := local.Waiting() + remote.Waiting(); n != sent {
			t.Errorf("take %d: %d wait, %d were sent", c.take, n, sent)
		}
		if n := m.Counters().SentPackets.Load(); n != uint64(sent) {
			t.Errorf("take %d: %d counted", c.take, n)
		}
	}
}

// A run stays one on its way to this device, whose address may become another's meanwhile: then it goes out packet by
// packet.
func TestMuxRuns(t *testing.T) {
	home, away := ib.GID{15: 1}, ib.GID{15: 2}
	add := func(out *wire.Burst, path *wire.Path) {
		add(t, out, path, wire.RCWriteMiddle, 7, &wire.Buffer{B: bytes.Repeat([]byte{1, 2, 3, 4}, 3*64)}, 3*256)
		out.Frames()[out.Len()-1].SetRun(3)
	}
	local := New(16)
	remote := &limited{New(16), 9, nil}
	m := Mux(local, plain{remote}, func(g ib.GID) bool { return g == home })
	homes, aways := &wire.Path{Dest: home}, &wire.Path{Dest: away}
	if h, a := nic.LongestRun(m, homes, 300), nic.LongestRun(m, aways, 300); h != wire.MaxRun || a != 0 {
		t.Errorf("takes runs of %d home, of %d away", h, a)
	}
	if !nic.StaysHere(m, homes) || nic.StaysHere(m, aways) {
		t.Error("does not know what stays here")
	}
	for _, c := range []struct {
		take, sent int
		err        error
	}{
		{9, 4, nil},
		{2, 4, nil}, // a port that takes a part: the rest is lost
		{0, 1, nil},
		{0, 1, errors.New("down")},
	} {
		*local, *remote = *New(16), limited{New(16), c.take, c.err}
		out := wire.NewBurst(8)
		for _, p := range []*wire.Path{homes, aways, homes, homes} {
			add(out, p)
		}
		sent, err := m.Send(0, out.Frames())
		if sent != c.sent || err != c.err {
			t.Errorf("take %d: sent %d, %v; want %d, %v", c.take, sent, err, c.sent, c.err)
		}
		packets := make([]wire.Packet, 8)
		n := remote.Recv(0, packets)
		if n != min(c.take, 3) {
			t.Errorf("take %d: %d packets went out", c.take, n)
		}
		for i := range packets[:n] {
			if p := &packets[i]; p.Packets() != 1 || p.PSN() != ib.PSN(7+i) || len(payload(t, p)) != 256 {
				t.Errorf("packet %d: PSN %v of %d, %d bytes", i, p.PSN(), p.Packets(), p.Len)
			}
		}
		if n := local.Recv(0, packets); n != c.sent-min(c.take, 1) || packets[0].Packets() != 3 {
			t.Errorf("take %d: %d frames came home, the first of %d packets", c.take, n, packets[0].Packets())
		}
	}
}

// Neither port starves the other, and a call that does not fill all packets has left nothing behind.
func TestMuxRecv(t *testing.T) {
	home, away := &wire.Path{SourcePort: 1}, &wire.Path{SourcePort: 2}
	local, remote := New(64), New(64)
	m := Mux(local, remote, nil)
	out := wire.NewBurst(64)
	for i := range 40 {
		add(t, out, home, wire.RCSendOnly, uint32(i), nil, 0)
	}
	if _, err := local.Send(0, out.Frames()); err != nil {
		t.Fatal(err)
	}
	out.Consume(40)
	for i := range 4 {
		add(t, out, away, wire.RCSendOnly, uint32(i), nil, 0)
	}
	if _, err := remote.Send(0, out.Frames()); err != nil {
		t.Fatal(err)
	}
	packets := make([]wire.Packet, 8)
	got := map[uint16]int{}
	for call := 0; ; call++ {
		n := m.Recv(0, packets)
		for i := range packets[:n] {
			if int(packets[i].PSN()) != got[packets[i].SourcePort] {
				t.Fatal("out of order")
			}
			got[packets[i].SourcePort]++
		}
		if call == 1 && got[2] != 4 {
			t.Errorf("after two calls %d packets of the remote port", got[2])
		}
		if n < len(packets) {
			break
		}
	}
	if got[1] != 40 || got[2] != 4 {
		t.Errorf("got %v", got)
	}
}

// asked counts how often a port is asked.
type asked struct {
	*Port
	calls int
}

func (a *asked) Recv(now clock.Time, packets []wire.Packet) int {
	a.calls++
	return a.Port.Recv(now, packets)
}

// While local packets come a network that is quiet is seldom asked, but never left alone for long, and always asked when
// there is nothing local.
func TestMuxAsksQuietNetworkSeldom(t *testing.T) {
	path := &wire.Path{SourcePort: 1}
	local, remote := New(64), &asked{Port: New(64)}
	m := Mux(local, remote, nil)
	packets := make([]wire.Packet, 8)
	recv := func(now clock.Time, locals int) (n int) {
		out := wire.NewBurst(8)
		for i := range locals {
			add(t, out, path, wire.RCSendOnly, uint32(i), nil, 0)
		}
		if _, err := local.Send(now, out.Frames()); err != nil {
			t.Fatal(err)
		}
		return m.Recv(now, packets)
	}
	const us = clock.Time(time.Microsecond)
	// Every microsecond a local packet.
	now := clock.Time(time.Second)
	local200 := func() int {
		before := remote.calls
		for range 200 {
			now += us
			recv(now, 1)
		}
		return remote.calls - before
	}
	if n := local200(); n < 200/48 || n > 12 {
		t.Errorf("asked %d times in 200 us with local packets", n)
	}
	if at := nic.PortDeadline(m); at <= now || at > now.Add(longRest) {
		t.Errorf("asked again at %v, it is %v", at, now)
	}
	// Something comes from the network, and it is asked more often.
	out := wire.NewBurst(8)
	add(t, out, path, wire.RCSendOnly, 0, nil, 0)
	if _, err := remote.Send(now, out.Frames()); err != nil {
		t.Fatal(err)
	}
	late := now
	for recv(now, 0) == 0 {
		now += us
	}
	if now.Sub(late) > longRest {
		t.Errorf("a packet of the network was received after %v", now.Sub(late))
	}
	before := remote.calls
	for range 20 {
		now += us
		recv(now, 1)
	}
	if n := remote.calls - before; n < 3 {
		t.Errorf("asked %d times in 20 us after a packet", n)
	}
	// Nothing local: every call asks.
	now += clock.Time(time.Millisecond)
	before = remote.calls
	for range 20 {
		now += us
		recv(now, 0)
	}
	if n := remote.calls - before; n != 20 {
		t.Errorf("asked %d times in 20 calls", n)
	}
	if at := nic.PortDeadline(m); at != clock.Never {
		t.Errorf("asked again at %v though nothing is local", at)
	}
}
