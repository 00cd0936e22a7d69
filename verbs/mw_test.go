package verbs_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"syscall"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

const remote = ib.AccessRemoteRead | ib.AccessRemoteWrite | ib.AccessRemoteAtomic

// bindable registers a page of b's memory such that windows can be bound to it.
func bindable(t testing.TB, b *side) *verbs.MR {
	t.Helper()
	return must(b.pd.RegMR(must(b.pd.AllocBuffer(4096)).Bytes(), ib.AccessLocalWrite|ib.AccessMWBind))
}

func bindWR(id uint64, mw *verbs.MW, mr *verbs.MR, key ib.RKey) verbs.SendWR {
	return verbs.SendWR{
		WRID: id, Opcode: ib.WRBindMW, Flags: ib.SendSignaled, MW: mw, RKey: key,
		Bind: verbs.MWBindInfo{MR: mr, Addr: mr.Addr() + 64, Length: 128, Access: remote},
	}
}

func (s *side) writeTo(id uint64, addr uint64, key ib.RKey, n int) verbs.SendWR {
	w := s.send(id, n)
	w.Opcode, w.RemoteAddr, w.RKey = ib.WRRDMAWrite, addr, key
	return w
}

func TestWindowOfType2(t *testing.T) {
	a, b := newPair(t)
	mr := bindable(t, b)
	mw := must(b.pd.AllocMW(ib.MWType2))
	fresh := mw.RKey()

	// Only the low 8 bits of the key are the application's.
	check(t, b.qp.PostSend(bindWR(1, mw, mr, 0x12345678)))
	if mw.RKey() != fresh&^0xff|0x78 {
		t.Errorf("key %#x of %#x", mw.RKey(), fresh)
	}
	if wc := b.expect(1, ib.WCSuccess); wc.Opcode != ib.WCBindMW {
		t.Errorf("%+v", wc)
	}
	fill(a.buf.Bytes(), 5)
	check(t, a.qp.PostSend(a.writeTo(2, mr.Addr()+64, mw.RKey(), 128)))
	a.expect(2, ib.WCSuccess)
	if !bytes.Equal(mr.Bytes()[64:192], a.buf.Bytes()[:128]) {
		t.Error("the bytes differ")
	}
	wantErrno(t, mr.Dereg(), syscall.EBUSY)
	wantErrno(t, mr.Rereg(ib.ReregAccess, nil, nil, 0), syscall.EBUSY)
	wantErrno(t, b.pd.Dealloc(), syscall.EBUSY)

	// The peer gives the key back with a message.
	check(t, b.qp.PostRecv(b.recv(3, 0, 64)))
	inv := a.send(4, 8)
	inv.Opcode, inv.InvalidateRKey = ib.WRSendWithInv, mw.RKey()
	check(t, a.qp.PostSend(inv))
	a.expect(4, ib.WCSuccess)
	if wc := b.expect(3, ib.WCSuccess); wc.Flags&ib.WCWithInv == 0 || wc.InvalidatedKey != mw.RKey() || wc.Flags&ib.WCWithImm != 0 {
		t.Errorf("%+v", wc)
	}
	// And bound again, this side takes it away, in one list.
	old := mw.RKey()
	check(t, b.qp.PostSend(bindWR(5, mw, mr, old.Inc())))
	b.expect(5, ib.WCSuccess)
	check(t, b.qp.PostSend(verbs.SendWR{WRID: 6, Opcode: ib.WRLocalInv, Flags: ib.SendSignaled, InvalidateRKey: mw.RKey()}))
	if wc := b.expect(6, ib.WCSuccess); wc.Opcode != ib.WCLocalInv {
		t.Errorf("%+v", wc)
	}
	check(t, a.qp.PostSend(a.writeTo(7, mr.Addr()+64, mw.RKey(), 8)))
	a.expect(7, ib.WCRemAccessErr)
	check(t, mr.Dereg())
	check(t, mw.Dealloc())
}

