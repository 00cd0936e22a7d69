package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// perfTest is one of the tests of `softnicd perf`.
type perfTest struct {
	name    string
	op      ib.WROpcode
	latency bool
	size    int // default
}

var perfTests = []perfTest{
	{"send-bw", ib.WRSend, false, 65536},
	{"write-bw", ib.WRRDMAWrite, false, 65536},
	{"read-bw", ib.WRRDMARead, false, 65536},
	{"atomic-bw", ib.WRAtomicFetchAdd, false, 8},
	{"send-lat", ib.WRSend, true, 2},
	{"write-lat", ib.WRRDMAWrite, true, 2},
	{"read-lat", ib.WRRDMARead, true, 2},
	{"atomic-lat", ib.WRAtomicFetchAdd, true, 8},
	{"msg-rate", ib.WRSend, false, 64},
}

func findPerfTest(name string) (perfTest, error) {
	names := make([]string, len(perfTests))
	for i, t := range perfTests {
		if t.name == name {
			return t, nil
		}
		names[i] = t.name
	}
	return perfTest{}, usage(fmt.Errorf("test %q: one of %s expected", name, strings.Join(names, ", ")))
}

// perfOptions are the choices of `softnicd perf`.
type perfOptions struct {
	test       string
	size       int
	all        bool
	qps        int
	txDepth    int
	rxDepth    int
	postList   int
	cqMod      int
	iters      int
	duration   time.Duration
	mtu        int
	service    string
	events     bool
	moderation string
	inline     int
	both       bool
	verify     bool
	output     string

	server  bool
	connect string
	local   string
	port    uint16
	udpPort uint16
	device  string
	socket  string
	shards  int
	profile string // CPU profiles of the daemons of --local, in files of this prefix

	exchange string // --server: where to listen, if not on port
}

