package main

import (
	"encoding/binary"
	"fmt"
)

// The memory of one side of a measurement, for each queue pair:
//
//	outgoing: places for messages that this side sends or writes, and for what it reads
//	incoming: places for receives, and what the peer writes, reads and adds to
//
// Both sides have the same plan, so each knows where things are at the other. As in perftest messages use the same place
// again, but small ones take turns within a page. With --verify every message that is under way has a place of its own.
// A latency test has one message under way.

const perfPage = 4096

// stride is the distance of two places: a multiple of a cache line.
func (p *perfPlan) stride() int { return (p.received() + 63) &^ 63 }

// outPlaces and inPlaces are the numbers of places.
func (p *perfPlan) outPlaces() int {
	switch {
	case p.definition.latency:
		return 1
	case p.Verify:
		return p.TxDepth
	}
	return min(max(perfPage/p.stride(), 1), p.TxDepth)
}

func (p *perfPlan) inPlaces() int {
	switch {
	case p.atomics(), p.definition.latency:
		return 1
	case p.Verify && p.receives():
		return p.RxDepth
	}
	return p.outPlaces()
}

// bytes is the size of all of it.
func (p *perfPlan) bytes() int64 {
	return int64(p.QPs) * int64(p.stride()) * int64(p.outPlaces()+p.inPlaces())
}

// out and in are offsets of places; message numbers go round.
func (p *perfPlan) out(qp int, message int64) int {
	n := p.outPlaces()
	return (qp*n + int(message%int64(n))) * p.stride()
}

func (p *perfPlan) in(qp int, message int64) int {
	n := p.inPlaces()
	return (p.QPs*p.outPlaces() + qp*n + int(message%int64(n))) * p.stride()
}

// perfWord is word i of message n of queue pair qp. What one message leaves behind is wrong in every word for the next.
func perfWord(qp int, message int64, i int) uint64 {
	return (uint64(message)*0x9e3779b97f4a7c15 ^ uint64(qp)<<40) + uint64(i)*0xbf58476d1ce4e5b9 + 1
}

// fillPattern writes a message.
func fillPattern(b []byte, qp int, message int64) {
	i := 0
	for ; len(b) >= 8; i++ {
		binary.LittleEndian.PutUint64(b, perfWord(qp, message, i))
		b = b[8:]
	}
	for w := perfWord(qp, message, i); len(b) > 0; w >>= 8 {
		b[0] = byte(w)
		b = b[1:]
	}
}

// checkPattern tells where a message is not what was sent.
func checkPattern(b []byte, qp int, message int64) error {
	at, i := 0, 0
	for ; len(b)-at >= 8; i++ {
		if got, want := binary.LittleEndian.Uint64(b[at:]), perfWord(qp, message, i); got != want {
			return fmt.Errorf("message %d of queue pair %d: bytes from %d on are %#016x, expected %#016x", message, qp, at, got, want)
		}
		at += 8
	}
	for w := perfWord(qp, message, i); at < len(b); w >>= 8 {
		if b[at] != byte(w) {
			return fmt.Errorf("message %d of queue pair %d: byte %d is %#02x, expected %#02x", message, qp, at, b[at], byte(w))
		}
		at++
	}
	return nil
}