func TestWindowOfType1(t *testing.T) {
	a, b := newPair(t)
	mr := bindable(t, b)
	mw := must(b.pd.AllocMW(ib.MWType1))
	info := verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: 8, Access: ib.AccessRemoteRead}
	bind := func(id uint64) ib.RKey {
		check(t, b.qp.BindMW(mw, verbs.MWBind{WRID: id, Flags: ib.SendSignaled, MWBindInfo: info}))
		b.expect(id, ib.WCSuccess)
		return mw.RKey()
	}
	first := bind(1)
	info.Access = ib.AccessRemoteWrite
	second := bind(2) // bound anew while it is bound
	if first == second {
		t.Error("the key stays")
	}
	check(t, a.qp.PostSend(a.writeTo(3, mr.Addr(), second, 8)))
	a.expect(3, ib.WCSuccess)
	wantErrno(t, mr.Dereg(), syscall.EBUSY)
	info.Length = 0
	bind(4)
	check(t, mr.Dereg())
	check(t, a.qp.PostSend(a.writeTo(5, mr.Addr(), second, 8)))
	a.expect(5, ib.WCRemAccessErr)
}

// What is refused when it is posted, and what when it is performed.
func TestBindRefused(t *testing.T) {
	_, b := newPair(t)
	mr := bindable(t, b)
	one, two := must(b.pd.AllocMW(ib.MWType1)), must(b.pd.AllocMW(ib.MWType2))
	other := openDevice(t, embedded.Options{})
	strange := must(must(other.AllocPD()).AllocMW(ib.MWType2))
	before := []ib.RKey{one.RKey(), two.RKey()}
	for name, wr := range map[string]verbs.SendWR{
		"no window":        bindWR(1, nil, mr, 0),
		"type 1 by post":   bindWR(1, one, mr, 0),
		"another device's": bindWR(1, strange, mr, 0),
	} {
		if err := b.qp.PostSend(wr); err == nil {
			t.Errorf("%s: posted", name)
		} else {
			wantErrno(t, err, syscall.EINVAL)
		}
	}
	wantErrno(t, b.qp.BindMW(two, verbs.MWBind{}), syscall.EINVAL) // Type1BindOnType2 of rdma-unit-test
	wantErrno(t, b.qp.BindMW(nil, verbs.MWBind{}), syscall.EINVAL)
	if one.RKey() != before[0] || two.RKey() != before[1] {
		t.Error("a refused bind has changed a key")
	}
	_, err := b.pd.AllocMW(3)
	wantErrno(t, err, syscall.EINVAL)

	// The region does not let itself be bound to: an unsignaled bind tells all the same.
	wr := bindWR(2, two, b.mr, 0)
	wr.Flags = 0
	check(t, b.qp.PostSend(wr))
	b.expect(2, ib.WCMWBindErr)
	if b.qp.State() != ib.StateErr {
		t.Errorf("state %v", b.qp.State())
	}
	check(t, b.qp.PostSend(bindWR(3, two, mr, 0)))
	b.expect(3, ib.WCWRFlushErr)
}

