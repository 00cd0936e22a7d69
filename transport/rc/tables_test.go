package rc_test

import (
	"encoding/csv"
	"os"
	"strconv"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// table reads a table of the specification: one map for each row, by column.
func table(t *testing.T, name string) (rows []map[string]string) {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines[1:] {
		row := make(map[string]string)
		for i, column := range lines[0] {
			row[column] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.ParseInt(s, 0, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// TestResponderRNRTimers sends every timer code of IBA 9.7.5.2.8.
func TestResponderRNRTimers(t *testing.T) {
	for _, row := range table(t, "rnr_timers.csv") {
		t.Run(row["milliseconds"]+" ms", func(t *testing.T) {
			s := newPeerScript(t)
			s.attr.MinRNRTimer = uint8(number(t, row["code"]))
			s.modify(ib.StateRTS, ib.QPAttrMinRNRTimer)
			s.deliver(sendOnly(100, 8))
			s.expect(nak(100, wire.Syndrome(number(t, row["aeth_syndrome"])), 0))
		})
	}
}

// TestResponderOpcodes asks for every RC request of the opcode table whether it takes a receive, when the receive ends,
// and how many PSNs it uses.
func TestResponderOpcodes(t *testing.T) {
	n := 0
	for _, row := range table(t, "opcodes.csv") {
		op := wire.Opcode(number(t, row["opcode"]))
		if row["transport"] != "RC" || row["role"] != "req" {
			continue
		}
		n++
		t.Run(row["name"], func(t *testing.T) {
			t.Run("without a receive", func(t *testing.T) {
				s := newPeerScript(t)
				request, before := sample(s, op)
				if row["recv_wqe"] == "hold" {
					s.post(1, 8192)
				}
				s.deliver(before...)
				s.transmit(1 << 20)
				s.deliver(request)
				replies, _ := s.transmit(1 << 20)
				rnr := len(replies) == 1 && replies[0].syndrome.IsRNR()
				if takes := row["recv_wqe"] == "take"; rnr != takes {
					t.Errorf("recv_wqe is %q, and the answers are %v", row["recv_wqe"], replies)
				}
			})
			t.Run("with a receive", func(t *testing.T) {
				s := newPeerScript(t)
				request, before := sample(s, op)
				s.post(1, 8192)
				s.deliver(before...)
				s.deliver(request)
				if ends := row["recv_cqe"] == "yes"; ends != (len(s.qp.done) == 1) {
					t.Errorf("recv_cqe is %q, and %d receives ended", row["recv_cqe"], len(s.qp.done))
				}
				if posted := row["recv_wqe"] == "no"; posted != (len(s.qp.posted) == 1) {
					t.Errorf("recv_wqe is %q, and %d receives are left", row["recv_wqe"], len(s.qp.posted))
				}
				psns := uint32(1)
				if op == wire.RCReadRequest {
					psns = 3 // max(1, ceil(RETH.len/PMTU))
				}
				s.expectedPSN(request.psn.Add(psns))
			})
		})
	}
	if n != 19 {
		t.Errorf("%d opcodes were tried, want 19", n)
	}
}

// sample makes a sound request with op, and the packets that have to come before it.
func sample(s *peerScript, op wire.Opcode) (r request, before []request) {
	r = request{op: op, psn: 100, va: memBase, key: s.mr.RKey, n: 8, size: 8}
	switch {
	case op.Headers().Has(wire.HasIETH):
		r.inv = s.bound(s.window(ib.MWType2), 1)
	case op == wire.RCFlush:
		r.n, r.places = 0, ib.FlushGlobal
	case op.IsRead():
		r.n, r.size = 0, 2*mtu+1
	case op.IsAtomic():
		r.n = 0
	case op.IsFirst():
		r.n, r.size = mtu, 2*mtu+8
	case op.IsMiddle():
		r.n = mtu
	}
	if op.IsMiddle() || op.IsLast() {
		size := uint32(mtu + r.n)
		if op.IsMiddle() {
			size += 8
		}
		first := sendFirst(100)
		if op.IsWrite() {
			first = s.writeFirst(100, 0, size)
		}
		before, r.psn = []request{first}, 101
	}
	return r, before
}
