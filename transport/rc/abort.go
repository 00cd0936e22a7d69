package rc

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
)

var _ transport.Aborter = (*Engine)(nil)

// Abort implements transport.Aborter: the oldest send request ends with the error, if there is one, and everything else is
// flushed.
func (e *Engine) Abort(now clock.Time, status ib.WCStatus, vendor transport.VendorErr) bool {
	switch {
	case e.state == ib.StateErr:
	case (e.state == ib.StateRTS || e.state == ib.StateSQD) && !e.req.q.empty():
		e.req.fail(now, status, vendor)
	default:
		e.fatal(now)
	}
	return true
}
