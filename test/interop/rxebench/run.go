package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// driver is what has the network of the machines.
type driver int

const (
	rxe driver = iota
	softnicd
)

func (d driver) String() string { return [...]string{"rxe", "softnicd"}[d] }

// test is a program of perftest with its options.
type test struct {
	Program string `json:"program"`
	Size    int    `json:"bytes"`
	// Loopback: both ends are in one machine.
	Loopback bool `json:"loopback"`
}

func (t test) latency() bool { return strings.HasSuffix(t.Program, "_lat") }

func (t test) link() string {
	if t.Loopback {
		return "loopback"
	}
	return "a-b"
}

func (t test) unit() string {
	if t.latency() {
		return "us"
	}
	return "MB/s" // of 2^20 bytes, as perftest counts
}

func (t test) String() string { return fmt.Sprintf("%s %s %d B", t.link(), t.Program, t.Size) }

// args are the program's, of both sides.
func (t test) args(o options) []string {
	args := []string{t.Program, "-s", fmt.Sprint(t.Size), "-m", fmt.Sprint(o.pathMTU())}
	if t.latency() {
		return append(args, "-n", fmt.Sprint(o.Iterations))
	}
	return append(args, "-D", fmt.Sprint(o.Seconds))
}

// tests are all of them, those that are asked for first first.
func tests(loopbackOnly bool, only string) []test {
	var all []test
	for _, loopback := range []bool{false, true} {
		if loopbackOnly && !loopback {
			continue
		}
		for _, op := range []string{"write", "send", "read"} {
			all = append(all, test{"ib_" + op + "_bw", 64 << 10, loopback}, test{"ib_" + op + "_bw", 1 << 20, loopback})
		}
		for _, op := range []string{"write", "send", "read"} {
			all = append(all, test{"ib_" + op + "_lat", 2, loopback})
		}
	}
	chosen := all[:0]
	for _, t := range all {
		if strings.Contains(t.String(), only) {
			chosen = append(chosen, t)
		}
	}
	return chosen
}

// usage is what the processor of a machine did during a run, its connecting included, as shares of the time.
type usage struct {
	User   float64 `json:"user"`
	System float64 `json:"system"`
	IRQ    float64 `json:"irq"`
	Idle   float64 `json:"idle"`
	Daemon float64 `json:"daemon"` // what of User and System softnicd's daemon took
}

// run is a measurement: a bandwidth, or the typical latency.
type run struct {
	Value   float64 `json:"value"`
	Minimum float64 `json:"minimum,omitempty"` // of the latency
	Client  usage   `json:"client"`
	Server  usage   `json:"server"` // as Client where both are in one machine
}

// pair is the machines: a calls b, or itself if there is no b.
type pair struct {
	a, b  *machine
	o     options
	using driver
	ready bool
	port  int // the next TCP port by which the programs meet; a used one may linger
}

// limit is how long a run may take. An emulated machine on a loaded one takes ten times what it takes alone.
const limit = 90 * time.Second

func (p *pair) machines() []*machine {
	if p.b == nil {
		return []*machine{p.a}
	}
	return []*machine{p.a, p.b}
}

// use gives the network to a driver.
func (p *pair) use(ctx context.Context, d driver) error {
	if p.ready && p.using == d {
		return nil
	}
	p.ready = false
	err := each(p.machines(), func(m *machine) error {
		_, err := m.guest(ctx, limit, "use", d.String(), m.address, p.o.AckFloor.String())
		return err
	})
	p.using, p.ready = d, err == nil
	return err
}

// measure runs a test over a driver.
func (p *pair) measure(ctx context.Context, t test, d driver) (run, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*limit)
	defer cancel()
	if err := p.use(ctx, d); err != nil {
		return run{}, err
	}
	p.port++
	port := fmt.Sprint(p.port)
	if t.Loopback {
		out, err := p.a.guest(ctx, limit, append([]string{"both", port, p.a.address}, t.args(p.o)...)...)
		if err != nil {
			return run{}, err
		}
		r, err := figures(t, out)
		r.Server = r.Client
		return r, err
	}
	return p.measureAcross(ctx, t, port)
}

func (p *pair) measureAcross(ctx context.Context, t test, port string) (run, error) {
	server := p.b.in(ctx, limit, append([]string{"sh", "/bench/guest.sh", "serve", port}, t.args(p.o)...)...)
	stdout, err := server.StdoutPipe()
	if err != nil {
		return run{}, err
	}
	if err := server.Start(); err != nil {
		return run{}, err
	}
	says := bufio.NewReader(stdout)
	line, _ := says.ReadString('\n')
	if strings.TrimSpace(line) != "listening" {
		rest, _ := io.ReadAll(says)
		return run{}, fmt.Errorf("the server: %s %s: %w", strings.TrimSpace(line), lastLines(string(rest), 4), server.Wait())
	}
	out, err := p.a.guest(ctx, limit, append([]string{"call", port, p.b.address}, t.args(p.o)...)...)
	rest, _ := io.ReadAll(says)
	ended := server.Wait()
	if err = errors.Join(err, ended); err != nil {
		return run{}, fmt.Errorf("%w: the server: %s", err, lastLines(string(rest), 4))
	}
	r, err := figures(t, out)
	if err != nil {
		return r, err
	}
	r.Server, err = processor(string(rest))
	return r, err
}

// figures reads what guest.sh and the program have printed. The line of figures is the last that has numbers alone: bytes,
// iterations, peak and average bandwidth; or bytes, iterations, least, most and typical latency.
func figures(t test, out string) (r run, err error) {
	var row []float64
	for line := range strings.Lines(out) {
		if numbers := allNumbers(line); len(numbers) >= 5 {
			row = numbers
		}
	}
	switch {
	case row == nil || row[0] != float64(t.Size):
		return r, fmt.Errorf("no line of figures: %s", lastLines(out, 6))
	case t.latency():
		r.Minimum, r.Value = row[2], row[4]
	default:
		r.Value = row[3]
	}
	if !(r.Value > 0) || math.IsInf(r.Value, 0) {
		return r, fmt.Errorf("too short for a figure, or the program could not measure its clock: %.0f messages", row[1])
	}
	r.Client, err = processor(out)
	return r, err
}

func allNumbers(line string) (numbers []float64) {
	for _, f := range strings.Fields(line) {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return nil
		}
		numbers = append(numbers, v)
	}
	return numbers
}

// processor reads the two lines of guest.sh's ticks: cpu, user, nice, system, idle, iowait, irq, softirq, steal, guest,
// guest_nice; and the daemon's user and system.
func processor(out string) (usage, error) {
	var at [][]float64
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, "@ticks cpu "); ok {
			at = append(at, allNumbers(rest))
		}
	}
	if len(at) != 2 || len(at[0]) != 12 || len(at[1]) != 12 {
		return usage{}, fmt.Errorf("no two lines of ticks: %s", lastLines(out, 4))
	}
	var d [12]float64
	total := 0.0
	for i := range d {
		d[i] = at[1][i] - at[0][i]
		if i < 8 {
			total += d[i]
		}
	}
	total = max(total, 1)
	return usage{
		User: (d[0] + d[1]) / total, System: d[2] / total, Idle: (d[3] + d[4]) / total, IRQ: (d[5] + d[6]) / total,
		Daemon: (d[10] + d[11]) / total,
	}, nil
}
