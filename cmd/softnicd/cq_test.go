package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/control"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/link/local"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/wire"

	"golang.org/x/sys/unix"
)

// dumbPort is a network that nobody is on.
type dumbPort struct {
	fd       int
	counters nic.PortCounters
}

func (p *dumbPort) Send(_ clock.Time, f []wire.Frame) (int, error) { return len(f), nil }
func (p *dumbPort) Recv(clock.Time, []wire.Packet) int             { return 0 }
func (p *dumbPort) Descriptor() int                                { return p.fd }
func (p *dumbPort) Counters() *nic.PortCounters                    { return &p.counters }
func (p *dumbPort) Close() error                                   { return unix.Close(p.fd) }

// serveCQs runs a daemon with two devices that reach themselves, the second one like rxe, and returns its socket.
func serveCQs(t *testing.T) string {
	t.Helper()
	var devices []*control.Device
	for i, name := range []string{"hard", "soft"} {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		check(t, err)
		page, err := control.NewPage()
		check(t, err)
		addr := netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
		isLocal := func(g ib.GID) bool { return g == ib.GIDFromAddr(addr) }
		d, err := nic.New(nic.Config{
			Name: name, Port: local.Mux(local.New(64), &dumbPort{fd: fd}, isLocal), Page: page.Mem,
			Link: nic.Link{Name: "test0", Index: 1, MTU: 1500, Up: true, Addrs: []netip.Addr{addr}},
		})
		check(t, err)
		d.Start()
		devices = append(devices, &control.Device{NIC: d, Page: page, ReclaimOnCompletion: i == 1})
	}
	server, err := control.New(control.Config{Devices: devices})
	check(t, err)
	path := filepath.Join(t.TempDir(), "s")
	l, err := control.Listen(path)
	check(t, err)
	go server.Serve(l)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		server.Shutdown(ctx)
		for _, d := range devices {
			d.NIC.Close()
			d.Page.Close()
		}
	})
	return path
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// attach makes a queue pair of 64 sends and 32 receives that completes into a queue of so many entries.
func attach(t *testing.T, socket, device string, entries int, options ...verbs.CQOption) *verbs.CQ {
	t.Helper()
	ctx, err := verbs.Open(device, verbs.WithSocket(socket))
	check(t, err)
	t.Cleanup(func() { ctx.Close() })
	pd, err := ctx.AllocPD()
	check(t, err)
	q, err := ctx.CreateCQ(entries, options...)
	check(t, err)
	_, err = pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: q, RecvCQ: q,
		Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 32, MaxSendSGE: 1, MaxRecvSGE: 1}})
	check(t, err)
	return q
}

// softnicdCQ runs the command.
func softnicdCQ(ctx context.Context, args ...string) (string, error) {
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs(append([]string{"cq"}, args...))
	err := root.ExecuteContext(ctx)
	return out.String(), err
}

func TestCQCommand(t *testing.T) {
	socket := serveCQs(t)
	out, err := softnicdCQ(t.Context(), "--socket", socket)
	if err != nil || out != "No completion queues.\n" {
		t.Fatalf("%q, %v", out, err)
	}
	attach(t, socket, "hard", 96)
	attach(t, socket, "hard", 64)
	attach(t, socket, "soft", 500)

	out, err = softnicdCQ(t.Context(), "--socket", socket, "-o", "json")
	check(t, err)
	var rows []cqRow
	check(t, json.Unmarshal([]byte(out), &rows))
	if len(rows) != 3 {
		t.Fatalf("%d queues:\n%s", len(rows), out)
	}
	want := cqRow{
		Device: "hard", PID: os.Getpid(), Process: rows[0].Process, UID: os.Geteuid(), Context: 1, Handle: 1, Capacity: 128,
		Armed: "no", Queues: 2, Demand: 96, Reclaim: "poll", Advice: cqAdvice{"fits", 128, rows[0].Advice.Reason},
	}
	if rows[0] != want || rows[0].Process == "" {
		t.Errorf("%+v\nwant %+v", rows[0], want)
	}
	if a := rows[1].Advice; a.Verdict != "too small" || a.Entries != 128 || rows[1].Context != 2 {
		t.Errorf("%+v", rows[1])
	}
	if a := rows[2].Advice; a.Verdict != "too large" || a.Entries != 128 || rows[2].Reclaim != "completion" {
		t.Errorf("%+v", rows[2])
	}

	out, err = softnicdCQ(t.Context(), "--socket", socket, "--device", "hard")
	check(t, err)
	for _, s := range []string{"hard", "too small", "high water", "96 requests can be posted at once", "128 entries would do"} {
		if !strings.Contains(out, s) {
			t.Errorf("no %q in\n%s", s, out)
		}
	}
	if strings.Contains(out, "soft ") || strings.Contains(out, "96+") {
		t.Errorf("another device's queues are in\n%s", out)
	}
	if out, err = softnicdCQ(t.Context(), "--socket", socket, "--device", "soft"); err != nil || !strings.Contains(out, "96+") {
		t.Errorf("%v, or no 96+ in\n%s", err, out)
	}
}

