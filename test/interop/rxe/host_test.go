package rxe

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/transport/rc"
	"github.com/softnic/softnicd/transport/uc"
	"github.com/softnic/softnicd/transport/ud"
	"github.com/softnic/softnicd/wire"
)

// host is an engine in the place of one of the two, with memory and a queue pair.
type host struct {
	t        *testing.T
	engine   transport.Engine
	now      clock.Time
	table    *dma.Table
	domain   *dma.Domain
	regions  []*region
	keys     map[ib.RKey]ib.RKey // of the capture, to ours
	burst    *wire.Burst
	counters transport.Counters
	sent     []packet

	sends    []transport.Request
	lists    []ib.SGE // of all that was posted
	receives []transport.Receive
	posted   [2]uint32
	sendDone []done
	recvDone []done
	events   []ib.EventType
}

// region is registered memory.
type region struct {
	base  uint64
	bytes []byte
	mr    *dma.MR
}

// done is a completion, with the bytes that were where it says when it came.
type done struct {
	wrid uint64
	transport.Completion
	data []byte
}

func newHost(t *testing.T) *host {
	h := &host{t: t, domain: &dma.Domain{Handle: 1}, keys: map[ib.RKey]ib.RKey{}, burst: wire.NewBurst(256)}
	seed := uint64(1)
	h.table = dma.NewTable(64, func() uint64 { seed = seed*0x5851f42d4c957f2d + 0x14057b7ef767814f; return seed ^ seed>>31 })
	return h
}

const allRights = ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic | ib.AccessMWBind

// register makes n bytes at base known under a key of the capture; 0 for local use.
func (h *host) register(base uint64, n int, key ib.RKey) *region {
	r := &region{base: base, bytes: make([]byte, n)}
	r.mr = &dma.MR{Domain: h.domain, Region: dma.NewEmbedded(r.bytes), Base: base, Length: uint64(n), Access: allRights}
	if err := h.table.Insert(r.mr); err != nil {
		h.t.Fatal(err)
	}
	if key != 0 {
		h.keys[key] = r.mr.RKey
	}
	h.regions = append(h.regions, r)
	return r
}

// at returns the n bytes at addr, nil if no region has them.
func (h *host) at(addr uint64, n int) []byte {
	for _, r := range h.regions {
		if addr >= r.base && addr-r.base+uint64(n) <= uint64(len(r.bytes)) {
			return r.bytes[addr-r.base:][:n]
		}
	}
	return nil
}

// connect makes the engine and takes it to RTS.
func (h *host) connect(service wire.Service, me end, attr ib.QPAttr) {
	capacity := ib.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 2, MaxRecvSGE: 2}
	unreliable := uc.Config{QPN: me.qpn, Cap: capacity, Domain: h.domain, Table: h.table, QP: h, Counters: &h.counters, MaxMessage: 1 << 31}
	switch service {
	case wire.ServiceRC:
		h.engine = rc.New(rc.Config{QPN: me.qpn, Cap: capacity, Domain: h.domain, Table: h.table, QP: h, Counters: &h.counters,
			Limits: rc.Limits{MaxMessage: 1 << 31, Window: 128, AckEvery: 32}})
	case wire.ServiceUC:
		h.engine = uc.New(unreliable)
	case wire.ServiceUD:
		h.engine = ud.New(ud.Config{Common: unreliable, ActiveMTU: func() int { return attr.PathMTU.Bytes() }})
	default:
		h.t.Fatalf("no engine of service %v", service)
	}
	attr.AccessFlags = allRights
	path := &wire.Path{HopLimit: 64}
	for _, step := range []struct {
		state ib.QPState
		mask  ib.QPAttrMask
	}{
		{ib.StateInit, ib.QPAttrPKeyIndex | ib.QPAttrPort | ib.QPAttrAccessFlags | ib.QPAttrQKey},
		{ib.StateRTR, ib.QPAttrAV | ib.QPAttrPathMTU | ib.QPAttrDestQPN | ib.QPAttrRQPSN | ib.QPAttrMaxDestRDAtomic | ib.QPAttrMinRNRTimer},
		{ib.StateRTS, ib.QPAttrTimeout | ib.QPAttrRetryCnt | ib.QPAttrRNRRetry | ib.QPAttrSQPSN | ib.QPAttrMaxRDAtomic},
	} {
		attr.State = step.state
		h.engine.Modify(h.now, &attr, step.mask|ib.QPAttrState, path)
	}
}