func newPerf() *cobra.Command {
	var o perfOptions
	names := make([]string, len(perfTests))
	for i, t := range perfTests {
		names[i] = t.name
	}
	c := &cobra.Command{
		Use:   "perf TEST",
		Short: "Bandwidth, latency and message rate, with perftest's options and columns",
		Long: `Measures what two applications get out of the device: ` + strings.Join(names, ", ") + `.
They use package verbs and nothing else, as any program would.

Between machines, start the passive side first; it learns everything from the other one:
    softnicd perf --server                      on one host
    softnicd perf write-bw --connect HOST       on the other

On one machine, with nothing running, --local does it all:
    softnicd perf send-lat --local=daemons      two daemons on 127.0.0.1 and 127.0.0.2, four processes, UDP between them
    softnicd perf write-bw --local=device       two queue pairs of one daemon

Latency of send and write is half a round trip, as perftest counts it; of read and atomic it is the whole. In the
bandwidth tests it is the time from posting to completion of requests that ask for one. cpu_s_per_gb is the processor
time of both applications and their daemons by 1e9 bytes moved.

--service uc has the tests of send and write, ud those of send, of up to a packet. What is lost there nobody repairs: the
bandwidth of send is that of what arrived, and lost says how many messages did not. A write that was lost nobody can count.
--service xrc has all tests: each of --qps is a queue pair that sends and a target, which receives into a shared receive
queue, as perftest's -c XRC.`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: names,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.test = args[0]
			}
			err := runPerf(c.Context(), &o, c.OutOrStdout(), c.ErrOrStderr())
			if err != nil && c.Context().Err() != nil {
				// Not what became of the daemons and of the peer meanwhile.
				return fmt.Errorf("interrupted: %w", context.Cause(c.Context()))
			}
			return err
		},
	}
	f := c.Flags()
	f.IntVarP(&o.size, "size", "s", 0, "bytes of a message (default: the test's)")
	f.BoolVarP(&o.all, "all", "a", false, "all powers of two from 2 to 8 MiB")
	f.IntVarP(&o.qps, "qps", "q", 1, "queue pairs")
	f.IntVarP(&o.txDepth, "tx-depth", "t", 128, "messages of a queue pair under way")
	f.IntVarP(&o.rxDepth, "rx-depth", "r", 0, "receives posted ahead (default 4096 up to 4 KiB, else 512)")
	f.IntVarP(&o.postList, "post-list", "l", 0, "requests posted at once (default 1; msg-rate 32)")
	f.IntVarP(&o.cqMod, "cq-mod", "Q", 0, "one completion for so many sends (default 1 above 8 KiB and with --events, else tx-depth/4)")
	f.IntVarP(&o.iters, "iters", "n", 0, "messages of a queue pair (default: as many as --duration allows)")
	f.DurationVarP(&o.duration, "duration", "D", time.Second, "how long to measure each size")
	f.IntVarP(&o.mtu, "mtu", "m", 0, "path MTU: 256, 512, 1024, 2048 or 4096 (default: the port's)")
	f.StringVar(&o.service, "service", "rc", "rc, uc, ud or xrc")
	f.BoolVarP(&o.events, "events", "e", false, "sleep on the completion channel instead of polling")
	f.StringVar(&o.moderation, "moderation", "", "with --events: one event for COUNT completions or after PERIOD_US microseconds, as COUNT,PERIOD_US")
	f.IntVarP(&o.inline, "inline", "I", 0, "send messages of up to so many bytes inline")
	f.BoolVarP(&o.both, "bidirectional", "b", false, "both sides send")
	f.BoolVar(&o.verify, "verify", false, "check every byte that can be checked")
	f.StringVarP(&o.output, "output", "o", "text", "text or json (one object a size)")
	f.BoolVar(&o.server, "server", false, "be the passive side, for one test")
	f.StringVar(&o.connect, "connect", "", "be the active side, against the --server on this host")
	f.StringVar(&o.local, "local", "", "both sides here: daemons (two of them, over UDP) or device (one)")
	f.Uint16VarP(&o.port, "port", "p", 18515, "TCP port by which the two sides meet")
	f.IntVar(&o.shards, "shards", 1, "with --local: the daemons' shards")
	f.Uint16Var(&o.udpPort, "udp-port", 4791, "with --local: the daemons' UDP port")
	f.StringVarP(&o.device, "device", "d", "", "device (default: the first)")
	f.StringVar(&o.socket, "socket", "", "the daemon's control socket")
	f.StringVar(&o.profile, "daemon-cpuprofile", "", "with --local: write CPU profiles of the daemons, PREFIX0 and PREFIX1")
	f.StringVar(&o.exchange, "exchange", "", "with --server: listen on this Unix socket")
	_ = f.MarkHidden("daemon-cpuprofile")
	_ = f.MarkHidden("exchange")
	return c
}

func runPerf(ctx context.Context, o *perfOptions, out, progress io.Writer) error {
	ways := 0
	for _, chosen := range []bool{o.server, o.connect != "", o.local != ""} {
		if chosen {
			ways++
		}
	}
	if ways != 1 {
		return usage(errors.New("one of --server, --connect HOST and --local=daemons|device is needed"))
	}
	if o.server {
		if o.test != "" {
			if _, err := findPerfTest(o.test); err != nil {
				return err
			}
		}
		return perfServe(ctx, o, progress)
	}
	plans, err := o.plans()
	if err != nil {
		return err
	}
	if o.local != "" {
		return perfLocal(ctx, o, plans, out, progress)
	}
	meet := func(ctx context.Context) (*perfLink, error) {
		return dialPerf(ctx, "tcp", joinHostPort(o.connect, o.port), 0)
	}
	return perfMeasure(ctx, plans, perfHost{device: o.device, socket: o.socket}, meet, o.output, out, progress)
}

