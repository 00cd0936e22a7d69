package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/internal/nettest"
)

// Arguments of softnicd perf.
const (
	daemons = "--local=daemons"
	device  = "--local=device"
	mebi    = "--size=1048576"
	deep    = "--tx-depth=1024"
	lists   = "--post-list=64"
)

// besidePerf is the yardstick of programs in C, for which the library is built.
const besidePerf = "softnicd perf"

// rows is the table.
func (s *suite) rows() []row {
	tcp := func() (float64, error) { return iperf(s.length, ours, ours) }
	copied := func() (float64, error) { return goCopy(s.length), nil }
	blast := func() (float64, error) { return bareBlast(s.length) }
	summed := func() (float64, error) { return summedBlast(s.length) }
	ping := func() (float64, error) { return udpPingPong(s.length) }
	writes := program{"ib_write_bw", []string{"-s", "1048576", "-n", "5000", "--report_gbits"}, bandwidth}
	sends := program{"ib_send_bw", []string{"-s", "1048576", "-n", "3000", "--report_gbits"}, bandwidth}
	pings := program{"ib_send_lat", []string{"-s", "2", "-n", "20000"}, typical}
	return []row{
		{"WRITE 1 MiB, one daemon", "Gbit/s", "Go copy", false, .6, .8, always(s.gbit("write-bw", device, mebi), copied)},
		{"WRITE 1 MiB, two daemons", "Gbit/s", "iperf3 TCP", false, 1.05, 1.35, always(s.gbit("write-bw", daemons, mebi), tcp)},
		{"SEND 1 MiB, two daemons", "Gbit/s", "iperf3 TCP", false, 1.05, 1.35, always(s.gbit("send-bw", daemons, mebi), tcp)},
		{"READ 1 MiB, two daemons", "Gbit/s", "iperf3 TCP", false, .95, 1.25, always(s.gbit("read-bw", daemons, mebi), tcp)},
		{"WRITE 1 MiB, two daemons", "Gbit/s", "UDP GSO blast", false, .55, .7, always(s.gbit("write-bw", daemons, mebi), blast)},
		{"WRITE 1 MiB, two daemons", "Gbit/s", "UDP GSO blast with ICRCs", false, .7, .9, always(s.gbit("write-bw", daemons, mebi), summed)},
		{"WRITE 1 MiB, veth with MTU 1500", "Gbit/s", "iperf3 TCP there", false, 1, 1.3, s.cable},
		{"SEND 2 B round trip, two daemons", "us", "UDP ping-pong", true, 3.5, 2.5, always(s.roundTrip("send-lat", daemons), ping)},
		{"SEND 2 B round trip, one daemon", "us", "UDP ping-pong", true, 1.5, 1, always(s.roundTrip("send-lat", device), ping)},
		{"SEND 64 B, one daemon", "M/s", "", false, 3, 5, always(s.mmsg("msg-rate", device, deep, lists), nil)},
		{"SEND 64 B, two daemons", "M/s", "", false, 1.5, 4, always(s.mmsg("msg-rate", daemons, deep, lists), nil)},
		{"WRITE 1 MiB, 16 queue pairs, 1 % of packets lost", "Gbit/s", "none lost", false, .5, .8, s.lossy(0.01)},
		{"WRITE 1 MiB, 16 senders into one receiver", "Gbit/s", "one sender", false, .9, 1, s.incast},
		{"SEND 64 B beside 10,000 idle queue pairs", "ns", "alone", true, 1.1, 1.02, s.besideIdle},
		{"memory of an idle RC queue pair, 64+64 entries", "KiB", "", true, 24, 12, s.memory(false)},
		{"the same, all entries used once", "KiB", "", true, 24, 12, s.memory(true)},
		{"ib_write_bw 1 MiB, one daemon", "Gbit/s", besidePerf, false, .9, 1, s.beside(writes, 1, (*pair).writes)},
		{"ib_write_bw 1 MiB, two daemons", "Gbit/s", besidePerf, false, .9, 1, s.beside(writes, 2, (*pair).writes)},
		{"ib_send_bw 1 MiB, two daemons", "Gbit/s", besidePerf, false, .9, 1, s.beside(sends, 2, (*pair).sends)},
		{"ib_send_lat 2 B, one daemon", "us", besidePerf, true, 1.15, 1, s.beside(pings, 1, (*pair).pings)},
		{"ib_send_lat 2 B, two daemons", "us", besidePerf, true, 1.15, 1, s.beside(pings, 2, (*pair).pings)},
		{"processor of an idle daemon, 10,000 queue pairs, 100 applications", "%", "", true, .5, .05, s.idle},
	}
}

// cable measures between two hosts that a cable joins.
func (s *suite) cable() (*stage, error) {
	ends, err := nettest.Cable(1500)
	if nettest.Unable(err) {
		return nil, fmt.Errorf("%w: %w", errSkip, err)
	}
	if err != nil {
		return nil, err
	}
	p := &pair{s: s}
	var done undo
	for i, at := range []**daemon{&p.client, &p.server} {
		done.add(func() { unix.Close(ends[i].Namespace) })
		h := host{ends[i].Namespace, fmt.Sprintf("10.98.0.%d", i+1)}
		if err := ends[i].AddAddress(h.address + "/24"); err != nil {
			return nil, done.because(err)
		}
		if *at, err = s.daemon(h); err != nil {
			return nil, done.because(err)
		}
		done.add((*at).stop)
	}
	return &stage{
		path:    p.gbit("write-bw", mebi),
		against: func() (float64, error) { return iperf(s.length, p.client.host, p.server.host) },
		done:    done.all,
	}, nil
}

