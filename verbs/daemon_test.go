package verbs_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/control"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/nettest"
	"github.com/softnic/softnicd/link/local"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/verbs"
)

// TestMain lets the test binary be a daemon, or an application that a test kills.
func TestMain(m *testing.M) {
	switch role, path := os.Getenv("SOFTNIC_TEST_ROLE"), os.Getenv("SOFTNIC_TEST_SOCKET"); role {
	case "daemon":
		runDaemon(path)
	case "application":
		runApplication(path)
	case "xrc":
		runXRC(path)
	default:
		if testLink != "" {
			os.Exit(nettest.Run(m, runOnLink))
		}
		os.Exit(m.Run())
	}
}

// runDaemon serves one device, which reaches itself, until it is killed.
func runDaemon(path string) {
	page := must(control.NewPage())
	d := must(nic.New(nic.Config{
		Name: "softnic0", Port: local.New(1024), Page: page.Mem,
		Link: nic.Link{Name: "test0", Index: 1, MTU: 9000, Up: true, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
	}))
	d.Start()
	srv := must(control.New(control.Config{Devices: []*control.Device{{NIC: d, Page: page}}}))
	l := must(control.Listen(path))
	fmt.Println("ready")
	panic(srv.Serve(l))
}

// runApplication moves memory between two queue pairs of its own until it is killed.
func runApplication(path string) {
	t := &testing.T{}
	ctx := must(verbs.Open("", verbs.WithSocket(path)))
	a, b := newSide(t, ctx, 64, smallCap), newSide(t, ctx, 64, smallCap)
	connectSides(t, a, b, verbs.RCAttr{})
	for i := range uint64(1 << 62) {
		write := a.send(i, 1<<16)
		write.Opcode, write.RemoteAddr, write.RKey = ib.WRRDMAWrite, b.mr.Addr(), b.mr.RKey()
		check(t, a.qp.PostSend(write))
		if i > 8 {
			a.expect(i-9, ib.WCSuccess)
		}
		if i == 100 {
			fmt.Println("ready")
		}
	}
}

// spawn starts a process of this binary in a role, and waits until it says that it is ready.
func spawn(t *testing.T, role, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "SOFTNIC_TEST_ROLE="+role, "SOFTNIC_TEST_SOCKET="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the %s says %q, %v", role, line, err)
	}
	return cmd
}

func spawnDaemon(t *testing.T) (*exec.Cmd, string) {
	path := filepath.Join(t.TempDir(), "s")
	return spawn(t, "daemon", path), path
}

func openSocket(t *testing.T, path string) *verbs.Context {
	t.Helper()
	ctx, err := verbs.Open("softnic0", verbs.WithSocket(path))
	check(t, err)
	t.Cleanup(func() { ctx.Close() })
	return ctx
}

// The whole way: a daemon in a process of its own, memory shared with it and memory of our own.
func TestDaemon(t *testing.T) {
	_, path := spawnDaemon(t)
	list := must(verbs.Devices(verbs.WithSocket(path)))
	if len(list) != 1 || list[0].Name != "softnic0" || list[0].NodeGUID == 0 {
		t.Fatalf("devices %+v", list)
	}
	ctx := openSocket(t, path)
	a, b := newSide(t, ctx, 64, smallCap), newSide(t, ctx, 64, smallCap)
	connectSides(t, a, b, verbs.RCAttr{})
	own := make([]byte, 10000)
	mr := must(b.pd.RegMR(own, everything))
	mr2 := must(b.pd.RegMR(make([]byte, 100), everything)) // the daemon knows the way by now
	fill(a.buf.Bytes(), 5)
	write := a.send(1, 9000)
	write.Opcode, write.RemoteAddr, write.RKey = ib.WRRDMAWrite, mr.Addr()+500, mr.RKey()
	check(t, a.qp.PostSend(write))
	a.expect(1, ib.WCSuccess)
	if !bytes.Equal(own[500:9500], a.buf.Bytes()[:9000]) {
		t.Fatal("the bytes differ")
	}
	check(t, mr.Dereg())
	check(t, mr2.Dereg())
	attr, init, err := a.qp.Query()
	check(t, err)
	if attr.State != ib.StateRTS || attr.DestQPN != b.qp.QPN() || init.Cap != a.qp.Cap() {
		t.Errorf("query: %+v %+v", attr, init)
	}
	if port := must(ctx.QueryPort(1)); port.State != ib.PortActive || port.ActiveMTU != ib.MTU4096 {
		t.Errorf("port %+v", port)
	}
	if g := must(ctx.QueryGIDTable(1)); len(g) != 1 || g[0].GID.Addr().String() != "192.0.2.1" {
		t.Errorf("GIDs %v", g)
	}
	if k := must(ctx.QueryPKey(1, 0)); k != ib.DefaultPKey {
		t.Errorf("P_Key %#x", k)
	}
	if c := must(ctx.QueryCounters()); len(c) == 0 {
		t.Error("no counters")
	}
}

