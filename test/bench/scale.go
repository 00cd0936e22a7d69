package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// The curves of make plots: how throughput and latency go with the size of messages, the number of queue pairs, loss, and
// shards. They are measured here and drawn by test/plots, which knows them from a file.

// curve is one line of a figure.
type curve struct {
	Figure string  `json:"figure"` // size, qps, loss or shards
	Series string  `json:"series"`
	Points []point `json:"points"`
}

type point struct {
	X    float64 `json:"x"`
	Gbit float64 `json:"gbit_per_s,omitempty"`
	Msg  float64 `json:"msg_per_s,omitempty"`
	P50  float64 `json:"p50_us,omitempty"`
	P99  float64 `json:"p99_us,omitempty"`
}

// scale measures all curves and writes them to a file.
func (s *suite) scale(file, only string) error {
	var all []curve
	for _, f := range []struct {
		name string
		of   func() ([]curve, error)
	}{{"size", s.bySize}, {"qps", s.byQueuePairs}, {"loss", s.byLoss}, {"shards", s.byShards}} {
		if only != "" && only != f.name {
			continue
		}
		began := time.Now()
		curves, err := f.of()
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %.0f s\n", f.name, time.Since(began).Seconds())
		all = append(all, curves...)
	}
	text, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// places are where both ends of a connection are.
var places = []struct{ name, flag string }{{"one daemon", device}, {"two daemons", daemons}}

// bySize has for each place the throughput of one queue pair, and latency: half a round trip.
func (s *suite) bySize() (all []curve, err error) {
	for _, p := range places {
		for _, test := range []string{"send-bw", "send-lat"} {
			c := curve{Figure: "size", Series: p.name}
			results, err := s.perfAll(test, p.flag, "--all", "--duration", (s.length / 2).String())
			if err != nil {
				return nil, err
			}
			for _, r := range results {
				at := point{X: r.Size}
				if test == "send-bw" {
					at.Gbit, at.Msg = r.Gbit, r.Msg
				} else {
					at.P50, at.P99 = r.P50, r.P99
				}
				c.Points = append(c.Points, at)
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// byQueuePairs has WRITEs of 4 KiB, up to 4,096 of them under way.
func (s *suite) byQueuePairs() (all []curve, err error) {
	for _, p := range places {
		c := curve{Figure: "qps", Series: "WRITE 4 KiB, " + p.name}
		for _, n := range []int{1, 3, 10, 30, 100, 300, 1000, 3000, 10000} {
			if p.flag == device {
				n = min(n, 8000) // and as many at the other end: a device has 16,384
			}
			depth := min(max(4096/n, 1), 128)
			r, err := s.perf("write-bw", p.flag, "--size=4096", fmt.Sprint("--qps=", n), fmt.Sprint("--tx-depth=", depth), "--cq-mod=1")
			if err != nil {
				return nil, err
			}
			c.Points = append(c.Points, r.at(float64(n)))
		}
		all = append(all, c)
	}
	return all, nil
}

// byLoss has WRITEs of 1 MiB between two daemons that lose packets in both directions, by percent.
func (s *suite) byLoss() (all []curve, err error) {
	for _, qps := range []int{1, 16} {
		all = append(all, curve{Figure: "loss", Series: fmt.Sprintf("WRITE 1 MiB, %d queue pairs", qps)})
	}
	all[0].Series = "WRITE 1 MiB, 1 queue pair"
	for _, percent := range []float64{0, 0.1, 0.3, 1, 2, 3, 5, 7, 10} {
		var done undo
		p, err := s.losing(percent/100, &done)
		if err != nil {
			return nil, done.because(err)
		}
		for i, qps := range []string{"--qps=1", "--qps=16"} {
			r, err := p.perf("write-bw", mebi, qps, "--tx-depth=4")
			if err != nil {
				// A connection may end here: seven retries in a row can all be lost.
				fmt.Fprintf(os.Stderr, "loss of %g %%, %s: %v\n", percent, qps, err)
				continue
			}
			all[i].Points = append(all[i].Points, r.at(percent))
		}
		done.all()
	}
	return all, nil
}

// byShards has 16 queue pairs that are divided among shards.
func (s *suite) byShards() (all []curve, err error) {
	for _, p := range places {
		for _, what := range []struct{ name, test, size string }{{"WRITE 64 KiB", "write-bw", "--size=65536"}, {"SEND 64 B", "send-bw", "--size=64"}} {
			c := curve{Figure: "shards", Series: what.name + ", " + p.name}
			for n := 1; n <= 4; n++ {
				r, err := s.perf(what.test, p.flag, what.size, "--qps=16", "--tx-depth=64", fmt.Sprint("--shards=", n))
				if err != nil {
					return nil, err
				}
				c.Points = append(c.Points, r.at(float64(n)))
			}
			all = append(all, c)
		}
	}
	return all, nil
}

func (r *result) at(x float64) point {
	return point{X: x, Gbit: r.Gbit, Msg: r.Msg, P50: r.P50, P99: r.P99}
}

// perfAll is perf for several sizes.
func (s *suite) perfAll(args ...string) (all []result, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience+100*s.length)
	defer cancel()
	c := exec.CommandContext(ctx, s.binary, append([]string{"perf", "--udp-port", udpPort, "-o", "json"}, args...)...)
	c.Stderr = os.Stderr
	text, err := c.Output()
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(text)); d.More(); {
		var r result
		if err := d.Decode(&r); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}
