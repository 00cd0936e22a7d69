package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/progtest"
)

func options(change func(*perfOptions)) *perfOptions {
	o := &perfOptions{test: "write-bw", qps: 1, txDepth: 128, duration: time.Second, service: "rc", output: "text"}
	change(o)
	return o
}

func TestPerfPlans(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*perfOptions)
		want   func(p []perfPlan) bool
	}{
		{"defaults", func(*perfOptions) {}, func(p []perfPlan) bool {
			return len(p) == 1 && p[0].Size == 65536 && p[0].CQMod == 1 && p[0].PostList == 1 && p[0].RxDepth == 512
		}},
		{"all sizes", func(o *perfOptions) { o.all = true }, func(p []perfPlan) bool {
			return len(p) == 23 && p[0].Size == 2 && p[22].Size == 8<<20 && p[0].More && !p[22].More
		}},
		{"small messages ask for a completion now and then", func(o *perfOptions) { o.size = 64 }, func(p []perfPlan) bool {
			return p[0].CQMod == 32 && p[0].RxDepth == 4096
		}},
		{"events want every completion", func(o *perfOptions) { o.size, o.events = 64, true }, func(p []perfPlan) bool { return p[0].CQMod == 1 }},
		{"moderation", func(o *perfOptions) { o.events, o.moderation = true, "16,50" }, func(p []perfPlan) bool {
			return p[0].ModCount == 16 && p[0].ModPeriod == 50
		}},
		{"a message rate posts lists", func(o *perfOptions) { o.test = "msg-rate" }, func(p []perfPlan) bool {
			return p[0].Size == 64 && p[0].PostList == 32
		}},
		{"atomics have 8 bytes", func(o *perfOptions) { o.test = "atomic-lat" }, func(p []perfPlan) bool {
			return p[0].Size == 8 && p[0].CQMod == 1
		}},
		{"verify needs places", func(o *perfOptions) { o.verify, o.size = true, 8<<20 }, func(p []perfPlan) bool {
			return p[0].TxDepth == 8 && p[0].outPlaces() == 8
		}},
		{"datagrams are small", func(o *perfOptions) { o.test, o.service = "send-bw", "ud" }, func(p []perfPlan) bool {
			return p[0].Size == 1024 && p[0].received() == 1064 && p[0].stride() == 1088 && p[0].qpType() == ib.QPTypeUD
		}},
		{"all datagrams", func(o *perfOptions) { o.test, o.service, o.all = "send-bw", "ud", true }, func(p []perfPlan) bool {
			return len(p) == 10 && p[9].Size == 1024
		}},
		{"MTU", func(o *perfOptions) { o.mtu = 1024 }, func(p []perfPlan) bool { return p[0].pathMTU().Bytes() == 1024 }},
	} {
		p, err := options(c.change).plans()
		if err != nil || !c.want(p) {
			t.Errorf("%s: %+v, %v", c.name, p, err)
		}
	}
}

