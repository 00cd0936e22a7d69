package sim

import (
	"flag"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"testing"
)

var (
	oneSeed   = flag.Int64("sim.seed", -1, "run this seed only")
	seedCount = flag.Int("sim.seeds", 0, "how many seeds to run; 0 is 2000, or 200 with -short")
	firstSeed = flag.Int64("sim.first", 0, "the first of them")
	verbose   = flag.Bool("sim.verbose", false, "print the plan and the log of every seed")
)

// repeatEvery is how often a seed is run twice, to see that it is the same run.
const repeatEvery = 16

func TestSeeds(t *testing.T) {
	if *oneSeed >= 0 {
		runSeed(t, uint64(*oneSeed), true)
		return
	}
	n := *seedCount
	if n == 0 {
		n = 2000
		if testing.Short() {
			n = 200
		}
	}
	workers := runtime.GOMAXPROCS(0)
	sum := tally{census: make(census)}
	for i := range workers {
		t.Run(fmt.Sprintf("worker %d", i), func(t *testing.T) {
			t.Parallel()
			for s := i; s < n; s += workers {
				sum.add(runSeed(t, uint64(*firstSeed)+uint64(s), s%repeatEvery == i))
				if t.Failed() {
					return // one seed at a time; the others of this worker may fail for the same reason
				}
			}
		})
	}
	t.Cleanup(func() {
		t.Log(sum.String())
		if missing := sum.census.missing(); n >= 2000 && !t.Failed() && missing != nil {
			t.Errorf("in %d seeds there was none of %q", n, missing)
		}
	})
}

// runSeed runs a seed, a failure with its log, and says how to repeat it.
func runSeed(t *testing.T, seed uint64, twice bool) Result {
	t.Helper()
	p := NewPlan(seed)
	var log *Log
	if *verbose {
		log = new(Log)
	}
	r := Run(p, log)
	if twice && r.Err == nil {
		if again := Run(NewPlan(seed), nil); again.Hash != r.Hash || again.Events != r.Events {
			t.Errorf("seed %d: two runs differ: hash %#x after %d events, and %#x after %d", seed, r.Hash, r.Events, again.Hash, again.Events)
		}
	}
	if *verbose {
		t.Logf("%s%s\nhash %#x, %d events", p, log.Tail(1<<30), r.Hash, r.Events)
	}
	if r.Err != nil {
		report(t, p, r)
	}
	return r
}

// report runs a seed once more with a log.
func report(t *testing.T, p *Plan, r Result) {
	t.Helper()
	log := new(Log)
	if again := Run(NewPlan(p.Seed), log); fmt.Sprint(again.Err) != fmt.Sprint(r.Err) {
		t.Errorf("seed %d: the same seed failed in two ways: %v", p.Seed, again.Err)
	}
	t.Errorf("seed %d: %v\n\n%s\n%s\n\n%s\nrepeat with: go test ./test/sim -run TestSeeds -sim.seed=%d -sim.verbose",
		p.Seed, r.Err, p, log.Tail(60), ladderOf(log, r.Err), p.Seed)
}

var endpointNames = regexp.MustCompile(`\b(\d+)[ab]\b`)

// ladderOf draws the last packets of the connection that an error names, if it names one.
func ladderOf(log *Log, err error) string {
	m := endpointNames.FindStringSubmatch(err.Error())
	if m == nil {
		return ""
	}
	n, _ := strconv.Atoi(m[1])
	return "connection " + m[1] + ":\n" + log.Ladder(n, 40)
}

// tally sums up what the seeds did.
type tally struct {
	mu           sync.Mutex
	runs, events int
	census       census
}

func (s *tally) add(r Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	s.events += r.Events
	s.census.add(r.Census)
}

func (s *tally) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%d runs, %d events: %v", s.runs, s.events, s.census)
}
