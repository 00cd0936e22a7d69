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

// quiet is the longest round trip of a cache line, in nanoseconds, on a machine that nobody else uses. It is 50 to 500.
const quiet = 1000

// together is the most nanoseconds that taking a cache line back costs two threads whose processors share a cache, and near those
// of its round trip. Hosts are of many kinds and move virtual processors about, and apart from each other paths of small pieces
// lose more than yardsticks of large ones: 0.53 of one that is otherwise 1.05 where taking back took 28 ns, 0.59 of one that is
// otherwise 1.01 where the round trip was 189. Then a row may be as much worse once more.
const (
	together = 20
	near     = 150
)

// lenient are rows with a limit of their own. Those that do not reach their floors on a quiet machine today have it from what they
// reach: half of it. Those that are no ratios say as much about the machine as about us.
var lenient = map[string]float64{
	"SEND 64 B, one daemon : ":  1,
	"SEND 64 B, two daemons : ": 0.3,
}

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

// limit is what fails a row, where the round trip of a cache line and taking it back cost so many nanoseconds.
func (r *row) limit(line, back float64) float64 {
	worse := float64(guard)
	if line > near || back > together {
		worse *= guard
	}
	if l := lenient[r.name+" : "+r.yardstick]; l != 0 {
		return l
	}
	if r.lower {
		return r.floor * worse
	}
	return r.floor / worse
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

// guarded measures a row until it is good enough, three times at the most.
func (r *row) guarded(t *testing.T) {
	st, err := r.set()
	if err != nil {
		unmeasured(t, err)
	}
	if st.done != nil {
		defer st.done()
	}
	var lines, taken []float64
	for range 3 {
		lines = append(lines, cacheLine(20*time.Millisecond))
		taken = append(taken, takingBack(20*time.Millisecond))
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
		got, limit := r.ratio(path, yardstick), r.limit(median(lines), median(taken))
		t.Logf("%.3g: the limit is %.3g, the floor %g; a cache line takes %.0f ns there and back, and is taken back in %.0f", got, limit, r.floor, median(lines), median(taken))
		if r.reaches(got, limit) {
			return
		}
	}
	if line := median(lines); line > quiet {
		t.Skipf("not judged: a cache line takes %.0f ns to another thread and back, so others have the processors", line)
	}
	t.Error("three times worse than the limit")
}
