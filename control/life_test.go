package control

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/ib"
)

// TestMain lets the test binary be an application that a test kills.
func TestMain(m *testing.M) {
	switch os.Getenv("SOFTNIC_TEST_ROLE") {
	case "holder":
		time.Sleep(time.Minute)
	case "application":
		application(os.Getenv("SOFTNIC_TEST_SOCKET"))
	default:
		os.Exit(m.Run())
	}
}

// application opens the device, makes one of each, starts a child that holds the socket too, says so and waits to be
// killed.
func application(path string) {
	t := &testing.T{}
	c := (&daemon{t: t, path: path}).dial()
	c.open()
	c.build()
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), "SOFTNIC_TEST_ROLE=holder")
	child.ExtraFiles = []*os.File{os.NewFile(uintptr(c.fd), "socket")}
	if child.Start() != nil {
		os.Exit(1)
	}
	os.Stdout.WriteString("ready\n")
	time.Sleep(time.Minute)
}

// An application that closes the socket takes everything with it: descriptors, mappings, objects.
func TestEnd(t *testing.T) {
	d := newDaemon(t)
	fds, maps := descriptors(t), mappings(t)
	for range 20 {
		c := d.dial()
		events := c.open()
		_, channel := c.build()
		unix.Close(events)
		unix.Close(channel)
		c.close()
	}
	d.settle(0)
	eventually(t, "descriptors", fds, descriptors)
	eventually(t, "mappings", maps, mappings)
}