func TestAtomicWriteAndFlush(t *testing.T) {
	var net embedded.Network
	a := newSide(t, openDevice(t, embedded.Options{Network: &net}), 256, smallCap)
	b := newSide(t, openDevice(t, embedded.Options{Network: &net}), 256, smallCap)
	connectSides(t, a, b, verbs.RCAttr{Access: remote | ib.AccessFlushGlobal})
	mr := must(b.pd.RegMR(b.buf.Bytes(), everything|ib.AccessFlushGlobal))

	check(t, a.qp.PostSend(
		a.writeTo(1, mr.Addr(), mr.RKey(), 4096),
		verbs.SendWR{WRID: 2, Opcode: ib.WRFlush, Flags: ib.SendSignaled, RemoteAddr: mr.Addr(), RKey: mr.RKey(), FlushLength: 4096, FlushType: ib.FlushGlobal},
		verbs.SendWR{WRID: 3, Opcode: ib.WRAtomicWrite, Flags: ib.SendSignaled, RemoteAddr: mr.Addr() + 4096, RKey: mr.RKey(), Swap: 77},
		verbs.SendWR{WRID: 4, Opcode: ib.WRFlush, Flags: ib.SendSignaled, RKey: mr.RKey(), FlushType: ib.FlushGlobal, FlushLevel: ib.FlushRegion},
	))
	a.expect(1, ib.WCSuccess)
	if wc := a.expect(2, ib.WCSuccess); wc.Opcode != ib.WCFlush {
		t.Errorf("%+v", wc)
	}
	if wc := a.expect(3, ib.WCSuccess); wc.Opcode != ib.WCAtomicWrite {
		t.Errorf("%+v", wc)
	}
	a.expect(4, ib.WCSuccess)
	if v := binary.NativeEndian.Uint64(b.buf.Bytes()[4096:]); v != 77 {
		t.Errorf("the word holds %d", v)
	}
	inline := verbs.SendWR{WRID: 5, Opcode: ib.WRAtomicWrite, Flags: ib.SendSignaled | ib.SendInline, RemoteAddr: mr.Addr(), RKey: mr.RKey(), InlineData: []byte("8 octets")}
	check(t, a.qp.PostSend(inline))
	a.expect(5, ib.WCSuccess)
	if string(b.buf.Bytes()[:8]) != "8 octets" {
		t.Errorf("%q", b.buf.Bytes()[:8])
	}
	// The region has to allow it.
	check(t, a.qp.PostSend(verbs.SendWR{WRID: 6, Opcode: ib.WRFlush, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), FlushLength: 8, FlushType: ib.FlushGlobal}))
	a.expect(6, ib.WCRemAccessErr)
}

// What reg_mr says to each of the access flags.
func TestAccessFlags(t *testing.T) {
	_, b := newPair(t)
	for access, want := range map[ib.AccessFlags]syscall.Errno{
		0:                     0,
		ib.AccessLocalWrite:   0,
		ib.AccessRemoteRead:   0,
		ib.AccessRemoteWrite:  syscall.EINVAL,
		ib.AccessRemoteAtomic: syscall.EINVAL,
		ib.AccessRemoteWrite | ib.AccessRemoteAtomic | ib.AccessLocalWrite: 0,
		ib.AccessMWBind:                  0,
		ib.AccessZeroBased:               0,
		ib.AccessHugeTLB:                 0,
		ib.AccessFlushGlobal:             0,
		ib.AccessFlushPersistent:         syscall.EOPNOTSUPP,
		ib.AccessOnDemand:                syscall.EOPNOTSUPP,
		ib.AccessRelaxedOrdering:         0,
		ib.AccessOptional:                0,
		1 << 10:                          syscall.EINVAL,
		1 << 19:                          syscall.EINVAL,
		1 << 30:                          syscall.EINVAL,
		1 << 31:                          syscall.EINVAL,
		ib.AccessRelaxedOrdering | 1<<15: syscall.EINVAL,
		ib.AccessRelaxedOrdering | ib.AccessLocalWrite: 0,
	} {
		m, err := b.pd.RegMR(b.buf.Bytes(), access)
		if want != 0 {
			wantErrno(t, err, want)
			continue
		}
		check(t, err)
		check(t, m.Dereg())
	}
	_, err := b.pd.RegMR(b.buf.Bytes(), ib.AccessZeroBased, verbs.WithIOVA(4096))
	wantErrno(t, err, syscall.EINVAL)
}

