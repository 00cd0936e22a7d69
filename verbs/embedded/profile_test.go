package embedded_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// When a send slot comes back is the profile's: on hardware when the completion was polled, with rxe when the peer has
// acknowledged.
func TestReclaimByProfile(t *testing.T) {
	rxe := nic.RXE()
	for name, c := range map[string]struct {
		o    embedded.Options
		want error
	}{
		"softnic": {embedded.Options{}, syscall.ENOMEM},
		"rxe":     {embedded.Options{Profile: &rxe}, nil},
		"option":  {embedded.Options{ReclaimOnCompletion: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := must(embedded.New(c.o))
			defer d.Close()
			ctx := must(d.Open())
			defer ctx.Close()
			pd, q := must(ctx.AllocPD()), must(ctx.CreateCQ(64))
			gid := must(ctx.QueryGID(1, 0)).GID
			var ends [2]verbs.Endpoint
			var qps [2]*verbs.QP
			for i := range qps {
				qps[i] = must(pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: q, RecvCQ: q, SigAll: true,
					Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 8}}))
				ends[i] = verbs.Endpoint{QPN: qps[i].QPN(), PSN: verbs.RandomPSN(), GID: gid}
			}
			for i := range qps {
				if err := qps[i].ConnectRC(ends[i], ends[1-i], verbs.RCAttr{}); err != nil {
					t.Fatal(err)
				}
			}
			send := verbs.SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, InlineData: make([]byte, 0)}
			for i := range 4 {
				if err := errors.Join(qps[1].PostRecv(verbs.RecvWR{}), qps[0].PostSend(send)); err != nil {
					t.Fatalf("request %d: %v", i, err)
				}
			}
			for end := time.Now().Add(10 * time.Second); must(q.Peek(64)) < 8; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d completions wait, want 8", must(q.Peek(64)))
				}
			}
			if err := qps[0].PostSend(send); !errors.Is(err, c.want) {
				t.Errorf("a fifth request of four while none is polled: %v, want %v", err, c.want)
			}
			if s := must(q.Status()); s.ReclaimOnCompletion != (c.want == nil) || s.HighWater < 8 || s.Demand != 2*(4+16) {
				t.Errorf("%+v", s)
			}
			if _, err := q.Poll(make([]verbs.WC, 64)); err != nil {
				t.Fatal(err)
			}
			if err := qps[0].PostSend(send); err != nil {
				t.Errorf("after the poll: %v", err)
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
