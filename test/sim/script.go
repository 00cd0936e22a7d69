package sim

import (
	"fmt"

	"github.com/softnic/softnicd/ib"
)

// request is a send work request: what is planned of it, and, once it was posted, what has to come of it.
type request struct {
	*operation
	length    int
	imm       uint32
	signaled  bool
	solicited bool
	fence     bool
	inline    bool
	link      link // to the request before

	// Atomics.
	word    int // one of this end's own at the peer, or a negative number: see atomics.go
	operand uint64
	match   bool // CAS: compares with the value that is there

	// From posting on.
	index   uint32
	local   *slot // where its bytes are, or its result goes; nil for none
	remote  *slot // at the peer
	at      int   // offset in the remote slot
	list    []ib.SGE
	data    []byte // that it carries, or a READ has to bring
	compare uint64
	want    uint64 // atomics: the value that has to be returned, if own word
	got     uint64

	// Of requests on shared words: when it was posted, and when its good end was seen, 0 if it was not.
	called, returned int64

	window *window // of the peer, through which it goes
	begun  *window // that it binds
	ended  *window // that it invalidates
}

// link lets a request use what the request before uses, while that is still outstanding: the order of a queue pair makes
// the outcome certain nevertheless.
type link uint8

const (
	linkNone  link = iota
	overwrite      // WRITE to where the WRITE before went: the later bytes stay
	readBack       // READ of what the WRITE before wrote
	relay          // SEND or WRITE, fenced, of what the READ before brings
)

// ownWords is how many words at the peer an end has for itself.
const ownWords = 4

// packets returns how many packets the request has, or a READ responses: so many sequence numbers are its own.
func (r *request) packets(mtu int) uint32 {
	if r.isLocal() {
		return 0
	}
	return uint32(max(1, (r.length+mtu-1)/mtu))
}

func (r *request) String() string {
	return fmt.Sprintf("#%d %v %d B", r.index, r.op, r.length)
}

// newScript draws what one end sends.
func newScript(d *dice, s *SidePlan, c *ConnectionPlan, busy bool) []request {
	n := oneOf(d, 0, d.between(1, 10), d.between(10, 40), d.between(10, 40))
	if busy {
		n = d.between(30, 60)
	}
	script := make([]request, n)
	unsignaled := 0
	for i := range script {
		r := &script[i]
		r.operation = drawOperation(d)
		r.length = newLength(d, c)
		r.imm = d.r.Uint32()
		r.solicited, r.fence = d.chance(300), d.chance(100)
		if r.draw != nil {
			r.draw(d, r)
		}
		if i > 0 {
			r.join(d, &script[i-1])
		}
		if r.traits&inlining != 0 {
			r.inline = r.link != relay && uint32(r.length) <= s.Cap.MaxInlineData && d.chance(500)
		}
		// A slot of the ring comes back with a completion, so some have to be asked for, and the last.
		unsignaled++
		r.signaled = d.chance(500) || unsignaled*2 >= int(s.Cap.MaxSendWR) || i == len(script)-1
		if r.signaled {
			unsignaled = 0
		}
	}
	return script
}

// join links r to the request before it, sometimes.
func (r *request) join(d *dice, before *request) {
	switch {
	case before.isWrite() && r.isWrite() && d.chance(300):
		r.link = overwrite
	case before.isWrite() && r.op == ib.WRRDMARead && !r.isShared() && d.chance(700):
		r.link, r.length = readBack, min(r.length, before.length)
	case before.op == ib.WRRDMARead && !before.isShared() && (r.isSend() || r.isWrite()) && d.chance(400):
		r.link, r.length, r.fence = relay, before.length, true
	}
}

func drawAtomic(d *dice, r *request) {
	r.length = 8
	r.word = d.below(ownWords)
	r.match = d.chance(500)
	r.operand = d.r.Uint64()
	if d.chance(400) {
		drawShared(d, r)
	}
}

// newLength draws the length of a message: nothing, little, or about a number of packets.
func newLength(d *dice, c *ConnectionPlan) int {
	mtu := c.MTU.Bytes()
	n := 0
	switch d.below(6) {
	case 0:
		n = oneOf(d, 0, 1, 2, 3, 4, 5)
	case 1:
		n = d.between(1, 256)
	case 2, 3:
		n = d.between(0, 8)*mtu + d.between(-3, 3)
	default:
		n = d.below(c.MaxBytes + 1)
	}
	return min(max(n, 0), c.MaxBytes)
}
