package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// perfResult is what one measurement gave. Bandwidth counts payload; with --bidirectional that of both sides. Latency is
// in microseconds.
type perfResult struct {
	Test       string         `json:"test"`
	Size       int            `json:"size"`
	QPs        int            `json:"qps"`
	Service    string         `json:"service"`  // as --service has it
	Messages   int64          `json:"messages"` // sent
	Lost       int64          `json:"lost"`     // of the sends of an unreliable service
	GbitPerS   float64        `json:"gbit_per_s"`
	GbitPeak   float64        `json:"gbit_per_s_peak"`
	MsgPerS    float64        `json:"msg_per_s"`
	Min        float64        `json:"min_us"`
	Avg        float64        `json:"avg_us"`
	Stdev      float64        `json:"stdev_us"`
	P50        float64        `json:"p50_us"`
	P90        float64        `json:"p90_us"`
	P99        float64        `json:"p99_us"`
	P999       float64        `json:"p999_us"`
	P9999      float64        `json:"p9999_us"`
	Max        float64        `json:"max_us"`
	CPUPerGB   float64        `json:"cpu_s_per_gb"`          // processor seconds by 1e9 bytes of payload
	Events     float64        `json:"events_per_completion"` // 0 without --events
	Verified   bool           `json:"verified"`              // --verify was given, and nothing differed
	Mismatches int            `json:"mismatches"`            // 0: a mismatch ends the run with an error
	Histogram  []histogramBin `json:"histogram,omitempty"`
	latency    bool
}

// newPerfResult joins what this side measured with both sides' totals. peer's rate counts only if it sent as well.
func newPerfResult(plan *perfPlan, own, both perfShare, latency *histogram) *perfResult {
	rate, peak, sent := own.BytesPerS, own.Peak, own.Sent
	if plan.Both {
		// As perftest has it: the best moments of both, which need not be the same.
		rate, peak, sent = rate+both.BytesPerS, peak+both.Peak, sent+both.Sent
	}
	lost := int64(0)
	if !plan.reliable() && plan.receives() && !plan.definition.latency && sent > 0 {
		// What arrived counts. The peer's messages arrived here.
		lost = sent - both.Received
		if plan.Both {
			lost -= own.Received
		}
		rate *= float64(sent-lost) / float64(sent)
	}
	r := &perfResult{
		Service: cmp.Or(plan.Service, "rc"), Lost: lost, Test: plan.Test, Size: plan.Size, QPs: plan.QPs, Messages: sent,
		GbitPerS: rate * 8 / 1e9, MsgPerS: rate / float64(plan.Size), GbitPeak: peak * 8 / 1e9,
		Min: micro(latency.min), Max: micro(latency.max), Avg: latency.mean(), Stdev: latency.stdev(),
		P50: latency.quantile(.5), P90: latency.quantile(.9), P99: latency.quantile(.99), P999: latency.quantile(.999),
		P9999: latency.quantile(.9999), Verified: plan.Verify, Histogram: latency.bins(), latency: plan.definition.latency,
	}
	if plan.definition.latency {
		r.Messages = int64(latency.n)
	}
	moved := float64(sent) * float64(plan.Size) / 1e9
	if plan.definition.latency && plan.oneWay() {
		moved *= 2
	}
	if moved > 0 {
		r.CPUPerGB = both.CPU.Seconds() / moved
	}
	if both.Completions > 0 {
		r.Events = float64(both.Events) / float64(both.Completions)
	}
	return r
}

// perfWriter prints results as they come.
type perfWriter struct {
	json bool
	out  io.Writer
	plan *perfPlan
	head bool
}

func newPerfWriter(output string, out io.Writer, first *perfPlan) *perfWriter {
	return &perfWriter{json: output == "json", out: out, plan: first}
}

func (w *perfWriter) write(r *perfResult) error {
	if w.json {
		return json.NewEncoder(w.out).Encode(r)
	}
	if !w.head {
		w.head = true
		w.printHead()
	}
	if !r.latency {
		w.printf(" %-10d %-14d %-18.2f %-21.2f %-15.6f %-12.3f", r.Size, r.Messages, r.GbitPeak, r.GbitPerS, r.MsgPerS/1e6, r.CPUPerGB)
		if !w.plan.reliable() && w.plan.receives() {
			w.printf(" %-10d", r.Lost)
		}
		if w.plan.Events {
			w.printf(" %.4f", r.Events)
		}
	} else {
		w.printf(" %-8d %-13d %-12.2f %-12.2f %-16.2f %-12.2f %-14.2f %-12.2f %-12.2f %-12.2f",
			r.Size, r.Messages, r.Min, r.Max, r.P50, r.Avg, r.Stdev, r.P99, r.P999, r.P9999)
		if w.plan.Events {
			w.printf(" %.4f", r.Events)
		}
	}
	w.printf("\n")
	if r.latency && !w.plan.More {
		w.printHistogram(r.Histogram)
	}
	return nil
}

