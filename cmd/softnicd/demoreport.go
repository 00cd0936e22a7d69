package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// demoReport is everything that the demo saw, as it is printed or written as JSON.
type demoReport struct {
	Link         string       `json:"link"`
	Memory       string       `json:"memory"`
	Applications []*appReport `json:"applications"`
	Packets      []packetRow  `json:"packets"`
	Differences  []string     `json:"differences"`
	OK           bool         `json:"ok"`
}

// appReport is what one application saw.
type appReport struct {
	Role          string          `json:"role"`
	Device        string          `json:"device"`
	GID           string          `json:"gid"`
	QPN           uint32          `json:"qp_num"`
	CQCapacity    uint32          `json:"cq_capacity"`
	Completions   []completionRow `json:"completions"`
	Events        []string        `json:"events"`
	BytesVerified int             `json:"bytes_verified"`
	Differences   []string        `json:"differences"`
}

// completionRow is a polled completion.
type completionRow struct {
	WRID    uint64        `json:"wr_id"`
	Status  string        `json:"status"`
	Code    uint8         `json:"status_code"`
	Opcode  string        `json:"opcode,omitempty"` // only valid on success
	ByteLen uint32        `json:"byte_len"`         // only valid on success
	Imm     *uint32       `json:"imm,omitempty"`
	QPN     uint32        `json:"qp_num"`
	Took    time.Duration `json:"took_ns"` // from posting to polling
}

// packetRow is a packet of the capture.
type packetRow struct {
	At     time.Duration `json:"at_ns"`
	From   string        `json:"from"`
	To     string        `json:"to"`
	Opcode string        `json:"opcode"`
	PSN    uint32        `json:"psn"`
	Bytes  int           `json:"bytes"`
	Note   string        `json:"note,omitempty"` // ACK, NAK and RNR in words
}

// expected is what each application must see, in order.
var expected = map[string][]completionRow{
	"sender": {
		{WRID: 1, Status: "success", Opcode: "SEND", ByteLen: 4096},
		{WRID: 2, Status: "success", Opcode: "SEND", ByteLen: 64},
		{WRID: 3, Status: "success", Opcode: "RDMA_WRITE", ByteLen: 9000},
		{WRID: 4, Status: "success", Opcode: "RDMA_WRITE", ByteLen: 3000},
		{WRID: 5, Status: "success", Opcode: "RDMA_READ", ByteLen: 9000},
		{WRID: 6, Status: "success", Opcode: "COMP_SWAP", ByteLen: 8},
		{WRID: 7, Status: "success", Opcode: "FETCH_ADD", ByteLen: 8},
		{WRID: 8, Status: "remote access error"},
		{WRID: 9, Status: "Work Request Flushed Error"},
		{WRID: 10, Status: "Work Request Flushed Error"},
	},
	"receiver": {
		{WRID: 1001, Status: "success", Opcode: "RECV", ByteLen: 4096},
		{WRID: 1002, Status: "success", Opcode: "RECV", ByteLen: 64},
		{WRID: 1003, Status: "success", Opcode: "RECV_RDMA_WITH_IMM", ByteLen: 3000},
		{WRID: 1004, Status: "Work Request Flushed Error"},
		{WRID: 1005, Status: "Work Request Flushed Error"},
	},
}

// judge compares what was seen with what should have been.
func (r *demoReport) judge() {
	for _, app := range r.Applications {
		r.Differences = append(r.Differences, app.Differences...)
		want := expected[app.Role]
		if len(app.Completions) != len(want) {
			r.differ("%s: %d completions, %d expected", app.Role, len(app.Completions), len(want))
		}
		for i := range min(len(want), len(app.Completions)) {
			got := app.Completions[i]
			if got.WRID != want[i].WRID || got.Status != want[i].Status || got.Opcode != want[i].Opcode || got.ByteLen != want[i].ByteLen {
				r.differ("%s: completion %d is wr_id %d %s %s of %d bytes, expected wr_id %d %s %s of %d", app.Role, i,
					got.WRID, got.Opcode, got.Status, got.ByteLen, want[i].WRID, want[i].Opcode, want[i].Status, want[i].ByteLen)
			}
		}
		if app.Role == "receiver" && !slices.Contains(app.Events, accessEvent) {
			r.differ("receiver: no %s after the write with a wrong key", accessEvent)
		}
	}
	if len(r.Packets) == 0 {
		r.differ("the capture has no packets")
	}
	r.OK = len(r.Differences) == 0
}

func (r *demoReport) differ(format string, args ...any) {
	r.Differences = append(r.Differences, fmt.Sprintf(format, args...))
}

func (r *demoReport) print(out io.Writer) {
	for _, app := range r.Applications {
		fmt.Fprintf(out, "%s: %s, GID %s, QP %#06x, CQ of %d entries, %s memory\n",
			app.Role, app.Device, app.GID, app.QPN, app.CQCapacity, r.Memory)
		printCompletions(out, app.Completions)
		for _, e := range app.Events {
			fmt.Fprintf(out, "asynchronous event: %s\n", e)
		}
		fmt.Fprintln(out)
	}
	printLadder(out, r)
	verified := 0
	for _, app := range r.Applications {
		verified += app.BytesVerified
	}
	fmt.Fprintln(out)
	for _, d := range r.Differences {
		fmt.Fprintln(out, "DIFFERS:", d)
	}
	if r.OK {
		fmt.Fprintf(out, "All as it should be: %d packets over %s, %d bytes verified.\n", len(r.Packets), r.Link, verified)
	}
}
