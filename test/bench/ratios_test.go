package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/softnic/softnicd/internal/nettest"
	"github.com/softnic/softnicd/internal/progtest"
)

var ratios = flag.Bool("ratios", false, "measure the ratios: some seconds on a machine with nothing else to do")

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && runChild(os.Args[1], os.Args[2]) {
		return
	}
	progtest.CleanEnv()
	os.Exit(nettest.Main(m))
}

// guard is how much worse than its floor a row may be before it fails: noise stays within, a lost optimisation does not.
const guard = 2

// quiet is the longest round trip of a cache line, in nanoseconds, on a machine that nobody else uses. It is 50 to 700.
const quiet = 1000

// slow are rows that take too long for a test.
var slow = map[string]bool{
	"the same, all entries used once":                                   true,
	"processor of an idle daemon, 10,000 queue pairs, 100 applications": true,
}

// Nothing that made softnicd fast was lost. make ratios runs it alone, since whoever shares the processors changes the ratios.
func TestRatios(t *testing.T) {
	if !*ratios {
		t.Skip("measured by make ratios, which runs nothing else at the same time")
	}
	s, err := newSuite(300*time.Millisecond, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for _, r := range s.rows() {
		if slow[r.name] || r.yardstick == besidePerf {
			continue
		}
		t.Run(r.name+" : "+r.yardstick, func(t *testing.T) { r.guarded(t) })
	}
}

// limit is what fails a row.
func (r *row) limit() float64 {
	if r.lower {
		return r.floor * guard
	}
	return r.floor / guard
}

// unmeasured ends the test of a row, which is a failure unless this machine does not have what the row needs. A tool is what
// every machine can have.
func unmeasured(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		progtest.Missing(t, err.Error())
	case errors.Is(err, errSkip):
		t.Skip(err)
	default:
		t.Fatal(err)
	}
}

// attempts is how often a row is measured at the most: hosts of virtual machines slow down for a second or two.
const attempts = 5

// guarded measures a row until it is good enough.
func (r *row) guarded(t *testing.T) {
	st, err := r.set()
	if err != nil {
		unmeasured(t, err)
	}
	if st.done != nil {
		defer st.done()
	}
	var lines []float64
	for range attempts {
		lines = append(lines, cacheLine(20*time.Millisecond))
		yardstick := 0.0
		if st.against != nil {
			if yardstick, err = st.against(); err != nil {
				unmeasured(t, fmt.Errorf("%s: %w", r.yardstick, err))
			}
		}
		path, err := st.path()
		if err != nil {
			t.Fatal(err)
		}
		got, limit := r.ratio(path, yardstick), r.limit()
		t.Logf("%.3g: the limit is %.3g, the floor %g; a cache line takes %.0f ns there and back", got, limit, r.floor, median(lines))
		if r.reaches(got, limit) {
			return
		}
	}
	if line := median(lines); line > quiet {
		t.Skipf("not judged: a cache line takes %.0f ns to another thread and back, so others have the processors", line)
	}
	t.Errorf("worse than the limit in each of %d attempts", attempts)
}
