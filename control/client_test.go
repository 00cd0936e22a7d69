package control

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/internal/shm"
	"github.com/softnic/softnicd/link/local"
	"github.com/softnic/softnicd/nic"
)

// daemon is a server with one device, on a real socket.
type daemon struct {
	t    *testing.T
	path string
	srv  *Server
	nic  *nic.Device
}

func newDaemon(t *testing.T, adapt ...func(*Config)) *daemon {
	t.Helper()
	page, err := NewPage()
	noError(t, err)
	d, err := nic.New(nic.Config{
		Name: "softnic0", Port: local.New(64), Page: page.Mem,
		Link: nic.Link{Name: "test0", Index: 1, MTU: 9000, Up: true, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
	})
	noError(t, err)
	d.Start()
	cfg := Config{Devices: []*Device{{NIC: d, Page: page}}}
	for _, f := range adapt {
		f(&cfg)
	}
	srv, err := New(cfg)
	noError(t, err)
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	noError(t, err)
	served := make(chan error)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil && !errors.Is(err, ErrServerClosed) {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, ErrServerClosed) {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if err := page.Close(); err != nil {
			t.Error(err)
		}
	})
	return &daemon{t, path, srv, d}
}

// settle waits until the daemon has so many sessions.
func (d *daemon) settle(sessions int) {
	d.t.Helper()
	for end := time.Now().Add(5 * time.Second); len(d.srv.snapshot()) != sessions; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			d.t.Fatalf("%d sessions, want %d", len(d.srv.snapshot()), sessions)
		}
	}
}

// client is an application that says what it likes: it knows the messages and nothing of package verbs.
type client struct {
	t   *testing.T
	c   *net.UnixConn
	fd  int // the socket, for sending by hand; duplicate
	tag uint32
}

func (d *daemon) dial() *client {
	d.t.Helper()
	c, err := net.DialUnix(network, nil, &net.UnixAddr{Name: d.path, Net: network})
	noError(d.t, err)
	raw, err := c.SyscallConn()
	noError(d.t, err)
	v := &client{t: d.t, c: c}
	raw.Control(func(fd uintptr) { v.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	noError(d.t, err)
	// A blocking socket: the daemon answers, or the test hangs and shows it.
	noError(d.t, unix.SetNonblock(v.fd, false))
	noError(d.t, unix.SetsockoptTimeval(v.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}))
	d.t.Cleanup(v.close)
	return v
}

func (c *client) close() {
	if c.fd >= 0 {
		c.c.Close()
		unix.Close(c.fd)
		c.fd = -1
	}
}

// exchange sends raw bytes and returns the reply's header, its body and its descriptors.
func (c *client) exchange(msg []byte, fds ...int) (ctl.Header, []byte, []int) {
	c.t.Helper()
	noError(c.t, shm.SendMsg(c.fd, msg, fds...))
	buf := make([]byte, ctl.MaxMessage)
	var got [ctl.MaxDescriptors]int
	n, nfds, err := shm.RecvMsg(c.fd, buf, got[:], nil)
	noError(c.t, err)
	h, body, err := ctl.Split(buf[:n])
	noError(c.t, err)
	return h, body, got[:nfds]
}

// call sends a request and decodes the reply; the error is a *ctl.Error.
func (c *client) call(op ctl.Op, request, reply any, fds ...int) ([]int, error) {
	c.t.Helper()
	c.tag++
	msg, err := ctl.Append(nil, op, c.tag, 0, request)
	noError(c.t, err)
	h, body, got := c.exchange(msg, fds...)
	if h.Tag != c.tag || h.Op != op {
		c.t.Fatalf("answer %+v to operation %d with tag %d", h, op, c.tag)
	}
	if h.Errno != 0 {
		if len(got) != 0 {
			c.t.Fatal("a refusal came with descriptors")
		}
		if len(body) == 0 || len(body) > ctl.MaxSentence {
			c.t.Fatalf("operation %d was refused by %q", op, body)
		}
		return nil, &ctl.Error{Op: op, Errno: syscall.Errno(h.Errno), Sentence: string(body)}
	}
	return got, ctl.Decode(op, body, reply)
}

func (c *client) must(op ctl.Op, request, reply any, fds ...int) []int {
	c.t.Helper()
	got, err := c.call(op, request, reply, fds...)
	noError(c.t, err)
	return got
}

// open opens the device, and closes the descriptors that come of it but the one of asynchronous events.
func (c *client) open() (events int) {
	c.t.Helper()
	bell := memfd(c.t, abi.DoorbellSize)
	defer unix.Close(bell)
	var r ctl.OpenReply
	fds := c.must(ctl.OpOpen, &ctl.Open{ABIVersion: abi.Version}, &r, bell)
	if len(fds) != 3 {
		c.t.Fatalf("%d descriptors", len(fds))
	}
	unix.Close(fds[0])
	unix.Close(fds[1])
	return fds[2]
}

// objects are one of each kind.
type objects struct{ arena, pd, channel, cq, qp, mr uint32 }

// build makes one of each. The arena has 1 MiB: the CQ lies at 0, the QP at 64 KiB, the region at 512 KiB.
func (c *client) build() (o objects, channel int) {
	c.t.Helper()
	mem := memfd(c.t, 1<<20)
	defer unix.Close(mem)
	var h ctl.HandleReply
	c.must(ctl.OpAddArena, &ctl.AddArena{Size: 1 << 20}, &h, mem)
	o.arena = h.Handle
	c.must(ctl.OpAllocPD, &ctl.Empty{}, &h)
	o.pd = h.Handle
	fds := c.must(ctl.OpCreateChannel, &ctl.CreateChannel{}, &h)
	o.channel, channel = h.Handle, fds[0]
	var q ctl.CreateCQReply
	c.must(ctl.OpCreateCQ, &ctl.CreateCQ{Entries: 100, Channel: o.channel, Arena: o.arena, Cookie: 7}, &q)
	o.cq = q.Handle
	var p ctl.CreateQPReply
	c.must(ctl.OpCreateQP, o.newQP(), &p)
	o.qp = p.Handle
	var m ctl.RegMRReply
	c.must(ctl.OpRegMR, o.newMR(), &m)
	o.mr = m.Handle
	return o, channel
}

func (o objects) newQP() *ctl.CreateQP {
	return &ctl.CreateQP{
		PD: o.pd, Type: 2, SendCQ: o.cq, RecvCQ: o.cq, MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 2,
		Arena: o.arena, Offset: 64 << 10,
	}
}

func (o objects) newMR() *ctl.RegMR {
	return &ctl.RegMR{PD: o.pd, Arena: o.arena, Offset: 512 << 10, Length: 4096, Access: 1}
}

func memfd(t testing.TB, size int) int {
	t.Helper()
	fd, err := shm.Create("test", size)
	noError(t, err)
	return fd
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// descriptors counts the open descriptors of the process.
func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	noError(t, err)
	return len(list)
}

// mappings counts the mappings of shared memory.
func mappings(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	noError(t, err)
	return strings.Count(string(b), "/memfd:")
}

// eventually waits for a number to come back to what it was.
func eventually(t testing.TB, what string, want int, count func(testing.TB) int) {
	t.Helper()
	var n int
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if n = count(t); n <= want {
			return
		}
	}
	t.Errorf("%d %s, before there were %d", n, what, want)
}
