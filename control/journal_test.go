package control

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// Pages are in order and without gaps; what is kept no more is counted.
func TestJournalPages(t *testing.T) {
	j := new(journal)
	read := func(after uint64) (first, last, lost uint64) {
		for {
			r := new(ctl.EventsReply)
			j.after(after, r)
			lost += r.Lost
			if r.N == 0 {
				return first, after, lost
			}
			for i := range r.Events[:r.N] {
				e := &r.Events[i]
				if first == 0 {
					first = e.Number
				} else if e.Number != after+1 {
					t.Fatalf("event %d follows %d", e.Number, after)
				}
				if e.Value != e.Number*3 || e.Time == 0 {
					t.Fatalf("event %d: %+v", e.Number, e)
				}
				after = e.Number
			}
		}
	}
	if first, last, lost := read(0); first != 0 || last != 0 || lost != 0 {
		t.Errorf("of nothing: %d to %d, %d lost", first, last, lost)
	}
	for n := uint64(1); n <= 3000; n++ {
		j.add(ctl.Event{Value: n * 3})
		if n != 5 && n != journalSize && n != journalSize+1 && n != 3000 {
			continue
		}
		wantFirst := n - min(n, journalSize) + 1
		if first, last, lost := read(0); first != wantFirst || last != n || lost != wantFirst-1 {
			t.Errorf("after %d: %d to %d, %d lost", n, first, last, lost)
		}
		if first, last, lost := read(n - 2); first != n-1 || last != n || lost != 0 {
			t.Errorf("the last two of %d: %d to %d, %d lost", n, first, last, lost)
		}
		if first, _, _ := read(n + 9); first != 0 {
			t.Errorf("beyond %d: %d", n, first)
		}
	}
}

