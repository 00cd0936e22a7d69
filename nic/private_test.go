package nic

import (
	"slices"
	"testing"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
)

// CVE-2026-74377 and CVE-2026-74378: work was used in place in the memory that its owner writes, and its count of entries read
// twice. Here what was fetched is a private copy, whatever the application does to its own afterwards.
func TestFetchedWorkIsPrivate(t *testing.T) {
	q, x := newServed(t, nil)
	list := []ib.SGE{x.sge(0, 8), x.sge(16, 4)}
	x.postSend(abi.SendWQE{WRID: 5, Opcode: uint8(ib.WRRDMAWrite), RemoteAddr: 1, RKey: 2}, list...)
	x.postRecv(6, list...)
	s, r := newRequest(), &transport.Receive{SGE: make([]ib.SGE, 0, testCap.MaxRecvSGE)}
	if q.FetchSend(s) != transport.Ready || q.FetchRecv(r) != transport.Ready {
		t.Fatal("nothing was fetched")
	}
	for i := abi.QPHeaderSize; i < len(x.raw); i++ {
		x.raw[i] = 0xff
	}
	if s.WRID != 5 || s.Remote != 1 || s.RKey != 2 || s.Length != 12 || !slices.Equal(s.SGE, list) {
		t.Errorf("the send changed: %+v", s)
	}
	if r.WRID != 6 || r.Length != 12 || !slices.Equal(r.SGE, list) {
		t.Errorf("the receive changed: %+v", r)
	}
}
