package cq

import (
	"errors"
	"testing"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
)

// pair is both halves of a queue on heap memory, and the events that were sent.
type pair struct {
	*Queue
	reader *Reader
	block  *abi.CQBlock // the application's words, for one that lies
	events int
}

func (p *pair) Notify(cookie uint64, handle uint32) {
	if cookie == 7 && handle == 9 {
		p.events++
	}
	p.Queue.HighWater() // the lock is free
}

func newPair(t testing.TB, capacity uint32) *pair {
	t.Helper()
	memory := make([]byte, abi.CQBlockSize(capacity))
	p := &pair{}
	var err error
	p.Queue, err = New(Config{Block: memory, Capacity: capacity, Notifier: p, Cookie: 7, Handle: 9})
	if err != nil {
		t.Fatal(err)
	}
	if p.reader, err = NewReader(memory, capacity); err != nil {
		t.Fatal(err)
	}
	p.block, _ = abi.NewCQBlock(memory, capacity)
	return p
}

func (p *pair) post(id uint64) bool { return p.Post(0, &abi.CQE{WRID: id}, false) }

// startAt makes both halves as if n entries had come and gone.
func (p *pair) startAt(n uint32) {
	pos := n % p.capacity
	p.Queue.pos, p.produced, p.consumed = pos, n, n
	p.reader.pos, p.reader.index, p.reader.given = pos, n, n
	p.block.SetConsumed(n)
	p.block.SetProduced(n)
}

func TestNewRefuses(t *testing.T) {
	for name, c := range map[string]Config{
		"no capacity":       {Block: make([]byte, 4096)},
		"odd capacity":      {Block: make([]byte, 1<<20), Capacity: 100},
		"a short block":     {Block: make([]byte, abi.CQBlockSize(64)-1), Capacity: 64},
		"an unaligned one":  {Block: make([]byte, abi.CQBlockSize(64)+8)[1:], Capacity: 64},
		"a huge capacity":   {Block: make([]byte, 4096), Capacity: 1<<32 - 64},
		"no block whatever": {Capacity: 64},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if _, err := NewReader(c.Block, c.Capacity); err == nil {
			t.Errorf("%s: accepted by the reader", name)
		}
	}
}

// A block that was another queue's before must look empty.
func TestNewClearsTheBlock(t *testing.T) {
	p := newPair(t, 64)
	for i := range 64 {
		p.post(uint64(i))
	}
	p.reader.ReqNotify(abi.ArmNext)
	p.post(64)
	memory := make([]byte, abi.CQBlockSize(64))
	for i := range memory {
		memory[i] = byte(i*7 + 1)
	}
	if _, err := New(Config{Block: memory, Capacity: 64}); err != nil {
		t.Fatal(err)
	}
	r, _ := NewReader(memory, 64)
	if n, err := r.Poll(make([]abi.CQE, 64)); n != 0 || err != nil || r.Peek(64) != 0 {
		t.Errorf("a new queue has %d entries, error %v, peek %d", n, err, r.Peek(64))
	}
	if b, _ := abi.NewCQBlock(memory, 64); b.Arm() != 0 || b.Fired() != 0 || b.Produced() != 0 || b.Consumed() != 0 {
		t.Error("words of the old queue are left")
	}
}

// Indexes are counts modulo 2^32 while positions are modulo a capacity that does not divide 2^32.
func TestOrderAcrossTheWrap(t *testing.T) {
	p := newPair(t, 192)
	p.startAt(1<<32 - 300)
	var e [50]abi.CQE
	posted, taken := uint64(0), uint64(0)
	for taken < 1000 {
		for range 37 {
			if !p.post(posted) {
				t.Fatalf("post %d refused: %v", posted, p.Err())
			}
			posted++
		}
		if got := p.Occupancy(); uint64(got) != posted-taken {
			t.Fatalf("occupancy %d, want %d", got, posted-taken)
		}
		if got := p.reader.Peek(1 << 30); uint64(got) != posted-taken {
			t.Fatalf("peek %d, want %d", got, posted-taken)
		}
		n, err := p.reader.Poll(e[:])
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if e[i].WRID != taken {
				t.Fatalf("entry %d has wr_id %d", taken, e[i].WRID)
			}
			taken++
		}
	}
	if p.HighWater() != 37 {
		t.Errorf("high-water mark %d, 37 waited", p.HighWater())
	}
}

