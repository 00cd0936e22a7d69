package unreliable

import (
	"errors"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// Hears reports whether packets are listened to in this state. The device asks the same, but the state may have changed
// within a burst. SQE is about the send queue alone.
func (b *Base) Hears() bool {
	switch b.state {
	case ib.StateRTR, ib.StateRTS, ib.StateSQD, ib.StateSQE:
		return true
	}
	return false
}

// Take makes sure that a receive is in hand and returns it. Nil means that there is none: the message is lost, and if the
// receive made no sense or the shared queue is in error, so is the queue pair.
func (b *Base) Take() *transport.Receive {
	if b.held {
		return &b.recv
	}
	switch b.cfg.QP.FetchRecv(&b.recv) {
	case transport.Ready:
		b.held = true
		return &b.recv
	case transport.Malformed:
		b.held = true
		b.Fail(ib.WCLocQPOpErr, transport.VendorMalformedWQE)
	case transport.Broken:
		b.enter(ib.StateErr)
		b.cfg.QP.Event(ib.EventQPFatal)
	case transport.Empty:
		b.cfg.Counters.OutOfBuffer++
	}
	return nil
}

// Held reports whether a receive is in hand.
func (b *Base) Held() bool { return b.held }

// Scatter places a payload at off of the receive in hand. It returns false if that failed: the packet is lost, and if it is
// the receive's fault so is the queue pair.
func (b *Base) Scatter(off uint64, p *wire.Packet, payload []wire.Piece) bool {
	v, err := b.cfg.Table.Scatter(b.cfg.RecvDomain, b.recv.SGE, off, payload)
	switch {
	case v != dma.OK:
		b.Fail(ib.WCLocProtErr, VendorOf(v))
	case err != nil && !FromSource(p, err):
		b.Fail(ib.WCLocProtErr, transport.VendorMemoryFault)
	}
	return v == dma.OK && err == nil
}

// FromSource reports whether a fault was in the memory of a local peer: his packet never arrived.
func FromSource(p *wire.Packet, err error) bool {
	var f *dma.Fault
	if !p.Local || !errors.As(err, &f) {
		return false
	}
	for i := range p.Payload {
		if p.Payload[i].Mem == f.Mem {
			return true
		}
	}
	return false
}

// End completes the receive in hand. Should its CQ have overrun, the queue pair is in error when the engine's call is over.
func (b *Base) End(wc transport.Completion) {
	b.held = false
	b.wc = wc
	b.cfg.QP.CompleteRecv(&b.recv, &b.wc)
}

// Fail completes the receive in hand with an error of its own, which ends the queue pair: a receive that cannot be used is
// the application's mistake (IBA 10.3.1.7).
func (b *Base) Fail(status ib.WCStatus, vendor transport.VendorErr) {
	b.enter(ib.StateErr)
	b.cfg.Counters.RespCQEError++
	b.End(transport.Completion{Status: status, VendorErr: vendor})
}

// flushRecvs ends every receive, the one in hand first. Of a shared receive queue the device offers none in the error state.
func (b *Base) flushRecvs(budget int) (bytes int, more bool) {
	for ; bytes < budget; bytes += flushBytes {
		if !b.held {
			switch b.cfg.QP.FetchRecv(&b.recv) {
			case transport.Ready, transport.Malformed:
				b.held = true
			default:
				return bytes, false
			}
		}
		b.cfg.Counters.RespCQEFlushError++
		b.End(transport.Completion{Status: ib.WCWRFlushErr, VendorErr: transport.VendorFlushed})
	}
	return bytes, true
}
