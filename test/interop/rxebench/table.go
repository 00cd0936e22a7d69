package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// The aims: twice rxe's bandwidth, and no more than its latency.
const (
	bandwidthAim = 2
	latencyAim   = 1
)

// result is a test with all that was measured of it.
type result struct {
	Test     test    `json:"test"`
	Unit     string  `json:"unit"`
	RXE      []run   `json:"rxe"`
	Softnicd []run   `json:"softnicd"`
	Ratio    float64 `json:"ratio"` // of the medians; 0 if one is missing
	Reached  bool    `json:"aim_reached"`
	// Failed is what went wrong last, if neither driver's last run did well.
	Failed string `json:"failed,omitempty"`
}

func newResults(tests []test) []*result {
	var all []*result
	for _, t := range tests {
		all = append(all, &result{Test: t, Unit: t.unit()})
	}
	return all
}

func (r *result) add(d driver, m run, err error) {
	switch {
	case err != nil:
		r.Failed = fmt.Sprintf("%s: %v", d, err)
	case d == rxe:
		r.RXE = append(r.RXE, m)
	default:
		r.Softnicd = append(r.Softnicd, m)
	}
}

// judge computes the ratio.
func (r *result) judge() {
	ours, theirs := medianOf(r.Softnicd, run.value), medianOf(r.RXE, run.value)
	if ours == 0 || theirs == 0 {
		return
	}
	r.Ratio = ours / theirs
	if r.Test.latency() {
		r.Reached = r.Ratio <= latencyAim
	} else {
		r.Reached = r.Ratio >= bandwidthAim
	}
}

func (m run) value() float64 { return m.Value }

// medianOf is the middle of what f takes of the runs, 0 if there are none.
func medianOf(runs []run, f func(run) float64) float64 {
	var v []float64
	for _, m := range runs {
		v = append(v, f(m))
	}
	slices.Sort(v)
	switch n := len(v); {
	case n == 0:
		return 0
	case n%2 == 1:
		return v[n/2]
	default:
		return (v[n/2-1] + v[n/2]) / 2
	}
}

// report prints everything. It is an error only if softnicd gave no figure at all in a test.
func report(o options, results []*result, load hostLoad) error {
	var missing []error
	for _, r := range results {
		r.judge()
		if len(r.Softnicd) == 0 {
			missing = append(missing, fmt.Errorf("%s: no figure: %s", r.Test, r.Failed))
		}
	}
	if o.output == "json" {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		if err := e.Encode(struct {
			Options options   `json:"options"`
			Host    hostLoad  `json:"host"`
			Results []*result `json:"results"`
		}{o, load, results}); err != nil {
			return err
		}
	} else {
		table(os.Stdout, o, results, load)
	}
	return errors.Join(missing...)
}

func table(w io.Writer, o options, results []*result, load hostLoad) {
	fmt.Fprint(w, "| link | test | rxe | softnicd | ratio | aim | | processors of the machines, rxe | softnicd |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		verdict, ratio := "below the aim", fmt.Sprintf("%.2f", r.Ratio)
		switch {
		case r.Ratio == 0:
			verdict, ratio = "no figure", ""
		case r.Reached:
			verdict = "reached"
		}
		aim := fmt.Sprintf("at least %d", bandwidthAim)
		if r.Test.latency() {
			aim = fmt.Sprintf("at most %d", latencyAim)
		}
		fmt.Fprintf(w, "| %s | %s %s | %s | %s | %s | %s | %s | %s | %s |\n", r.Test.link(), r.Test.Program, sizeText(r.Test.Size),
			r.figure(r.RXE), r.figure(r.Softnicd), ratio, aim, verdict, r.busy(r.RXE, false), r.busy(r.Softnicd, true))
	}
	fmt.Fprintf(w, "\nMB are 2^20 bytes; latencies are half a round trip for send and write and a whole one for read, typical (least), in us.\n")
	fmt.Fprintf(w, "Processors: percent of a run, its connecting included, in applications + kernel + interrupts; of softnicd also the daemon's part.\n")
	var took []string
	for _, v := range load.Machines {
		took = append(took, fmt.Sprintf("%.2f", v))
	}
	fmt.Fprintf(w, "Link MTU %d, path MTU %d, %d processors a machine. The host's %d processors: %s for the machines, %.2f for others.\n",
		o.MTU, o.pathMTU(), o.CPUs, load.Processors, strings.Join(took, " and "), load.Others)
	if o.Accel == "tcg" {
		fmt.Fprintln(w, "The machines are emulated (TCG): an instruction costs 10 to 30 times what it costs the processor, a change between\n"+
			"application and kernel or between two processes even more, and what looks at memory until it changes takes all of the one\n"+
			"processor from what would change it. The ratios tell which of the two drivers has the longer way through an emulator.")
	}
	if load.Others > 0.3 {
		fmt.Fprintln(w, "Others used the host's processors meanwhile: measure again before relying on anything here.")
	}
}

func sizeText(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// figure is the median of runs, or a dash.
func (r *result) figure(runs []run) string {
	switch {
	case len(runs) == 0:
		return "-"
	case r.Test.latency():
		return fmt.Sprintf("%.0f (%.0f) us", medianOf(runs, run.value), medianOf(runs, func(m run) float64 { return m.Minimum }))
	}
	return fmt.Sprintf("%.1f MB/s", medianOf(runs, run.value))
}

// busy is what the processors did, those of a before those of b.
func (r *result) busy(runs []run, daemon bool) string {
	if len(runs) == 0 {
		return ""
	}
	text := usageText(runs, func(m run) usage { return m.Client }, daemon)
	if !r.Test.Loopback {
		text = "a " + text + "; b " + usageText(runs, func(m run) usage { return m.Server }, daemon)
	}
	return text
}

func usageText(runs []run, of func(run) usage, daemon bool) string {
	percent := func(f func(usage) float64) float64 {
		return 100 * medianOf(runs, func(m run) float64 { return f(of(m)) })
	}
	text := fmt.Sprintf("%.0f+%.0f+%.0f", percent(func(u usage) float64 { return u.User }),
		percent(func(u usage) float64 { return u.System }), percent(func(u usage) float64 { return u.IRQ }))
	if daemon {
		text += fmt.Sprintf(", daemon %.0f", percent(func(u usage) float64 { return u.Daemon }))
	}
	return text
}