// A subscriber who reads nothing costs the writer neither waiting nor memory.
func TestJournalSubscriberAsleep(t *testing.T) {
	j := new(journal)
	ours, theirs, last, err := j.subscribe()
	if err != nil || last != 0 {
		t.Fatal(last, err)
	}
	for range 5000 {
		j.add(ctl.Event{})
	}
	if n := testing.AllocsPerRun(100, func() { j.add(ctl.Event{}) }); n != 0 {
		t.Errorf("%v allocations an event", n)
	}
	var b [8]byte
	if n, err := unix.Read(theirs, b[:]); n != 1 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	j.unsubscribe(ours)
	j.unsubscribe(ours)
	j.add(ctl.Event{}) // nobody is there
	for {
		n, err := unix.Read(theirs, b[:])
		if n == 0 {
			break // the end, after what was sent
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	unix.Close(theirs)
}

// What happens to ports and contexts is written down once each, and the daemon's user and root alone may read it.
func TestEvents(t *testing.T) {
	devices := []*Device{testDevice(t, "first"), testDevice(t, "second")}
	server, err := New(Config{Devices: devices})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.unwatch)
	session := func(uid uint32, foreign bool) *Session {
		s := testSession(t, devices, uid, os.Getpid(), foreign)
		s.server = server
		return s
	}
	refused := func(s *Session, op ctl.Op, request any, want syscall.Errno) {
		t.Helper()
		msg, _ := ctl.Append(nil, op, 1, 0, request)
		answer, _ := s.Handle(msg, nil)
		if err := ctl.Reply(op, 1, answer, &ctl.Empty{}); !errors.Is(err, want) {
			t.Errorf("operation %d: %v, want %v", op, err, want)
		}
	}
	refused(session(1001, true), ctl.OpSubscribe, &ctl.Empty{}, syscall.EPERM)
	refused(session(1001, true), ctl.OpEvents, &ctl.Events{}, syscall.EPERM)
	owner := session(500, false)
	refused(owner, ctl.OpEvents, &ctl.Events{}, syscall.EPERM)
	var sub ctl.SubscribeReply
	ask(t, owner, ctl.OpSubscribe, &ctl.Empty{}, &sub)
	refused(owner, ctl.OpSubscribe, &ctl.Empty{}, syscall.EBUSY)
	root := session(0, true)
	ask(t, root, ctl.OpSubscribe, &ctl.Empty{}, &sub)

	app := session(1001, true)
	withQueues(t, app, "second", 1)
	link := nic.Link{Name: "test0", Index: 1, MTU: 1500, Addrs: addrsOf("192.0.2.1")}
	for _, change := range []func(){
		func() {},                 // down
		func() { link.Up = true }, // and up again
		func() { link.MTU = 9000 },
		func() { link.Addrs = addrsOf("192.0.2.1 192.0.2.7") },
		func() {}, // nothing
	} {
		change()
		devices[1].NIC.SetLink(link)
	}
	app.record.record(ib.EventQPFatal, 7)
	app.Close()

	var r ctl.EventsReply
	ask(t, owner, ctl.OpEvents, &ctl.Events{After: sub.Last}, &r)
	want := []ctl.Event{
		{Kind: ctl.EventContextOpened, Context: 1, UID: 1001, PID: uint32(os.Getpid())},
		{Kind: ctl.EventAsync, Event: uint32(ib.EventPortErr)},
		{Kind: ctl.EventAsync, Event: uint32(ib.EventPortActive)},
		{Kind: ctl.EventMTU, Value: 9000},
		{Kind: ctl.EventAsync, Event: uint32(ib.EventGIDChange)},
		{Kind: ctl.EventAsync, Event: uint32(ib.EventQPFatal), Handle: 7, Context: 1, UID: 1001, PID: uint32(os.Getpid())},
		{Kind: ctl.EventContextClosed, Context: 1, UID: 1001, PID: uint32(os.Getpid())},
	}
	if int(r.N) != len(want) || r.Lost != 0 {
		t.Fatalf("%d events, want %d: %+v", r.N, len(want), r.Events[:r.N])
	}
	for i := range want {
		got := r.Events[i]
		want[i].Device, want[i].Number, want[i].Time = 2, sub.Last+uint64(i)+1, got.Time
		if got != want[i] {
			t.Errorf("event %d: %+v\nwant %+v", i, got, want[i])
		}
	}
	owner.Close()
	if n := len(server.journal.bells); n != 1 {
		t.Errorf("%d subscriptions after one of two sessions ended", n)
	}
}

func TestStatus(t *testing.T) {
	var devices []*Device
	for i := range 20 {
		devices = append(devices, testDevice(t, string(rune('a'+i))))
	}
	app := testSession(t, devices, 1001, 1, true)
	withQueues(t, app, "s", 3)
	ask(t, app, ctl.OpAllocPD, &ctl.Empty{}, &ctl.HandleReply{})
	s := testSession(t, devices, 1002, 1, true)
	var list []ctl.DeviceStatus
	for {
		var r ctl.StatusReply
		ask(t, s, ctl.OpStatus, &ctl.Status{First: uint32(len(list))}, &r)
		if r.Count != 20 || int(r.PID) != os.Getpid() {
			t.Fatalf("%d devices of %d", r.Count, r.PID)
		}
		if r.N == 0 {
			break
		}
		list = append(list, r.Devices[:r.N]...)
	}
	if len(list) != 20 {
		t.Fatalf("%d devices", len(list))
	}
	d := list[18]
	if d.Name[0] != 's' || d.CQs != 3 || d.PDs != 1 || d.Contexts != 1 || d.QPs != 0 || d.PortState != uint32(ib.PortActive) ||
		d.ActiveMTU != uint32(ib.MTU1024) || d.LinkMTU != 1500 || d.GIDs != 1 || string(d.Profile[:7]) != "softnic" || list[0].CQs != 0 {
		t.Errorf("%+v", d)
	}
	counters := map[string]uint64{}
	for n := uint32(0); ; {
		var r ctl.QueryCountersReply
		ask(t, s, ctl.OpDeviceCounters, &ctl.DeviceCounters{Device: 19, First: n}, &r)
		for i := range r.Names[:r.N] {
			counters[string(r.Names[i][:clen(r.Names[i][:])])] = r.Values[i]
		}
		if n += r.N; r.N == 0 {
			break
		}
	}
	if counters["objects_cq"] != 3 || counters["objects_pd"] != 1 || counters["objects_qp"] != 0 || counters["objects_context"] != 1 {
		t.Errorf("%v", counters)
	}
	for _, n := range []uint32{0, 21} {
		msg, _ := ctl.Append(nil, ctl.OpDeviceCounters, 1, 0, &ctl.DeviceCounters{Device: n})
		answer, _ := s.Handle(msg, nil)
		if err := ctl.Reply(ctl.OpDeviceCounters, 1, answer, &ctl.QueryCountersReply{}); !errors.Is(err, syscall.ENODEV) {
			t.Errorf("device %d: %v", n, err)
		}
	}
}

func clen(b []byte) int {
	for i := range b {
		if b[i] == 0 {
			return i
		}
	}
	return len(b)
}

func addrsOf(list string) (a []netip.Addr) {
	for f := range strings.FieldsSeq(list) {
		a = append(a, netip.MustParseAddr(f))
	}
	return a
}
