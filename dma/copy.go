package dma

import (
	"errors"

	"github.com/softnic/softnicd/wire"
)

var errLength = errors.New("payload and its place differ in length")

// CopyPayload copies the pieces, one after another, to dst at off. In memory addressed directly the last eight bytes of a
// piece are written after all others, by one store where they are aligned, since programs wait for the end of a message
// by watching its last byte.
//
// The error is a *Fault whose Mem is the side that faulted: a source, or dst.Mem. What was written before it stays
// written.
func CopyPayload(dst Span, off uint64, payload []wire.Piece) error {
	if len(payload) > 1 && dst.Mem != nil && off <= dst.Len {
		if db := dst.Mem.Bytes(dst.Off+off, int(dst.Len-off)); db != nil {
			pieces, n, err := copyPieces(db, dst.Mem, payload)
			if err != nil {
				return err
			}
			payload, off = payload[pieces:], off+uint64(n)
		}
	}
	var m mover
	for i := range payload {
		p := &payload[i]
		n := uint64(p.Len)
		if n > dst.Len || off > dst.Len-n {
			m.drop()
			return &Fault{Mem: dst.Mem, Err: errLength}
		}
		if n == 0 {
			continue
		}
		if err := m.copy(dst.Mem, dst.Off+off, p); err != nil {
			return err
		}
		off += n
	}
	return m.finish()
}

// ReadPieces copies a whole payload into private memory: len(dst) bytes, the sum of the pieces' lengths. The error is a
// *Fault whose Mem is that of the piece that faulted.
func ReadPieces(dst []byte, pieces []wire.Piece) error {
	var m mover
	for i := range pieces {
		p := &pieces[i]
		if p.Len > len(dst) {
			m.drop()
			return &Fault{Mem: p.Mem, Err: errLength}
		}
		if p.Len == 0 {
			continue
		}
		if err := m.read(dst[:p.Len], nil, p); err != nil {
			return err
		}
		dst = dst[p.Len:]
	}
	if len(dst) != 0 {
		m.drop()
		return &Fault{Err: errLength}
	}
	return m.finish()
}

// mover copies pieces in order. Those that one system call can move wait for each other: an error may be about an earlier
// piece. After an error the mover is done with.
type mover struct {
	*batch // nil while nothing waits
}

// copy copies p to off of dm.
func (m *mover) copy(dm wire.Memory, off uint64, p *wire.Piece) error {
	if db := dm.Bytes(off, p.Len); db != nil {
		return m.read(db, dm, p)
	}
	for done := 0; done < p.Len; {
		d, n := placeOf(dm, off+uint64(done), p.Len-done)
		s, n := placeOf(p.Mem, p.Off+uint64(done), n)
		if err := m.step(d, s, n); err != nil {
			return err
		}
		done += n
	}
	return nil
}

// step copies n bytes from s to d, neither of which crosses a border.
func (m *mover) step(d, s place, n int) error {
	if db := d.mem.Bytes(d.off, n); db != nil {
		return m.fetch(db, d.charge, s, n)
	}
	sb := s.mem.Bytes(s.off, n)
	if sb == nil {
		if err := m.finish(); err != nil {
			return err
		}
		return bounce(d, s, n)
	}
	if r, ok := d.mem.(*process); ok {
		return m.add(r, d.off, d.charge, sb, s.charge, true)
	}
	if err := m.finish(); err != nil {
		return err
	}
	return charged(d.mem.Write(sb, d.off), d)
}

// read copies p to the bytes db of dm.
func (m *mover) read(db []byte, dm wire.Memory, p *wire.Piece) error {
	if m.batch == nil {
		if sb := p.Mem.Bytes(p.Off, len(db)); sb != nil {
			return copyGuarded(db, dm, sb, p.Mem)
		}
	}
	for off := p.Off; len(db) > 0; {
		s, n := placeOf(p.Mem, off, len(db))
		if err := m.fetch(db[:n], dm, s, n); err != nil {
			return err
		}
		db, off = db[n:], off+uint64(n)
	}
	return nil
}

// fetch copies n bytes from s to the bytes db of dm.
func (m *mover) fetch(db []byte, dm wire.Memory, s place, n int) error {
	if r, ok := s.mem.(*process); ok {
		return m.add(r, s.off, s.charge, db, dm, false)
	}
	if err := m.finish(); err != nil {
		return err
	}
	if sb := s.mem.Bytes(s.off, n); sb != nil {
		return copyGuarded(db, dm, sb, s.charge)
	}
	return charged(s.mem.Read(db, s.off), s)
}

// charged charges a fault at p to the memory that was registered.
func charged(err error, p place) error {
	if c, ok := p.charge.(*composite); ok && err != nil {
		return c.blame(err)
	}
	return err
}

// finish makes the copies that wait.
func (m *mover) finish() error {
	if m.batch == nil {
		return nil
	}
	err := m.run()
	m.drop()
	return err
}

// drop gives the batch back.
func (m *mover) drop() {
	if m.batch != nil {
		m.reset()
		batches.Put(m.batch)
		m.batch = nil
	}
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
	write(dst, src)
	g.done = true
	return nil
}

// copyPieces copies the first pieces of a payload to db, bytes of dm, one after another, as far as they have addresses and
// room, and returns how many there were and their bytes. A guard for each would cost as much as copying 200 bytes.
func copyPieces(db []byte, dm wire.Memory, payload []wire.Piece) (done, n int, err error) {
	var sb []byte
	g := arm()
	defer func() {
		g.disarm()
		if !g.done {
			err = blame(recover(), db, dm, sb, payload[done].Mem)
		}
	}()
	for ; done < len(payload); done++ {
		p := &payload[done]
		if p.Len == 0 {
			continue
		}
		if p.Len > len(db) {
			break
		}
		if sb = p.Mem.Bytes(p.Off, p.Len); sb == nil {
			break
		}
		write(db[:p.Len], sb)
		db = db[p.Len:]
		n += p.Len
	}
	g.done = true
	return done, n, nil
}

// write copies src to dst, which are of one length, the last eight bytes at last.
func write(dst, src []byte) {
	n := len(src)
	if n <= 8 {
		copy(dst, src)
		return
	}
	at := 0
	if n >= 2048 && address(dst)%16 == 0 && address(src)%8 != 0 {
		// Go copies to an aligned place by REP MOVSQ where processors are said to like that (FSRM), which takes three times
		// as long from a place that is not: a payload behind a header of 12 bytes. To any other place it does not.
		at = 8
		copy(dst[:at], src)
	}
	copy(dst[at:n-8], src[at:])
	copy(dst[n-8:], src[n-8:])
}
