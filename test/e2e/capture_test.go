package e2e

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnic/softnicd/internal/progtest"
)

// The demo's capture, judged by tshark and by an ICRC of our own. A packet that crossed UDP is in it twice, as it left and
// as it arrived; the JSON has those that left.
func TestDemoCapture(t *testing.T) {
	for _, c := range []struct {
		name string
		each int
		args []string
	}{{"udp", 2, nil}, {"local", 1, []string{"--local"}}} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "demo.pcapng")
			d := runDemo(t, append(c.args, "--capture", file)...)
			frames := readPcapng(t, file)
			sent := 0
			for i, f := range frames {
				if f.outbound {
					sent++
				}
				if got, want := icrcOf(t, f.data); got != want {
					t.Errorf("frame %d: ICRC %#08x, by the specification %#08x", i+1, got, want)
				}
				if !strings.Contains(f.comment, "QP") && !strings.Contains(f.comment, "qp") {
					t.Errorf("frame %d: comment %q names no queue pair", i+1, f.comment)
				}
			}
			if sent != len(d.Packets) || len(frames) != c.each*sent {
				t.Errorf("the capture has %d frames, %d of them sent, the JSON %d packets", len(frames), sent, len(d.Packets))
			}
			tsharkAgrees(t, file, len(frames))
		})
	}
}

// tsharkAgrees has each packet dissected as RoCE, and none found malformed or remarkable.
func tsharkAgrees(t *testing.T, file string, want int) {
	t.Helper()
	tshark := progtest.Need(t, "tshark")
	r := finish(t, 2*patience, exec.Command(tshark, "-n", "-r", file, "-T", "fields", "-E", "separator=|",
		"-e", "infiniband.bth.opcode", "-e", "infiniband.invariant.crc", "-e", "_ws.malformed", "-e", "_ws.expert.message", "-e", "frame.protocols", "-e", "frame.comment"))
	if r.code != 0 {
		t.Fatalf("tshark: exit code %d: %s", r.code, r.stderr)
	}
	got := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if len(got) != want {
		t.Errorf("tshark sees %d packets of %d", len(got), want)
	}
	for i, line := range got {
		f := strings.Split(line, "|")
		// Wireshark counts the packet's comment as an expert's; it has to be the only one.
		if len(f) != 6 || f[0] == "" || f[1] == "" || f[2] != "" || f[3] != f[5] || !strings.Contains(f[4], "infiniband") {
			t.Errorf("packet %d: opcode|ICRC|malformed|expert|protocols|comment %q", i+1, line)
		}
	}
}

// icrcOf returns the ICRC that a frame of the capture has and the one it should have, by the letter of the
// specification and bit by bit (IBA 7.8.1, and A17.3.4 for RoCEv2): the CRC-32 of Ethernet over 64 bits of ones, the IP
// header with TTL, ToS and checksum as ones, the UDP header with its checksum as ones, the BTH with resv8a as ones, and
// the rest up to the ICRC itself.
func icrcOf(t *testing.T, frame []byte) (got, want uint32) {
	t.Helper()
	if binary.BigEndian.Uint16(frame[12:]) != 0x0800 {
		t.Fatalf("ethertype %#x", frame[12:14])
	}
	ip := frame[14:]
	header := int(ip[0]&15) * 4
	packet := append([]byte(nil), ip[:binary.BigEndian.Uint16(ip[2:])]...)
	packet[1], packet[8], packet[10], packet[11] = 0xff, 0xff, 0xff, 0xff
	udp := packet[header:]
	udp[6], udp[7] = 0xff, 0xff
	udp[8+4] = 0xff // resv8a
	end := len(packet) - 4

	crc := ^uint32(0)
	step := func(b byte) {
		crc ^= uint32(b)
		for range 8 {
			if crc&1 != 0 {
				crc = crc>>1 ^ 0xedb88320
			} else {
				crc >>= 1
			}
		}
	}
	for range 8 {
		step(0xff)
	}
	for _, b := range packet[:end] {
		step(b)
	}
	return binary.LittleEndian.Uint32(packet[end:]), ^crc
}

type capturedFrame struct {
	data     []byte
	comment  string
	outbound bool
}

// readPcapng reads the packets of a pcapng file (draft-ietf-opsawg-pcapng), without the code that wrote it.
func readPcapng(t *testing.T, path string) (frames []capturedFrame) {
	t.Helper()
	b, err := os.ReadFile(path)
	check(t, err)
	le := binary.LittleEndian
	for len(b) > 0 {
		if len(b) < 12 || int(le.Uint32(b[4:])) > len(b) || le.Uint32(b[4:])%4 != 0 {
			t.Fatalf("a block of the capture is cut off: % x", b[:min(len(b), 12)])
		}
		size := int(le.Uint32(b[4:]))
		if le.Uint32(b[size-4:]) != uint32(size) {
			t.Fatalf("a block of %d bytes ends with %d", size, le.Uint32(b[size-4:]))
		}
		if le.Uint32(b) == 6 {
			n := int(le.Uint32(b[20:]))
			f := capturedFrame{data: b[28 : 28+n]}
			for o := b[28+(n+3)&^3 : size-4]; len(o) >= 4 && le.Uint16(o) != 0; o = o[4+(int(le.Uint16(o[2:]))+3)&^3:] {
				switch v := o[4 : 4+le.Uint16(o[2:])]; le.Uint16(o) {
				case 1:
					f.comment = string(v)
				case 2:
					f.outbound = le.Uint32(v)&3 == 2
				}
			}
			frames = append(frames, f)
		}
		b = b[size:]
	}
	return frames
}
