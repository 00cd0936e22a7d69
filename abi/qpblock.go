package abi

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync/atomic"
	"syscall"

	"github.com/softnic/softnicd/ib"
)

// QPBlock is one side's view of a queue pair's block. It holds no index: each side counts privately, publishes its count,
// and judges the other's. An index is a count modulo 2^32; its slot is the index modulo the depth, a power of two.
//
// The application calls the methods that put and publish, one goroutine a queue at a time; the daemon those that copy.
// A panic in any of them is a fault of the memory behind the block and nothing else.
type QPBlock struct {
	mem        words
	send, recv ring
	layout     QPLayout
}

// NewQPBlock views the beginning of b as a queue pair's block. b is aligned to 8 bytes, better to a cache line. Nothing
// is written: see Reset.
func NewQPBlock(b []byte, l QPLayout) (*QPBlock, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	mem, err := newWords(b, l.Size())
	if err != nil {
		return nil, err
	}
	sendEnd := QPHeaderSize/8 + uint64(l.SendDepth)*uint64(l.SendStride/8)
	return &QPBlock{
		mem:    mem,
		send:   newRing(mem.q[QPHeaderSize/8:sendEnd], l.SendDepth, l.SendStride),
		recv:   newRing(mem.q[sendEnd:], l.RecvDepth, l.RecvStride),
		layout: l,
	}, nil
}

// Layout returns where things are.
func (b *QPBlock) Layout() QPLayout { return b.layout }

// Reset clears the header: nothing posted, nothing done. The daemon does so when it makes the queue pair and when it
// takes it to RESET, while the application must not post.
func (b *QPBlock) Reset() {
	for _, off := range []uint64{offSQPosted, offRQPosted, offQPState, offSQDone, offRQTaken} {
		b.mem.store32(off, 0)
	}
}

// PutSend writes a send request into the slot of index, with list as its scatter/gather list: w.Count and
// SendInline in w.Flags follow from that and are not looked at.
// It reports false, and writes nothing, if the list is longer than a slot holds or the queue has depth 0.
func (b *QPBlock) PutSend(index uint32, w *SendWQE, list []ib.SGE) bool {
	slot := b.send.slot(index)
	if len(slot) < SendWQESize/8 || len(list) > (len(slot)-SendWQESize/8)/2 {
		return false
	}
	putSend(slot, w, uint16(len(list)), w.Flags&^uint8(ib.SendInline))
	putList(slot[SendWQESize/8:], list)
	return true
}

// PutSendInline writes a send request whose data, the concatenation of data, stands in the slot itself. It reports false,
// and writes nothing, if that is more than a slot holds.
func (b *QPBlock) PutSendInline(index uint32, w *SendWQE, data ...[]byte) bool {
	slot := b.send.slot(index)
	total := 0
	for _, d := range data {
		if len(d) > MaxInlineLimit-total {
			return false
		}
		total += len(d)
	}
	if len(slot) < SendWQESize/8 || total > 8*len(slot)-SendWQESize {
		return false
	}
	putSend(slot, w, uint16(total), w.Flags|uint8(ib.SendInline))
	rest, part, at := slot[SendWQESize/8:], uint64(0), uint(0)
	for _, d := range data {
		rest, part, at = copyBytes(rest, d, part, at)
	}
	if at != 0 {
		put(&rest[0], part)
	}
	return true
}

// PublishSend tells the daemon that all send requests before index posted are there.
func (b *QPBlock) PublishSend(posted uint32) { b.mem.store32(offSQPosted, posted) }

// PutRecv writes a receive request into the slot of index. It reports false, and writes nothing, if the list is longer
// than a slot holds or the queue has depth 0.
func (b *QPBlock) PutRecv(index uint32, w *RecvWQE, list []ib.SGE) bool {
	slot := b.recv.slot(index)
	if len(slot) < RecvWQESize/8 || len(list) > (len(slot)-RecvWQESize/8)/2 {
		return false
	}
	put(&slot[0], w.WRID)
	put(&slot[1], uint64(len(list)))
	putList(slot[RecvWQESize/8:], list)
	return true
}

// PublishRecv tells the daemon that all receive requests before index posted are there.
func (b *QPBlock) PublishRecv(posted uint32) { b.mem.store32(offRQPosted, posted) }

