package control

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
)

// noPort is the port of a device that nobody sends anything by.
type noPort struct{ counters nic.PortCounters }

func (p *noPort) Send(_ clock.Time, f []wire.Frame) (int, error) { return len(f), nil }
func (p *noPort) Recv(clock.Time, []wire.Packet) int             { return 0 }
func (p *noPort) Descriptor() int                                { return -1 }
func (p *noPort) Counters() *nic.PortCounters                    { return &p.counters }
func (p *noPort) Close() error                                   { return nil }

func testDevice(t *testing.T, name string) *Device {
	t.Helper()
	page := NewPrivatePage()
	d, err := nic.New(nic.Config{
		Name: name, Port: new(noPort), Page: page.Mem, Manual: true,
		Link: nic.Link{Name: "test0", Index: 1, MTU: 1500, Up: true, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return &Device{NIC: d, Page: page}
}

// testSession is a session of a user, as if over a socket but for its memory.
func testSession(t *testing.T, devices []*Device, uid uint32, pid int, foreign bool) *Session {
	t.Helper()
	peer := Peer{UID: uid, PID: pid, Embedded: true}
	s := newSession(peer, foreign, devices, DefaultQuota(), slog.New(slog.DiscardHandler))
	t.Cleanup(s.Close)
	return s
}

// ask does a request that must succeed.
func ask(t *testing.T, s *Session, op ctl.Op, request, reply any, attach ...ctl.Attachment) {
	t.Helper()
	msg, err := ctl.Append(nil, op, 1, 0, request)
	if err != nil {
		t.Fatal(err)
	}
	answer, out := s.Handle(msg, attach)
	for _, a := range out {
		if a.FD >= 0 {
			unix.Close(a.FD)
		}
	}
	if err := ctl.Reply(op, 1, answer, reply); err != nil {
		t.Fatal(err)
	}
}

// withQueues opens a device and makes n completion queues of 64 entries in it.
func withQueues(t *testing.T, s *Session, device string, n int) {
	t.Helper()
	open := &ctl.Open{ABIVersion: abi.Version}
	copy(open.Name[:], device)
	ask(t, s, ctl.OpOpen, open, &ctl.OpenReply{}, ctl.Attachment{FD: -1, Memory: make([]byte, abi.DoorbellSize)})
	size := abi.CQBlockSize(64)
	var arena ctl.HandleReply
	ask(t, s, ctl.OpAddArena, &ctl.AddArena{Size: uint64(n) * size}, &arena,
		ctl.Attachment{FD: -1, Memory: make([]byte, uint64(n)*size)})
	for i := range n {
		ask(t, s, ctl.OpCreateCQ, &ctl.CreateCQ{Entries: 64, Arena: arena.Handle, Offset: uint64(i) * size}, &ctl.CreateCQReply{})
	}
}

// listed returns what a session sees, each as "device uid pid handle".
func listed(t *testing.T, s *Session) (list []string, infos []ctl.CQInfo) {
	t.Helper()
	for after := (ctl.CQPlace{}); ; {
		var r ctl.ListCQsReply
		ask(t, s, ctl.OpListCQs, &ctl.ListCQs{After: after}, &r)
		if r.N == 0 {
			return list, infos
		}
		for i := range r.CQs[:r.N] {
			q := &r.CQs[i]
			after = q.Place
			n := 0
			for q.Device[n] != 0 {
				n++
			}
			list = append(list, fmt.Sprintf("%s %d %d %d", q.Device[:n], q.UID, q.PID, q.Place.CQ))
			infos = append(infos, *q)
		}
	}
}

// The daemon's user and root see the queues of all devices, other users their own; no device need be open for it, and the
// session that looks need not have anything.
func TestListCQs(t *testing.T) {
	devices := []*Device{testDevice(t, "first"), testDevice(t, "second")}
	devices[1].ReclaimOnCompletion = true
	const owner, alice, bob = 500, 1001, 1002
	withQueues(t, testSession(t, devices, owner, os.Getpid(), false), "first", 45)
	withQueues(t, testSession(t, devices, alice, 0, true), "second", 2)
	withQueues(t, testSession(t, devices, bob, 1<<30, true), "second", 1)
	for _, c := range []struct {
		who     string
		uid     uint32
		foreign bool
		want    int
	}{{"owner", owner, false, 48}, {"root", 0, true, 48}, {"alice", alice, true, 2}, {"bob", bob, true, 1}, {"carol", 1003, true, 0}} {
		list, infos := listed(t, testSession(t, devices, c.uid, 1, c.foreign))
		seen := map[string]bool{}
		for i, q := range list {
			if seen[q] {
				t.Errorf("%s sees %s twice", c.who, q)
			}
			seen[q] = true
			if c.want < 48 && infos[i].UID != c.uid {
				t.Errorf("%s sees %s", c.who, q)
			}
		}
		if len(list) != c.want {
			t.Errorf("%s sees %d queues, want %d: %q", c.who, len(list), c.want, list)
		}
		if c.want != 48 {
			continue
		}
		if list[0] != fmt.Sprintf("first 500 %d 1", os.Getpid()) || list[45] != "second 1001 0 1" || list[47] != fmt.Sprintf("second 1002 %d 1", 1<<30) {
			t.Errorf("%s sees %q, %q, %q", c.who, list[0], list[45], list[47])
		}
		if infos[0].ProcessName[0] == 0 || infos[45].ProcessName[0] != 0 || infos[47].ProcessName[0] != 0 {
			t.Errorf("process names %q, %q and %q", infos[0].ProcessName, infos[45].ProcessName, infos[47].ProcessName)
		}
		if infos[0].Flags&ctl.CQReclaimCompletion != 0 || infos[45].Flags&ctl.CQReclaimCompletion == 0 {
			t.Errorf("reclaim rules: flags %#x and %#x", infos[0].Flags, infos[45].Flags)
		}
	}
}

// Whoever lists waits for nobody's session, even one that is in the middle of a request.
func TestListCQsBeside(t *testing.T) {
	devices := []*Device{testDevice(t, "first")}
	busy := testSession(t, devices, 500, 1, false)
	withQueues(t, busy, "first", 3)
	busy.mu.Lock()
	list, _ := listed(t, testSession(t, devices, 500, 1, false))
	busy.mu.Unlock()
	if len(list) != 3 {
		t.Errorf("%q", list)
	}
}
