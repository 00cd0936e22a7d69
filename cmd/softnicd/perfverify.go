package main

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/softnic/softnicd/ib"
)

// What --verify checks. SEND: every byte of every message, when it is received. WRITE: every byte of the last message in
// each place, when all are acknowledged. READ: every byte that comes. Atomics: every value that comes back, and the sum.

// lay puts down what the peer is going to read.
func (p *perfPeer) lay() {
	if !p.plan.Verify || p.plan.definition.op != ib.WRRDMARead {
		return
	}
	for i := range p.lanes {
		for n := range int64(p.plan.inPlaces()) {
			fillPattern(p.incoming(&p.lanes[i], n), i, n)
		}
	}
}

// prepare makes the memory of message m ready before it is posted.
func (p *perfPeer) prepare(l *perfLane, m int64) {
	b := p.outgoing(l, m)
	switch p.plan.definition.op {
	case ib.WRSend, ib.WRRDMAWrite:
		fillPattern(b, l.index, m)
		if p.plan.pollsMemory() {
			b[len(b)-1] = pollByte(m)
		}
	default:
		// What was read before must not pass for what is read now.
		b[0], b[len(b)-1] = ^b[0], ^b[len(b)-1]
	}
}

// checkSent checks what came back with messages from to to-1 of a lane, which have completed.
func (p *perfPeer) checkSent(l *perfLane, from, to int64) error {
	if !p.plan.Verify {
		return nil
	}
	for m := from; m < to; m++ {
		b := p.outgoing(l, m)
		switch p.plan.definition.op {
		case ib.WRRDMARead:
			if err := checkPattern(b, l.index, m%int64(p.plan.inPlaces())); err != nil {
				return fmt.Errorf("what was read differs: %w", err)
			}
		case ib.WRAtomicFetchAdd:
			if got := binary.NativeEndian.Uint64(b); got != uint64(m) {
				return fmt.Errorf("addition %d of queue pair %d returned %d", m, l.index, got)
			}
		}
	}
	return nil
}

// checkReceived checks message m of a lane, which was just received.
func (p *perfPeer) checkReceived(l *perfLane, m int64) error {
	if !p.plan.Verify {
		return nil
	}
	if err := checkPattern(p.incoming(l, m), l.index, m); err != nil {
		return fmt.Errorf("what was received differs: %w", err)
	}
	return nil
}

// checkLeft checks what the peer, which is done, has left behind.
func (p *perfPeer) checkLeft() error {
	if !p.plan.Verify {
		return nil
	}
	if len(p.link.peerSent) != len(p.lanes) {
		return errors.New("the peer did not say what it sent")
	}
	for i := range p.lanes {
		l, sent := &p.lanes[i], p.link.peerSent[i]
		switch p.plan.definition.op {
		case ib.WRRDMAWrite:
			for m := max(sent-int64(p.plan.inPlaces()), 0); m < sent; m++ {
				if err := p.checkWritten(l, m, m == sent-1); err != nil {
					return err
				}
			}
		case ib.WRAtomicFetchAdd:
			if got := binary.NativeEndian.Uint64(p.incoming(l, 0)); got != uint64(sent) {
				return fmt.Errorf("queue pair %d added %d times 1, the sum is %d", i, sent, got)
			}
		}
	}
	return nil
}

func (p *perfPeer) checkWritten(l *perfLane, m int64, last bool) error {
	b := p.incoming(l, m)
	if p.plan.pollsMemory() {
		// The last byte is what the peer polls, and counts messages.
		if !last {
			return nil
		}
		if got := b[len(b)-1]; got != pollByte(m) {
			return fmt.Errorf("the last byte of message %d is %#02x, expected %#02x", m, got, pollByte(m))
		}
		b = b[:len(b)-1]
	}
	if err := checkPattern(b, l.index, m); err != nil {
		return fmt.Errorf("what was written differs: %w", err)
	}
	return nil
}
