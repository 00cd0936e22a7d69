package dma

import (
	"os"
	"sync"

	"github.com/softnic/softnicd/internal/shm"
	"github.com/softnic/softnicd/wire"
)

// batch is copies between one process and memory addressed directly, all in one direction, that wait for one system
// call.
type batch struct {
	p      *shm.Process
	write  bool
	ranges shm.Ranges
	far    [shm.MaxRanges]wire.Memory
	near   [shm.MaxRanges]wire.Memory
}

// batches is a pool, so that copies allocate nothing.
var batches = sync.Pool{New: func() any { return new(batch) }}

// add makes a copy wait: between off of r, which is far or a part of it, and the bytes b of memory near. write says that r
// is written.
func (m *mover) add(r *process, off uint64, far wire.Memory, b []byte, near wire.Memory, write bool) error {
	if m.batch != nil && (m.p != r.p || m.write != write || m.ranges.Full()) {
		if err := m.finish(); err != nil {
			return err
		}
	}
	if !r.holds(off, len(b)) {
		m.drop()
		return &Fault{Mem: far, Err: errBounds}
	}
	if m.batch == nil {
		m.batch = batches.Get().(*batch)
		m.p, m.write = r.p, write
	}
	i := m.ranges.Len()
	m.far[i], m.near[i] = far, near
	m.ranges.Add(b, r.base+off)
	return nil
}

func (b *batch) run() error {
	move := b.p.ReadRanges
	if b.write {
		move = b.p.WriteRanges
	}
	i, n, err := move(&b.ranges)
	if err == nil {
		return nil
	}
	// The kernel says EFAULT for either side. Memory here is touched to learn whether it is there.
	here, there := b.ranges.Range(i)
	if f := touch(here, b.near[i], !b.write); f != nil {
		return f
	}
	return &Fault{Mem: b.far[i], Addr: uintptr(there) + uintptr(n), Err: err}
}

func (b *batch) reset() {
	n := b.ranges.Len()
	clear(b.far[:n])
	clear(b.near[:n])
	b.ranges.Reset()
	b.p = nil
}

// touch reads one byte of every page of b, or writes it with what is there, and returns the fault of m.
func touch(b []byte, m wire.Memory, write bool) (err error) {
	g := arm()
	defer func() {
		g.disarm()
		if g.done {
			return
		}
		r := recover()
		addr, ok := faultAddress(r)
		if !ok {
			panic(r)
		}
		err = &Fault{Mem: m, Addr: addr}
	}()
	for len(b) > 0 {
		touchByte(b, write)
		next := pageSize - int(address(b)&uintptr(pageSize-1))
		b = b[min(next, len(b)):]
	}
	g.done = true
	return nil
}

var pageSize = os.Getpagesize()

// bounced is the bytes that bounce copies at a time.
const bounced = 16 << 10

var bounces = sync.Pool{New: func() any { return new([bounced]byte) }}

// bounce copies n bytes from s to d, neither of which has an address here.
func bounce(d, s place, n int) error {
	buf := bounces.Get().(*[bounced]byte)
	defer bounces.Put(buf)
	for n > 0 {
		b := buf[:min(n, bounced)]
		if err := charged(s.mem.Read(b, s.off), s); err != nil {
			return err
		}
		if err := charged(d.mem.Write(b, d.off), d); err != nil {
			return err
		}
		n -= len(b)
		s.off += uint64(len(b))
		d.off += uint64(len(b))
	}
	return nil
}
