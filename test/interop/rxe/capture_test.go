package rxe

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// frame is one frame of a capture.
type frame struct {
	index    int // in its file
	at       clock.Time
	ethernet []byte // all of it
	datagram wire.Datagram
	packet   wire.Packet
}

func (f *frame) psn() ib.PSN { return f.packet.PSN() }

// payload is what the packet carries, without pad.
func (f *frame) payload() []byte {
	if f.packet.Len == 0 {
		return nil
	}
	return f.packet.Payload[0].Mem.Bytes(0, f.packet.Len)
}

// captures runs a test for each file, by its name.
func captures(t *testing.T, of func(name string) bool, run func(t *testing.T, name string, frames []*frame)) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.pcap")
	if err != nil || len(files) == 0 {
		t.Fatal("no captures", err)
	}
	n := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".pcap")
		if !of(name) {
			continue
		}
		n++
		t.Run(name, func(t *testing.T) { run(t, name, readCapture(t, file)) })
	}
	if n == 0 {
		t.Error("no capture is of this kind")
	}
}

// The header of a pcap file is 24 bytes, that of a packet 16. Ours are little endian, with microseconds.
const (
	pcapMagic        = 0xa1b2c3d4
	pcapHeader       = 24
	pcapPacketHeader = 16
)

func readCapture(t *testing.T, file string) (frames []*frame) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) < pcapHeader || binary.LittleEndian.Uint32(b) != pcapMagic {
		t.Fatal("not a pcap file with microseconds")
	}
	var began clock.Time
	for b = b[pcapHeader:]; len(b) > 0; {
		at := clock.Time(binary.LittleEndian.Uint32(b))*1e9 + clock.Time(binary.LittleEndian.Uint32(b[4:]))*1e3
		n := int(binary.LittleEndian.Uint32(b[8:]))
		if int(binary.LittleEndian.Uint32(b[12:])) != n {
			t.Fatalf("frame %d was cut", len(frames))
		}
		if len(frames) == 0 {
			began = at
		}
		f := &frame{index: len(frames), at: at - began, ethernet: b[pcapPacketHeader:][:n]}
		b = b[pcapPacketHeader+n:]
		if err := f.parse(); err != nil {
			t.Fatalf("frame %d: %v", f.index, err)
		}
		frames = append(frames, f)
	}
	return frames
}

const (
	ethernetLen = 14
	ipv4Len     = 20
	ipv6Len     = 40
	udpLen      = 8
)

// parse takes the frame apart. The IPv4 identification is known, so that the ICRC leaves no freedom.
func (f *frame) parse() error {
	d := &f.datagram
	ip := f.ethernet[ethernetLen:]
	var udp []byte
	switch binary.BigEndian.Uint16(f.ethernet[12:]) {
	case 0x0800:
		d.Source, d.Dest = gidOf(ip[12:16]), gidOf(ip[16:20])
		d.TrafficClass, d.HopLimit = ip[1], ip[8]
		d.ID, d.IDKnown, d.NoDF = binary.BigEndian.Uint16(ip[4:]), true, ip[6]&0x40 == 0
		udp = ip[ipv4Len:]
	case 0x86dd:
		d.Source, d.Dest = gidOf(ip[8:24]), gidOf(ip[24:40])
		d.TrafficClass, d.HopLimit = ip[0]<<4|ip[1]>>4, ip[7]
		udp = ip[ipv6Len:]
	default:
		return fmt.Errorf("EtherType %x", f.ethernet[12:14])
	}
	d.SourcePort = binary.BigEndian.Uint16(udp)
	d.Bytes = udp[udpLen:binary.BigEndian.Uint16(udp[4:])]
	if drop := wire.Parse(&f.packet, d); drop != wire.Accepted {
		return fmt.Errorf("dropped: %v", drop)
	}
	return nil
}

func gidOf(b []byte) ib.GID {
	a, _ := netip.AddrFromSlice(b)
	return ib.GID(a.As16())
}

// mtuOf is the path MTU of a scenario, which its name tells.
func mtuOf(name string) ib.MTU {
	var bytes int
	if _, after, found := strings.Cut(name, "mtu"); found {
		fmt.Sscan(after, &bytes)
	}
	for m := ib.MTU256; m <= ib.MTU4096; m++ {
		if m.Bytes() == bytes {
			return m
		}
	}
	return ib.MTU1024
}

// probed are the scenarios that were driven step by step, over 64 KiB of known bytes; the others are programs of
// rdma-core.
func probed(name string) bool {
	return !strings.HasPrefix(name, "cm_") && !strings.HasPrefix(name, "pingpong_")
}