// What an application does with its queue shows: arming, moderation, capacity after a queue has gone.
func TestCQCommandFollows(t *testing.T) {
	socket := serveCQs(t)
	ctx, err := verbs.Open("hard", verbs.WithSocket(socket))
	check(t, err)
	defer ctx.Close()
	ch, err := ctx.CreateCompChannel()
	check(t, err)
	q, err := ctx.CreateCQ(64, verbs.WithChannel(ch))
	check(t, err)
	row := func() cqRow {
		t.Helper()
		rows, err := queryCQs("", []verbs.Option{verbs.WithSocket(socket)})
		check(t, err)
		if len(rows) != 1 {
			t.Fatalf("%d queues", len(rows))
		}
		return rows[0]
	}
	if r := row(); !r.Channel || r.Armed != "no" || r.Moderation.String() != "off" || r.Advice.Entries != 0 {
		t.Errorf("%+v", r)
	}
	_, err = q.ReqNotify(true)
	check(t, err)
	check(t, q.Modify(16, 50))
	if r := row(); r.Armed != "solicited" || r.Moderation.String() != "16 / 50 us" {
		t.Errorf("%+v", r)
	}
	_, err = q.ReqNotify(false)
	check(t, err)
	if r := row(); r.Armed != "next" {
		t.Errorf("%+v", r)
	}
	s, err := q.Status()
	check(t, err)
	if s.Handle != row().Handle || s.Context != row().Context || s.Armed != verbs.ArmedNext {
		t.Errorf("%+v", s)
	}
	check(t, q.Close())
	if rows, err := queryCQs("", []verbs.Option{verbs.WithSocket(socket)}); err != nil || len(rows) != 0 {
		t.Errorf("%v, %v", rows, err)
	}
}

func TestCQCommandWatch(t *testing.T) {
	socket := serveCQs(t)
	attach(t, socket, "hard", 96)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	out, err := softnicdCQ(ctx, "--socket", socket, "--watch", "--interval", "50ms", "-o", "json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err != nil || len(lines) < 2 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	for _, line := range lines {
		var rows []cqRow
		if err := json.Unmarshal([]byte(line), &rows); err != nil || len(rows) != 1 {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestCQCommandRefuses(t *testing.T) {
	socket := serveCQs(t)
	for _, c := range []struct {
		args string
		code int
	}{{"-o xml", exitUsage}, {"--interval 1ms", exitUsage}, {"more", exitUsage}, {"--device none", exitFailed}} {
		if _, err := softnicdCQ(t.Context(), append(strings.Fields(c.args), "--socket", socket)...); err == nil || exitCode(err) != c.code {
			t.Errorf("%s: %v", c.args, err)
		}
	}
	if _, err := softnicdCQ(t.Context(), "--socket", filepath.Join(t.TempDir(), "none")); err == nil || exitCode(err) != exitFailed {
		t.Errorf("without a daemon: %v", err)
	}
}