func TestRereg(t *testing.T) {
	a, b := newPair(t)
	mr := must(b.pd.RegMR(b.buf.Bytes()[:4096], ib.AccessRemoteRead))
	key := mr.RKey()
	pd := must(b.ctx.AllocPD())
	own := make([]byte, 5000)
	wantErrno(t, mr.Rereg(0, nil, nil, 0), syscall.EINVAL)
	wantErrno(t, mr.Rereg(ib.ReregPD, nil, nil, 0), syscall.EINVAL)
	wantErrno(t, mr.Rereg(ib.ReregTranslation, nil, nil, 0), syscall.EINVAL)
	wantErrno(t, mr.Rereg(ib.ReregAccess, nil, nil, ib.AccessRemoteWrite), syscall.EINVAL)

	check(t, mr.Rereg(ib.ReregAccess, nil, nil, everything))
	check(t, a.qp.PostSend(a.writeTo(1, mr.Addr(), mr.RKey(), 8)))
	a.expect(1, ib.WCSuccess)
	// Memory of another kind, with the rights that it has, at an address of its own.
	check(t, mr.Rereg(ib.ReregTranslation, nil, own, 0, verbs.WithIOVA(1<<40)))
	if mr.Addr() != 1<<40 || mr.RKey() != key || len(mr.Bytes()) != 5000 {
		t.Errorf("address %#x, key %#x, %d bytes", mr.Addr(), mr.RKey(), len(mr.Bytes()))
	}
	a.buf.Bytes()[0] = 99
	check(t, a.qp.PostSend(a.writeTo(2, 1<<40+4992, mr.RKey(), 8)))
	a.expect(2, ib.WCSuccess)
	if own[4992] != 99 {
		t.Error("nothing was written")
	}
	check(t, mr.Rereg(ib.ReregPD, pd, nil, 0))
	wantErrno(t, pd.Dealloc(), syscall.EBUSY)
	check(t, a.qp.PostSend(a.writeTo(3, 1<<40, mr.RKey(), 8)))
	a.expect(3, ib.WCRemAccessErr)
	check(t, mr.Dereg())
	check(t, pd.Dealloc())
}