// run lets virtual time pass.
func (h *host) run(until clock.Time) {
	h.t.Helper()
	for turns := 0; ; turns++ {
		if turns > 1<<16 {
			h.t.Fatal("the engine's timers never end")
		}
		h.transmit()
		due := h.engine.Deadline()
		if due.After(until) {
			break
		}
		h.now = max(h.now, due)
		h.engine.Expire(h.now)
	}
	h.now = max(h.now, until)
}

func (h *host) transmit() {
	h.t.Helper()
	for more := true; more; {
		_, more = h.engine.Transmit(h.now, h.burst, 1<<30)
		frames := h.burst.Frames()
		for i := range frames {
			payload := make([]byte, frames[i].PayloadLen())
			if err := dma.ReadPieces(payload, frames[i].Payload()); err != nil {
				h.t.Fatal(err)
			}
			h.sent = append(h.sent, packetOf(frames[i].Header(), payload))
		}
		h.burst.Consume(len(frames))
	}
}

// deliver hands a frame to the engine, its keys replaced by ours.
func (h *host) deliver(f *frame) {
	h.t.Helper()
	h.run(f.at)
	p := f.packet
	p.Header = bytes.Clone(f.packet.Header)
	p.SetPayload(f.payload())
	if reth := wire.FindRETH(p.Header); reth != nil {
		reth.SetRKey(h.key(reth.RKey()))
	}
	if a := wire.FindAtomicETH(p.Header); a != nil {
		a.SetRKey(h.key(a.RKey()))
	}
	if inv := wire.FindIETH(p.Header); inv != nil {
		inv.SetRKey(h.key(inv.RKey()))
	}
	h.engine.Receive(h.now, &p)
	h.transmit()
}

func (h *host) key(k ib.RKey) ib.RKey {
	if mine, ok := h.keys[k]; ok {
		return mine
	}
	return k
}

// post posts a send; wr_id counts from 1.
func (h *host) post(r transport.Request) {
	r.Index = h.posted[0]
	r.WRID = uint64(r.Index) + 1
	r.Flags |= ib.SendSignaled
	h.posted[0]++
	h.lists = append(h.lists, r.SGE[0])
	h.sends = append(h.sends, r)
}

func (h *host) postRecv(r *region, n int) {
	h.receives = append(h.receives, transport.Receive{Index: h.posted[1], WRID: uint64(h.posted[1]) + 1,
		SGE: []ib.SGE{{Addr: r.base, Length: uint32(n), LKey: r.mr.LKey}}, Length: uint64(n)})
	h.posted[1]++
}

// FetchSend implements transport.QueuePair.
func (h *host) FetchSend(r *transport.Request) transport.Fetched {
	if len(h.sends) == 0 {
		return transport.Empty
	}
	list := append(r.SGE[:0], h.sends[0].SGE...)
	*r = h.sends[0]
	r.SGE = list
	h.sends = h.sends[1:]
	return transport.Ready
}

// FetchRecv implements transport.QueuePair.
func (h *host) FetchRecv(r *transport.Receive) transport.Fetched {
	if len(h.receives) == 0 {
		return transport.Empty
	}
	list := append(r.SGE[:0], h.receives[0].SGE...)
	*r = h.receives[0]
	r.SGE = list
	h.receives = h.receives[1:]
	return transport.Ready
}

// CompleteSend implements transport.QueuePair.
func (h *host) CompleteSend(r *transport.Request, c *transport.Completion) {
	l := h.lists[r.Index]
	h.sendDone = append(h.sendDone, done{r.WRID, *c, bytes.Clone(h.at(l.Addr, int(l.Length)))})
}

// CompleteRecv implements transport.QueuePair.
func (h *host) CompleteRecv(r *transport.Receive, c *transport.Completion) {
	h.recvDone = append(h.recvDone, done{r.WRID, *c, bytes.Clone(h.at(r.SGE[0].Addr, int(c.ByteLen)))})
}

// SetState implements transport.QueuePair.
func (h *host) SetState(ib.QPState) {}

// Event implements transport.QueuePair.
func (h *host) Event(e ib.EventType) { h.events = append(h.events, e) }

// putWord stores what an atomic returned, as its requester sees it.
func putWord(b []byte, v uint64) { binary.NativeEndian.PutUint64(b, v) }