func TestPeek(t *testing.T) {
	p := newPair(t, 64)
	for i := range 10 {
		p.post(uint64(i))
	}
	for n, want := range map[int]int{-1: 0, 0: 0, 1: 1, 9: 9, 10: 10, 11: 10, 64: 10, 1 << 40: 10} {
		if got := p.reader.Peek(n); got != want {
			t.Errorf("peek(%d) = %d, want %d", n, got, want)
		}
	}
	// The published count lags or runs behind what was taken: entries count by themselves.
	p.block.SetProduced(3)
	if got := p.reader.Peek(64); got != 10 {
		t.Errorf("peek = %d with a count that lags, want 10", got)
	}
	p.reader.Poll(make([]abi.CQE, 4))
	if got := p.reader.Peek(64); got != 6 {
		t.Errorf("peek = %d with a count behind the reader, want 6", got)
	}
}

func TestHighWater(t *testing.T) {
	p := newPair(t, 64)
	one := make([]abi.CQE, 1)
	for _, c := range []struct {
		takes bool // the reader, after the entry
		mark  uint32
	}{{true, 1}, {true, 1}, {false, 1}, {false, 2}, {true, 3}, {false, 3}} {
		p.post(0)
		if c.takes {
			p.reader.Poll(one)
		}
		if got := p.HighWater(); got != c.mark {
			t.Errorf("high-water mark %d, want %d", got, c.mark)
		}
	}
	// Three wait.
	for i := range 61 {
		p.post(uint64(i))
	}
	if got := p.HighWater(); got != 64 || p.Dead() {
		t.Errorf("full: high-water mark %d, dead %v", got, p.Dead())
	}
}

// Field bug B15: what does not fit ends the queue, audibly; it is never dropped in silence.
func TestOverrun(t *testing.T) {
	p := newPair(t, 64)
	for i := range 64 {
		if !p.post(uint64(i)) {
			t.Fatalf("entry %d of 64 refused", i)
		}
	}
	if p.Dead() {
		t.Fatal("a full queue is no dead queue")
	}
	if p.post(64) || p.post(65) {
		t.Fatal("an entry was accepted that does not fit")
	}
	if !p.Dead() || !errors.Is(p.Err(), ErrOverrun) || p.Overruns() != 2 {
		t.Errorf("dead %v, error %v, %d overruns", p.Dead(), p.Err(), p.Overruns())
	}
	// Room comes too late, but what fits is there.
	var e [40]abi.CQE
	taken := 0
	for _, want := range []int{40, 24} {
		n, err := p.reader.Poll(e[:])
		if n != want || err != nil {
			t.Fatalf("poll: %d, %v; want %d entries", n, err, want)
		}
		for i := range n {
			if e[i].WRID != uint64(taken) {
				t.Fatalf("entry %d has wr_id %d", taken, e[i].WRID)
			}
			taken++
		}
	}
	for range 2 {
		if n, err := p.reader.Poll(e[:]); n != 0 || !errors.Is(err, ErrOverrun) {
			t.Errorf("poll of a dead queue: %d, %v", n, err)
		}
		if n, err := p.reader.PollWC(make([]ib.WC, 1)); n != 0 || !errors.Is(err, ErrOverrun) {
			t.Errorf("poll of a dead queue: %d, %v", n, err)
		}
	}
	if p.post(66) {
		t.Error("a dead queue took an entry")
	}
	if !p.reader.ReqNotify(abi.ArmNext) {
		t.Error("a dead queue let its reader sleep")
	}
}

// The reader finds nothing, is held up while the queue fills and dies, and then looks at the state.
func TestDeathComesAfterTheEntries(t *testing.T) {
	p := newPair(t, 64)
	p.reader.step = func(w word) {
		if w == wordState {
			p.reader.step = nil
			for i := range 65 {
				p.post(uint64(i))
			}
		}
	}
	e := make([]abi.CQE, 64)
	if n, err := p.reader.Poll(e); n != 0 || err != nil {
		t.Fatalf("poll: %d, %v, while 64 entries wait", n, err)
	}
	if n, err := p.reader.Poll(e); n != 64 || err != nil {
		t.Fatalf("poll: %d, %v, want 64 entries", n, err)
	}
	if _, err := p.reader.Poll(e); !errors.Is(err, ErrOverrun) {
		t.Fatalf("poll: %v", err)
	}
}

// Whoever sleeps until a solicited entry comes must not sleep on when none can come any more.
func TestOverrunWakes(t *testing.T) {
	for _, kind := range []abi.ArmKind{abi.ArmNone, abi.ArmNext, abi.ArmSolicited} {
		p := newPair(t, 64)
		if kind != abi.ArmNone {
			p.reader.ReqNotify(kind)
		}
		for i := range 70 {
			p.post(uint64(i))
		}
		if want := min(int(kind), 1); p.events != want {
			t.Errorf("armed %d: %d events, want %d", kind, p.events, want)
		}
	}
}