// State returns the queue pair's state as the daemon last published it.
func (b *QPBlock) State() ib.QPState { return ib.QPState(b.mem.load32(offQPState)) }

// SendDone returns how many send requests the daemon is done with, modulo 2^32.
func (b *QPBlock) SendDone() uint32 { return b.mem.load32(offSQDone) }

// RecvTaken returns how many receive requests the daemon has taken, modulo 2^32.
func (b *QPBlock) RecvTaken() uint32 { return b.mem.load32(offRQTaken) }

// SendPosted returns what the application says it has posted: a claim to check against the daemon's own count.
func (b *QPBlock) SendPosted() uint32 { return b.mem.load32(offSQPosted) }

// RecvPosted returns what the application says it has posted: a claim to check against the daemon's own count.
func (b *QPBlock) RecvPosted() uint32 { return b.mem.load32(offRQPosted) }

// SetState publishes the queue pair's state.
func (b *QPBlock) SetState(s ib.QPState) { b.mem.store32(offQPState, uint32(s)) }

// SetSendDone tells how many send requests the daemon is done with. Nobody waits for it alone, so it costs a plain store: what
// CopySend has loaded was loaded before.
func (b *QPBlock) SetSendDone(n uint32) { put32(&b.mem.d[offSQDone/4], n) }

// SetRecvTaken tells in the same way how many receive requests the daemon has taken.
func (b *QPBlock) SetRecvTaken(n uint32) { put32(&b.mem.d[offRQTaken/4], n) }

// CopySend copies the send request of index into private memory: w, and then its list, or its data if w.Flags has
// SendInline. Each word of shared memory is loaded exactly once, so that what the caller judges is what it acts on
// whatever the application writes meanwhile.
//
// It returns the entries of list, or bytes of inline, that it copied: w.Count, or fewer if the slot or the caller's slice
// holds fewer. A count other than w.Count is a malformed request.
func (b *QPBlock) CopySend(index uint32, w *SendWQE, list []ib.SGE, inline []byte) (n int) {
	slot := b.send.slot(index)
	if len(slot) < SendWQESize/8 {
		*w = SendWQE{}
		return 0
	}
	w.WRID = atomic.LoadUint64(&slot[0])
	v := atomic.LoadUint64(&slot[1])
	w.Opcode, w.Flags, w.Count, w.Imm = uint8(v), uint8(v>>8), uint16(v>>16), uint32(v>>32)
	w.RemoteAddr = atomic.LoadUint64(&slot[2])
	v = atomic.LoadUint64(&slot[3])
	w.RKey, w.SRQN = uint32(v), uint32(v>>32)
	w.Operand = atomic.LoadUint64(&slot[4])
	w.Compare = atomic.LoadUint64(&slot[5])
	if w.Flags&uint8(ib.SendInline) != 0 {
		return loadBytes(slot[SendWQESize/8:], inline, int(w.Count))
	}
	return loadList(slot[SendWQESize/8:], list, int(w.Count))
}

// ExpectSend says that the send request of index, which is posted, will be copied soon, and ExpectRecv the same of a receive:
// the cache lines are the application's.
func (b *QPBlock) ExpectSend(index uint32) { expect(b.send.slot(index)) }

// ExpectRecv is explained at [QPBlock.ExpectSend].
func (b *QPBlock) ExpectRecv(index uint32) { expect(b.recv.slot(index)) }

func expect(slot []uint64) {
	if len(slot) > 0 {
		prefetch(&slot[0])
	}
}

// CopyRecv copies the receive request of index into private memory, as CopySend does, and returns the entries of list
// that it copied.
func (b *QPBlock) CopyRecv(index uint32, w *RecvWQE, list []ib.SGE) (n int) {
	slot := b.recv.slot(index)
	if len(slot) < RecvWQESize/8 {
		*w = RecvWQE{}
		return 0
	}
	w.WRID = atomic.LoadUint64(&slot[0])
	w.Count = uint32(atomic.LoadUint64(&slot[1]))
	return loadList(slot[RecvWQESize/8:], list, int(w.Count))
}

// A ring is the slots of one queue.
type ring struct {
	mem    []uint64
	mask   uint32
	stride uint64 // words
}

