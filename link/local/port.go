package local

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
)

// Port hands frames back to the device that sends them. It loses nothing: when it is full it takes fewer. One goroutine
// uses it.
type Port struct {
	counters nic.PortCounters
	// Frames are collected in one queue while the other is given out: a burst is emptied before it is filled again.
	in, out *queue
	given   int // packets that the last Recv gave out, still in use
}

var _ nic.Port = (*Port)(nil)

// queue is frames that wait, with copies of what may not stay where it is.
type queue struct {
	burst *wire.Burst
	bytes []byte
	// buffers are the copies of the frames, by number; a frame refers to its own.
	buffers []wire.Buffer
	used    int
}

// copies bounds the payload that a queue keeps copies of: that of unreliable services.
const copies = 256 << 10

// New makes a port on which up to n frames can wait to be received.
func New(n int) *Port { return &Port{in: newQueue(n), out: newQueue(n)} }

func newQueue(n int) *queue {
	return &queue{burst: wire.NewBurst(n), bytes: make([]byte, 0, copies), buffers: make([]wire.Buffer, n)}
}

// Send implements nic.Port. Payload stays where it is, except that of unreliable services: their requests complete when
// they are sent, and then the owner may write it.
func (p *Port) Send(_ clock.Time, frames []wire.Frame) (sent int, err error) {
	n := 0
	var bytes uint64
	for sent < len(frames) {
		f := &frames[sent]
		ok, err := p.in.put(f)
		if err != nil {
			p.count(n, bytes)
			return sent, &nic.FrameFault{Err: err}
		}
		if !ok {
			break
		}
		sent++
		n += f.Packets()
		bytes += uint64(f.Len())
	}
	p.count(n, bytes)
	return sent, nil
}

func (p *Port) count(packets int, bytes uint64) {
	if packets > 0 {
		p.counters.SentPackets.Add(uint64(packets))
		p.counters.SentBytes.Add(bytes)
	}
}

// LongestRun says that a run stays one, however long: its receiver copies the payload of all its packets at once.
func (p *Port) LongestRun(*wire.Path, int) int { return wire.MaxRun }

// put copies the frame's head and references. It returns false when there is no room.
func (q *queue) put(f *wire.Frame) (ok bool, err error) {
	c := q.burst.Next()
	if c == nil {
		return false, nil
	}
	op := f.BTH().Opcode()
	copy(c.SetHeader(op), f.Header())
	c.Path, c.QPN, c.Cookie, c.Stable = f.Path, f.QPN, f.Cookie, f.Stable
	c.SetRun(f.Packets())
	n := f.PayloadLen()
	if n == 0 {
		return true, nil
	}
	if s := op.Service(); s != wire.ServiceUC && s != wire.ServiceUD {
		for _, piece := range f.Payload() {
			c.Add(piece.Mem, piece.Off, piece.Len)
		}
		return true, nil
	}
	begin := len(q.bytes)
	if cap(q.bytes)-begin < n {
		q.burst.Undo()
		return false, nil
	}
	b := q.bytes[begin : begin+n : begin+n]
	if err := dma.ReadPieces(b, f.Payload()); err != nil {
		q.burst.Undo()
		return false, err
	}
	q.bytes = q.bytes[:begin+n]
	m := &q.buffers[q.used]
	m.B = b
	q.used++
	c.Add(m, 0, n)
	return true, nil
}

// Recv implements nic.Port.
func (p *Port) Recv(_ clock.Time, packets []wire.Packet) int {
	p.out.burst.Consume(p.given)
	p.given = 0
	if p.out.burst.Len() == 0 {
		p.out.bytes, p.out.used = p.out.bytes[:0], 0
		p.in, p.out = p.out, p.in
	}
	frames := p.out.burst.Frames()
	n := min(len(frames), len(packets))
	if n == 0 {
		return 0
	}
	received := 0
	var bytes uint64
	for i := range n {
		packets[i].FromFrame(&frames[i])
		received += frames[i].Packets()
		bytes += uint64(frames[i].Len())
	}
	p.given = n
	p.counters.ReceivedPackets.Add(uint64(received))
	p.counters.ReceivedBytes.Add(bytes)
	return n
}

// Waiting returns how many frames were sent and not yet received, or received and not yet done with: they refer to memory
// that must not be unmapped.
func (p *Port) Waiting() int { return p.in.burst.Len() + p.out.burst.Len() }

// Descriptor implements nic.Port: there is none.
func (p *Port) Descriptor() int { return -1 }

// Counters implements nic.Port.
func (p *Port) Counters() *nic.PortCounters { return &p.counters }

// Close implements nic.Port.
func (p *Port) Close() error { return nil }