// An application that is killed is gone within 100 ms, although a child of it holds the socket.
func TestKilled(t *testing.T) {
	d := newDaemon(t)
	maps := mappings(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "SOFTNIC_TEST_ROLE=application", "SOFTNIC_TEST_SOCKET="+d.path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	noError(t, err)
	noError(t, cmd.Start())
	defer syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the group it leads: the child
	var b [6]byte
	if n, err := out.Read(b[:]); err != nil || string(b[:n]) != "ready\n" {
		t.Fatalf("the application says %q, %v", b[:n], err)
	}
	d.settle(1)
	start := time.Now()
	noError(t, cmd.Process.Kill())
	d.settle(0)
	if took := time.Since(start); took > 100*time.Millisecond {
		t.Errorf("gone after %v", took)
	}
	cmd.Process.Wait()
	eventually(t, "mappings", maps, mappings)
}

// foreign makes the tests' own user a foreign one.
func foreign(c *Config) { owner := uint32(os.Geteuid()) + 1; c.Owner = &owner }

func TestForeign(t *testing.T) {
	d := newDaemon(t, foreign, func(c *Config) {
		c.Quota = Quota{Descriptors: 4, RequestRate: 1000, RequestBurst: 20}
	})
	c := d.dial()
	unix.Close(c.open())
	o, channel := c.build()
	unix.Close(channel)

	q := o.newMR()
	q.Kind, q.Addr = ctl.MemoryProcess, 1<<20
	_, err := c.call(ctl.OpRegMR, q, &ctl.RegMRReply{})
	wantRefusal(t, err, unix.EPERM, "AllocBuffer", "daemon's user")

	fds := descriptors(t)
	made := 0
	for {
		got, err := c.call(ctl.OpCreateChannel, &ctl.CreateChannel{}, &ctl.HandleReply{})
		if err != nil {
			wantRefusal(t, err, unix.EDQUOT, "4 descriptors")
			break
		}
		unix.Close(got[0])
		made++
	}
	if made != 2 { // one for events, one for the channel of build
		t.Errorf("%d channels, want 2", made)
	}
	if n := descriptors(t); n != fds+made {
		t.Errorf("%d descriptors for %d channels", n-fds, made)
	}

	// Who asks too fast waits for its turn.
	start := time.Now()
	for range 200 {
		c.must(ctl.OpQueryDevice, &ctl.Empty{}, &ctl.QueryDeviceReply{})
	}
	if took := time.Since(start); took < 150*time.Millisecond {
		t.Errorf("200 requests took %v, at 1000 a second", took)
	}

	var r ctl.HandleReply
	big := memfd(t, 1<<31)
	defer unix.Close(big)
	_, err = c.call(ctl.OpAddArena, &ctl.AddArena{Size: 1 << 31}, &r, big)
	wantRefusal(t, err, unix.EDQUOT, "quota")
}

func TestForeignSessions(t *testing.T) {
	d := newDaemon(t, foreign)
	for range maxForeignSessions {
		d.dial()
	}
	d.settle(maxForeignSessions)
	c := d.dial()
	var b [ctl.MaxMessage]byte
	n, _, err := unix.Recvfrom(c.fd, b[:], 0)
	noError(t, err)
	h, body, err := ctl.Split(b[:n])
	noError(t, err)
	if syscall.Errno(h.Errno) != unix.EDQUOT || !strings.Contains(string(body), "sessions") {
		t.Errorf("answer %v %q", syscall.Errno(h.Errno), body)
	}
	if n, _, err := unix.Recvfrom(c.fd, b[:], 0); n != 0 || err != nil {
		t.Errorf("the connection stays: %d, %v", n, err)
	}
}

func TestBucket(t *testing.T) {
	b := newBucket(1000, 10)
	now := time.Now()
	for range 10 {
		if d := b.take(now); d != 0 {
			t.Fatalf("within the burst: %v", d)
		}
	}
	for i := 1; i <= 5; i++ {
		if d := b.take(now); d.Round(time.Microsecond) != time.Duration(i)*time.Millisecond {
			t.Fatalf("%d over the burst: %v", i, d)
		}
	}
	if d := b.take(now.Add(time.Second)); d != 0 {
		t.Fatalf("a second later: %v", d)
	}
}

// A panic in the handling of a request ends that session and no other.
func TestPanic(t *testing.T) {
	const op = ctl.Op(999)
	operations[op] = operation{"panic", 0, 0, false, plain(func(*Session, *ctl.Empty) (any, error) { panic("on purpose") })}
	t.Cleanup(func() { delete(operations, op) }) // after the daemon has ended
	d := newDaemon(t)
	bad, good := d.dial(), d.dial()
	unix.Close(bad.open())
	unix.Close(good.open())
	d.settle(2)
	msg, _ := ctl.Append(nil, op, 1, 0, &ctl.Empty{})
	unix.Sendto(bad.fd, msg, 0, nil)
	d.settle(1)
	var b [64]byte
	if n, _, err := unix.Recvfrom(bad.fd, b[:], 0); n != 0 || err != nil {
		t.Errorf("the session goes on: %d, %v", n, err)
	}
	good.build()
}

// When the process has no descriptors left, applications are turned away and the daemon neither spins nor ends.
func TestDescriptorsExhausted(t *testing.T) {
	d := newDaemon(t)
	c := d.dial()
	unix.Close(c.open())
	d.settle(1)
	waiting, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	noError(t, err)
	defer unix.Close(waiting)
	mem := memfd(t, 4096)
	defer unix.Close(mem)
	var old unix.Rlimit
	noError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	noError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: old.Max}))
	var hogs []int
	for quiet := 0; quiet < 5; { // tests before this one may still be closing theirs
		fd, err := unix.Dup(mem)
		if err != nil {
			quiet++
			time.Sleep(10 * time.Millisecond)
			continue
		}
		quiet = 0
		hogs = append(hogs, fd)
	}
	errAccept := unix.Connect(waiting, &unix.SockaddrUnix{Name: d.path})
	noError(t, unix.SetsockoptTimeval(waiting, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}))
	var b [64]byte
	n, _, errTurned := unix.Recvfrom(waiting, b[:], 0)
	time.Sleep(20 * time.Millisecond) // the daemon takes its reserve back
	// A descriptor that cannot arrive is an error of the request, and everything else goes on.
	msg, _ := ctl.Append(nil, ctl.OpAddArena, 5, 0, &ctl.AddArena{Size: 4096})
	errSend := unix.Sendmsg(c.fd, msg, unix.UnixRights(mem), nil, 0)
	var reply [ctl.MaxMessage]byte
	k, _, errReply := unix.Recvfrom(c.fd, reply[:], 0)
	for _, fd := range hogs {
		unix.Close(fd)
	}
	noError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	noError(t, errors.Join(errAccept, errSend, errReply))
	if n != 0 || errTurned != nil && errTurned != unix.ECONNRESET {
		t.Errorf("who cannot be served gets %d bytes, %v", n, errTurned)
	}
	h, body, err := ctl.Split(reply[:k])
	noError(t, err)
	if h.Errno == 0 || h.Tag != 5 {
		t.Errorf("an arena without descriptor: %+v %q", h, body)
	}
	c.build()
	other := d.dial()
	unix.Close(other.open())
}