// perfPlan is everything about one measurement, known to both sides.
type perfPlan struct {
	Test       string        `json:"test"`
	Service    string        `json:"service"` // rc, uc, ud or xrc; empty: rc
	Size       int           `json:"size"`
	QPs        int           `json:"qps"`
	TxDepth    int           `json:"tx_depth"`
	RxDepth    int           `json:"rx_depth"`
	PostList   int           `json:"post_list"`
	CQMod      int           `json:"cq_mod"`
	Iters      int           `json:"iters"` // 0: by Duration
	Duration   time.Duration `json:"duration"`
	MTU        int           `json:"mtu"` // 0: the port's
	Events     bool          `json:"events"`
	ModCount   int           `json:"moderation_count"`
	ModPeriod  int           `json:"moderation_period_us"`
	Inline     int           `json:"inline"`
	Both       bool          `json:"bidirectional"`
	Verify     bool          `json:"verify"`
	More       bool          `json:"more"` // another plan follows
	definition perfTest
}

// Limits of what is asked for. They keep memory within reason; the device has limits of its own.
const (
	perfMaxSize  = 1 << 30
	perfMaxQPs   = 16384
	perfMaxDepth = 1 << 15
	perfMaxBytes = 4 << 30 // of registered memory
	// perfVerifyBytes is what --verify spreads messages over, since each needs a place of its own.
	perfVerifyBytes = 64 << 20
)

// plans judges the options and makes a plan for each size.
func (o *perfOptions) plans() ([]perfPlan, error) {
	test, err := findPerfTest(o.test)
	if err != nil {
		return nil, err
	}
	if o.output != "text" && o.output != "json" {
		return nil, usage(fmt.Errorf("-o %s: text or json expected", o.output))
	}
	p := perfPlan{
		Test: test.name, Service: o.service, QPs: o.qps, TxDepth: o.txDepth, RxDepth: o.rxDepth, PostList: o.postList, CQMod: o.cqMod, Iters: o.iters,
		Duration: o.duration, MTU: o.mtu, Events: o.events, Inline: o.inline, Both: o.both, Verify: o.verify,
	}
	if p.ModCount, p.ModPeriod, err = parseModeration(o.moderation); err != nil {
		return nil, err
	}
	if o.moderation != "" && !o.events {
		return nil, usage(errors.New("--moderation moderates events: it needs --events"))
	}
	sizes := []int{o.size}
	switch atomic := test.op == ib.WRAtomicFetchAdd; {
	case o.all && o.size != 0:
		return nil, usage(errors.New("--all and --size exclude each other"))
	case atomic && (o.all || o.size != 0 && o.size != 8):
		return nil, usage(errors.New("an atomic operation has 8 bytes"))
	case o.all:
		sizes = nil
		most := 8 << 20
		if p.datagrams() {
			most = perfDatagram
		}
		for n := 2; n <= most; n *= 2 {
			sizes = append(sizes, n)
		}
	case o.size == 0:
		sizes[0] = test.size
		if p.datagrams() {
			sizes[0] = min(test.size, perfDatagram)
		}
	}
	plans := make([]perfPlan, len(sizes))
	for i, n := range sizes {
		plans[i] = p
		plans[i].Size, plans[i].More = n, i < len(sizes)-1
		plans[i].complete()
		if err := plans[i].check(); err != nil {
			return nil, usage(err)
		}
	}
	return plans, nil
}

func parseModeration(s string) (count, period int, err error) {
	if s == "" {
		return 0, 0, nil
	}
	a, b, ok := strings.Cut(s, ",")
	count, err1 := strconv.Atoi(a)
	period, err2 := strconv.Atoi(b)
	if !ok || err1 != nil || err2 != nil || count < 0 || period < 0 {
		return 0, 0, usage(fmt.Errorf("--moderation %s: COUNT,PERIOD_US expected, such as 16,50", s))
	}
	return count, period, nil
}