// lossy measures beside each other two pairs of daemons: one loses a share of all packets, either way.
func (s *suite) lossy(share float64) func() (*stage, error) {
	return func() (*stage, error) {
		var done undo
		clean, err := s.twoDaemons(&done)
		if err != nil {
			return nil, done.because(err)
		}
		bad, err := s.losing(share, &done)
		if err != nil {
			return nil, done.because(err)
		}
		const many = "--qps=16"
		return &stage{path: bad.gbit("write-bw", mebi, many, "--tx-depth=16"), against: clean.gbit("write-bw", mebi, many, "--tx-depth=16"), done: done.all}, nil
	}
}

// losing starts two daemons that lose a share of what they send.
func (s *suite) losing(share float64, done *undo) (*pair, error) {
	if share == 0 {
		return s.twoDaemons(done)
	}
	plan := filepath.Join(s.dir, fmt.Sprintf("loss-%g.yaml", share))
	text := fmt.Sprintf("seed: 1\nrules:\n- {action: drop, direction: send, probability: %g}\n", share)
	if err := os.WriteFile(plan, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return s.twoDaemons(done, "--fault", plan)
}

// twoDaemons starts two daemons on this host.
func (s *suite) twoDaemons(done *undo, args ...string) (*pair, error) {
	p := &pair{s: s}
	var err error
	for _, at := range []**daemon{&p.client, &p.server} {
		if *at, err = s.daemon(s.fresh(), args...); err != nil {
			return nil, err
		}
		done.add((*at).stop)
	}
	return p, nil
}

// incastSenders is how many write to one.
const incastSenders = 16

func (s *suite) incast() (*stage, error) {
	var done undo
	to, err := s.daemon(s.fresh())
	if err != nil {
		return nil, err
	}
	done.add(to.stop)
	var devices, names []string
	for i := range incastSenders {
		names = append(names, fmt.Sprintf("softnic%d", i))
		devices = append(devices, "--device", names[i]+"="+s.fresh().address)
	}
	from, err := s.daemon(ours, devices...)
	if err != nil {
		return nil, done.because(err)
	}
	done.add(from.stop)
	var fair []float64
	run := func(names []string) (float64, error) {
		// A thread of 17 that share two processors has few turns in a second: who is fair is so in the long run.
		r, err := (&incast{Senders: from.socket, Receiver: to.socket, Devices: names, Length: 4 * s.length}).run()
		if len(names) > 1 {
			fair = append(fair, r.spread())
		}
		return r.total(), err
	}
	return &stage{
		path:    func() (float64, error) { return run(names) },
		against: func() (float64, error) { return run(names[:1]) },
		note:    func() string { return fmt.Sprintf("each within %.0f %% of the mean", 100*median(fair)) },
		done:    done.all,
	}, nil
}

const (
	idleQPs  = 10000
	idleApps = 100
)

// besideIdle measures a message between two busy applications, in the company of many idle queue pairs, and without.
func (s *suite) besideIdle() (*stage, error) {
	h, err := s.crowd(crowd{Contexts: idleApps, QPs: idleQPs})
	if err != nil {
		return nil, err
	}
	alone, err := s.daemon(s.fresh())
	if err != nil {
		return nil, err
	}
	a, b := &pair{s, h.daemon, h.daemon}, &pair{s, alone, alone}
	return &stage{path: a.nanoseconds("msg-rate", deep, lists), against: b.nanoseconds("msg-rate", deep, lists), alike: true, done: alone.stop}, nil
}

// idle measures the processor time of a daemon with nothing to do, in percent of a processor. Go collects garbage every two
// minutes if nothing else makes it, which takes some 60 ms of 10,000 queue pairs: one collection is in what is measured.
func (s *suite) idle() (*stage, error) {
	h, err := s.crowd(crowd{Contexts: idleApps, QPs: idleQPs})
	if err != nil {
		return nil, err
	}
	const length = 2 * time.Minute
	return &stage{once: true, path: func() (float64, error) {
		time.Sleep(time.Second) // what was before comes to rest
		before, err := processorTime(h.daemon.cmd.Process.Pid)
		if err != nil {
			return 0, err
		}
		time.Sleep(length)
		after, err := processorTime(h.daemon.cmd.Process.Pid)
		return 100 * (after - before).Seconds() / length.Seconds(), err
	}}, nil
}

// memory measures what both the daemon and the application have more with many queue pairs than with two.
func (s *suite) memory(used bool) func() (*stage, error) {
	return func() (*stage, error) {
		return &stage{once: true, path: func() (float64, error) {
			var bytes [2]float64
			const few = 2
			for i, n := range []int{few, idleQPs} {
				h, err := s.crowd(crowd{Contexts: 1, QPs: n, Used: used})
				if err != nil {
					return 0, err
				}
				for _, pid := range []int{h.daemon.cmd.Process.Pid, h.pid} {
					n, err := proportional(pid)
					if err != nil {
						return 0, err
					}
					bytes[i] += n
				}
				h.leave()
			}
			return (bytes[1] - bytes[0]) / (idleQPs - few) / 1024, nil
		}}, nil
	}
}

// undo is what has to be done at the end, the last thing first.
type undo struct{ list []func() }

func (u *undo) add(f func()) { u.list = append(u.list, f) }

func (u *undo) all() {
	for i := len(u.list) - 1; i >= 0; i-- {
		u.list[i]()
	}
	u.list = nil
}

// because undoes everything and returns err.
func (u *undo) because(err error) error {
	u.all()
	return err
}
