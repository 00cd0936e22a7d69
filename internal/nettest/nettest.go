// Package nettest makes networks for tests: namespaces that are theirs alone, joined by a cable.
//
//	func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }
//
//	ends, err := nettest.Cable(9000)
//	err = nettest.Inside(ends[0].Namespace, func() error { ... open a socket at this end ... })
//
// Namespaces need root. [Main] makes its process root of a user namespace if it is nobody special.
package nettest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inside says to a process of Main's that it is root of a namespace, which has a loopback interface and nothing else.
const inside = "SOFTNIC_TEST_NAMESPACE"

// unable is how such a process ends that cannot do what root can: some systems give a user namespace no rights.
const unable = 77

// Main runs the tests, and returns what to exit with. Who is not root runs them in namespaces of their own where he is,
// as unshare -Urn would; where that is forbidden, as he is, and they skip what they cannot do.
func Main(m *testing.M) int { return Run(m, (*testing.M).Run) }

// Run is Main for who has something to do before the tests run.
func Run(m *testing.M, run func(*testing.M) int) int {
	if os.Getenv(inside) != "" {
		if os.Unsetenv(inside); raiseLoopback() != nil {
			return unable
		}
		return run(m)
	}
	if os.Geteuid() == 0 {
		return run(m)
	}
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.Env = append(os.Environ(), inside+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	runtime.LockOSThread() // the child is killed when the thread that made it ends
	defer runtime.UnlockOSThread()
	if c.Run() == nil {
		return 0
	}
	if c.ProcessState == nil || c.ProcessState.ExitCode() == unable {
		return run(m)
	}
	return max(c.ProcessState.ExitCode(), 1)
}

func raiseLoopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// Unable reports whether an error is the system's refusal to give this process a namespace or a socket: it has no right to one,
// it may have no more, or the kernel knows none. For such a test skips; anything else is a failure.
func Unable(err error) bool {
	for _, e := range []error{unix.EPERM, unix.EACCES, unix.ENOSPC, unix.ENOSYS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Listening reports whether somebody listens on a TCP port, in the network namespace of the calling process. It makes no
// connection, which the listener would take for its peer's.
func Listening(port int) bool {
	want := fmt.Sprintf(":%04X", port)
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(file) // there may be no IPv6
		for line := range strings.Lines(string(text)) {
			// The number of the line, local address, remote address, state; 0A is LISTEN.
			if f := strings.Fields(line); len(f) > 3 && f[3] == "0A" && strings.HasSuffix(f[1], want) {
				return true
			}
		}
	}
	return false
}

// Inside runs f on a thread that is in a network namespace, a new one if the descriptor is negative. The thread ends with
// it; what f opens stays where it was opened. There is no error if f ends its goroutine, as a test that fails does.
func Inside(namespace int, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		var err error
		defer func() { done <- err }()
		if namespace < 0 {
			err = unix.Unshare(unix.CLONE_NEWNET)
		} else {
			err = unix.Setns(namespace, unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		}
	}()
	return <-done
}

// End is an end of a cable: an interface in a namespace of its own.
type End struct {
	Namespace int // descriptor; the namespace lives as long as that is open
	Index     int // of the interface
}

// Cable makes two namespaces and joins them by a veth pair. Both ends are up, as are their loopbacks, without addresses.
func Cable(mtu int) (ends [2]End, err error) {
	for i := range ends {
		if err := Inside(-1, func() (err error) {
			ends[i].Namespace, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			return raiseLoopback()
		}); err != nil {
			return ends, fmt.Errorf("network namespace: %w", err)
		}
	}
	if err := Inside(ends[0].Namespace, func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "end0", MTU: mtu}, PeerName: "end1",
			PeerNamespace: netlink.NsFd(ends[1].Namespace), PeerMTU: uint32(mtu),
		})
	}); err != nil {
		return ends, fmt.Errorf("veth pair: %w", err)
	}
	for i := range ends {
		if err := Inside(ends[i].Namespace, func() error {
			link, err := netlink.LinkByName(fmt.Sprintf("end%d", i))
			if err != nil {
				return err
			}
			ends[i].Index = link.Attrs().Index
			return netlink.LinkSetUp(link)
		}); err != nil {
			return ends, fmt.Errorf("end %d of the cable: %w", i, err)
		}
	}
	return ends, nil
}

// AddAddress gives an end an address with its prefix, and returns when it can be found there. Nobody is asked whether
// somebody else has it.
func (e *End) AddAddress(cidr string) error {
	return Inside(e.Namespace, func() error {
		a, err := netlink.ParseAddr(cidr)
		if err != nil {
			return err
		}
		if a.IP.To4() == nil {
			a.Flags |= unix.IFA_F_NODAD
		}
		link, err := netlink.LinkByIndex(e.Index)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, a); err != nil || a.IP.To4() != nil {
			return err
		}
		return awaitSolicited(e.Index, a.IP)
	})
}

// awaitSolicited returns when the interface hears solicitations for an address. Linux joins the group that they go to
// (RFC 4291, 2.7.1) in a work queue, after the address is there to be bound, on a busy machine long after; who asks before
// that asks again a second later, and meanwhile queue pairs have used up their retries.
func awaitSolicited(index int, addr net.IP) error {
	tail := addr.To16()[13:]
	group := fmt.Sprintf("ff0200000000000000000001ff%x", []byte(tail))
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		groups, err := os.ReadFile("/proc/thread-self/net/igmp6")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(groups)) { // "2    end0            ff0200000000000000000001ff000002     1 00000004 0"
			f := strings.Fields(line)
			if len(f) > 2 && f[0] == strconv.Itoa(index) && f[2] == group {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("address %s: interface %d does not join %s", addr, index, group)
		}
	}
}
