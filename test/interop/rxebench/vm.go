package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// harness is the folder with the programs build-vm and vm.
type harness struct {
	dir       string
	namespace string // that the bridge is in
}

// findHarness looks where the live tests look.
func findHarness() (*harness, error) {
	dir := os.Getenv("SOFTNIC_INTEROP")
	if dir == "" {
		dir = filepath.Join("..", "shared", "interop")
	}
	if _, err := os.Stat(filepath.Join(dir, "vm")); err != nil {
		return nil, errors.New("no programs build-vm and vm in ../shared/interop beside the checkout nor in $SOFTNIC_INTEROP")
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("the machines' network needs root")
	}
	return &harness{dir, fmt.Sprintf("rxb%d", os.Getpid())}, nil
}

func (h *harness) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, filepath.Join(h.dir, program), args...)
	c.WaitDelay = time.Second
	return c
}

// image builds what the machines boot from, if it is not there.
func (h *harness) image(ctx context.Context) error {
	if out, err := h.command(ctx, "build-vm").CombinedOutput(); err != nil {
		return fmt.Errorf("build-vm: %w\n%s", err, out)
	}
	return nil
}

// down stops the machines and takes their network away.
func (h *harness) down() {
	_ = h.command(context.Background(), "vm", "down", "--netns", h.namespace).Run()
}

// machine is a virtual machine.
type machine struct {
	h       *harness
	name    string
	address string
	pid     int // of its QEMU
}

// start boots the machine with a number, 1 or 2.
func (h *harness) start(ctx context.Context, number int, o options) (*machine, error) {
	m := &machine{h: h, name: fmt.Sprintf("b%d-%d", os.Getpid(), number), address: fmt.Sprintf("198.18.18.%d", number)}
	out, err := h.command(ctx, "vm", "start", m.name, "--netns", h.namespace, "--ip", m.address+"/24",
		"--ip6", fmt.Sprintf("fd00:18:18::%d/64", number), "--mtu", fmt.Sprint(o.MTU), "--cpus", fmt.Sprint(o.CPUs), "--accel", o.Accel).Output()
	if err != nil {
		return nil, fmt.Errorf("vm start %s: %w\n%s", m.name, err, errorText(err))
	}
	var state struct{ PID int }
	if err := json.Unmarshal(out, &state); err != nil {
		return nil, fmt.Errorf("vm start says %q: %w", out, err)
	}
	m.pid = state.PID
	return m, nil
}

// errorText is what a program that failed wrote to its standard error.
func errorText(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(exit.Stderr)
	}
	return ""
}

// in is a command in the machine, which ends it there when the time is over.
func (m *machine) in(ctx context.Context, limit time.Duration, args ...string) *exec.Cmd {
	head := []string{"exec", m.name, "--timeout", fmt.Sprint(limit.Seconds()), "--"}
	return m.h.command(ctx, "vm", append(head, args...)...)
}

// guest runs a verb of guest.sh.
func (m *machine) guest(ctx context.Context, limit time.Duration, args ...string) (string, error) {
	out, err := m.in(ctx, limit, append([]string{"sh", "/bench/guest.sh"}, args...)...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s in %s: %w: %s", strings.Join(args, " "), m.name, err, lastLines(string(out), 4))
	}
	return string(out), nil
}

// piece is how much of a file goes over the machine's serial port at once: it puts together what comes by copying it.
const piece = 512 << 10

// unpack brings an archive into the machine's folder /bench.
func (m *machine) unpack(ctx context.Context, archive []byte) error {
	send := func(line string, stdin []byte) error {
		c := m.h.command(ctx, "vm", "exec", m.name, "--stdin", "--", line)
		c.Stdin = bytes.NewReader(stdin)
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("push into %s: %w\n%s", m.name, err, out)
		}
		return nil
	}
	for at := 0; at < len(archive); at += piece {
		if err := send("cat >> /bench.tgz", archive[at:min(at+piece, len(archive))]); err != nil {
			return err
		}
	}
	return send("mkdir -p /bench && tar xzf /bench.tgz -C /bench && rm /bench.tgz", nil)
}

// bundle builds softnicd, and its libraries for this machine's C library, which has to be the guests' too: they have no
// compiler. It returns both and guest.sh as an archive.
func bundle(ctx context.Context) ([]byte, error) {
	dir, err := os.MkdirTemp("", "rxebench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "softnicd")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "github.com/softnic/softnicd/cmd/softnicd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	libs := exec.CommandContext(ctx, program, "libs", "--dir", filepath.Join(dir, "libs"))
	for _, c := range []*exec.Cmd{build, libs} {
		if out, err := c.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", strings.Join(c.Args, " "), err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "guest.sh"), guestScript, 0o755); err != nil {
		return nil, err
	}
	return archive(os.DirFS(dir))
}

func archive(files fs.FS) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	if err := errors.Join(t.AddFS(files), t.Close(), z.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// lastLines is the end of what a program has printed, on one line.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " / ")
}
