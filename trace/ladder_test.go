package trace

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/softnic/softnicd/ib"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with testdata/name. What it holds was looked at by a person.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

const us = 1000

var conversation = []Step{
	{Time: 5 * us, From: "softnic0 0x000011", To: "softnic1 0x000012", Label: "RC_SEND_FIRST", PSN: 0xffffff, Bytes: 1024},
	{Time: 6 * us, From: "softnic0 0x000011", To: "softnic1 0x000012", Label: "RC_SEND_MIDDLE", PSN: 0, Bytes: 1024, Lost: true},
	{Time: 7 * us, From: "softnic0 0x000011", To: "softnic1 0x000012", Label: "RC_SEND_LAST_WITH_IMMEDIATE", PSN: 1, Bytes: 52},
	{Time: 21 * us, From: "softnic1 0x000012", To: "softnic0 0x000011", Label: "RC_ACKNOWLEDGE", PSN: 0, Meaning: "NAK sequence error"},
	{Time: 22 * us, From: "softnic0 0x000011", To: "softnic1 0x000012", Label: "RC_SEND_MIDDLE", PSN: 0, Bytes: 1024, Note: "again"},
	{Time: 23 * us, From: "softnic0 0x000011", To: "softnic1 0x000012", Label: "RC_SEND_LAST_WITH_IMMEDIATE", PSN: 1, Bytes: 52, Note: "again"},
	{Time: 31 * us, From: "softnic1 0x000012", Label: "completed success", Bytes: 2100},
	{Time: 40 * us, From: "softnic1 0x000012", To: "softnic0 0x000011", Label: "RC_ACKNOWLEDGE", PSN: 1, Meaning: "ACK", Lost: true},
	{Time: 67040 * us, From: "softnic0 0x000011", Label: "timeout psn 0xffffff"},
	{Time: 67041 * us, From: "softnic0 0x000011", To: "softnic0 0x000011", Label: "RC_SEND_ONLY", PSN: 7},
}

func TestLadder(t *testing.T) {
	golden(t, "ladder.golden", Ladder{}.Draw(conversation))
	golden(t, "ladder_ascii.golden", Ladder{ASCII: true, Width: 72}.Draw(conversation))
}

func TestLadderOfThree(t *testing.T) {
	steps := []Step{
		{Time: 0, From: "a", To: "b", Label: "RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE", PSN: 1, Bytes: 100},
		{Time: 1 * us, From: "a", To: "c", Label: "RC_RDMA_READ_REQUEST", PSN: 2},
		{Time: 2 * us, From: "c", To: "a", Label: "RC_RDMA_READ_RESPONSE_ONLY", PSN: 2, Bytes: 64, Meaning: "ACK"},
		{Time: 3 * us, From: "b", Label: "entered ERR"},
		{Time: 4 * us, From: "c", To: "b", Label: "CNP"},
	}
	golden(t, "ladder_three.golden", Ladder{Endpoints: []string{"a", "b", "c"}}.Draw(steps))
}

func TestLadderFits(t *testing.T) {
	long := strings.Repeat("very long words ", 20)
	for n := 1; n <= 6; n++ {
		for _, width := range []int{0, 80, 100, 140} {
			var steps []Step
			names := []string{"first and long name of an endpoint", "second", "third", "fourth", "fifth", "sixth"}[:n]
			for _, from := range names {
				steps = append(steps, Step{Time: 3_600_000_000_000, From: from, Label: long})
				for _, to := range names {
					steps = append(steps, Step{Time: 7_200_000_000_000, From: from, To: to, Label: long, Lost: from < to})
				}
			}
			most := width
			if width == 0 {
				most = 100
			}
			for line := range strings.Lines(Ladder{Width: width}.Draw(steps)) {
				if got := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); got > most {
					t.Errorf("%d endpoints in %d columns: a line of %d:\n%s", n, most, got, line)
				}
			}
		}
	}
	if got := (Ladder{}).Draw(nil); got != "" {
		t.Errorf("no steps: %q", got)
	}
	_ = Ladder{Width: 1}.Draw(conversation) // too narrow: wider than asked for, but drawn
}

func TestSteps(t *testing.T) {
	names := Names{
		Opcode:      func(o uint8) string { return map[uint8]string{4: "RC_SEND_ONLY", 17: "RC_ACKNOWLEDGE"}[o] },
		Syndrome:    func(s uint8) string { return map[uint8]string{0x1f: "ACK", 0x62: "NAK remote access error"}[s] },
		HasSyndrome: func(o uint8) bool { return o == 17 },
	}
	peers := func(q ib.QPN) (self, peer string) {
		if q == 1 {
			return "one", "two"
		}
		return "two", "one"
	}
	events := []Event{
		{Time: 0, QPN: 1, Kind: Sent, Opcode: 4, PSN: 8, Length: 5},
		{Time: 1 * us, QPN: 2, Kind: Received, Opcode: 4, PSN: 8, Length: 5, Verdict: Accepted},
		{Time: 1 * us, QPN: 2, Kind: Sent, Opcode: 17, PSN: 8, Syndrome: 0x1f},
		{Time: 2 * us, QPN: 1, Kind: Received, Opcode: 17, PSN: 8, Syndrome: 0x1f, Verdict: Accepted},
		{Time: 2 * us, QPN: 1, Kind: Completed, Opcode: uint8(ib.WCSuccess), Length: 5},
		{Time: 3 * us, QPN: 1, Kind: Timeout, PSN: 9},
		{Time: 3 * us, QPN: 1, Kind: Retransmitted, Opcode: 4, PSN: 9},
		{Time: 4 * us, QPN: 1, Kind: Lost, Opcode: 4, PSN: 10},
		{Time: 5 * us, QPN: 2, Kind: Entered, Opcode: uint8(ib.StateErr)},
		{Time: 6 * us, QPN: 2, Kind: Faulted},
		{},
	}
	golden(t, "steps_both.golden", Ladder{}.Draw(names.Steps(events, peers)))
	var one []Event
	for _, e := range events {
		if e.QPN == 1 {
			one = append(one, e)
		}
	}
	one = append(one, Event{Time: 7 * us, QPN: 1, Kind: Received, Opcode: 17, PSN: 9, Syndrome: 0x62, Verdict: Duplicate})
	golden(t, "steps_one.golden", Ladder{Endpoints: []string{"one", "two"}}.Draw(names.Steps(one, peers)))
}
