package rc

import (
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// invalidate ends the binding that the last packet of a SEND WITH INVALIDATE names: behind the data and before the
// completion, so that who sees that may bind the window again.
//
// What cannot be invalidated is the fault of both sides, of who sent the key and of who handed it out. IBA leaves the NAK
// open and implementations differ; here the receive ends with the memory management operation error, and the peer gets
// NAK remote operational error, so that both learn of it at once instead of one by its retry limit.
func (r *responder) invalidate(p *wire.Packet) verdict {
	h := wire.FindIETH(p.Header)
	if h == nil {
		return proceed
	}
	c := &r.e.cfg
	if v := c.Table.Invalidate(r.domain, c.QPN, h.RKey(), true); v != dma.OK {
		return verdict{refuse, wire.NakRemoteOperation, ib.WCMWBindErr, vendorOf(v)}
	}
	return proceed
}
