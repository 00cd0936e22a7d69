// Rxebench measures Linux's rdma_rxe and softnicd beside each other inside the same small virtual machines: make
// interop-rxe-bench.
//
// Two machines are joined by a bridge. The same programs of perftest run from a to b, and with both ends in a, over one
// driver and over the other in turns: over rxe as they are, over softnicd through softnicd exec. The table has the medians,
// their ratio, and what the processors of the machines did meanwhile. Where the machines are emulated a figure says nothing
// about the driver on hardware, and little about its share of the time: the ratio is printed, and nothing fails by it.
//
// It needs root and the harness that boots the machines (../shared/interop beside the checkout, or $SOFTNIC_INTEROP). vm.go
// is the machines, guest.sh what runs in them, run.go a measurement, table.go what is printed.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"
)

//go:embed guest.sh
var guestScript []byte

// options are the flags.
type options struct {
	Seconds    int           `json:"seconds"`    // of a bandwidth
	Iterations int           `json:"iterations"` // of a latency
	Rounds     int           `json:"rounds"`
	Budget     time.Duration `json:"-"`
	MTU        int           `json:"mtu"`
	CPUs       int           `json:"cpus"`
	Accel      string        `json:"accel"`
	AckFloor   time.Duration `json:"ack_floor_ns"`
	only       string
	loopback   bool
	output     string
}

// pathMTU is the largest that fits into the link's with its headers.
func (o options) pathMTU() int {
	for _, m := range []int{4096, 2048, 1024, 512} {
		if m+100 <= o.MTU {
			return m
		}
	}
	return 256
}

func main() {
	var o options
	flag.IntVar(&o.Seconds, "seconds", 2, "length of a bandwidth")
	flag.IntVar(&o.Iterations, "iterations", 300, "messages of a latency")
	flag.IntVar(&o.Rounds, "rounds", 3, "how often each is measured")
	flag.DurationVar(&o.Budget, "budget", 8*time.Minute, "after this long no round is begun, and of the current one what is measured already counts; one round is always whole")
	flag.IntVar(&o.MTU, "mtu", 9000, "of the link; 1500 has path MTU 1024, 9000 has 4096")
	flag.IntVar(&o.CPUs, "cpus", 1, "processors of each machine")
	flag.StringVar(&o.Accel, "accel", "tcg", "tcg or kvm")
	flag.DurationVar(&o.AckFloor, "ack-floor", 4*time.Millisecond, "of softnicd; perftest's ACK timeout is 67 ms, and a loaded host stalls machines for longer")
	flag.StringVar(&o.only, "only", "", "measure what has this in its name, such as \"a-b ib_write_bw\"")
	flag.BoolVar(&o.loopback, "loopback", false, "one machine, and both ends in it")
	flag.StringVar(&o.output, "o", "table", "table or json")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bench(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rxebench:", err)
		os.Exit(1)
	}
}

// progress tells who waits.
func progress(began time.Time, format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%4.0f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
}

func bench(ctx context.Context, o options) error {
	began := time.Now()
	results := newResults(tests(o.loopback, o.only))
	if len(results) == 0 {
		return fmt.Errorf("nothing is called %q", o.only)
	}
	h, err := findHarness()
	if err != nil {
		return err
	}
	p, err := boot(ctx, h, o, began)
	defer h.down()
	if err != nil {
		return err
	}
	host := newHost(p)
	first := rxe
	for round := range o.Rounds {
		for _, r := range results {
			if round > 0 && time.Since(began) > o.Budget {
				progress(began, "the time is over in round %d", round+1)
				return report(o, results, host.load())
			}
			// A B, B A: half as many changes, and none is always first.
			for _, d := range []driver{first, 1 - first} {
				m, err := p.measure(ctx, r.Test, d)
				if ctx.Err() != nil {
					return errors.Join(errors.New("interrupted"), report(o, results, host.load()))
				}
				r.add(d, m, err)
				if err != nil {
					progress(began, "%s, %s: %v", r.Test, d, err)
					continue
				}
				progress(began, "%s, %s: %.4g %s", r.Test, d, m.Value, r.Test.unit())
			}
			first = 1 - first
		}
	}
	return report(o, results, host.load())
}

// boot starts the machines and brings softnicd into them.
func boot(ctx context.Context, h *harness, o options, began time.Time) (*pair, error) {
	progress(began, "building")
	archive, err := bundle(ctx)
	if err != nil {
		return nil, err
	}
	if err := h.image(ctx); err != nil {
		return nil, err
	}
	numbers := []int{1, 2}
	if o.loopback {
		numbers = numbers[:1]
	}
	progress(began, "booting")
	machines := make([]*machine, len(numbers))
	err = each(numbers, func(n int) (err error) {
		if machines[n-1], err = h.start(ctx, n, o); err != nil {
			return err
		}
		return machines[n-1].unpack(ctx, archive)
	})
	if err != nil {
		return nil, err
	}
	p := &pair{a: machines[0], o: o, port: 18500}
	if len(machines) > 1 {
		p.b = machines[1]
	}
	progress(began, "measuring in %d machines, beside %d processors", len(machines), runtime.NumCPU())
	return p, nil
}

// each calls f for all at once and returns what went wrong.
func each[T any](all []T, f func(T) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, v := range all {
		wg.Go(func() { errs[i] = f(v) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
