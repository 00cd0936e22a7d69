// Bench measures softnicd beside what the same machine does without it, and prints one table: make bench.
//
// A figure alone says little on a machine that others use too, so everything is a ratio. Each path has a yardstick; the
// two are measured in turns, A B A B, for -length each, and the table has the medians and the ratio of the medians.
// main.go is the table, yardsticks.go what it is compared with, rows.go the paths, scale.go the curves of make plots,
// profile.go what the compiler is told, placement.go where the processors are meanwhile.
// softnicd.go builds the program, rig.go starts daemons and softnicd perf between them, perftest.go programs in C.
// crowd.go and incast.go are applications.
package main

import (
	"errors"
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
	yardstick string // "" for a figure that stands for itself
	lower     bool   // less is better
	floor     float64
	aim       float64 // both of the ratio, or of the figure where there is no yardstick
	set       func() (*stage, error)
}

// stage is what a row needs while it is measured.
type stage struct {
	path, against func() (float64, error) // against is nil without a yardstick
	once          bool                    // one round says it all
	alike         bool                    // path and yardstick are nearly the same: their difference takes alikeRounds times as many
	note          func() string           // more about it, for the last column; may be nil
	done          func()                  // may be nil
}

const (
	alikeRounds = 3
	// mostRounds is how many times the rounds are measured at the most until there are enough with the processors near one another.
	mostRounds = 2
)

// always is a stage that is nothing more than its measurements.
func always(path, against func() (float64, error)) func() (*stage, error) {
	return func() (*stage, error) { return &stage{path: path, against: against}, nil }
}

// errSkip says that this machine does not have what a row needs.
var errSkip = errors.New("not measured")

func main() {
	if len(os.Args) == 3 && runChild(os.Args[1], os.Args[2]) {
		return
	}
	rounds := flag.Int("rounds", 3, "how often each pair is measured")
	length := flag.Duration("length", 700*time.Millisecond, "of one measurement")
	binary := flag.String("softnicd", "", "the softnicd to measure (default: built from this tree)")
	only := flag.String("only", "", "measure the paths whose name or yardstick contains this")
	curves := flag.String("scale", "", "measure the curves of make plots instead, into this file")
	profile := flag.String("profile", "", "profile the daemons for the compiler instead, into this file")
	flag.Parse()
	s, err := newSuite(*length, *binary)
	if err == nil {
		switch {
		case *curves != "":
			err = s.scale(*curves, *only)
		case *profile != "":
			err = s.profileDaemons(*profile)
		default:
			err = s.bench(*rounds, *only)
		}
		s.close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (s *suite) bench(rounds int, only string) error {
	var failed []error
	fmt.Printf("| path | median | yardstick | median | ratio | floor | aim | |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range s.rows() {
		if !strings.Contains(r.name+" "+r.yardstick, only) {
			continue
		}
		if err := s.measure(&r, rounds); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", r.name, err))
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	if len(s.lines) == 0 {
		return fmt.Errorf("no path is called %q", only)
	}
	slices.Sort(s.lines)
	slices.Sort(s.taken)
	fmt.Printf("\ncache line between two threads: round trip median %.0f ns, from %.0f to %.0f ns; taken back for writing %.0f ns, from %.0f to %.0f ns\n",
		median(s.lines), s.lines[0], s.lines[len(s.lines)-1], median(s.taken), s.taken[0], s.taken[len(s.taken)-1])
	return nil
}

// measure measures a row and prints its line.
func (s *suite) measure(r *row, rounds int) error {
	began := time.Now()
	fmt.Fprintf(os.Stderr, "%s ... ", r.name)
	err := s.rounds(r, rounds)
	if err != nil {
		fmt.Printf("| %s | - | %s | - | | %g | %g | %v |\n", r.name, r.yardstick, r.floor, r.aim, err)
	}
	if errors.Is(err, errSkip) {
		err = nil
	}
	fmt.Fprintf(os.Stderr, "%.0f s\n", time.Since(began).Seconds())
	return err
}

// rounds measures in turns.
func (s *suite) rounds(r *row, rounds int) error {
	st, err := r.set()
	if err != nil {
		return err
	}
	if st.done != nil {
		defer st.done()
	}
	if st.alike {
		rounds *= alikeRounds
	}
	most := mostRounds * rounds
	if st.once {
		most = 1
	}
	var at measured
	taken := s.probe()
	for tried := 0; len(at[near].path) < rounds && tried < most; tried++ {
		before, between, against := taken, taken, 0.0
		if st.against != nil {
			if against, err = st.against(); err != nil {
				return fmt.Errorf("%s: %w", r.yardstick, err)
			}
			between = s.probe()
		}
		path, err := st.path()
		if err != nil {
			return err
		}
		taken = s.probe()
		here := &at[distanceOf(before, between, taken)]
		here.path, here.against = append(here.path, path), append(here.against, against)
	}
	fmt.Println(r.line(&at, st))
	return nil
}

// probe asks where the processors are.
func (s *suite) probe() float64 {
	taken := takingBack(20 * time.Millisecond)
	s.lines, s.taken = append(s.lines, cacheLine(20*time.Millisecond)), append(s.taken, taken)
	return taken
}

// ratio is what the floor and the aim are about.
func (r *row) ratio(path, yardstick float64) float64 {
	if r.yardstick == "" {
		return path
	}
	return path / yardstick
}

// line is a line of the table: about the place where most of the rounds were, with a word of the other.
func (r *row) line(at *measured, st *stage) string {
	best := at.best()
	path, yardstick := median(at[best].path), median(at[best].against)
	ratio, other, shown := r.ratio(path, yardstick), "", ""
	if r.yardstick != "" {
		other, shown = fmt.Sprintf("%.3g %s", yardstick, r.unit), fmt.Sprintf("%.2f", ratio)
	}
	verdict := "below the floor"
	switch {
	case r.reaches(ratio, r.aim):
		verdict = "reaches the aim"
	case r.reaches(ratio, r.floor):
		verdict = "above the floor"
	}
	notes := []string{verdict}
	if st.note != nil {
		notes = append(notes, st.note())
	}
	if best != near && !st.once {
		notes = append(notes, best.String())
	}
	for d, v := range at[:moved] {
		if n := len(v.path); n > 0 && distance(d) != best {
			notes = append(notes, fmt.Sprintf("%v: %.2f in %d of %d rounds", distance(d), r.ratio(median(v.path), median(v.against)), n, n+len(at[best].path)))
		}
	}
	return fmt.Sprintf("| %s | %.3g %s | %s | %s | %s | %g | %g | %s |",
		r.name, path, r.unit, r.yardstick, other, shown, r.floor, r.aim, strings.Join(notes, "; "))
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
