package shm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestPeer(t *testing.T) {
	noLeak(t)
	a, _ := socketpair(t)
	cred := must[*unix.Ucred](t)(PeerCredentials(a))
	if int(cred.Pid) != os.Getpid() || int(cred.Uid) != os.Getuid() || int(cred.Gid) != os.Getgid() {
		t.Errorf("%+v", cred)
	}
	for name, open := range map[string]func(int) (int, error){"option": PeerPidfd, "number": peerPidfdByNumber} {
		fd, err := open(a)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("%s: stays open over exec", name)
		}
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); n != 0 {
			t.Errorf("%s: says that this process has ended", name)
		}
		unix.Close(fd)
		if _, err := open(fd); err == nil {
			t.Errorf("%s: of no socket", name)
		}
	}
}

// connectChild connects, leaves the socket to a child of its own, says which, and waits to be killed.
func connectChild() {
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	if err := unix.Connect(sock, &unix.SockaddrUnix{Name: os.Getenv("SOFTNIC_SHM_SOCKET")}); err != nil {
		panic(err)
	}
	heir := exec.Command(os.Args[0])
	heir.Env = append(os.Environ(), "SOFTNIC_SHM_CHILD=sleep")
	heir.ExtraFiles = []*os.File{os.NewFile(uintptr(sock), "socket")}
	if err := heir.Start(); err != nil {
		panic(err)
	}
	SendMsg(sock, fmt.Appendf(nil, "%d", heir.Process.Pid))
	time.Sleep(time.Minute)
}

// A client that was killed is known by its pidfd, though a child of it holds the socket, which does not end.
func TestPidfdTellsOfDeath(t *testing.T) {
	noLeak(t)
	ln := must[int](t)(unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0))
	closing(t, ln)
	path := filepath.Join(t.TempDir(), "sock")
	if err := errors.Join(unix.Bind(ln, &unix.SockaddrUnix{Name: path}), unix.Listen(ln, 1)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SOFTNIC_SHM_CHILD=connect", "SOFTNIC_SHM_SOCKET="+path)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	sock, _, err := unix.Accept4(ln, unix.SOCK_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, sock)
	if cred := must[*unix.Ucred](t)(PeerCredentials(sock)); int(cred.Pid) != cmd.Process.Pid {
		t.Errorf("%+v, want process %d", cred, cmd.Process.Pid)
	}
	pidfd := must[int](t)(PeerPidfd(sock))
	closing(t, pidfd)
	var buf [16]byte
	n, _, err := RecvMsg(sock, buf[:], nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	heir, err := strconv.Atoi(string(buf[:n]))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Kill(heir, unix.SIGKILL)

	cmd.Process.Kill()
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 5000); n != 1 {
		t.Errorf("the pidfd does not tell: %d, %v", n, err)
	}
	if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(sock), Events: unix.POLLIN}}, 0); n != 0 {
		t.Error("the socket tells, so that this test shows nothing")
	}
}
