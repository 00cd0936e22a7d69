package unreliable_test

import (
	"testing"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// window makes a window of type 2, and a region that it may be bound to.
func (s *script) window() (*dma.Window, *dma.MR) {
	s.t.Helper()
	mr := &dma.MR{Domain: &s.pd, Region: s.mr.Region, Offset: canary, Base: base, Length: uint64(len(s.memory)), Access: ib.AccessLocalWrite | ib.AccessMWBind}
	w := &dma.Window{Domain: &s.pd, Type: ib.MWType2, Handle: 7}
	if err := s.table.Insert(mr); err != nil {
		s.t.Fatal(err)
	}
	if err := s.table.InsertWindow(w); err != nil {
		s.t.Fatal(err)
	}
	return w, mr
}

func bind(w *dma.Window, mr *dma.MR, key ib.RKey) transport.Request {
	return transport.Request{
		Opcode: ib.WRBindMW, Flags: ib.SendSignaled, RKey: key, Remote: base, Length: 64,
		Bind: transport.Bind{Window: w.Handle, LKey: mr.LKey, Access: ib.AccessRemoteWrite},
	}
}

func localInv(key ib.RKey) transport.Request {
	return transport.Request{Opcode: ib.WRLocalInv, Flags: ib.SendSignaled, Imm: uint32(key)}
}

// Windows are bound and invalidated through the send queue of an unreliable connection (reference 7.2), in order with the
// messages around them, and make no packets. The peer writes through them.
func TestUCBindsAndInvalidates(t *testing.T) {
	s := newUC(t)
	w, mr := s.window()
	key := w.RKey().Inc()
	s.post(send(10), bind(w, mr, key), send(20))
	s.sends("UC_SEND_ONLY 100 10", "UC_SEND_ONLY 101 20")
	s.completes("send 1 SUCCESS", "send 2 SUCCESS", "send 3 SUCCESS")
	if got := s.qp.ops; got[1] != ib.WCBindMW || got[2] != ib.WCSend {
		t.Errorf("completions of %v", got)
	}
	s.deliver(packet{op: wire.UCWriteOnly, psn: 500, n: 8, fill: 9, va: base, size: 8, flip: s.mr.RKey ^ key})
	s.holds(base, 8, 9)
	// The right is the window's, and so are the bounds.
	s.deliver(packet{op: wire.UCWriteOnly, psn: 501, n: 8, fill: 8, va: base + 60, size: 8, flip: s.mr.RKey ^ key})
	s.post(localInv(key))
	s.completes("send 4 SUCCESS")
	s.deliver(packet{op: wire.UCWriteOnly, psn: 502, n: 8, fill: 8, va: base, size: 8, flip: s.mr.RKey ^ key})
	s.holds(base, 8, 9)
	if s.counters.RespRemoteAccessErrors != 2 || s.counters.MessagesDropped != 2 {
		t.Errorf("%d access errors, %d messages dropped", s.counters.RespRemoteAccessErrors, s.counters.MessagesDropped)
	}
	// It is free again.
	s.post(bind(w, mr, key.Inc()))
	s.completes("send 5 SUCCESS")
}

// What cannot be bound or invalidated ends the send queue alone, as every local error of a UC queue pair (reference 3.11).
func TestUCBindErrors(t *testing.T) {
	for name, c := range map[string]func(s *script, w *dma.Window, mr *dma.MR) transport.Request{
		"no such window": func(_ *script, w *dma.Window, mr *dma.MR) transport.Request {
			return bind(w, mr, w.RKey()+0x1000)
		},
		"region without MW_BIND": func(s *script, w *dma.Window, _ *dma.MR) transport.Request {
			return bind(w, s.mr, w.RKey().Inc())
		},
		"beyond the region": func(_ *script, w *dma.Window, mr *dma.MR) transport.Request {
			r := bind(w, mr, w.RKey().Inc())
			r.Length = 1 << 40
			return r
		},
		"LOCAL_INV of what is not bound": func(_ *script, w *dma.Window, _ *dma.MR) transport.Request { return localInv(w.RKey()) },
		"LOCAL_INV of a region":          func(s *script, _ *dma.Window, _ *dma.MR) transport.Request { return localInv(s.mr.RKey) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newUC(t)
			w, mr := s.window()
			s.post(send(10), c(s, w, mr), send(10))
			s.sends("UC_SEND_ONLY 100 10")
			s.completes("send 1 SUCCESS", "send 2 MW_BIND_ERR", "send 3 WR_FLUSH_ERR")
			s.inState(ib.StateSQE)
		})
	}
}

// Datagrams have neither: there is no connection that a window could belong to.
func TestUDHasNoLocalOperations(t *testing.T) {
	for _, op := range []ib.WROpcode{ib.WRLocalInv, ib.WRBindMW} {
		s := newUD(t)
		r := send(0)
		r.Opcode = op
		s.post(r)
		s.completes("send 1 LOC_QP_OP_ERR")
		s.inState(ib.StateSQE)
	}
}

// Local operations wait for nothing on the way, end in their turn, and are not more than their share: many more than the
// queue holds are performed call by call, and SQD begins none.
func TestUCLocalOperationsTakeTurns(t *testing.T) {
	s := newUC(t)
	w, mr := s.window()
	key := w.RKey().Inc()
	s.stuck = true
	s.post(send(10), bind(w, mr, key))
	s.run()
	s.completes()
	if s.table.Usable(&s.pd, localQPN, key, ib.AccessRemoteWrite) != dma.OK {
		t.Error("the bind waited for the burst to leave")
	}
	s.stuck = false
	s.leave()
	s.now = s.e.Deadline()
	s.sends("UC_SEND_ONLY 100 10")
	s.completes("send 1 SUCCESS", "send 2 SUCCESS")

	s.qp.silent = true
	for range 20 {
		s.post(localInv(key), bind(w, mr, key))
	}
	calls := 0
	for more := true; more; calls++ {
		var n int
		n, more = s.e.Transmit(s.now, s.burst, 128)
		if n > 128 {
			t.Fatalf("a call of %d bytes with a budget of 128", n)
		}
	}
	if s.qp.ended != 42 || calls < 20 {
		t.Errorf("%d requests ended, in %d calls", s.qp.ended, calls)
	}
	s.qp.silent = false
	s.modify(ib.StateSQD)
	s.post(localInv(key))
	s.completes()
	s.modify(ib.StateRTS)
	s.completes("send 43 SUCCESS")
}
