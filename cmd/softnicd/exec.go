package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/internal/dropin"
	"github.com/softnic/softnicd/verbs"
)

// execOptions are the choices of `softnicd exec`.
type execOptions struct {
	standalone bool
	sysfs      bool
	lids       bool
	daemon     config // of the private daemon; its socket is also that of another one
}

// programEnd is the exit code of a program that was run, other than 0.
type programEnd int

func (e programEnd) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Exit codes of a program that did not run, as shells give them.
const (
	exitNotRunnable = 126
	exitNotFound    = 127
	exitSignal      = 128
)

func newExec() *cobra.Command {
	var o execOptions
	c := &cobra.Command{
		Use:   "exec [flags] -- PROGRAM [ARGS]",
		Short: "Run an unmodified verbs program",
		Long: `Runs a program that was linked with libibverbs, as it is: it loads softnicd's library instead and finds the devices of the
daemon. No kernel module, no /dev/infiniband and no root is needed, and the program's children are served as well.

    softnicd run &
    softnicd exec -- ibv_devinfo

--standalone starts a daemon for this one command, with a socket of its own and, if no --device names another, one device
on a loopback address, and ends it with the command:

    softnicd exec --standalone -- sh -c 'ib_write_bw & sleep 1; ib_write_bw localhost'

--sysfs is for programs that look into /sys/class/infiniband themselves, such as UCX and NCCL. --lids is for those that name
their peer by a LID, which RoCE has not, such as qperf: all hosts must be in one /16 then. The exit code is the program's.
The libraries are compiled when they are needed first: see softnicd libs.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.run(c.Context(), c.Flags(), args) },
	}
	f := c.Flags()
	f.SetInterspersed(false) // the flags after PROGRAM are its own
	f.BoolVar(&o.standalone, "standalone", false, "start a daemon for this command alone; the other flags are as those of run")
	f.BoolVar(&o.lids, "lids", false, "give ports LIDs, the low half of their IPv4 addresses, for programs that know no GIDs")
	f.BoolVar(&o.sysfs, "sysfs", false, "let the program see the devices in /sys/class/infiniband")
	o.daemon.flags(f)
	return c
}

// run runs the program and returns its end.
func (o *execOptions) run(ctx context.Context, f *pflag.FlagSet, args []string) error {
	program, err := exec.LookPath(args[0])
	if err != nil {
		return notRunnable(args[0], err)
	}
	if err := o.check(f); err != nil {
		return err
	}
	libs, err := dropin.Find(ctx)
	if err != nil {
		return err
	}
	values := libs.Variables(os.Environ(), o.sysfs)
	if values[dropin.EnvSocket], err = filepath.Abs(socketOf(o.daemon.Socket)); err != nil {
		return err
	}
	if o.lids {
		values[dropin.EnvLIDs] = "1"
	}
	if !o.standalone {
		if err := checkDaemon(values[dropin.EnvSocket]); err != nil {
			return err
		}
		if !o.sysfs {
			// Nothing is left to do afterwards: become the program.
			err := syscall.Exec(program, args, dropin.Environ(os.Environ(), values))
			return notRunnable(args[0], err)
		}
	}
	dir, err := newTempDir()
	if err != nil {
		return err
	}
	defer dir.remove()
	if o.standalone {
		d, err := startPrivate(ctx, f, dir.path)
		if err != nil {
			return err
		}
		defer d.end()
		values[dropin.EnvSocket] = d.socket
	}
	if o.sysfs {
		tree, err := newSysfs(filepath.Join(dir.path, "sys"), values[dropin.EnvSocket], o.lids)
		if err != nil {
			return err
		}
		defer tree.stop()
		values[dropin.EnvSysfs] = tree.root
	}
	cmd := exec.Command(program)
	cmd.Args = args
	cmd.Env = dropin.Environ(os.Environ(), values)
	return runProgram(ctx, cmd)
}

// check refuses flags that would do nothing.
func (o *execOptions) check(f *pflag.FlagSet) error {
	if o.standalone {
		if f.Changed("socket") {
			return usage(errors.New("--standalone has a socket of its own: --socket does not apply"))
		}
		return nil
	}
	var err error
	f.Visit(func(flag *pflag.Flag) {
		switch flag.Name {
		case "lids", "sysfs", "socket", "help":
		default:
			err = usage(fmt.Errorf("--%s is for the daemon that --standalone starts", flag.Name))
		}
	})
	return err
}

func socketOf(flag string) string {
	if flag != "" {
		return flag
	}
	return verbs.SocketPath()
}

// checkDaemon tells whether a daemon answers on a socket, and if not, what to do.
func checkDaemon(socket string) error {
	_, err := verbs.Devices(verbs.WithSocket(socket))
	if err == nil {
		return nil
	}
	return fmt.Errorf("no daemon answers on %s (%w); start one with softnicd run, name its socket with --socket or %s, or let exec start one for this command with --standalone", socket, err, dropin.EnvSocket)
}

// notRunnable is the end of a program that did not begin.
func notRunnable(name string, err error) error {
	code := exitNotRunnable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = exitNotFound
	}
	return &exitError{code, fmt.Errorf("%s: %w", name, err)}
}

// forwarded are the signals that go on to the program.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT}

// runProgram runs a command on our own files, hands it the signals that come for us, and returns its end.
func runProgram(ctx context.Context, cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)
	if ctx.Err() != nil { // by a signal that came before, which no program has to hear of
		return fmt.Errorf("interrupted: %w", context.Cause(ctx))
	}
	if err := cmd.Start(); err != nil {
		return notRunnable(cmd.Args[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if !fromTerminal(s) {
				_ = cmd.Process.Signal(s)
			}
		case err := <-ended:
			return endOf(cmd, err)
		}
	}
}

// fromTerminal tells whether a signal is one that the terminal sends to the whole foreground group, of which the program is:
// it has had it already.
func fromTerminal(s os.Signal) bool {
	switch s {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH:
	default:
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	foreground, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

// endOf says how a program that was waited for has ended.
func endOf(cmd *exec.Cmd, err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit):
		return err
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return programEnd(exitSignal + int(status.Signal()))
	}
	return programEnd(cmd.ProcessState.ExitCode())
}