func newRing(mem []uint64, depth, stride uint32) ring {
	return ring{mem: mem, mask: depth - 1, stride: uint64(stride / 8)}
}

// slot returns the words of an index's slot, none if the queue has depth 0.
func (r *ring) slot(index uint32) []uint64 {
	at := uint64(index&r.mask) * r.stride
	if at+r.stride > uint64(len(r.mem)) {
		return nil
	}
	return r.mem[at : at+r.stride : at+r.stride]
}

func putSend(slot []uint64, w *SendWQE, count uint16, flags uint8) {
	_ = slot[5]
	put(&slot[0], w.WRID)
	put(&slot[1], uint64(w.Opcode)|uint64(flags)<<8|uint64(count)<<16|uint64(w.Imm)<<32)
	put(&slot[2], w.RemoteAddr)
	put(&slot[3], uint64(w.RKey)|uint64(w.SRQN)<<32)
	put(&slot[4], w.Operand)
	put(&slot[5], w.Compare)
}

func putList(slot []uint64, list []ib.SGE) {
	for i := range list {
		e := &list[i]
		put(&slot[2*i], e.Addr)
		put(&slot[2*i+1], uint64(e.Length)|uint64(e.LKey)<<32)
	}
}

// loadList copies up to count entries, as many as both sides have room for. On 64-bit machines no count is negative.
func loadList(slot []uint64, list []ib.SGE, count int) int {
	n := min(count, len(slot)/2, len(list))
	list = list[:n]
	for i := range list {
		list[i].Addr = atomic.LoadUint64(&slot[2*i])
		v := atomic.LoadUint64(&slot[2*i+1])
		list[i].Length, list[i].LKey = uint32(v), ib.LKey(v>>32)
	}
	return n
}

func loadBytes(slot []uint64, inline []byte, count int) int {
	n := min(count, 8*len(slot), len(inline))
	inline = inline[:n]
	for len(inline) >= 8 {
		binary.LittleEndian.PutUint64(inline, atomic.LoadUint64(&slot[0]))
		slot, inline = slot[1:], inline[8:]
	}
	if len(inline) > 0 {
		v := atomic.LoadUint64(&slot[0])
		for i := range inline {
			inline[i] = byte(v >> (8 * i))
		}
	}
	return n
}

// check refuses layouts whose arithmetic the rings do not bear.
func (l QPLayout) check() error {
	switch {
	case l.SendDepth&(l.SendDepth-1) != 0 || l.RecvDepth&(l.RecvDepth-1) != 0:
		return fmt.Errorf("abi: depths %d and %d are not powers of two: %w", l.SendDepth, l.RecvDepth, syscall.EINVAL)
	case l.SendStride%SendWQEAlign != 0 || l.SendStride < SendWQESize || l.SendStride > SendStride(MaxSGE, MaxInlineLimit):
		return fmt.Errorf("abi: send stride %d is none: %w", l.SendStride, syscall.EINVAL)
	case l.RecvStride%RecvWQEAlign != 0 || l.RecvStride < RecvWQESize || l.RecvStride > RecvStride(MaxSGE):
		return fmt.Errorf("abi: receive stride %d is none: %w", l.RecvStride, syscall.EINVAL)
	}
	return nil
}

// RoundQPCap returns the real capacities of a queue pair for those asked for: depths become the next power of two, since
// a slot is an index's low bits; 0 stays 0 (a queue pair on a shared receive queue has no receives of its own). A depth
// above 2^31 stays as it is and is over every device's limit.
func RoundQPCap(c ib.QPCap) ib.QPCap {
	c.MaxSendWR, c.MaxRecvWR = roundDepth(c.MaxSendWR), roundDepth(c.MaxRecvWR)
	return c
}

func roundDepth(n uint32) uint32 {
	if n == 0 || n > 1<<31 {
		return n
	}
	return 1 << bits.Len32(n-1)
}

// LayoutOf returns the layout of a block for real capacities, as RoundQPCap returns them.
func LayoutOf(c ib.QPCap) QPLayout {
	return NewQPLayout(c.MaxSendWR, c.MaxRecvWR, c.MaxSendSGE, c.MaxRecvSGE, c.MaxInlineData)
}