func TestBindAllocatesNothing(t *testing.T) {
	_, b := newPair(t)
	mr := bindable(t, b)
	mw := must(b.pd.AllocMW(ib.MWType2))
	key := ib.RKey(0)
	var wc [4]verbs.WC
	if n := testing.AllocsPerRun(50, func() {
		key = key.Inc()
		if err := b.qp.PostSend(bindWR(1, mw, mr, key), verbs.SendWR{Opcode: ib.WRLocalInv, Flags: ib.SendSignaled, InvalidateRKey: mw.RKey()&^0xff | key&0xff}); err != nil {
			t.Error(err)
		}
		for done := 0; done < 2; {
			n, err := b.cq.Poll(wc[:])
			for i := range n {
				if wc[i].Status != ib.WCSuccess {
					err = fmt.Errorf("%v", wc[i].Status)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			done += n
		}
	}); n != 0 && !raceEnabled {
		t.Errorf("%v allocations", n)
	}
}

// A server lends a client a part of its memory: the window is bound for one queue pair, and the client gives it back with
// its answer.
func ExampleMW() {
	client, server, done := connected()
	defer done()
	page := must(server.pd.AllocBuffer(4096))
	mr := must(server.pd.RegMR(page.Bytes(), ib.AccessLocalWrite|ib.AccessMWBind))
	mw := must(server.pd.AllocMW(ib.MWType2))

	key := mw.RKey().Inc()
	must(0, server.qp.PostSend(verbs.SendWR{
		WRID: 1, Opcode: ib.WRBindMW, Flags: ib.SendSignaled, MW: mw, RKey: key,
		Bind: verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: 64, Access: ib.AccessRemoteWrite},
	}))
	fmt.Println(server.next().Opcode)
	must(0, server.qp.PostRecv(server.recv(2, 0, 64)))

	must(0, client.qp.PostSend(verbs.SendWR{
		Opcode: ib.WRRDMAWrite, Flags: ib.SendInline, InlineData: []byte("lent memory"), RemoteAddr: mr.Addr(), RKey: key,
	}, verbs.SendWR{
		WRID: 3, Opcode: ib.WRSendWithInv, Flags: ib.SendSignaled, InvalidateRKey: key,
	}))
	wc := server.next()
	fmt.Printf("%s, %s, %q\n", wc.Opcode, wc.Flags, page.Bytes()[:11])
	fmt.Println("key is the server's again:", wc.InvalidatedKey == key)
	// Output:
	// BIND_MW
	// RECV, WITH_INV, "lent memory"
	// key is the server's again: true
}

// A region moves to other memory and keeps its keys.
func ExampleMR_Rereg() {
	client, server, done := connected()
	defer done()
	a, b := make([]byte, 64), make([]byte, 64)
	mr := must(server.pd.RegMR(a, ib.AccessLocalWrite|ib.AccessRemoteWrite, verbs.WithIOVA(0)))
	if err := mr.Rereg(ib.ReregTranslation, nil, b, 0, verbs.WithIOVA(0)); err != nil {
		panic(err)
	}
	must(0, client.qp.PostSend(verbs.SendWR{
		WRID: 1, Opcode: ib.WRRDMAWrite, Flags: ib.SendInline | ib.SendSignaled, InlineData: []byte("new"), RKey: mr.RKey(),
	}))
	fmt.Println(client.next().Status, string(b[:3]))
	// Output: success new
}

// Windows of both types over an unreliable connection. What the peer writes after the key is gone is dropped, and nobody is
// told (IBA 9.8.2).
func TestWindowsOverUC(t *testing.T) {
	a, b := newTypedPair(t, ib.QPTypeUC, false, false)
	connectUC(t, a, b)
	mr := bindable(t, b)
	two, one := must(b.pd.AllocMW(ib.MWType2)), must(b.pd.AllocMW(ib.MWType1))
	check(t, b.qp.PostSend(bindWR(1, two, mr, two.RKey().Inc())))
	if wc := b.expect(1, ib.WCSuccess); wc.Opcode != ib.WCBindMW {
		t.Errorf("%+v", wc)
	}
	check(t, b.qp.BindMW(one, verbs.MWBind{WRID: 2, Flags: ib.SendSignaled,
		MWBindInfo: verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: 8, Access: ib.AccessRemoteWrite}}))
	b.expect(2, ib.WCSuccess)
	// A SEND behind the WRITEs says that they have been there.
	arrived := func(id uint64) {
		t.Helper()
		b.postRecv(b.recv(id, 0, 8))
		check(t, a.qp.PostSend(a.send(id, 8)))
		a.expect(id, ib.WCSuccess)
		b.expect(id, ib.WCSuccess)
	}
	fill(a.buf.Bytes(), 9)
	check(t, a.qp.PostSend(a.writeTo(3, mr.Addr()+64, two.RKey(), 128), a.writeTo(4, mr.Addr(), one.RKey(), 8)))
	a.expect(3, ib.WCSuccess)
	a.expect(4, ib.WCSuccess)
	arrived(5)
	if !bytes.Equal(mr.Bytes()[64:192], a.buf.Bytes()[:128]) || !bytes.Equal(mr.Bytes()[:8], a.buf.Bytes()[:8]) {
		t.Error("the bytes differ")
	}
	check(t, b.qp.PostSend(verbs.SendWR{WRID: 6, Opcode: ib.WRLocalInv, Flags: ib.SendSignaled, InvalidateRKey: two.RKey()}))
	if wc := b.expect(6, ib.WCSuccess); wc.Opcode != ib.WCLocalInv {
		t.Errorf("%+v", wc)
	}
	clear(mr.Bytes())
	check(t, a.qp.PostSend(a.writeTo(7, mr.Addr()+64, two.RKey(), 8)))
	a.expect(7, ib.WCSuccess)
	arrived(8)
	if !bytes.Equal(mr.Bytes(), make([]byte, 4096)) {
		t.Error("written by a key that is gone")
	}
	// What fails ends the send queue alone.
	check(t, b.qp.PostSend(verbs.SendWR{WRID: 9, Opcode: ib.WRLocalInv, InvalidateRKey: two.RKey()}))
	b.expect(9, ib.WCMWBindErr)
	if b.qp.State() != ib.StateSQE {
		t.Errorf("state %v", b.qp.State())
	}
}
