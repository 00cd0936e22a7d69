package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/progtest"
	"github.com/softnic/softnicd/link/local"
	"github.com/softnic/softnicd/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loop is a port on which what is sent comes back as if from the network.
type loop struct{ *local.Port }

func (l loop) Recv(now clock.Time, packets []wire.Packet) int {
	n := l.Port.Recv(now, packets)
	for i := range packets[:n] {
		packets[i].Local = false
	}
	return n
}

var (
	start = time.Unix(1700000000, 123456789)
	v4    = &wire.Path{Source: gid("192.0.2.1"), Dest: gid("192.0.2.2"), SourcePort: 50001, TrafficClass: 0x6a, HopLimit: 7}
	v6    = &wire.Path{Source: gid("2001:db8::1"), Dest: gid("2001:db8::2"), SourcePort: 50002, FlowLabel: 0x12345}
)

func gid(s string) ib.GID { return ib.GIDFromAddr(netip.MustParseAddr(s)) }

// conversation sends packets of many kinds through a wrapped port, at times a microsecond apart.
func conversation(t *testing.T, f *File, name string, isLocal func(ib.GID) bool) (sent int) {
	t.Helper()
	port, err := f.Wrap(name, loop{local.New(64)}, isLocal)
	if err != nil {
		t.Fatal(err)
	}
	ops := []struct {
		op wire.Opcode
		n  int
	}{
		{wire.RCSendOnly, 0}, {wire.RCSendOnly, 1}, {wire.RCSendOnlyImm, 63}, {wire.RCWriteFirst, 1024},
		{wire.RCWriteMiddle, 1024}, {wire.RCWriteLastImm, 5}, {wire.RCWriteOnly, 4096}, {wire.RCReadRequest, 0},
		{wire.RCReadResponseOnly, 100}, {wire.RCAcknowledge, 0}, {wire.RCCompareSwap, 0}, {wire.RCFetchAdd, 0},
		{wire.RCAtomicAcknowledge, 0},
	}
	packets := make([]wire.Packet, 4)
	for i, o := range ops {
		out := wire.NewBurst(4)
		for _, path := range []*wire.Path{v4, v6} {
			fr := out.Next()
			fr.Path, fr.QPN = path, 0x11
			fr.SetHeader(o.op)
			fr.BTH().SetDestQP(0x22)
			fr.BTH().SetPKey(0xffff)
			fr.BTH().SetPSN(ib.NewPSN(uint32(i)))
			fr.Add(&wire.Buffer{B: bytes.Repeat([]byte{byte(i)}, o.n)}, 0, o.n)
		}
		now := clock.Time(i * 1000)
		if n, err := port.Send(now, out.Frames()); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		if n := port.Recv(now, packets); n != 2 {
			t.Fatalf("%d packets came back", n)
		}
		sent += 2
	}
	return sent
}

func capture(t *testing.T) (file []byte, packets int) {
	t.Helper()
	var b bytes.Buffer
	f, err := New(&b, Config{Start: start})
	if err != nil {
		t.Fatal(err)
	}
	packets = 2 * conversation(t, f, "softnic0", func(g ib.GID) bool { return g == v6.Dest })
	packets += 2 * conversation(t, f, "softnic1", nil)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	return b.Bytes(), packets
}

// gopacket reads the file, decodes every frame, and every ICRC is right by another way of reckoning.
func TestGopacketReadsIt(t *testing.T) {
	file, want := capture(t)
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	for ; ; got++ {
		data, ci, err := r.ReadPacketData()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if err := checkICRC(data); err != nil {
			t.Errorf("packet %d: %v\n% x", got, err, data)
		}
		p := gopacket.NewPacket(data, layers.LinkTypeEthernet, gopacket.Default)
		if e := p.ErrorLayer(); e != nil {
			t.Errorf("packet %d: %v", got, e.Error())
		}
		if at := ci.Timestamp.Sub(start); at != time.Duration(got/4%13)*time.Microsecond {
			t.Errorf("packet %d at %v", got, at)
		}
	}
	if got != want || r.NInterfaces() != 2 {
		t.Errorf("%d packets of %d interfaces, want %d of 2", got, r.NInterfaces(), want)
	}
	if i, _ := r.Interface(1); i.Name != "softnic1" || i.Statistics.PacketsReceived != uint64(want/2) {
		t.Errorf("interface 1 is %+v", i)
	}
}

// checkICRC reckons as the specification's text does, with nothing of package wire: ones for an absent LRH, the headers
// with ones where routers write, and the CRC of all that with its ICRC is the constant residue.
func checkICRC(frame []byte) error {
	b := bytes.Repeat([]byte{0xff}, 8)
	ip := bytes.Clone(frame[14:])
	udp := 40
	switch binary.BigEndian.Uint16(frame[12:]) {
	case 0x0800:
		udp = 20
		ip[1], ip[8], ip[10], ip[11] = 0xff, 0xff, 0xff, 0xff // TOS, TTL, checksum
	case 0x86dd:
		ip[0] |= 0x0f // traffic class and flow label
		ip[1], ip[2], ip[3], ip[7] = 0xff, 0xff, 0xff, 0xff
	default:
		return errors.New("no IP")
	}
	ip[udp+6], ip[udp+7] = 0xff, 0xff // UDP checksum
	ip[udp+8+4] = 0xff                // BTH byte 4
	if crc := crc32.ChecksumIEEE(append(b, ip...)); crc != 0x2144df1c {
		return errors.New("wrong ICRC")
	}
	return nil
}