func TestLyingConsumer(t *testing.T) {
	for name, claim := range map[string]uint32{
		"ahead by one": 1<<32 - 9, "ahead by half": 1 << 31, "back": 1<<32 - 21, "back by more than the ring": 1<<32 - 300,
	} {
		p := newPair(t, 64)
		p.startAt(1<<32 - 20)
		for i := range 10 {
			p.post(uint64(i))
		}
		p.block.SetConsumed(claim)
		if p.Occupancy() > 64 {
			t.Errorf("%s: occupancy %d", name, p.Occupancy())
		}
		if p.post(10) || !errors.Is(p.Err(), ErrConsumer) {
			t.Errorf("%s: alive, %v", name, p.Err())
		}
		if p.block.State() != abi.CQOverrun {
			t.Errorf("%s: the application is not told", name)
		}
	}
}

// A fault of the block passes through as the panic it is and leaves the queue usable.
func TestFault(t *testing.T) {
	for at := range 4 {
		p := newPair(t, 64)
		p.reader.ReqNotify(abi.ArmNext)
		n := 0
		p.Queue.step = func(word) {
			if n++; n == at+1 {
				panic("fault")
			}
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("touch %d: the fault was swallowed", at)
				}
			}()
			p.post(1)
		}()
		p.Queue.step = nil
		if !p.mu.TryLock() {
			t.Fatalf("touch %d: the lock is held after a fault", at)
		}
		p.mu.Unlock()
		if !p.post(2) {
			t.Errorf("touch %d: %v", at, p.Err())
		}
	}
}

// Who has locked the queue appends while others wait, also after a fault.
func TestLock(t *testing.T) {
	memory := make([]byte, abi.CQBlockSize(64))
	q, _ := New(Config{Block: memory, Capacity: 64})
	r, _ := NewReader(memory, 64)
	if !q.Silent() || newPair(t, 64).Silent() {
		t.Error("silent is who has no notifier")
	}
	q.Lock()
	occupancy := make(chan uint32)
	go func() { occupancy <- q.Occupancy() }()
	var e abi.CQE
	for i := range 3 {
		// What is appended can be read at once.
		if !q.Append(&abi.CQE{WRID: uint64(i)}) || !r.Next(&e) || e.WRID != uint64(i) {
			t.Errorf("entry %d: %+v", i, e)
		}
	}
	q.step = func(word) { panic("fault") }
	func() {
		defer func() { _ = recover() }()
		q.Append(&e)
	}()
	q.step = nil
	if !q.Append(&e) {
		t.Error("no entry after a fault")
	}
	select {
	case n := <-occupancy:
		t.Errorf("%d entries wait, said a queue that was locked", n)
	default:
	}
	q.Unlock()
	if n := <-occupancy; n != 4 {
		t.Errorf("%d entries wait, want 4, of which none was given back", n)
	}
	q.Lock()
	for range 61 {
		q.Append(&e)
	}
	q.Unlock()
	if !errors.Is(q.Err(), ErrOverrun) || q.Overruns() != 1 {
		t.Errorf("%v, %d overruns", q.Err(), q.Overruns())
	}
}

func TestNoNotifier(t *testing.T) {
	memory := make([]byte, abi.CQBlockSize(64))
	q, _ := New(Config{Block: memory, Capacity: 64})
	r, _ := NewReader(memory, 64)
	r.ReqNotify(abi.ArmNext)
	q.SetModeration(1, 1)
	for range 70 {
		q.Post(0, &abi.CQE{}, true)
	}
	q.Expire(clock.Never - 1)
	if !q.Dead() || q.Events() != 0 {
		t.Errorf("dead %v, %d events", q.Dead(), q.Events())
	}
}

func TestWorkCompletion(t *testing.T) {
	p := newPair(t, 64)
	e := abi.CQE{
		WRID: 1, ByteLen: 2, Imm: 3, QPN: 4, SrcQP: 5, Status: 0, Opcode: uint8(ib.WCRecv), Flags: uint16(ib.WCWithImm | ib.WCGRH),
		VendorErr: 6, Timestamp: 7, PKeyIndex: 8, SLID: 9, SL: 10, DLIDPathBits: 11,
	}
	p.Post(0, &e, false)
	e.Flags = uint16(ib.WCWithInv)
	p.Post(0, &e, false)
	var wc [2]ib.WC
	if n, err := p.reader.PollWC(wc[:]); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	want := ib.WC{WRID: 1, ByteLen: 2, ImmData: 3, QPN: 4, SrcQP: 5, Opcode: ib.WCRecv, Flags: ib.WCWithImm | ib.WCGRH, VendorErr: 6,
		Timestamp: 7, PKeyIndex: 8, SLID: 9, SL: 10, DLIDPathBits: 11}
	if wc[0] != want {
		t.Errorf("got  %+v\nwant %+v", wc[0], want)
	}
	want.Flags, want.ImmData, want.InvalidatedKey = ib.WCWithInv, 0, 3
	if wc[1] != want {
		t.Errorf("got  %+v\nwant %+v", wc[1], want)
	}
}
