package rc

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

func (r *requester) traceSent(f *wire.Frame, w *work) {}
func (r *requester) traceResponse(now clock.Time, p *wire.Packet) {}
func (r *requester) traceGhost(now clock.Time, p *wire.Packet) {}
func (r *requester) traceTimeout(now clock.Time) {}
func (r *requester) traceRNR(now clock.Time, code uint8) {}
func (r *requester) traceRetry(now clock.Time, cause transport.VendorErr) {}
func (r *requester) traceFail(now clock.Time, s ib.WCStatus) {}
