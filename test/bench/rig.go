package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/internal/nettest"
	"github.com/softnic/softnicd/verbs"
)

// host is where programs of a measurement run: this one, or a network namespace at an end of a cable.
type host struct {
	namespace int // descriptor, negative for ours
	address   string
}

// ours is this host.
var ours = host{namespace: -1, address: "127.0.0.1"}

// fresh is this host by an address that no daemon of ours has had.
func (s *suite) fresh() host {
	s.addresses++
	return host{namespace: -1, address: fmt.Sprintf("127.1.%d.%d", s.addresses>>8, s.addresses&0xff)}
}

// start starts a program there.
func (h *host) start(c *exec.Cmd) error {
	if h.namespace < 0 {
		return c.Start()
	}
	// A child is in the namespace of the thread that starts it.
	return nettest.Inside(h.namespace, c.Start)
}

// daemon is a running softnicd.
type daemon struct {
	host   host
	socket string
	cmd    *exec.Cmd
}

// patience bounds every wait that is not a measurement.
const patience = time.Minute

// daemon starts softnicd on a host, with a device on its address unless args name others, and waits until it answers.
func (s *suite) daemon(h host, args ...string) (*daemon, error) {
	s.daemons++
	d := &daemon{host: h, socket: filepath.Join(s.dir, fmt.Sprintf("daemon%d.sock", s.daemons))}
	all := []string{"run", "--socket", d.socket, "--log-level", "error", "--port", udpPort}
	if len(args) == 0 || args[0] != "--device" {
		all = append(all, "--device", "softnic0="+h.address)
	}
	d.cmd = exec.Command(s.binary, append(all, args...)...)
	d.cmd.Stderr = s.errors
	d.cmd.Env = append(os.Environ(), s.env...)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{}
	if err := h.start(d.cmd); err != nil {
		return nil, err
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, err := verbs.Devices(verbs.WithSocket(d.socket)); err == nil {
			return d, nil
		}
	}
	d.stop()
	return nil, errors.New("the daemon does not answer")
}

func (d *daemon) stop() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	_ = d.cmd.Wait()
}

// pair is two daemons, or twice the same one, between which softnicd perf measures.
type pair struct {
	s      *suite
	client *daemon
	server *daemon
}

// perfPort is where the two sides of softnicd perf meet.
const perfPort = "18517"

// perf measures once, with softnicd perf's arguments.
func (p *pair) perf(args ...string) (r result, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience+10*p.s.length)
	defer cancel()
	server := exec.CommandContext(ctx, p.s.binary, "perf", "--server", "--socket", p.server.socket, "--port", perfPort)
	says, err := server.StderrPipe()
	if err != nil {
		return r, err
	}
	if err := p.server.host.start(server); err != nil {
		return r, err
	}
	defer server.Wait()
	defer server.Process.Kill()
	// Its first line says that it is about to listen.
	if _, err := bufio.NewReader(says).ReadString('\n'); err != nil {
		return r, fmt.Errorf("softnicd perf --server: %w", err)
	}
	time.Sleep(20 * time.Millisecond)
	all := []string{"perf", args[0], "--connect", p.server.host.address, "--socket", p.client.socket, "--port", perfPort,
		"--duration", p.s.length.String(), "-o", "json"}
	client := exec.CommandContext(ctx, p.s.binary, append(all, args[1:]...)...)
	var out, failed limited
	client.Stdout, client.Stderr = &out, &failed
	if err = p.client.host.start(client); err == nil {
		err = client.Wait()
	}
	if err != nil {
		return r, fmt.Errorf("softnicd perf: %w: %s", err, failed.b)
	}
	return r, json.Unmarshal(out.b, &r)
}

// gbit and nanoseconds, of a message, are measurements between the daemons.
func (p *pair) gbit(args ...string) func() (float64, error) {
	return func() (float64, error) { r, err := p.perf(args...); return r.Gbit, err }
}

func (p *pair) nanoseconds(args ...string) func() (float64, error) {
	return func() (float64, error) { r, err := p.perf(args...); return 1e9 / r.Msg, err }
}

// What programs of perftest are measured beside.
func (p *pair) writes() func() (float64, error) { return p.gbit("write-bw", mebi) }
func (p *pair) sends() func() (float64, error)  { return p.gbit("send-bw", mebi) }
func (p *pair) pings() func() (float64, error) {
	return func() (float64, error) { r, err := p.perf("send-lat"); return r.P50, err }
}

// limited keeps what a program prints.
type limited struct{ b []byte }

func (l *limited) Write(b []byte) (int, error) {
	l.b = append(l.b, b[:min(len(b), 1<<20-len(l.b))]...)
	return len(b), nil
}

// proportional returns the bytes that a process has in memory, of what it shares only its part: the sum over all who share
// it is what there is.
func proportional(pid int) (float64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var name string
	var kib float64
	for {
		if _, err := fmt.Fscan(f, &name); err != nil {
			return 0, fmt.Errorf("%s tells no Pss: %w", f.Name(), err)
		}
		if name == "Pss:" {
			_, err := fmt.Fscan(f, &kib)
			return kib * 1024, err
		}
	}
}

// processorTime returns what a process has used. The kernel has a clock for each, whose number is made from the pid.
func processorTime(pid int) (time.Duration, error) {
	var t unix.Timespec
	const schedClock = 2
	err := unix.ClockGettime(int32(^pid<<3|schedClock), &t)
	return time.Duration(t.Nano()), err
}
