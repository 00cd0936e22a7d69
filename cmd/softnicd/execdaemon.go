package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
)

// privateDaemon is the daemon of one command.
type privateDaemon struct {
	*process
	socket string
}

// privateAttempts bounds how often another address is tried when one is taken.
const privateAttempts = 8

// startPrivate starts a daemon with a socket in dir and waits until it answers. Flags that were given to exec and are run's
// go to it. Without a device among them it gets one on a loopback address where the port is free.
func startPrivate(ctx context.Context, f *pflag.FlagSet, dir string) (*privateDaemon, error) {
	args := privateFlags(f)
	socket := filepath.Join(dir, "softnicd.sock")
	args = append(args, "--socket="+socket)
	var echo io.Writer
	if f.Changed("log-level") || os.Getenv(variable("log-level")) != "" {
		echo = os.Stderr // who asked wants to read it
	} else {
		args = append(args, "--log-level=warn")
	}
	named := f.Changed("device") || f.Changed("config") || os.Getenv("SOFTNICD_DEVICE") != "" || os.Getenv("SOFTNICD_CONFIG") != ""
	for attempt := 0; ; attempt++ {
		more := args
		if !named {
			port, _ := f.GetUint16("port")
			more = append(slices.Clip(args), "--device=softnic0="+freeLoopback(attempt, port).String())
		}
		p, err := startPrivateOnce(ctx, socket, more, echo)
		if err == nil {
			return &privateDaemon{p, socket}, nil
		}
		if named || attempt == privateAttempts || !addressTaken(err) {
			return nil, err
		}
	}
}

// privateFlags are the flags of run among those that were given, as arguments.
func privateFlags(f *pflag.FlagSet) []string {
	var args []string
	var known pflag.FlagSet
	new(config).flags(&known)
	f.Visit(func(flag *pflag.Flag) {
		if known.Lookup(flag.Name) == nil {
			return
		}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			for _, v := range list.GetSlice() {
				args = append(args, "--"+flag.Name+"="+v)
			}
			return
		}
		args = append(args, "--"+flag.Name+"="+flag.Value.String())
	})
	return args
}

// freeLoopback proposes a loopback address for the nth time: the first that is tried is the one that everybody knows. All
// of 127.0.0.0/8 is ours, so that many private daemons live beside each other and beside any other one.
func freeLoopback(n int, port uint16) netip.Addr {
	for i := range 64 {
		a := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if n > 0 || i > 0 {
			a = netip.AddrFrom4([4]byte{127, byte(1 + rand.N(254)), byte(rand.N(256)), byte(1 + rand.N(254))})
		}
		c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, port)))
		if err == nil {
			c.Close()
			return a
		}
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1}) // whose refusal will say why
}

// addressTaken tells whether a daemon ended because its address is in use, where another one may be free. Its exit code is
// the same for a right that is wanting: what it said is another.
func addressTaken(err error) bool {
	var coded *exitError
	return errors.As(err, &coded) && coded.code == exitTaken && strings.Contains(err.Error(), syscall.EADDRINUSE.Error())
}

// startPrivateOnce starts a daemon and waits until it answers. What the terminal sends to the command is not for it: it
// ends after the command does. The variables of run are for it.
func startPrivateOnce(ctx context.Context, socket string, flags []string, echo io.Writer) (*process, error) {
	cmd, err := child(context.WithoutCancel(ctx), append([]string{"run"}, flags...)...)
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.Env = os.Environ()
	p, err := startCommand(cmd, echo)
	if err != nil {
		return nil, err
	}
	return p.answering(ctx, socket)
}

// end ends the daemon, gently at first.
func (d *privateDaemon) end() {
	err := d.stop()
	d.kill()
	if err != nil {
		fmt.Fprintln(os.Stderr, "softnicd:", d.fail("the daemon of this command", err))
	}
}