func TestPerfRefuses(t *testing.T) {
	for _, c := range []struct {
		want   string
		usage  bool
		change func(*perfOptions)
	}{
		{`test "read"`, true, func(o *perfOptions) { o.test = "read" }},
		{"-o yaml", true, func(o *perfOptions) { o.output = "yaml" }},
		{"uc has no read-bw", true, func(o *perfOptions) { o.test, o.service = "read-bw", "uc" }},
		{"ud has no write-bw", true, func(o *perfOptions) { o.test, o.service = "write-bw", "ud" }},
		{"--verify does not apply", true, func(o *perfOptions) { o.test, o.service, o.verify = "send-bw", "uc", true }},
		{"--mtu does not apply", true, func(o *perfOptions) { o.test, o.service, o.mtu = "send-bw", "ud", 1024 }},
		{"4096 bytes at most", true, func(o *perfOptions) { o.test, o.service, o.size = "send-bw", "ud", 4097 }},
		{"--service rd", true, func(o *perfOptions) { o.service = "rd" }},
		{"--moderation 16: COUNT,PERIOD_US", true, func(o *perfOptions) { o.moderation = "16" }},
		{"--moderation -1,2", true, func(o *perfOptions) { o.moderation = "-1,2" }},
		{"needs --events", true, func(o *perfOptions) { o.moderation = "1,2" }},
		{"exclude each other", true, func(o *perfOptions) { o.all, o.size = true, 2 }},
		{"8 bytes", true, func(o *perfOptions) { o.test, o.size = "atomic-bw", 16 }},
		{"--size -1", true, func(o *perfOptions) { o.size = -1 }},
		{"--qps 0", true, func(o *perfOptions) { o.qps = 0 }},
		{"--tx-depth 0", true, func(o *perfOptions) { o.txDepth = 0 }},
		{"--cq-mod 200", true, func(o *perfOptions) { o.cqMod = 200 }},
		{"--post-list 200", true, func(o *perfOptions) { o.postList = 200 }},
		{"--mtu 1500", true, func(o *perfOptions) { o.mtu = 1500 }},
		{"--duration 0s", true, func(o *perfOptions) { o.duration = 0 }},
		{"one queue pair", true, func(o *perfOptions) { o.test, o.qps = "send-lat", 2 }},
		{"--bidirectional", true, func(o *perfOptions) { o.test, o.both = "send-lat", true }},
		{"polls memory", true, func(o *perfOptions) { o.test, o.events = "write-lat", true }},
		{"bytes of memory", true, func(o *perfOptions) { o.size, o.qps = 8<<20, 10000 }},
	} {
		_, err := options(c.change).plans()
		var coded *exitError
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, &coded) != c.usage {
			t.Errorf("%q expected (usage %v), got %v", c.want, c.usage, err)
		}
	}
	for _, o := range []*perfOptions{{}, {server: true, local: "device"}, {connect: "a", local: "device"}} {
		if err := runPerf(t.Context(), o, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "one of --server") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// Percentiles of known samples are right within the width of a bucket, and everything else exactly.
func TestHistogram(t *testing.T) {
	var empty histogram
	if empty.quantile(.5) != 0 || empty.mean() != 0 || empty.stdev() != 0 || len(empty.bins()) != 0 {
		t.Error("an empty histogram is not all zeros")
	}
	r := rand.New(rand.NewPCG(1, 2))
	var h histogram
	var all []float64
	for range 20000 {
		d := time.Duration(math.Exp(r.Float64()*18) + r.Float64()*50)
		h.add(d)
		all = append(all, float64(d)/1e3)
	}
	slices.Sort(all)
	for _, q := range []float64{0, .01, .5, .9, .99, .999, .9999, 1} {
		want := all[max(int(math.Ceil(q*float64(len(all))))-1, 0)]
		if got := h.quantile(q); math.Abs(got-want) > want/60+.001 {
			t.Errorf("quantile %v: %v us, want %v us", q, got, want)
		}
	}
	if micro(h.min) != all[0] || micro(h.max) != all[len(all)-1] {
		t.Errorf("min %v max %v", h.min, h.max)
	}
	var n uint64
	before := -1.0
	for _, b := range h.bins() {
		n += b.Count
		if b.From < before || b.To <= b.From {
			t.Errorf("bin from %v to %v follows %v", b.From, b.To, before)
		}
		before = b.To
	}
	if n != h.n {
		t.Errorf("%d of %d samples are in bins", n, h.n)
	}
	var two histogram
	two.add(1000)
	two.add(3000)
	if two.mean() != 2 || math.Abs(two.stdev()-math.Sqrt2) > 1e-9 {
		t.Errorf("mean %v, deviation %v", two.mean(), two.stdev())
	}
}

// Each duration falls into the bucket whose bounds hold it.
func TestBuckets(t *testing.T) {
	for _, v := range []int64{0, 1, 63, 64, 65, 127, 128, 129, 255, 256, 1000, 123456789, 1<<62 - 1} {
		if i := bucketOf(v); bucketLow(i) > v || bucketLow(i+1) <= v {
			t.Errorf("%d is in bucket %d, from %d to %d", v, i, bucketLow(i), bucketLow(i+1))
		}
	}
}

// A pattern finds a change of any byte, and a message in the place of another.
func TestPattern(t *testing.T) {
	for _, n := range []int{1, 2, 7, 8, 9, 100} {
		b := make([]byte, n)
		fillPattern(b, 3, 77)
		if err := checkPattern(b, 3, 77); err != nil {
			t.Fatal(err)
		}
		if checkPattern(b, 3, 78) == nil || n > 5 && checkPattern(b, 4, 77) == nil {
			t.Errorf("%d bytes pass for another message", n)
		}
		for i := range b {
			b[i] ^= 0x10
			if checkPattern(b, 3, 77) == nil {
				t.Errorf("a change of byte %d of %d is not found", i, n)
			}
			b[i] ^= 0x10
		}
	}
}

// Every place is within the memory, and no two overlap.
func TestPlaces(t *testing.T) {
	for _, test := range perfTests {
		for _, verify := range []bool{false, true} {
			p := perfPlan{Test: test.name, Size: 100, QPs: 3, TxDepth: 16, RxDepth: 8, Duration: 1, Verify: verify}
			if test.latency {
				p.QPs = 1
			}
			p.complete()
			if err := p.check(); err != nil {
				t.Fatal(err)
			}
			taken := map[int]bool{}
			for q := range p.QPs {
				for n := range p.outPlaces() {
					taken[p.out(q, int64(n))] = true
				}
				for n := range p.inPlaces() {
					taken[p.in(q, int64(n))] = true
				}
			}
			if want := int(p.bytes()) / p.stride(); len(taken) != want {
				t.Errorf("%s: %d places, want %d", test.name, len(taken), want)
			}
			for at := range taken {
				if at%64 != 0 || at+p.Size > int(p.bytes()) {
					t.Errorf("%s: a place at %d of %d", test.name, at, p.bytes())
				}
			}
		}
	}
}

func TestProgressLine(t *testing.T) {
	p := &perfPlan{Test: "write-bw", Size: 1000, QPs: 2, Duration: 2 * time.Second}
	if got, want := progressLine(p, time.Second, 10, 1e6), "write-bw, 1000 bytes: 1.0 of 2.0 s, 8.00 Gbit/s, 1.000 Mmsg/s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.Iters = 50
	if got := progressLine(p, time.Second, 10, 0); !strings.Contains(got, "10 of 100 messages") {
		t.Error(got)
	}
}

// buildSoftnicd builds the program, since its children are itself.
func buildSoftnicd(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "softnicd")
	check(t, progtest.Build(path))
	return path
}

