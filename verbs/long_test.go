package verbs_test

import (
	"context"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// The longest messages there are to a byte: 2 GiB - 1, written and read back. The source is memory that nobody has touched
// but for a few bytes, so that the test costs the machine only the copy.
func TestLongestMessage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 2 GiB of memory")
	}
	const n = 1<<31 - 1
	d := must(embedded.New(embedded.Options{}))
	t.Cleanup(func() { d.Close() })
	ctx := must(d.Open())
	t.Cleanup(func() { ctx.Close() })
	a, b := newSide(t, ctx, 16, smallCap), newSide(t, ctx, 16, smallCap)
	connectSides(t, a, b, verbs.RCAttr{})

	source, target := make([]byte, n), make([]byte, n)
	marks := []int{0, 1, n / 2, n/2 + 1, n - 4096, n - 2, n - 1}
	for i, at := range marks {
		source[at] = byte(i + 1)
	}
	from := must(a.pd.RegMR(source, ib.AccessLocalWrite))
	to := must(b.pd.RegMR(target, everything))
	wr := verbs.SendWR{WRID: 1, Opcode: ib.WRRDMAWrite, Flags: ib.SendSignaled, SGList: []verbs.SGE{from.SGE(0, n)},
		RemoteAddr: to.Addr(), RKey: to.RKey()}
	check(t, a.qp.PostSend(wr))
	a.slowly(1, n)
	for i, at := range marks {
		if target[at] != byte(i+1) {
			t.Fatalf("byte %d is %d after the WRITE, want %d", at, target[at], i+1)
		}
	}
	clear(source[n-4096:])
	wr.WRID, wr.Opcode = 2, ib.WRRDMARead
	check(t, a.qp.PostSend(wr))
	a.slowly(2, n)
	if source[n-2] != 6 || source[n-1] != 7 || source[n-3] != 0 {
		t.Errorf("the end after the READ: %d", source[n-3:])
	}
}

// slowly waits for a completion that may take long: memory that nobody has touched costs a page fault every 4 KiB.
func (s *side) slowly(id uint64, n uint32) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var wc [1]verbs.WC
	_, err := s.cq.Wait(ctx, wc[:])
	check(s.t, err)
	if wc[0].WRID != id || wc[0].Status != ib.WCSuccess || wc[0].ByteLen != n {
		s.t.Fatalf("completion %+v, want %d with %d bytes", wc[0], id, n)
	}
}
