package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
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

	daemons, addresses int               // that were given out
	errors             io.Writer         // what daemons say goes there
	env                []string          // of daemons, beside ours
	lines              []float64         // round trips of a cache line
	taken              []float64         // what it costs to take one back
	crowds             map[crowd]*hosted // that are there already
}

// udpPort is away from 4791, where a daemon of the machine's own may be.
const udpPort = "14791"

func newSuite(length time.Duration, binary string) (*suite, error) {
	dir, err := os.MkdirTemp("", "softnicd-bench-")
	if err != nil {
		return nil, err
	}
	s := &suite{length: length, binary: binary, dir: dir, errors: os.Stderr, crowds: make(map[crowd]*hosted)}
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

func (s *suite) close() {
	for _, h := range s.crowds {
		h.leave()
	}
	os.RemoveAll(s.dir)
}

// result is what of softnicd perf -o json is used here.
type result struct {
	Size float64 `json:"size"`
	Gbit float64 `json:"gbit_per_s"`
	Msg  float64 `json:"msg_per_s"`
	P50  float64 `json:"p50_us"`
	P99  float64 `json:"p99_us"`
}

func (s *suite) perf(args ...string) (r result, err error) {
	args = append([]string{"perf", "--udp-port", udpPort, "--duration", s.length.String(), "-o", "json"}, args...)
	ctx, cancel := context.WithTimeout(context.Background(), patience+10*s.length)
	defer cancel()
	c := exec.CommandContext(ctx, s.binary, args...)
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
