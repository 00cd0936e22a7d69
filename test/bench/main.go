// Bench measures softnicd beside what the same machine does without it, and prints one table: make bench.
//
// A figure alone says little on a machine that others use too, so everything is a ratio. Each path has a yardstick; the
// two are measured in turns, A B A B, for a second each, and the table has the medians and the ratio of the medians.
// main.go is the table, yardsticks.go what it is compared with, softnicd.go the runs of softnicd perf.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// row is a path beside its yardstick.
type row struct {
	name      string
	unit      string
	path      func() (float64, error)
	yardstick string                  // "" for a figure that stands for itself
	against   func() (float64, error) // may be nil
	lower     bool                    // less is better
	floor     float64                 // of the ratio, or of the figure where there is no yardstick
	aim       float64
}

func main() {
	if len(os.Args) == 3 && runChild(os.Args[1], os.Args[2]) {
		return
	}
	rounds := flag.Int("rounds", 5, "how often each pair is measured")
	length := flag.Duration("length", 700*time.Millisecond, "of one measurement")
	binary := flag.String("softnicd", "", "the softnicd to measure (default: built from this tree)")
	only := flag.String("only", "", "measure the paths whose name or yardstick contains this")
	flag.Parse()
	if err := bench(*rounds, *length, *binary, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(rounds int, length time.Duration, binary, only string) error {
	s, err := newSuite(length, binary)
	if err != nil {
		return err
	}
	defer s.close()
	fmt.Printf("| path | median | yardstick | median | ratio | floor | aim | |\n|---|---|---|---|---|---|---|---|\n")
	var lines []float64
	for _, r := range s.rows() {
		if !strings.Contains(r.name+" "+r.yardstick, only) {
			continue
		}
		var a, b []float64
		for range rounds {
			lines = append(lines, cacheLine(20*time.Millisecond))
			if r.against != nil {
				v, err := r.against()
				if err != nil {
					return fmt.Errorf("%s: %w", r.yardstick, err)
				}
				b = append(b, v)
			}
			v, err := r.path()
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			a = append(a, v)
		}
		fmt.Println(r.line(median(a), median(b)))
	}
	if len(lines) == 0 {
		return fmt.Errorf("no path is called %q", only)
	}
	slices.Sort(lines)
	fmt.Printf("\ncache-line round trip between two threads: median %.0f ns, from %.0f to %.0f ns\n", median(lines), lines[0], lines[len(lines)-1])
	return nil
}

// line is a line of the table.
func (r *row) line(path, yardstick float64) string {
	ratio, other, shown := path, "", ""
	if r.against != nil {
		ratio, other = path/yardstick, fmt.Sprintf("%.2f %s", yardstick, r.unit)
		shown = fmt.Sprintf("%.2f", ratio)
	}
	verdict := "below the floor"
	switch {
	case r.reaches(ratio, r.aim):
		verdict = "reaches the aim"
	case r.reaches(ratio, r.floor):
		verdict = "above the floor"
	}
	return fmt.Sprintf("| %s | %.2f %s | %s | %s | %s | %g | %g | %s |", r.name, path, r.unit, r.yardstick, other, shown, r.floor, r.aim, verdict)
}

func (r *row) reaches(v, limit float64) bool {
	if r.lower {
		return v <= limit
	}
	return v >= limit
}

// median returns the middle of the values, 0 if there are none.
func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	switch n := len(v); {
	case n == 0:
		return 0
	case n%2 == 1:
		return v[n/2]
	default:
		return (v[n/2-1] + v[n/2]) / 2
	}
}