// Every test runs in both local modes with its data checked, and reports all keys.
func TestPerfRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("runs daemons")
	}
	binary := buildSoftnicd(t)
	port := "14795"
	run := func(t *testing.T, args ...string) []byte {
		t.Helper()
		c := exec.CommandContext(t.Context(), binary, append([]string{"perf", "--udp-port", port}, args...)...)
		var stderr bytes.Buffer
		c.Stderr = &stderr
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, stderr.String())
		}
		return out
	}
	for _, mode := range []string{"device", "daemons"} {
		for _, test := range perfTests {
			t.Run(mode+"/"+test.name, func(t *testing.T) {
				out := run(t, test.name, "--local="+mode, "--iters=200", "--verify", "-o", "json")
				var r map[string]any
				if err := json.Unmarshal(out, &r); err != nil {
					t.Fatal(err)
				}
				for _, key := range []string{"gbit_per_s", "msg_per_s", "p50_us", "p99_us", "p999_us", "cpu_s_per_gb"} {
					if v, ok := r[key].(float64); !ok || v <= 0 {
						t.Errorf("%s is %v", key, r[key])
					}
				}
				if r["test"] != test.name || r["size"] != float64(test.size) || r["qps"] != 1.0 || r["events_per_completion"] != 0.0 ||
					r["verified"] != true || r["messages"] != 200.0 {
					t.Errorf("%s", out)
				}
			})
		}
	}
	for _, args := range [][]string{
		{"send-bw", "--bidirectional", "--qps=3", "--size=5000", "--iters=300", "--verify", "--local=device"},
		{"write-bw", "--bidirectional", "--events", "--qps=2", "--iters=100", "--verify", "--local=device"},
		{"send-lat", "--events", "--inline=64", "--iters=100", "--verify", "--local=device"},
		{"read-bw", "--mtu=256", "--size=3000", "--duration=50ms", "--verify", "--local=daemons"},
		{"send-bw", "--all", "--iters=20", "--tx-depth=8", "--local=device"},
		{"send-bw", "--service=uc", "--size=5000", "--iters=500", "--local=daemons"},
		{"write-bw", "--service=uc", "--iters=200", "--events", "--local=device"},
		{"send-bw", "--service=ud", "--duration=50ms", "--bidirectional", "--qps=2", "--local=daemons"},
		{"send-lat", "--service=ud", "--iters=100", "--events", "--local=device"},
		{"send-bw", "--service=ud", "--all", "--iters=50", "--local=device"},
		{"send-bw", "--service=xrc", "--bidirectional", "--qps=3", "--size=5000", "--iters=300", "--verify", "--local=daemons"},
		{"write-bw", "--service=xrc", "--qps=2", "--iters=100", "--verify", "--local=device"},
		{"read-bw", "--service=xrc", "--size=3000", "--iters=100", "--verify", "--local=device"},
		{"atomic-lat", "--service=xrc", "--iters=100", "--local=device"},
		{"send-lat", "--service=xrc", "--events", "--inline=64", "--iters=100", "--verify", "--local=device"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			if out := run(t, args...); !bytes.Contains(out, []byte("#bytes")) || bytes.Count(out, []byte("\n")) < 3 {
				t.Errorf("%s", out)
			}
		})
	}
}