func (w *perfWriter) printf(format string, args ...any) { fmt.Fprintf(w.out, format, args...) }

func (w *perfWriter) printHead() {
	p := w.plan
	mtu := "port's"
	if p.MTU != 0 {
		mtu = fmt.Sprint(p.MTU)
	}
	w.printf(" %s  transport: %v  qps: %d  tx-depth: %d  cq-mod: %d  post-list: %d  path MTU: %s  inline: %d\n", p.Test, p.qpType(), p.QPs,
		p.TxDepth, p.CQMod, p.PostList, mtu, p.Inline)
	if p.definition.latency {
		w.printf(" %-8s %-13s %-12s %-12s %-16s %-12s %-14s %-12s %-12s %-12s", "#bytes", "#iterations", "t_min[usec]", "t_max[usec]",
			"t_typical[usec]", "t_avg[usec]", "t_stdev[usec]", "99%[usec]", "99.9%[usec]", "99.99%[usec]")
	} else {
		w.printf(" %-10s %-14s %-18s %-21s %-15s %-12s", "#bytes", "#iterations", "BW peak[Gb/sec]", "BW average[Gb/sec]", "MsgRate[Mpps]", "CPU[s/GB]")
		if !p.reliable() && p.receives() {
			w.printf(" %-10s", "lost")
		}
	}
	if p.Events {
		w.printf(" events/completion")
	}
	w.printf("\n")
}

// printHistogram draws a line for each quarter of an octave.
func (w *perfWriter) printHistogram(bins []histogramBin) {
	most := uint64(0)
	for _, b := range bins {
		most = max(most, b.Count)
	}
	const width = 50
	for _, b := range bins {
		n := int((b.Count*width + most - 1) / most)
		w.printf(" %10.2f - %-10.2f %10d %s\n", b.From, b.To, b.Count, strings.Repeat("#", n))
	}
}

// progress is what a measurement shows while it runs, on a terminal.
type progress struct {
	count  atomic.Int64 // messages
	screen io.Writer    // nil: not shown
	ended  chan struct{}
	gone   sync.WaitGroup
}

// progressEvery is how often the line is drawn: seldom enough to take nothing from the measurement.
const progressEvery = 250 * time.Millisecond

func showProgress(screen io.Writer, plan *perfPlan) *progress {
	p := &progress{ended: make(chan struct{})}
	f, ok := screen.(*os.File)
	if !ok || !isTerminal(f) {
		return p
	}
	p.screen = f
	p.gone.Add(1)
	go p.draw(plan)
	return p
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (p *progress) draw(plan *perfPlan) {
	defer p.gone.Done()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	began, before := time.Now(), int64(0)
	for {
		select {
		case <-p.ended:
			fmt.Fprint(p.screen, "\r\x1b[K")
			return
		case <-tick.C:
			n := p.count.Load()
			rate := float64(n-before) / progressEvery.Seconds()
			before = n
			fmt.Fprintf(p.screen, "\r\x1b[K%s", progressLine(plan, time.Since(began), n, rate))
		}
	}
}

// progressLine is what is drawn: how far, and how fast at the moment.
func progressLine(plan *perfPlan, took time.Duration, n int64, rate float64) string {
	far := fmt.Sprintf("%.1f of %.1f s", took.Seconds(), plan.Duration.Seconds())
	if plan.Iters > 0 {
		far = fmt.Sprintf("%d of %d messages", n, int64(plan.Iters)*int64(plan.QPs))
	}
	return fmt.Sprintf("%s, %d bytes: %s, %.2f Gbit/s, %.3f Mmsg/s", plan.Test, plan.Size, far, rate*float64(plan.Size)*8/1e9, rate/1e6)
}

// stop clears the line.
func (p *progress) stop() {
	close(p.ended)
	p.gone.Wait()
}
