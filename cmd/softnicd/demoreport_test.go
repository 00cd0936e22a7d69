package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/softnic/softnicd/ib"
)

// goodReport is what a demo that went well reports.
func goodReport() *demoReport {
	r := &demoReport{Link: "udp", Memory: "shared", Packets: []packetRow{{From: "sender", To: "receiver", Opcode: "RC_SEND_ONLY"}}}
	for _, role := range []string{"sender", "receiver"} {
		r.Applications = append(r.Applications, &appReport{Role: role, Completions: slices.Clone(expected[role])})
	}
	r.Applications[1].Events = []string{ib.EventCommEst.Name(), accessEvent}
	return r
}

// Whatever differs from the plan fails the demo, and is named.
func TestJudge(t *testing.T) {
	good := goodReport()
	if good.judge(); !good.OK || len(good.Differences) > 0 {
		t.Fatalf("a good report is refused: %v", good.Differences)
	}
	for _, c := range []struct {
		name, want string
		spoil      func(sender, receiver *appReport, r *demoReport)
	}{
		{"wr_id", "wr_id 77", func(s, _ *appReport, _ *demoReport) { s.Completions[3].WRID = 77 }},
		{"status", "general error", func(s, _ *appReport, _ *demoReport) { s.Completions[0].Status = ib.WCGeneralErr.String() }},
		{"opcode", "RDMA_READ", func(s, _ *appReport, _ *demoReport) { s.Completions[2].Opcode = "RDMA_READ" }},
		{"byte_len", "of 4095 bytes", func(_, r *appReport, _ *demoReport) { r.Completions[0].ByteLen = 4095 }},
		{"order", "completion 1", func(_, r *appReport, _ *demoReport) {
			r.Completions[0], r.Completions[1] = r.Completions[1], r.Completions[0]
		}},
		{"one missing", "9 completions, 10 expected", func(s, _ *appReport, _ *demoReport) { s.Completions = s.Completions[:9] }},
		{"one too many", "6 completions, 5 expected", func(_, r *appReport, _ *demoReport) {
			r.Completions = append(r.Completions, completionRow{WRID: 1006})
		}},
		{"no failure", "completion 7", func(s, _ *appReport, _ *demoReport) { s.Completions[7].Status = "success" }},
		{"no event", accessEvent, func(_, r *appReport, _ *demoReport) { r.Events = r.Events[:1] }},
		{"bytes", "byte 5 is", func(_, r *appReport, _ *demoReport) { r.Differences = []string{"receiver: SEND: byte 5 is 0x00"} }},
		{"no packets", "no packets", func(_, _ *appReport, r *demoReport) { r.Packets = nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := goodReport()
			c.spoil(r.Applications[0], r.Applications[1], r)
			r.judge()
			if r.OK || !strings.Contains(strings.Join(r.Differences, "\n"), c.want) {
				t.Fatalf("ok %v, differences %q, wanted one with %q", r.OK, r.Differences, c.want)
			}
			var out bytes.Buffer
			r.print(&out)
			if !strings.Contains(out.String(), "DIFFERS") || strings.Contains(out.String(), "All as it should be") {
				t.Fatalf("printed as good:\n%s", &out)
			}
		})
	}
}

// The application compares every byte, so one bit is enough.
func TestVerify(t *testing.T) {
	a := &app{mem: make([]byte, 4096), report: &appReport{Role: "receiver"}}
	for i := range a.mem {
		a.mem[i] = pattern(9, i)
	}
	if a.verify("SEND", 0, 9, 4096); len(a.report.Differences) > 0 || a.report.BytesVerified != 4096 {
		t.Fatalf("good bytes are refused: %v", a.report.Differences)
	}
	a.mem[4095] ^= 0x10
	if a.verify("SEND", 0, 9, 4096); len(a.report.Differences) != 1 || a.report.BytesVerified != 4096 {
		t.Fatalf("a wrong bit passes: %v, %d bytes verified", a.report.Differences, a.report.BytesVerified)
	}
}