func TestNoDaemon(t *testing.T) {
	_, err := verbs.Open("", verbs.WithSocket(filepath.Join(t.TempDir(), "none")))
	if !errors.Is(err, verbs.ErrNoDaemon) || !errors.Is(err, syscall.ENOENT) || !strings.Contains(err.Error(), "softnicd run") {
		t.Errorf("error %v", err)
	}
	t.Setenv("SOFTNICD_SOCKET", "/nowhere/s")
	if _, err := verbs.Devices(); !errors.Is(err, verbs.ErrNoDaemon) || !strings.Contains(err.Error(), "/nowhere/s") {
		t.Errorf("error %v", err)
	}
}

// kill -9 of the daemon: who waits, who polls and who posts learn it within 100 ms.
func TestDaemonKilled(t *testing.T) {
	daemon, path := spawnDaemon(t)
	ctx := openSocket(t, path)
	s := newSide(t, ctx, 64, smallCap)
	check(t, s.qp.ConnectRC(s.end, s.end, verbs.RCAttr{}))
	ch := must(ctx.CreateCompChannel())
	ends := make(chan string, 5)
	wait := func(name string, f func() error) {
		go func() {
			if err := f(); errors.Is(err, verbs.ErrDeviceFatal) {
				ends <- name
			} else {
				ends <- fmt.Sprintf("%s: wrong error %v", name, err)
			}
		}()
	}
	wait("Wait", func() error { _, err := s.cq.Wait(context.Background(), make([]verbs.WC, 1)); return err })
	wait("GetEvent", func() error { _, err := ch.GetEvent(context.Background()); return err })
	wait("AsyncEvent", func() error {
		for {
			if _, err := ctx.AsyncEvent(context.Background()); err != nil {
				return err
			}
		}
	})
	idle := must(ctx.CreateCQ(8))
	wait("Poll", func() error {
		for {
			if _, err := idle.Poll(make([]verbs.WC, 1)); err != nil {
				return err
			}
		}
	})
	wait("PostSend", func() error {
		for {
			err := s.qp.PostSend(s.send(1, 8))
			if err != nil && !errors.Is(err, syscall.ENOMEM) {
				return err
			}
			time.Sleep(time.Millisecond)
		}
	})
	time.Sleep(50 * time.Millisecond)
	check(t, daemon.Process.Kill())
	daemon.Wait() // from here it is gone for certain
	start := time.Now()
	for range cap(ends) {
		select {
		case e := <-ends:
			if strings.Contains(e, ":") {
				t.Error(e)
			}
			if took := time.Since(start); took > 100*time.Millisecond {
				t.Errorf("%s after %v", e, took)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("somebody hangs")
		}
	}
	if _, err := ctx.AllocPD(); !errors.Is(err, verbs.ErrDeviceFatal) {
		t.Errorf("alloc pd: %v", err)
	}
	check(t, ctx.Close())
}

// mappings counts a process's mappings of shared memory, and its descriptors.
func mappings(t *testing.T, pid any) (maps, fds int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%v/maps", pid))
	check(t, err)
	list, err := os.ReadDir(fmt.Sprintf("/proc/%v/fd", pid))
	check(t, err)
	return bytes.Count(b, []byte("/memfd:")), len(list)
}

// kill -9 of an application in mid-transfer: what it had is gone within 100 ms, and another's transfer goes on.
func TestApplicationKilled(t *testing.T) {
	daemon, path := spawnDaemon(t)
	ctx := openSocket(t, path)
	a, b := newSide(t, ctx, 64, smallCap), newSide(t, ctx, 64, smallCap)
	connectSides(t, a, b, verbs.RCAttr{})
	maps, fds := mappings(t, daemon.Process.Pid)
	var took []time.Duration
	for round := range 5 {
		app := spawn(t, "application", path)
		if n, _ := mappings(t, daemon.Process.Pid); n <= maps {
			t.Fatalf("the application has no memory in the daemon: %d mappings, %d before", n, maps)
		}
		write := a.send(0, 1<<16)
		write.Opcode, write.RemoteAddr, write.RKey = ib.WRRDMAWrite, b.mr.Addr(), b.mr.RKey()
		check(t, app.Process.Kill())
		start := time.Now()
		gone := time.Duration(0)
		for i := uint64(0); i < 50 || gone == 0; i++ {
			write.WRID = i
			fill(a.buf.Bytes()[:64], i)
			check(t, a.qp.PostSend(write))
			a.expect(i, ib.WCSuccess)
			if !bytes.Equal(a.buf.Bytes(), b.buf.Bytes()) {
				t.Fatal("the bytes differ")
			}
			if m, f := mappings(t, daemon.Process.Pid); gone == 0 && m <= maps && f <= fds {
				gone = time.Since(start)
			}
			if time.Since(start) > 5*time.Second {
				t.Fatalf("round %d: still there", round)
			}
		}
		took = append(took, gone)
	}
	// The median: a busy machine may keep any one process waiting.
	slices.Sort(took)
	if took[2] > 100*time.Millisecond {
		t.Errorf("gone after %v", took)
	}
}

// Memory of queue pairs that were destroyed is given back, on both sides.
func TestDestroyedQPs(t *testing.T) {
	daemon, path := spawnDaemon(t)
	ctx := openSocket(t, path)
	pd := must(ctx.AllocPD())
	cq := must(ctx.CreateCQ(100))
	maps, _ := mappings(t, "self")
	dmaps, _ := mappings(t, daemon.Process.Pid)
	for range 3 {
		var qps []*verbs.QP
		for range 100 {
			cap := verbs.QPCap{MaxSendWR: 256, MaxRecvWR: 256, MaxSendSGE: 1, MaxRecvSGE: 1}
			qps = append(qps, must(pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: cap})))
		}
		if n, _ := mappings(t, "self"); n <= maps {
			t.Fatal("the test shows nothing")
		}
		for _, q := range qps {
			check(t, q.Close())
		}
		n, _ := mappings(t, "self")
		d, _ := mappings(t, daemon.Process.Pid)
		if n > maps+1 || d > dmaps+1 { // a small one is kept
			t.Errorf("%d and %d mappings stay", n-maps, d-dmaps)
		}
	}
	check(t, cq.Close())
	check(t, pd.Dealloc())
}

