package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/softnic/softnicd/internal/nettest"
)

// program is one of perftest's, run under softnicd exec: the same path as that of softnicd perf, through the library for
// programs in C.
type program struct {
	name   string
	args   []string
	column int // of its report that is measured, from 0
}

// Columns of perftest's reports.
const (
	bandwidth = 3 // on average, of *_bw --report_gbits
	typical   = 4 // microseconds, half a round trip, of *_lat
)

// perftestPort is where the two sides of a program meet.
const perftestPort = 18615

// beside measures a program and softnicd perf in turns, between the same daemons: one, or two.
func (s *suite) beside(p program, daemons int, perf func(*pair) func() (float64, error)) func() (*stage, error) {
	return func() (*stage, error) {
		for _, tool := range []string{p.name, "cc"} {
			if _, err := exec.LookPath(tool); err != nil {
				return nil, fmt.Errorf("%w: %w", errSkip, err)
			}
		}
		var done undo
		between, err := s.twoDaemons(&done)
		if err != nil {
			return nil, done.because(err)
		}
		if daemons == 1 {
			between.client = between.server
		}
		if _, err := p.run(between); err != nil { // builds the library, if that was not done before
			return nil, done.because(err)
		}
		return &stage{
			path:    func() (float64, error) { return p.run(between) },
			against: perf(between),
			done:    done.all,
		}, nil
	}
}

// run runs both sides and returns what the client reports.
func (p *program) run(between *pair) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	side := func(d *daemon, more ...string) *exec.Cmd {
		args := slices.Concat([]string{"exec", "--socket", d.socket, "--", p.name, "-F", "-p", strconv.Itoa(perftestPort)}, p.args, more)
		return exec.CommandContext(ctx, between.s.binary, args...)
	}
	server, client := side(between.server), side(between.client, ours.address)
	var said, answered limited
	server.Stdout, server.Stderr = &said, &said
	client.Stdout, client.Stderr = &answered, &answered
	if err := server.Start(); err != nil {
		return 0, err
	}
	defer server.Wait()
	defer server.Process.Signal(os.Interrupt)
	for !nettest.Listening(perftestPort) {
		if ctx.Err() != nil {
			return 0, fmt.Errorf("%s does not listen on port %d: %s", p.name, perftestPort, said.b)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := client.Run(); err != nil {
		return 0, fmt.Errorf("%s: %w: %s%s", p.name, err, answered.b, said.b)
	}
	_, report, _ := strings.Cut(string(answered.b), "#bytes")
	if lines := strings.SplitN(report, "\n", 3); len(lines) == 3 {
		if f := strings.Fields(lines[1]); len(f) > p.column {
			return strconv.ParseFloat(f[p.column], 64)
		}
	}
	return 0, fmt.Errorf("%s reports nothing: %s", p.name, answered.b)
}
