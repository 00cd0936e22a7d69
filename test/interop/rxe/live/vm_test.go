package live

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// everything makes the tests run the whole matrix.
var everything = flag.Bool("rxe.all", false, "run every operation over every link and family, as make interop-rxe does")

// full skips what is for the whole matrix alone.
func full(t *testing.T) {
	t.Helper()
	if !*everything {
		t.Skip("make interop-rxe runs it")
	}
}

// The addresses of the bridge, which is ours, and of the machine.
var (
	bridge4  = netip.MustParseAddr("198.18.18.254")
	bridge6  = netip.MustParseAddr("fd00:18:18::fe")
	machine4 = netip.MustParseAddr("198.18.18.1")
	machine6 = netip.MustParseAddr("fd00:18:18::1")
)

// patience is how long anything that the machine does may take: it is emulated, perhaps beside other work.
const patience = 3 * time.Minute

// machine is the virtual machine.
type machine struct {
	program   string // vm
	name      string
	namespace string
	pid       int // of its QEMU
	kept      bool
}

// errAbsent says that there is no harness.
var errAbsent = errors.New("no programs build-vm and vm in ../shared/interop beside the checkout, and no $SOFTNIC_INTEROP")

// boot starts the machine once.
var boot = sync.OnceValues(func() (*machine, error) {
	dir := os.Getenv("SOFTNIC_INTEROP")
	named := dir != ""
	if !named {
		dir = filepath.Join("..", "..", "..", "..", "..", "shared", "interop")
	}
	m := &machine{program: filepath.Join(dir, "vm")}
	if _, err := os.Stat(m.program); err != nil {
		if named {
			return nil, fmt.Errorf("$SOFTNIC_INTEROP: %w", err)
		}
		return nil, errAbsent
	}
	if name := os.Getenv("SOFTNIC_RXE_VM"); name != "" {
		m.name, m.kept = name, true
		out, err := exec.Command(m.program, "list").Output()
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(out)) {
			if err := m.read(line); err == nil && m.pid > 0 {
				return m, nil
			}
		}
		return nil, fmt.Errorf("no machine %s runs", name)
	}
	if out, err := exec.Command(filepath.Join(dir, "build-vm")).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build-vm: %v\n%s", err, out)
	}
	m.name, m.namespace = fmt.Sprintf("t%d", os.Getpid()), fmt.Sprintf("rxe%d", os.Getpid())
	out, err := exec.Command(m.program, "start", m.name, "--netns", m.namespace, "--mtu", "9000", "--boot-timeout", "180",
		"--ip", machine4.String()+"/24", "--ip6", machine6.String()+"/64").Output()
	booted = m
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w\n%s", err, exit.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("vm start: %w\n%s", err, out)
	}
	if err := m.read(string(out)); err != nil {
		return nil, err
	}
	if m.pid <= 0 {
		return nil, fmt.Errorf("vm start says nothing of the process of %s: %s", m.name, out)
	}
	return m, nil
})

// read takes in what vm prints about a machine, if it is this one.
func (m *machine) read(line string) error {
	var state struct {
		Name  string
		PID   int
		NetNS string
	}
	if err := json.Unmarshal([]byte(line), &state); err != nil {
		return fmt.Errorf("vm says %q: %w", line, err)
	}
	if state.Name == m.name {
		m.pid, m.namespace = state.PID, state.NetNS
	}
	return nil
}

// stop ends the machine and its namespace, if they are this test's.
func (m *machine) stop() {
	if !m.kept {
		_ = exec.Command(m.program, "down", "--netns", m.namespace).Run()
	}
}

// theMachine returns the machine, or skips.
func theMachine(t *testing.T) *machine {
	t.Helper()
	switch {
	case testing.Short():
		t.Skip("the machine is not booted with -short")
	case os.Geteuid() != 0:
		t.Skip("the machine's network needs root")
	}
	m, err := boot()
	if errors.Is(err, errAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// in is a command in the machine, a shell line.
func (m *machine) in(ctx context.Context, line string) *exec.Cmd {
	return exec.CommandContext(ctx, m.program, "exec", m.name, "--timeout", fmt.Sprint(int(patience.Seconds())), "--", line)
}

// run runs a shell line to its end.
func (m *machine) run(t *testing.T, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := m.in(ctx, line).CombinedOutput()
	if err != nil {
		t.Fatalf("in the machine: %s: %v\n%s", line, err, out)
	}
	return string(out)
}

func (m *machine) push(t *testing.T, file, path string) {
	t.Helper()
	if out, err := exec.Command(m.program, "push", m.name, file, path).CombinedOutput(); err != nil {
		t.Fatalf("push %s: %v\n%s", file, err, out)
	}
}

// pause stops the machine for a while, and everything in it.
func (m *machine) pause(t *testing.T, d time.Duration) {
	t.Helper()
	if m.pid <= 0 {
		t.Fatal("the process of the machine is not known") // kill(2) takes 0 for the caller's group
	}
	if err := syscall.Kill(m.pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(d)
	if err := syscall.Kill(m.pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// beside is a command in the namespace of the bridge.
func (m *machine) beside(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", m.namespace}, args...)...)
}