// Ten thousand queue pairs: few mappings and descriptors on both sides, and all of it goes with the context.
func TestManyQPs(t *testing.T) {
	if testing.Short() {
		t.Skip("ten thousand queue pairs")
	}
	daemon, path := spawnDaemon(t)
	maps0, fds0 := mappings(t, "self")
	dmaps0, dfds0 := mappings(t, daemon.Process.Pid)
	ctx := openSocket(t, path)
	pd := must(ctx.AllocPD())
	cq := must(ctx.CreateCQ(100))
	qps := make([]*verbs.QP, 10000)
	for i := range qps {
		qps[i] = must(pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: smallCap}))
	}
	maps, fds := mappings(t, "self")
	dmaps, dfds := mappings(t, daemon.Process.Pid)
	if maps-maps0 > 64 || fds-fds0 > 16 || dmaps-dmaps0 > 64 || dfds-dfds0 > 16 {
		t.Errorf("mappings %d and %d, descriptors %d and %d", maps-maps0, dmaps-dmaps0, fds-fds0, dfds-dfds0)
	}
	check(t, ctx.Close())
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		m, f := mappings(t, daemon.Process.Pid)
		if m == dmaps0 && f <= dfds0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d mappings and %d descriptors are left in the daemon", m-dmaps0, f-dfds0)
		}
	}
}
