package rc_test

import (
	"bytes"
	"testing"

	"github.com/softnic/softnicd/transport"
)

// watchingQueue looks at memory in the moment in which a receive completes.
type watchingQueue struct {
	*receiveQueue
	look func()
}

func (q *watchingQueue) CompleteRecv(r *transport.Receive, c *transport.Completion) {
	q.look()
	q.receiveQueue.CompleteRecv(r, c)
}

// Who sees a completion finds all the data: the application is another process, and may look at once. A bug that leaves the
// last packet for later shows nowhere else, since everything is in place by the time a call of the engine is over.
func TestDataIsThereBeforeTheCompletion(t *testing.T) {
	for _, c := range []struct {
		name    string
		packets func(s *peerScript) []request
		target  func(s *peerScript) []byte
		n       int
	}{
		{"SEND of one packet",
			func(*peerScript) []request { return []request{sendOnly(100, 64)} },
			func(s *peerScript) []byte { return s.buf }, 64},
		{"SEND of two packets",
			func(*peerScript) []request { return []request{sendFirst(100), sendLast(101, 64)} },
			func(s *peerScript) []byte { return s.buf[mtu:] }, 64},
		{"WRITE with immediate",
			func(s *peerScript) []request { return []request{s.writeOnlyImm(100, 0, 64, 7)} },
			func(s *peerScript) []byte { return s.mem }, 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newPeerScript(t)
			looks := 0
			want := make([]byte, c.n)
			for i := range want {
				want[i] = 0x40 + byte(i)
			}
			s.connect(&watchingQueue{&s.qp, func() {
				looks++
				if got := c.target(s)[:c.n]; !bytes.Equal(got, want) {
					t.Errorf("the receive completes, and memory holds % x", got)
				}
			}})
			s.post(1, 4096)
			for _, r := range c.packets(s) {
				s.e.Receive(0, r.with(0x40).build())
			}
			if looks != 1 {
				t.Errorf("%d completions", looks)
			}
		})
	}
}