// complete fills in what was left to us.
func (p *perfPlan) complete() {
	if p.RxDepth == 0 {
		p.RxDepth = 512
		if p.Size <= 4096 {
			p.RxDepth = 4096
		}
	}
	if p.PostList == 0 {
		p.PostList = 1
		if p.Test == "msg-rate" {
			p.PostList = min(32, max(p.TxDepth/4, 1))
		}
	}
	if p.CQMod == 0 {
		p.CQMod = 1
		if p.Size <= 8192 && !p.Events {
			p.CQMod = max(p.TxDepth/4, 1)
		}
	}
	if test, err := findPerfTest(p.Test); err == nil && test.latency {
		p.PostList = 1
		if p.definition = test; !p.oneWay() {
			p.CQMod = 1 // its completion is what is waited for
		}
	}
	if p.Verify {
		// Each message that is under way has a place of its own.
		places := max(perfVerifyBytes/(p.stride()*max(p.QPs, 1)), 2)
		p.TxDepth, p.RxDepth = min(p.TxDepth, places), min(p.RxDepth, places)
		p.PostList, p.CQMod = min(p.PostList, p.TxDepth), min(p.CQMod, p.TxDepth)
	}
}

// check refuses what cannot be done. It judges what a peer asks for as well.
func (p *perfPlan) check() (err error) {
	if p.definition, err = findPerfTest(p.Test); err != nil {
		return err
	}
	within := func(name string, v, low, high int) {
		if err == nil && (v < low || v > high) {
			err = fmt.Errorf("--%s %d: %d to %d expected", name, v, low, high)
		}
	}
	within("size", p.Size, 1, perfMaxSize)
	within("qps", p.QPs, 1, perfMaxQPs)
	within("tx-depth", p.TxDepth, 1, perfMaxDepth)
	within("rx-depth", p.RxDepth, 1, perfMaxDepth)
	within("post-list", p.PostList, 1, p.TxDepth)
	within("cq-mod", p.CQMod, 1, p.TxDepth)
	within("iters", p.Iters, 0, 1<<40)
	within("inline", p.Inline, 0, 1<<20)
	switch {
	case err != nil:
		return err
	case p.Iters == 0 && p.Duration <= 0 || p.Duration > time.Hour:
		return fmt.Errorf("--duration %v: up to an hour expected", p.Duration)
	case p.pathMTU() == 0 && p.MTU != 0:
		return fmt.Errorf("--mtu %d: 256, 512, 1024, 2048 or 4096 expected", p.MTU)
	case p.definition.latency && p.QPs != 1:
		return errors.New("a latency test has one queue pair")
	case p.definition.latency && p.Both:
		return errors.New("a latency test is no bandwidth test: --bidirectional does not apply")
	case p.Events && p.pollsMemory():
		return errors.New("write-lat polls memory, as perftest's does: --events does not apply")
	case p.bytes() > perfMaxBytes:
		return fmt.Errorf("%d bytes of memory would be needed, %d are the most; choose fewer or smaller messages", p.bytes(), int64(perfMaxBytes))
	}
	return p.checkService()
}

func (p *perfPlan) pathMTU() ib.MTU {
	for m := ib.MTU256; m.Valid(); m++ {
		if m.Bytes() == p.MTU {
			return m
		}
	}
	return 0
}

func (p *perfPlan) rcAttr() verbs.RCAttr {
	// Who has no receive ready is asked again soon: applications share processors with the daemons here.
	return verbs.RCAttr{PathMTU: p.pathMTU(), MinRNRTimer: 1}
}

// atomics tells whether the test's messages are atomic operations.
func (p *perfPlan) atomics() bool { return p.definition.op == ib.WRAtomicFetchAdd }

// oneWay tells whether a message of the test only goes, so that latency takes two of them.
func (p *perfPlan) oneWay() bool {
	return p.definition.op == ib.WRSend || p.definition.op == ib.WRRDMAWrite
}

// pollsMemory tells whether a side learns of a message by the last byte of memory.
func (p *perfPlan) pollsMemory() bool {
	return p.definition.latency && p.definition.op == ib.WRRDMAWrite
}

// receives tells whether messages of the test take receive requests.
func (p *perfPlan) receives() bool { return p.definition.op == ib.WRSend }
