package wire

import "strings"

// HeaderSet is a set of extension headers. On the wire they stand in the order of the constants.
type HeaderSet uint16

// Extension headers (IBA 9.3).
const (
	HasXRCETH HeaderSet = 1 << iota
	HasDETH
	HasFETH
	HasRETH
	HasAtomicETH
	HasAETH
	HasAtomicAckETH
	HasImm
	HasIETH
)

// Sizes of the headers in bytes.
const (
	BTHSize          = 12
	XRCETHSize       = 4
	DETHSize         = 8
	FETHSize         = 4
	RETHSize         = 16
	AtomicETHSize    = 28
	AETHSize         = 4
	AtomicAckETHSize = 8
	ImmDtSize        = 4
	IETHSize         = 4
)

var headerKinds = [...]struct {
	bit  HeaderSet
	size int
	name string
}{
	{HasXRCETH, XRCETHSize, "XRCETH"},
	{HasDETH, DETHSize, "DETH"},
	{HasFETH, FETHSize, "FETH"},
	{HasRETH, RETHSize, "RETH"},
	{HasAtomicETH, AtomicETHSize, "AtomicETH"},
	{HasAETH, AETHSize, "AETH"},
	{HasAtomicAckETH, AtomicAckETHSize, "AtomicAckETH"},
	{HasImm, ImmDtSize, "ImmDt"},
	{HasIETH, IETHSize, "IETH"},
}

// Has reports whether s holds every header of t.
func (s HeaderSet) Has(t HeaderSet) bool { return s&t == t }

// Len returns the bytes of all headers in s, the BTH not counted.
func (s HeaderSet) Len() int {
	n := 0
	for _, k := range headerKinds {
		if s.Has(k.bit) {
			n += k.size
		}
	}
	return n
}

// String joins the names in wire order: "RETH+ImmDt".
func (s HeaderSet) String() string {
	var b strings.Builder
	for _, k := range headerKinds {
		if s.Has(k.bit) {
			if b.Len() > 0 {
				b.WriteByte('+')
			}
			b.WriteString(k.name)
		}
	}
	return b.String()
}

// The finders take BTH and extension headers as they stand in a packet, and return the header named, or nil if the
// opcode in h[0] has none or h is cut short.

// FindXRCETH finds the header of an XRC request.
func FindXRCETH(h []byte) *XRCETH {
	if i := lookup(h, HasXRCETH); i != nil {
		return (*XRCETH)(h[BTHSize:])
	}
	return nil
}

// FindDETH finds the header of a datagram.
func FindDETH(h []byte) *DETH {
	if i := lookup(h, HasDETH); i != nil {
		return (*DETH)(h[BTHSize:])
	}
	return nil
}

// FindFETH finds the header of a FLUSH.
func FindFETH(h []byte) *FETH {
	if i := lookup(h, HasFETH); i != nil {
		return (*FETH)(h[i.base:])
	}
	return nil
}

// FindRETH finds the header of a WRITE FIRST or ONLY, READ request, FLUSH or ATOMIC WRITE.
func FindRETH(h []byte) *RETH {
	i := lookup(h, HasRETH)
	if i == nil {
		return nil
	}
	if i.headers.Has(HasFETH) {
		return (*RETH)(h[i.base+FETHSize:])
	}
	return (*RETH)(h[i.base:])
}

// FindAtomicETH finds the header of a COMPARE SWAP or FETCH ADD.
func FindAtomicETH(h []byte) *AtomicETH {
	if i := lookup(h, HasAtomicETH); i != nil {
		return (*AtomicETH)(h[i.base:])
	}
	return nil
}

// FindAETH finds the header of a response.
func FindAETH(h []byte) *AETH {
	if i := lookup(h, HasAETH); i != nil {
		return (*AETH)(h[BTHSize:])
	}
	return nil
}

// FindAtomicAckETH finds the result of an atomic.
func FindAtomicAckETH(h []byte) *AtomicAckETH {
	if i := lookup(h, HasAtomicAckETH); i != nil {
		return (*AtomicAckETH)(h[BTHSize+AETHSize:])
	}
	return nil
}

// FindImmDt finds the immediate data, which stands last.
func FindImmDt(h []byte) *ImmDt {
	if i := lookup(h, HasImm); i != nil {
		return (*ImmDt)(h[i.headerLen-ImmDtSize:])
	}
	return nil
}

// FindIETH finds the key to invalidate, which stands last.
func FindIETH(h []byte) *IETH {
	if i := lookup(h, HasIETH); i != nil {
		return (*IETH)(h[i.headerLen-IETHSize:])
	}
	return nil
}

func lookup(h []byte, want HeaderSet) *opcodeInfo {
	if len(h) == 0 {
		return nil
	}
	i := &opcodes[h[0]]
	if i.headers&want == 0 || len(h) < int(i.headerLen) {
		return nil
	}
	return i
}