// Read gives back what was written, comments included.
func TestRead(t *testing.T) {
	file, want := capture(t)
	comments := map[string]int{}
	n := 0
	for p, err := range Read(bytes.NewReader(file)) {
		if err != nil {
			t.Fatal(err)
		}
		if p.Length != len(p.Data) || checkICRC(p.Data) != nil || p.Time.Sub(start) != time.Duration(n/4%13)*time.Microsecond {
			t.Errorf("packet %d: %+v", n, p)
		}
		comments[p.Interface+" "+p.Direction.String()+" "+strings.Join(p.Comments, "|")]++
		n++
	}
	each := want / 8
	for _, c := range []string{"softnic0 out qp 0x11", "softnic0 out qp 0x11 local", "softnic0 in qp 0x22"} {
		k := each
		if strings.Contains(c, "in") {
			k *= 2
		}
		if k != comments[c] && !strings.HasPrefix(c, "softnic0 in") {
			t.Errorf("%q: %d, want %d", c, comments[c], k)
		}
	}
	if n != want || comments["softnic1 out qp 0x11"] != 2*each || comments["softnic0 in qp 0x22"] != 2*each {
		t.Errorf("%d packets, want %d: %v", n, want, comments)
	}
}

// tshark finds the opcodes we wrote and nothing malformed.
func TestTsharkReadsIt(t *testing.T) {
	tshark := progtest.Need(t, "tshark")
	file, want := capture(t)
	name := filepath.Join(t.TempDir(), "capture.pcapng")
	if err := os.WriteFile(name, file, 0o600); err != nil {
		t.Fatal(err)
	}
	// tshark 4.0 takes the payload of any SEND for RPC over RDMA, and one of less than 16 bytes for a broken one.
	out, err := exec.Command(tshark, "--disable-protocol", "rpcordma", "-r", name, "-T", "fields", "-E", "separator=;", "-e", "infiniband.bth.opcode",
		"-e", "infiniband.bth.destqp", "-e", "frame.comment", "-e", "_ws.malformed", "-e", "frame.interface_name").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != want {
		t.Errorf("tshark sees %d packets, want %d", len(lines), want)
	}
	for i, l := range lines {
		f := strings.Split(l, ";")
		if len(f) != 5 || f[0] == "" || f[1] != "0x00000022" && f[1] != "0x000022" || !strings.HasPrefix(f[2], "qp 0x") ||
			f[3] != "" || !strings.HasPrefix(f[4], "softnic") {
			t.Errorf("packet %d: %s", i, l)
		}
	}
}

