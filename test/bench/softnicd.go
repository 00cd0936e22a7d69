package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// suite runs softnicd perf.
type suite struct {
	length time.Duration
	binary string
	dir    string
}

// udpPort is away from 4791, where a daemon of the machine's own may be.
const udpPort = "14791"

func newSuite(length time.Duration, binary string) (*suite, error) {
	dir, err := os.MkdirTemp("", "softnicd-bench-")
	if err != nil {
		return nil, err
	}
	s := &suite{length: length, binary: binary, dir: dir}
	if binary == "" {
		s.binary = filepath.Join(dir, "softnicd")
		build := exec.Command("go", "build", "-o", s.binary, "github.com/softnic/softnicd/cmd/softnicd")
		if text, err := build.CombinedOutput(); err != nil {
			s.close()
			return nil, fmt.Errorf("build softnicd: %w: %s", err, text)
		}
	}
	return s, nil
}

func (s *suite) close() { os.RemoveAll(s.dir) }

// result is what of softnicd perf -o json is used here.
type result struct {
	Gbit float64 `json:"gbit_per_s"`
	Msg  float64 `json:"msg_per_s"`
	P50  float64 `json:"p50_us"`
}

func (s *suite) perf(args ...string) (r result, err error) {
	args = append([]string{"perf", "--udp-port", udpPort, "--duration", s.length.String(), "-o", "json"}, args...)
	c := exec.Command(s.binary, args...)
	c.Stderr = os.Stderr
	text, err := c.Output()
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}

// gbit, mmsg and roundTrip are measurements of softnicd perf with these arguments.
func (s *suite) gbit(args ...string) func() (float64, error) {
	return func() (float64, error) { r, err := s.perf(args...); return r.Gbit, err }
}

func (s *suite) mmsg(args ...string) func() (float64, error) {
	return func() (float64, error) { r, err := s.perf(args...); return r.Msg / 1e6, err }
}

func (s *suite) roundTrip(args ...string) func() (float64, error) {
	return func() (float64, error) { r, err := s.perf(args...); return 2 * r.P50, err }
}

const (
	daemons = "--local=daemons"
	device  = "--local=device"
	mebi    = "--size=1048576"
	deep    = "--tx-depth=1024"
	lists   = "--post-list=64"
)

// rows is the table.
func (s *suite) rows() []row {
	tcp := func() (float64, error) { return iperf(s.length) }
	copied := func() (float64, error) { return goCopy(s.length), nil }
	blast := func() (float64, error) { return gsoBlast(s.length) }
	ping := func() (float64, error) { return udpPingPong(s.length) }
	return []row{
		{"WRITE 1 MiB, one daemon", "Gbit/s", s.gbit("write-bw", device, mebi), "Go copy", copied, false, .6, .8},
		{"WRITE 1 MiB, two daemons", "Gbit/s", s.gbit("write-bw", daemons, mebi), "iperf3 TCP", tcp, false, 1.05, 1.35},
		{"SEND 1 MiB, two daemons", "Gbit/s", s.gbit("send-bw", daemons, mebi), "iperf3 TCP", tcp, false, 1.05, 1.35},
		{"READ 1 MiB, two daemons", "Gbit/s", s.gbit("read-bw", daemons, mebi), "iperf3 TCP", tcp, false, .95, 1.25},
		{"WRITE 1 MiB, two daemons", "Gbit/s", s.gbit("write-bw", daemons, mebi), "UDP GSO blast", blast, false, .55, .7},
		{"SEND 2 B round trip, two daemons", "us", s.roundTrip("send-lat", daemons), "UDP ping-pong", ping, true, 3.5, 2.5},
		{"SEND 2 B round trip, one daemon", "us", s.roundTrip("send-lat", device), "UDP ping-pong", ping, true, 1.5, 1},
		{"SEND 64 B, one daemon", "M/s", s.mmsg("msg-rate", device, deep, lists), "", nil, false, 3, 5},
		{"SEND 64 B, two daemons", "M/s", s.mmsg("msg-rate", daemons, deep, lists), "", nil, false, 1.5, 4},
	}
}
