package main

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/internal/progtest"
	"github.com/softnic/softnicd/verbs"
)

// softnicdRun runs a command.
func softnicdRun(ctx context.Context, out *progtest.Buffer, args ...string) error {
	root := newRoot()
	root.SetOut(out)
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

func TestStatusCommand(t *testing.T) {
	socket := serveCQs(t)
	attach(t, socket, "hard", 64)
	attach(t, socket, "hard", 64)
	var out progtest.Buffer
	check(t, softnicdRun(t.Context(), &out, "status", "--socket", socket, "-o", "json", "--interval", "20ms"))
	var r statusReport
	check(t, json.Unmarshal([]byte(out.String()), &r))
	if len(r.Devices) != 2 || r.PID == 0 || r.Sessions < 2 || r.Uptime <= 0 {
		t.Fatalf("%+v", r)
	}
	hard, soft := r.Devices[0], r.Devices[1]
	if hard.Name != "hard" || hard.QPs != 2 || hard.CQs != 2 || hard.Contexts != 2 || hard.State != "ACTIVE" || hard.Netdev != "test0" ||
		hard.LinkMTU != 1500 || hard.ActiveMTU != 1024 || hard.GIDs != 1 || hard.Rates == nil || hard.Counters["objects_qp"] != 2 {
		t.Errorf("%+v", hard)
	}
	if soft.QPs != 0 || soft.Counters["objects_qp"] != 0 {
		t.Errorf("%+v", soft)
	}
	if _, ok := soft.Counters["local_ack_timeout_err"]; !ok {
		t.Error("counters that are 0 are not there")
	}

	out = progtest.Buffer{}
	check(t, softnicdRun(t.Context(), &out, "status", "--socket", socket, "--device", "hard", "--interval", "0"))
	for _, s := range []string{"daemon ", "hard ", "ACTIVE", "objects_qp"} {
		if !strings.Contains(out.String(), s) {
			t.Errorf("no %q in\n%s", s, out.String())
		}
	}
	if strings.Contains(out.String(), "soft ") || strings.Contains(out.String(), "local_ack_timeout_err") {
		t.Errorf("another device, or a counter of 0, in\n%s", out.String())
	}
}

func TestTopCommandWithoutTerminal(t *testing.T) {
	socket := serveCQs(t)
	for _, output := range []string{"text", "json"} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		var out progtest.Buffer
		err := softnicdRun(ctx, &out, "top", "--socket", socket, "--interval", "50ms", "-o", output)
		cancel()
		check(t, err)
		if strings.Contains(out.String(), "\x1b") {
			t.Errorf("terminal sequences in %q", out.String())
		}
		if output == "text" {
			if n := strings.Count(out.String(), "daemon "); n < 2 {
				t.Errorf("%d times:\n%s", n, out.String())
			}
			continue
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		for i, line := range lines {
			var r statusReport
			if err := json.Unmarshal([]byte(line), &r); err != nil || len(r.Devices) != 2 || (r.Devices[0].Rates != nil) != (i > 0) {
				t.Errorf("line %d: %v, %q", i, err, line)
			}
		}
		if len(lines) < 2 {
			t.Errorf("%d lines", len(lines))
		}
	}
}

func TestStatusCommandsRefuse(t *testing.T) {
	socket := serveCQs(t)
	for _, c := range []struct {
		args string
		code int
	}{
		{"status -o xml", exitUsage}, {"status --interval -1s", exitUsage}, {"status more", exitUsage}, {"status --device none", exitFailed},
		{"top -o xml", exitUsage}, {"top --interval 1ms", exitUsage}, {"top --device none", exitFailed}, {"events -o xml", exitUsage},
	} {
		var out progtest.Buffer
		if err := softnicdRun(t.Context(), &out, append(strings.Fields(c.args), "--socket", socket)...); err == nil || exitCode(err) != c.code {
			t.Errorf("%s: %v", c.args, err)
		}
	}
	for _, c := range []string{"status", "top", "events"} {
		var out progtest.Buffer
		if err := softnicdRun(t.Context(), &out, c, "--socket", filepath.Join(t.TempDir(), "none")); !errors.Is(err, verbs.ErrNoDaemon) {
			t.Errorf("%s without a daemon: %v", c, err)
		}
	}
}

func TestEventsCommand(t *testing.T) {
	socket := serveCQs(t)
	ctx, cancel := context.WithCancel(t.Context())
	var out progtest.Buffer
	ended := make(chan error, 1)
	go func() { ended <- softnicdRun(ctx, &out, "events", "--socket", socket, "-o", "json") }()
	// Whoever opens before the command follows is not seen: open until one is.
	for end := time.Now().Add(10 * time.Second); !strings.Contains(out.String(), "closed"); {
		if time.Now().After(end) {
			t.Fatalf("nothing came: %q", out.String())
		}
		c, err := verbs.Open("soft", verbs.WithSocket(socket))
		check(t, err)
		c.Close()
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	check(t, <-ended)
	var last uint64
	for line := range strings.Lines(out.String()) {
		var l eventLine
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Device != "soft" || l.Context == 0 || l.UID == nil || l.PID == 0 ||
			last != 0 && l.Number != last+1 || !strings.HasPrefix(l.Kind, "context ") {
			t.Errorf("%v: %s", err, line)
		}
		last = l.Number
	}
}

func TestTopModel(t *testing.T) {
	report := func(at int, sent uint64) *statusReport {
		started := time.Unix(100, 0)
		r := &statusReport{PID: 7, Started: started, taken: started.Add(time.Duration(at) * time.Second)}
		for _, name := range []string{"first", "second"} {
			d := deviceState{Name: name, SentPackets: sent, Counters: map[string]uint64{"zero": 0}}
			for i := range 30 {
				d.Counters[name+"_"+string(rune('a'+i%26))+string(rune('a'+i/26))] = sent
			}
			r.Devices = append(r.Devices, d)
		}
		return r
	}
	m := new(topModel)
	view := func() string { return strings.Join(m.view(), "\n") }
	if m.key("down"); m.chosen != 0 || !strings.Contains(view(), "asking") {
		t.Errorf("before the first look: %q", view())
	}
	m.take(report(1, 1000))
	m.take(report(2, 3000))
	if d := m.report.Devices[0]; d.Rates == nil || d.Rates.SentPackets != 2000 {
		t.Errorf("%+v", d.Rates)
	}
	sized := func(width, height int) []string {
		t.Helper()
		m.width, m.height = width, height
		lines := m.view()
		if len(lines) > height {
			t.Errorf("%d lines on a terminal of %d", len(lines), height)
		}
		for _, l := range lines {
			l = strings.TrimSuffix(strings.TrimPrefix(l, "\x1b[7m"), "\x1b[0m")
			if len([]rune(l)) > width {
				t.Errorf("%d columns on a terminal of %d: %q", len(l), width, l)
			}
		}
		return lines
	}
	for _, size := range [][2]int{{200, 60}, {80, 24}, {20, 5}, {1, 1}, {120, 20}} {
		sized(size[0], size[1])
	}
	if view := view(); !strings.Contains(view, "2.0k") || !strings.Contains(view, "first_aa") || !strings.Contains(view, "+2000") || strings.Contains(view, "second_aa") {
		t.Errorf("%s", view)
	}
	m.key("down")
	if view := view(); !strings.Contains(view, "second_aa") || !strings.Contains(view, "\x1b[7msecond") {
		t.Errorf("%s", view)
	}
	m.key("down") // there is none
	m.key("pgdown")
	if view := view(); m.chosen != 1 || strings.Contains(view, "second_aa") {
		t.Errorf("%s", view)
	}
	for range 9 {
		m.key("pgdown") // and no further than the last
	}
	if view := view(); !strings.Contains(view, "second_za") {
		t.Errorf("%s", view)
	}
	if m.key("up"); m.scroll != 0 || m.chosen != 0 {
		t.Errorf("device %d, scroll %d", m.chosen, m.scroll)
	}
	if m.key("a"); !m.all {
		t.Error("a does nothing")
	}
	for _, k := range []string{"q", "esc", "ctrl+c"} {
		if !m.key(k) {
			t.Errorf("%s does not quit", k)
		}
	}
	// A daemon that was started anew has no rates with the old one, and a device that went away is not chosen.
	m.chosen = 1
	anew := report(3, 5)
	anew.PID, anew.Devices = 8, anew.Devices[:1]
	if m.take(anew); m.chosen != 0 || m.report.Devices[0].Rates != nil {
		t.Errorf("device %d, %+v", m.chosen, m.report.Devices[0].Rates)
	}
}