// A local packet appears once.
func TestLocalOnce(t *testing.T) {
	var b bytes.Buffer
	f, _ := New(&b, Config{Start: start})
	port, err := f.Wrap("softnic0", local.New(8), func(ib.GID) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	out := wire.NewBurst(1)
	fr := out.Next()
	fr.Path = v4
	fr.SetHeader(wire.RCSendOnly)
	if _, err := port.Send(5, out.Frames()); err != nil {
		t.Fatal(err)
	}
	if port.Recv(6, make([]wire.Packet, 1)) != 1 {
		t.Fatal("nothing came")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for p, err := range Read(&b) {
		if err != nil || p.Direction != Outbound || p.Comments[0] != "qp 0x0 local" {
			t.Errorf("%+v, %v", p, err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d packets", n)
	}
}

// gate is a writer that waits to be opened.
type gate struct {
	open chan struct{}
	err  error
	n    int
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.open
	g.n += len(b)
	return len(b), g.err
}

// A disk that does not answer costs packets, which are counted, and never time.
func TestSlowWriter(t *testing.T) {
	for _, failure := range []error{nil, errors.New("disk full")} {
		g := &gate{open: make(chan struct{}), err: failure}
		f, err := New(g, Config{Buffer: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		port, err := f.Wrap("softnic0", local.New(8), nil)
		if err != nil {
			t.Fatal(err)
		}
		packets := make([]wire.Packet, 8)
		out := wire.NewBurst(1)
		const sent = 200
		for range sent {
			fr := out.Next()
			fr.Path = v4
			fr.SetHeader(wire.RCSendOnly)
			fr.Add(&wire.Buffer{B: make([]byte, 1024)}, 0, 1024)
			if n, err := port.Send(1, out.Frames()); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			out.Consume(1)
			port.Recv(1, packets)
		}
		if n := f.Dropped(); n < sent/2 || n >= sent {
			t.Errorf("%d of %d packets dropped", n, sent)
		}
		close(g.open)
		var incomplete *IncompleteError
		if err := f.Close(); !errors.As(err, &incomplete) || incomplete.Dropped+incomplete.Written != sent ||
			incomplete.Unwrap() != failure {
			t.Errorf("Close: %v", err)
		}
		if g.n > 80<<10 {
			t.Errorf("%d bytes written", g.n)
		}
	}
}

func TestEmpty(t *testing.T) {
	var b bytes.Buffer
	f, err := New(&b, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for p, err := range Read(bytes.NewReader(b.Bytes())) {
		t.Error(p, err)
	}
	if _, err := pcapgo.NewNgReader(&b, pcapgo.DefaultNgReaderOptions); err != nil {
		t.Error(err)
	}
	if _, err := f.Wrap("late", local.New(1), nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Wrap after Close: %v", err)
	}
}

func TestAllocs(t *testing.T) {
	f, err := New(io.Discard, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	port, err := f.Wrap("softnic0", loop{local.New(8)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	out := wire.NewBurst(1)
	m := &wire.Buffer{B: make([]byte, 4096)}
	packets := make([]wire.Packet, 8)
	if n := testing.AllocsPerRun(100, func() {
		fr := out.Next()
		fr.Path, fr.QPN = v6, 0x123456
		fr.SetHeader(wire.RCSendOnly)
		fr.Add(m, 0, 4096)
		_, _ = port.Send(1, out.Frames())
		out.Consume(1)
		port.Recv(1, packets)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Files of others: either byte order, ticks of any size.
func TestReadForeign(t *testing.T) {
	type option struct {
		code uint16
		v    []byte
	}
	build := func(o binary.AppendByteOrder, resol byte, ticks uint64) []byte {
		block := func(kind uint32, body []byte, options ...option) []byte {
			for _, p := range options {
				body = o.AppendUint16(body, p.code)
				body = o.AppendUint16(body, uint16(len(p.v)))
				body = appendPadded(body, p.v)
			}
			b := o.AppendUint32(nil, kind)
			b = o.AppendUint32(b, uint32(len(body)+12))
			b = append(b, body...)
			return o.AppendUint32(b, uint32(len(body)+12))
		}
		header := o.AppendUint32(nil, byteOrderMagic)
		header = o.AppendUint16(header, 1)
		header = append(header, make([]byte, 10)...)
		iface := append(o.AppendUint16(nil, 1), make([]byte, 6)...)
		packet := o.AppendUint32(nil, 0)
		packet = o.AppendUint32(packet, uint32(ticks>>32))
		packet = o.AppendUint32(packet, uint32(ticks))
		packet = o.AppendUint32(packet, 3)
		packet = o.AppendUint32(packet, 60)
		packet = append(packet, 1, 2, 3, 0)
		file := block(blockSection, header)
		file = append(file, block(blockInterface, iface, option{optName, []byte("eth0")}, option{optTSResol, []byte{resol}})...)
		file = append(file, block(0x77, []byte{1, 2, 3, 4})...)
		return append(file, block(blockPacket, packet, option{optComment, []byte("one")}, option{optComment, []byte("two")})...)
	}
	for _, c := range []struct {
		order binary.AppendByteOrder
		resol byte
		ticks uint64
		want  time.Time
	}{
		{binary.LittleEndian, 6, 1700000000_250000, time.Unix(1700000000, 250e6)},
		{binary.BigEndian, 6, 1700000000_250000, time.Unix(1700000000, 250e6)},
		{binary.BigEndian, 9, 1700000000_250000001, time.Unix(1700000000, 250000001)},
		{binary.BigEndian, 0x80 | 10, 1700000000<<10 | 256, time.Unix(1700000000, 250e6)},
		{binary.LittleEndian, 0, 1700000000, time.Unix(1700000000, 0)},
		{binary.LittleEndian, 12, 5_000000000123, time.Unix(5, 0)},
		{binary.LittleEndian, 0xff, 5, time.Unix(0, 0)},
	} {
		file := build(c.order, c.resol, c.ticks)
		n := 0
		for p, err := range Read(bytes.NewReader(file)) {
			n++
			if err != nil || p.Interface != "eth0" || !p.Time.Equal(c.want) || p.Length != 60 ||
				!bytes.Equal(p.Data, []byte{1, 2, 3}) || strings.Join(p.Comments, " ") != "one two" {
				t.Errorf("%v resolution %#x: %+v, %v; want %v", c.order, c.resol, p, err, c.want)
			}
		}
		if n != 1 {
			t.Errorf("%d packets", n)
		}
		// A file that breaks off anywhere but between blocks says so.
		var last error
		for _, err := range Read(bytes.NewReader(file[:len(file)-1])) {
			last = err
		}
		if !errors.Is(last, io.ErrUnexpectedEOF) {
			t.Errorf("a file cut short: %v", last)
		}
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	file, _ := New(&b, Config{Start: start})
	_, _ = file.Wrap("softnic0", local.New(1), nil)
	file.add(&block{data: []byte{1, 2, 3}, comment: []byte("c")})
	_ = file.Close()
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		for p, err := range Read(bytes.NewReader(b)) {
			if n++; err == nil && len(p.Data) > len(b) || n > len(b) {
				t.Error("more than there is")
			}
		}
	})
}
