package dma

import (
	"errors"
	"os"

	"github.com/softnic/softnicd/wire"
)

var errLength = errors.New("payload and its place differ in length")

// CopyPayload copies the pieces, one after another, to dst at off. Within dst the bytes are written towards ascending
// addresses, and the last eight after all others, since programs wait for the end of a message by watching its last
// byte.
//
// The error is a *Fault whose Mem is the side that faulted: a source, or dst.Mem. What was written before it stays
// written.
func CopyPayload(dst Span, off uint64, payload []wire.Piece) error {
	for i := range payload {
		p := &payload[i]
		n := uint64(p.Len)
		if n == 0 {
			continue
		}
		if n > dst.Len || off > dst.Len-n {
			return &Fault{Mem: dst.Mem, Err: errLength}
		}
		if err := copyPiece(dst.Mem, dst.Off+off, p.Mem, p.Off, p.Len); err != nil {
			return err
		}
		off += n
	}
	return nil
}

// ReadPieces copies a whole payload into private memory: len(dst) bytes, which is the sum of the pieces' lengths. The
// error is a *Fault whose Mem is the piece that faulted.
func ReadPieces(dst []byte, pieces []wire.Piece) error {
	for i := range pieces {
		p := &pieces[i]
		if p.Len > len(dst) {
			return &Fault{Mem: p.Mem, Err: errLength}
		}
		if b := p.Mem.Bytes(p.Off, p.Len); b != nil {
			if err := copyGuarded(dst[:p.Len], nil, b, p.Mem); err != nil {
				return err
			}
		} else if err := p.Mem.Read(dst[:p.Len], p.Off); err != nil {
			return err
		}
		dst = dst[p.Len:]
	}
	return nil
}

// copyPiece copies n bytes between two memories of any kind.
func copyPiece(dm wire.Memory, do uint64, sm wire.Memory, so uint64, n int) error {
	db, sb := dm.Bytes(do, n), sm.Bytes(so, n)
	switch {
	case db != nil && sb != nil:
		return copyGuarded(db, dm, sb, sm)
	case db != nil:
		return charge(sm.Read(db, so), db, dm, true)
	case sb != nil:
		return charge(dm.Write(sb, do), sb, sm, false)
	}
	return bounce(dm, do, sm, so, n)
}

// bounce copies between two memories neither of which has an address here.
func bounce(dm wire.Memory, do uint64, sm wire.Memory, so uint64, n int) error {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	for n > 0 {
		b := s.bounce[:min(n, len(s.bounce))]
		if err := sm.Read(b, so); err != nil {
			return err
		}
		if err := dm.Write(b, do); err != nil {
			return err
		}
		n -= len(b)
		so += uint64(len(b))
		do += uint64(len(b))
	}
	return nil
}

// charge finds out whose fault err is, after a system call copied between another process and the bytes b of memory near: the
// kernel says EFAULT for both. b is touched to learn whether it is there; its bytes stay as they are.
func charge(err error, b []byte, near wire.Memory, write bool) error {
	if err == nil {
		return nil
	}
	if f := touch(b, near, write); f != nil {
		return f
	}
	return err
}

// copyGuarded copies src to dst, which are of one length. A fault is charged to dm or sm.
func copyGuarded(dst []byte, dm wire.Memory, src []byte, sm wire.Memory) (err error) {
	g := arm()
	defer func() {
		g.disarm()
		if !g.done {
			err = blame(recover(), dst, dm, src, sm)
		}
	}()
	// The last eight bytes are one store of the processor.
	if n := len(src); n > 8 {
		copy(dst[:n-8], src)
		copy(dst[n-8:], src[n-8:])
	} else {
		copy(dst, src)
	}
	g.done = true
	return nil
}

// touch reads, or writes with what is there, one byte of every page of b, and returns the fault of m.
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
