package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/softnic/softnicd/verbs"
)

// process is a child that is this very program again: a daemon of demo, perf or exec, or another side of a conversation.
type process struct {
	cmd    *exec.Cmd
	stderr tail
	done   chan error
}

// child is a command that runs this very program with other arguments. It dies with this one, and with ctx. What the
// environment has for a daemon is not for it: its arguments say everything.
func child(ctx context.Context, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = withoutVariables(os.Environ())
	return cmd, nil
}

// withoutVariables leaves the variables out of an environment that are flags of run.
func withoutVariables(environ []string) (left []string) {
	drop := map[string]bool{}
	newRun().Flags().VisitAll(func(f *pflag.Flag) { drop[variable(f.Name)] = true })
	for _, e := range environ {
		if name, _, _ := strings.Cut(e, "="); !drop[name] {
			left = append(left, e)
		}
	}
	return left
}

// start runs this very program with other arguments.
func start(ctx context.Context, stdout io.Writer, args ...string) (*process, error) {
	cmd, err := child(ctx, args...)
	if err != nil {
		return nil, err
	}
	cmd.Stdout = stdout
	return startCommand(cmd, nil)
}

// startRun starts a daemon with these flags and a socket, and waits until it answers.
func startRun(ctx context.Context, socket string, flags ...string) (*process, error) {
	p, err := start(ctx, nil, append([]string{"run", "--socket", socket}, flags...)...)
	if err != nil {
		return nil, err
	}
	return p.answering(ctx, socket)
}

// startCommand starts a child and waits for its end. What it says on its standard error goes to echo as well, if there is one.
func startCommand(cmd *exec.Cmd, echo io.Writer) (*process, error) {
	p := &process{cmd: cmd, done: make(chan error, 1)}
	cmd.Stderr = &p.stderr
	if echo != nil {
		cmd.Stderr = io.MultiWriter(echo, &p.stderr)
	}
	// The kernel means the thread that started the child when it speaks of its parent's death: that one stays.
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := p.cmd.Start()
		if started <- err; err == nil {
			p.done <- p.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// fail explains the end of a child that should not have ended. It has ended.
func (p *process) fail(what string, err error) error {
	code := p.cmd.ProcessState.ExitCode()
	text := bytes.TrimSpace(p.stderr.last())
	text = bytes.TrimPrefix(text, []byte("softnicd: "))
	wrapped := fmt.Errorf("%s: %w: %s", what, err, text)
	if code == exitTaken {
		return &exitError{exitTaken, fmt.Errorf("%s", text)}
	}
	return wrapped
}

// daemonPatience bounds the wait for a daemon's first answer.
const daemonPatience = 30 * time.Second

// answering returns the daemon when it answers on its socket, and otherwise ends it.
func (p *process) answering(ctx context.Context, socket string) (*process, error) {
	late := time.After(daemonPatience)
	for {
		// An answer, and not only a connection: the socket listens before the devices are there.
		if _, err := verbs.Devices(verbs.WithSocket(socket)); err == nil {
			return p, nil
		}
		select {
		case err := <-p.done:
			p.done <- err
			return nil, p.fail("the daemon ended", err)
		case <-ctx.Done():
			p.kill()
			return nil, fmt.Errorf("the daemon did not answer in time: %w", ctx.Err())
		case <-late:
			p.kill()
			return nil, fmt.Errorf("the daemon does not answer on %s", socket)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// stopPatience is how long a daemon has to end after SIGTERM: what its applications have to drain, what control gives
// their sessions to end after that, and a moment for the rest.
const stopPatience = drainLimit + 5*time.Second + 1500*time.Millisecond

// stop ends the daemon as systemd would and wants to see it drain.
func (p *process) stop() error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-p.done:
		p.done <- err
		return err
	case <-time.After(stopPatience):
		return fmt.Errorf("did not end within %v of SIGTERM", stopPatience)
	}
}

// kill ends the child and waits for its end.
func (p *process) kill() {
	p.cmd.Process.Kill()
	err := <-p.done
	p.done <- err
}

// tail keeps the end of what is written.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// tailBytes is what a tail keeps at least of what it is given.
const tailBytes = 1 << 16

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if n := len(t.text); n > 2*tailBytes {
		t.text = append(t.text[:0], t.text[n-tailBytes:]...)
	}
	return len(b), nil
}

// last returns what is kept.
func (t *tail) last() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.text)
}