// Shutdown: everybody hears DEVICE_FATAL and then the end; nobody is let in.
func TestShutdown(t *testing.T) {
	d := newDaemon(t)
	c := d.dial()
	events := c.open()
	defer unix.Close(events)
	c.build()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	start := time.Now()
	noError(t, d.srv.Shutdown(ctx))
	if took := time.Since(start); took > time.Second {
		t.Errorf("shutdown took %v", took)
	}
	var m [64]byte
	noError(t, unix.SetNonblock(events, true))
	if n, err := unix.Read(events, m[:]); err != nil || n != ctl.AsyncEventSize || ib.EventType(binary.LittleEndian.Uint32(m[:])) != ib.EventDeviceFatal {
		t.Errorf("event of %d bytes, %v", n, err)
	}
	if n, err := unix.Read(events, m[:]); n != 0 || err != nil {
		t.Errorf("after the last event: %d, %v", n, err)
	}
	if n, _, err := unix.Recvfrom(c.fd, m[:], 0); n != 0 || err != nil {
		t.Errorf("the session goes on: %d, %v", n, err)
	}
	if _, err := net.DialUnix(network, nil, &net.UnixAddr{Name: d.path, Net: network}); err == nil {
		t.Error("somebody is let in")
	}
}

// Asynchronous events that nobody reads end in one DEVICE_FATAL, however many there were.
func TestAsyncOverflow(t *testing.T) {
	a, fd, err := newAsync()
	noError(t, err)
	defer unix.Close(fd)
	defer a.box.close()
	for i := range 5000 {
		a.raise(ib.EventQPFatal, uint32(i), uint64(i))
	}
	noError(t, unix.SetNonblock(fd, false))
	var m [16]byte
	for i := 0; ; i++ {
		if n, err := unix.Read(fd, m[:]); err != nil || n != 16 {
			t.Fatalf("event %d: %d bytes, %v", i, n, err)
		}
		if ib.EventType(binary.LittleEndian.Uint32(m[:])) == ib.EventDeviceFatal {
			if i < maxAsync-1 {
				t.Errorf("it came after %d events", i)
			}
			break
		}
		if n := binary.LittleEndian.Uint64(m[8:]); n != uint64(i) {
			t.Fatalf("event %d is number %d", i, n)
		}
	}
	noError(t, unix.SetNonblock(fd, true))
	if n, err := unix.Read(fd, m[:]); err != unix.EAGAIN {
		t.Errorf("something follows: %d, %v", n, err)
	}
}

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	noError(t, err)
	st, err := os.Stat(path)
	noError(t, err)
	if st.Mode().Perm() != 0o660 {
		t.Errorf("mode %v", st.Mode())
	}
	if _, err := Listen(path); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a socket in use: %v", err)
	}
	// A daemon that was killed leaves its socket behind.
	l.SetUnlinkOnClose(false)
	l.Close()
	l, err = Listen(path)
	noError(t, err)
	f, err := l.File()
	noError(t, err)
	defer f.Close()
	l2, err := ListenFile(f)
	noError(t, err)
	l2.Close()
	l.Close()
	// What is no socket stays.
	file := filepath.Join(t.TempDir(), "file")
	noError(t, os.WriteFile(file, []byte("precious"), 0o600))
	if _, err := Listen(file); err == nil {
		t.Error("a file was taken for a socket")
	}
	if b, _ := os.ReadFile(file); string(b) != "precious" {
		t.Error("a file was removed")
	}
	plain, err := os.Open(file)
	noError(t, err)
	defer plain.Close()
	if _, err := ListenFile(plain); err == nil {
		t.Error("a file was taken for a socket")
	}
	if _, err := Listen(filepath.Join(path, "missing", "s")); err == nil {
		t.Error("a directory that is not there")
	}
}
