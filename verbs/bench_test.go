package verbs_test

import (
	"testing"

	"github.com/softnic/softnicd/verbs"
)

func pollOne(q *verbs.CQ, wc []verbs.WC) {
	for {
		if n, err := q.Poll(wc); n > 0 || err != nil {
			return
		}
	}
}

// A message from one device of the process to another, one at a time: posting, both engines, completion.
func BenchmarkSend64(b *testing.B) {
	x, y := newPair(b)
	wc := make([]verbs.WC, 1)
	recv, send := []verbs.RecvWR{y.recv(1, 0, 64)}, []verbs.SendWR{x.send(2, 64)}
	for b.Loop() {
		y.qp.PostRecv(recv...)
		x.qp.PostSend(send...)
		pollOne(x.cq, wc)
		pollOne(y.cq, wc)
	}
}

func BenchmarkPollEmpty(b *testing.B) {
	x, _ := newPair(b)
	wc := make([]verbs.WC, 1)
	for b.Loop() {
		x.cq.Poll(wc)
	}
}