// What was lost on an unreliable service does not count as bandwidth. Of writes nobody knows.
func TestPerfLost(t *testing.T) {
	for _, c := range []struct {
		service, test string
		both          bool
		lost          int64
		gbit          float64
	}{
		{"rc", "send-bw", false, 0, 8}, {"ud", "send-bw", false, 25, 6}, {"uc", "send-bw", false, 25, 6}, {"uc", "write-bw", false, 0, 8},
		{"ud", "send-bw", true, 40, 12.8},
	} {
		plan := perfPlan{Test: c.test, Service: c.service, Size: 100, Both: c.both}
		plan.definition, _ = findPerfTest(c.test)
		r := newPerfResult(&plan, perfShare{Sent: 100, Received: 85, BytesPerS: 1e9}, perfShare{Sent: 100, Received: 75, BytesPerS: 1e9}, new(histogram))
		if r.Lost != c.lost || math.Abs(r.GbitPerS-c.gbit) > 1e-9 {
			t.Errorf("%+v: lost %d, %v Gbit/s", c, r.Lost, r.GbitPerS)
		}
	}
}

// The best moment of a test in which both sides send is not below its average.
func TestPerfPeak(t *testing.T) {
	for _, c := range []struct {
		both bool
		peak float64
	}{{false, 16}, {true, 40}} {
		plan := perfPlan{Test: "write-bw", Service: "rc", Size: 100, Both: c.both}
		plan.definition, _ = findPerfTest(plan.Test)
		r := newPerfResult(&plan, perfShare{Sent: 100, BytesPerS: 1e9, Peak: 2e9}, perfShare{Sent: 100, BytesPerS: 2e9, Peak: 3e9}, new(histogram))
		if math.Abs(r.GbitPeak-c.peak) > 1e-9 {
			t.Errorf("both sides %v: a peak of %v Gbit/s, want %v", c.both, r.GbitPeak, c.peak)
		}
	}
}

// Between machines, each side with a daemon of its own choice, and the peers must agree.
func TestPerfServerConnect(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a daemon")
	}
	binary := buildSoftnicd(t)
	socket := filepath.Join(t.TempDir(), "s")
	daemon := exec.CommandContext(t.Context(), binary, "run", "--socket", socket, "--port", "14796", "--device", "softnic0=127.0.0.1", "--log-level", "error")
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	defer daemon.Wait()
	defer daemon.Process.Signal(os.Interrupt)
	for end := time.Now().Add(10 * time.Second); daemonProcess(socket).PID == 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	if got := daemonProcess(socket).PID; got != daemon.Process.Pid {
		t.Errorf("the daemon's process is %d, found %d", daemon.Process.Pid, got)
	}
	for _, c := range []struct {
		server string
		fails  bool
	}{{"", false}, {"read-bw", false}, {"write-bw", true}} {
		args := []string{"perf", "--server", "-p", "14797", "--socket", socket}
		if c.server != "" {
			args = append(args, c.server)
		}
		server := exec.CommandContext(t.Context(), binary, args...)
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		var out []byte
		var err error
		for range 200 {
			client := exec.CommandContext(t.Context(), binary, "perf", "read-bw", "--connect", "127.0.0.1", "-p", "14797", "--socket", socket, "-n", "50")
			if out, err = client.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("find the peer")) {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		serverErr := server.Wait()
		if (err != nil) != c.fails || (serverErr != nil) != c.fails || c.fails && !bytes.Contains(out, []byte("started for write-bw")) {
			t.Errorf("server for %q: client %v, server %v: %s", c.server, err, serverErr, out)
		}
	}
}

func TestCPUTime(t *testing.T) {
	before := cpuTime(os.Getpid())
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
	}
	if d := cpuTime(os.Getpid()) - before; d < time.Millisecond || d > 2*time.Second {
		t.Errorf("20 ms of spinning took %v of processor time", d)
	}
	if cpuTime(1<<22-1) != 0 {
		t.Error("a process that is not there has processor time")
	}
}
