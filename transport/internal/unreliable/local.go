package unreliable

import (
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
)

// Local operations concern the keys of the own side and make no packets: LOCAL_INV and BIND_MW, which connections have and
// datagrams do not (reference 7.2). They are performed when their turn comes, in the order in which they were posted, and
// end in theirs. None waits for what was sent before it, fences or not: nothing is asked of the peer, and nothing is ever
// sent again from memory that a window names.

// IsLocal reports whether a request is such an operation.
func IsLocal(o ib.WROpcode) bool { return o == ib.WRLocalInv || o == ib.WRBindMW }

// perform does what the request in hand asks of the key table.
func (b *Base) perform(r *transport.Request) dma.Verdict {
	c := &b.cfg
	if r.Opcode == ib.WRLocalInv {
		return c.Table.Invalidate(c.Domain, c.QPN, ib.RKey(r.Imm), false)
	}
	b.bind = dma.Bind{
		Handle: r.Bind.Window, Key: r.RKey, LKey: r.Bind.LKey, Addr: r.Remote, Length: r.Length, Access: r.Bind.Access,
	}
	return c.Table.Bind(c.Domain, c.QPN, &b.bind)
}
