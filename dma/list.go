package dma

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// Gather appends to f the pieces that make up the bytes [off, off+n) of the message that sges describe. The place is
// derived from off each time, so that a packet sent again has the bytes it had before.
//
// Entries of length zero are passed over unlooked. Of the others only what the packet uses is judged, together with what
// precedes it in the entry. After a verdict other than OK the frame holds part of the payload and is to be undone.
// BadRange also says that the list is shorter than off+n.
func (t *Table) Gather(f *wire.Frame, d *Domain, sges []ib.SGE, off uint64, n int) Verdict {
	for i := range sges {
		e := &sges[i]
		length := uint64(e.Length)
		if off >= length {
			off -= length
			continue
		}
		if n == 0 {
			return OK
		}
		use := min(length-off, uint64(n))
		s, v := t.part(d, e, off, use, 0)
		if v != OK {
			return v
		}
		f.Add(s.Mem, s.Off, int(use))
		n -= int(use)
		off = 0
	}
	if n != 0 {
		return BadRange
	}
	return OK
}

// Scatter writes a packet's payload at the offset off of the message into the memory that sges describe; it needs
// AccessLocalWrite. BadRange also says that the list is too short. The error is that of [CopyPayload]: either it or the
// verdict tells of failure, and what was written before may stay written.
func (t *Table) Scatter(d *Domain, sges []ib.SGE, off uint64, payload []wire.Piece) (Verdict, error) {
	c := cursor{pieces: payload}
	var m mover
	for i := range sges {
		e := &sges[i]
		length := uint64(e.Length)
		if off >= length {
			off -= length
			continue
		}
		for off < length {
			p, ok := c.next(length - off)
			if !ok {
				return OK, m.finish()
			}
			s, v := t.part(d, e, off, uint64(p.Len), ib.AccessLocalWrite)
			if v != OK {
				m.drop()
				return v, nil
			}
			if err := m.copy(s.Mem, s.Off, &p); err != nil {
				return OK, err
			}
			off += uint64(p.Len)
		}
		off = 0
	}
	if _, ok := c.next(1); ok {
		m.drop()
		return BadRange, nil
	}
	return OK, m.finish()
}

// part judges the n bytes at off of an entry, and what is before them, so that no sum can wrap.
func (t *Table) part(d *Domain, e *ib.SGE, off, n uint64, need ib.AccessFlags) (Span, Verdict) {
	en := t.find(uint32(e.LKey))
	if en == nil || en.mr == nil {
		return Span{}, BadKey
	}
	s, v := en.mr.judge(d, e.Addr, off+n, need)
	s.Off += off
	s.Len = n
	return s, v
}

// cursor walks a payload in parts smaller than its pieces.
type cursor struct {
	pieces []wire.Piece
	done   int // bytes of pieces[0] that were given out
}

// next returns the next part, of at most limit bytes.
func (c *cursor) next(limit uint64) (wire.Piece, bool) {
	for len(c.pieces) > 0 {
		p := c.pieces[0]
		p.Off += uint64(c.done)
		p.Len -= c.done
		if p.Len == 0 {
			c.pieces, c.done = c.pieces[1:], 0
			continue
		}
		if uint64(p.Len) > limit {
			p.Len = int(limit)
		}
		c.done += p.Len
		return p, true
	}
	return wire.Piece{}, false
}
