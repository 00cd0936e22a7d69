package rc

import (
	"testing"
)

func TestSendSegmentation(t *testing.T) {
	s := newScript(t)
	s.post(send(3000))
	s.expect(at(0),
		sendFirst(100, 1024).holds(pattern(0, 1024)).asking(false),
		sendMiddle(101, 1024).holds(pattern(1024, 1024)).asking(false),
		sendLast(102, 952).holds(pattern(2048, 952)).asking(true))
	s.deliver(at(10*us), ack(102))
	s.completes(success(1))
}
