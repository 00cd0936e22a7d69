package sim

import (
	"regexp"
	"testing"

	"github.com/softnic/softnicd/wire"
)

// The oracle is worth what it notices. Each of these runs is spoilt in a way that no part of it is told of, with good
// ICRCs, and has to be found out, by the right question.
func TestOracleNotices(t *testing.T) {
	if *oneSeed >= 0 {
		t.Skip("one seed is asked for")
	}
	const seeds = 40
	for _, c := range []struct {
		name    string
		tamper  Tamper
		notices string // what the failures say, one of them at least
	}{
		{"a byte of a WRITE", rewrite(100, wire.Opcode.IsWrite, nil, firstByte), "byte .* of the peer's memory is wrong|was announced"},
		{"a byte of a SEND", rewrite(100, wire.Opcode.IsSend, nil, firstByte), "was received into .* byte .* is wrong"},
		{"a byte of a READ response", rewrite(100, wire.Opcode.IsReadResponse, nil, firstByte), "RDMA_READ .* byte .* of its own memory is wrong"},
		{"an immediate", rewrite(100, hasImm, func(_ *endpoint, h []byte) {
			i := wire.FindImmDt(h)
			i.SetData(i.Data() + 1)
		}, nil), "immediate"},
		{"the result of an atomic", rewrite(100, isAtomicAck, func(_ *endpoint, h []byte) {
			a := wire.FindAtomicAckETH(h)
			a.SetOriginal(a.Original() + 1)
		}, nil), "returned .*, it held"},
		{"the operand of an addition", rewrite(100, is(wire.RCFetchAdd), func(_ *endpoint, h []byte) {
			a := wire.FindAtomicETH(h)
			a.SetSwapAdd(a.SwapAdd() + 1)
		}, nil), "returned .*, it held|fit no order|word .* for atomics is wrong"},
		{"an acknowledgement of what has not come", rewrite(100, is(wire.RCAcknowledge), func(_ *endpoint, h []byte) {
			(*wire.BTH)(h).SetPSN((*wire.BTH)(h).PSN().Next())
		}, nil), "has ended, and byte"},
		{"an old request as a fresh one", rewrite(100, isWriteOnly, func(to *endpoint, h []byte) {
			attr, _, _ := to.app.ctx.QueryQP(to.qp)
			(*wire.BTH)(h).SetPSN(attr.RQPSN)
		}, nil), "wrong|was changed|unexpected event"},
		{"a WRITE to another address", rewrite(100, isWriteOnly, func(_ *endpoint, h []byte) {
			r := wire.FindRETH(h)
			r.SetVA(r.VA() ^ 8)
		}, nil), "byte .* of the peer's memory is wrong"},
		{"a NAK that nobody sent", rewrite(100, is(wire.RCAcknowledge), func(_ *endpoint, h []byte) {
			wire.FindAETH(h).SetSyndrome(wire.NakRemoteAccess)
		}, nil), "ended with remote access error"},
		{"a byte of a datagram", rewrite(100, is(wire.UDSendOnly), nil, firstByte), "what was received into .* none of"},
		{"the sender of a datagram", rewrite(100, is(wire.UDSendOnlyImm), func(_ *endpoint, h []byte) {
			x := wire.FindDETH(h)
			x.SetSourceQP(x.SourceQP() ^ 1)
		}, nil), "what was received into .* none of"},
		{"a byte of an unreliable SEND", rewrite(200, isUnreliable(wire.Opcode.IsSend), nil, firstByte), "what was received into .* none of"},
		{"a byte of an unreliable WRITE", rewrite(200, isUnreliable(wire.Opcode.IsWrite), nil, firstByte), "what was received into|nobody asked to change"},
		{"a message that is lost where nothing is", rewrite(200, isTalk, func(_ *endpoint, h []byte) {
			(*wire.BTH)(h).SetPKey(0x8123)
		}, nil), "nothing went wrong on the network, and"},
		{"an attacker who guesses right", Tamper{Lucky: true}, "."},
		{"a solicited event that is lost", rewrite(500, wire.Opcode.Ends, func(_ *endpoint, h []byte) {
			(*wire.BTH)(h).SetSolicited(false)
		}, nil), "completions came and no event"},
		{"canaries", touch(func(e *endpoint) { e.arena.mem[e.app.dice.below(canary)]++ }), "which is no region's, was changed"},
		{"memory that nobody uses", touch(func(e *endpoint) {
			a := oneOf(e.app.dice, e.arena.areas...)
			a.mem[8*a.words+e.app.dice.below(len(a.mem)-8*a.words)]++
		}), "of a slot that nobody uses was changed"},
		{"a completion twice", touch(func(e *endpoint) {
			if e.taken > 0 {
				e.taken--
			}
		}), "completion of receive #"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			want := regexp.MustCompile(c.notices)
			failed, fitting := 0, 0
			var other error
			for seed := range uint64(seeds) {
				r := run(NewPlan(seed), c.tamper, nil)
				switch {
				case r.Err == nil:
				case want.MatchString(r.Err.Error()):
					failed++
					fitting++
				default:
					failed++
					other = r.Err
				}
			}
			t.Logf("%d of %d seeds noticed, %d by the question meant", failed, seeds, fitting)
			if fitting < 2 {
				t.Errorf("%d of %d seeds noticed, %d by the question meant; others said: %v", failed, seeds, fitting, other)
			}
		})
	}
}

// rewrite changes so many in 1000 packets with the right opcodes, headers and payload, and makes the ICRC right again.
func rewrite(often int, which func(wire.Opcode) bool, header func(to *endpoint, h []byte), payload func([]byte)) Tamper {
	return Tamper{Deliver: func(w *world, d *packet) {
		var p wire.Packet
		check := d.Datagram
		if d.spoilt || wire.Parse(&p, &check) != wire.Accepted || !which(p.Opcode) || payload != nil && p.Len == 0 {
			return
		}
		if !w.nodes[0].dice.chance(often) {
			return
		}
		if header != nil {
			header(d.end.peer, p.Header)
		}
		if payload != nil {
			payload(p.Payload[0].Mem.Bytes(p.Payload[0].Off, p.Len))
		}
		b, err := p.AppendTo(nil, d.id)
		if err != nil {
			panic(err)
		}
		copy(d.Bytes, b)
	}}
}

func firstByte(b []byte) { b[0]++ }

func is(op wire.Opcode) func(wire.Opcode) bool {
	return func(o wire.Opcode) bool { return o == op }
}

var isAtomicAck = is(wire.RCAtomicAcknowledge)

func isWriteOnly(o wire.Opcode) bool { return o == wire.RCWriteOnly }

func isUnreliable(which func(wire.Opcode) bool) func(wire.Opcode) bool {
	return func(o wire.Opcode) bool { return o.Service() == wire.ServiceUC && which(o) }
}

func isTalk(o wire.Opcode) bool {
	return o.Service() == wire.ServiceUC || o.Service() == wire.ServiceUD
}

func hasImm(o wire.Opcode) bool { return o.Headers().Has(wire.HasImm) }

// touch changes something of one end, once in the middle of a run.
func touch(f func(*endpoint)) Tamper {
	return Tamper{Round: func(w *world) {
		if w.turned == 300 {
			e := w.conns[0].ends[0]
			f(e)
		}
	}}
}
