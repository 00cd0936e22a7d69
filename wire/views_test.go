package wire

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"

	"github.com/softnic/softnicd/ib"
)

// TestViews sets one field at a time to all ones and compares the bytes with the figure in the specification.
func TestViews(t *testing.T) {
	var (
		bth    BTH
		reth   RETH
		atom   AtomicETH
		aeth   AETH
		result AtomicAckETH
		imm    ImmDt
		ieth   IETH
		deth   DETH
		xrceth XRCETH
		feth   FETH
	)
	const ones = 1<<64 - 1
	for _, c := range []struct {
		name string
		b    []byte
		set  func()
		get  func() any
		want any
		hex  string
	}{
		{"BTH opcode", bth[:], func() { bth.SetOpcode(0xff) }, func() any { return bth.Opcode() }, Opcode(0xff), "ff0000000000000000000000"},
		{"BTH SE", bth[:], func() { bth.SetSolicited(true) }, func() any { return bth.Solicited() }, true, "008000000000000000000000"},
		{"BTH M", bth[:], func() { bth.SetMigReq(true) }, func() any { return bth.MigReq() }, true, "004000000000000000000000"},
		{"BTH pad", bth[:], func() { bth.SetPadCount(0xff) }, func() any { return bth.PadCount() }, uint8(3), "003000000000000000000000"},
		{"BTH TVer", bth[:], func() { bth[1] = 0x0f }, func() any { return bth.TVer() }, uint8(15), "000f00000000000000000000"},
		{"BTH P_Key", bth[:], func() { bth.SetPKey(0xffff) }, func() any { return bth.PKey() }, ib.PKey(0xffff), "0000ffff0000000000000000"},
		{"BTH FECN", bth[:], func() { bth[4] = 0x80 }, func() any { return bth.FECN() }, true, "000000008000000000000000"},
		{"BTH BECN", bth[:], func() { bth.SetBECN(true) }, func() any { return bth.BECN() }, true, "000000004000000000000000"},
		{"BTH QP", bth[:], func() { bth.SetDestQP(0xff123456) }, func() any { return bth.DestQP() }, ib.QPN(0x123456), "000000000012345600000000"},
		{"BTH A", bth[:], func() { bth.SetAckReq(true) }, func() any { return bth.AckReq() }, true, "000000000000000080000000"},
		{"BTH PSN", bth[:], func() { bth.SetPSN(0xff123456) }, func() any { return bth.PSN() }, ib.PSN(0x123456), "000000000000000000123456"},
		{"RETH VA", reth[:], func() { reth.SetVA(0x0102030405060708) }, func() any { return reth.VA() }, uint64(0x0102030405060708), "01020304050607080000000000000000"},
		{"RETH R_Key", reth[:], func() { reth.SetRKey(0x01020304) }, func() any { return reth.RKey() }, ib.RKey(0x01020304), "00000000000000000102030400000000"},
		{"RETH length", reth[:], func() { reth.SetLength(0x01020304) }, func() any { return reth.Length() }, uint32(0x01020304), "00000000000000000000000001020304"},
		{"AtomicETH VA", atom[:], func() { atom.SetVA(ones) }, func() any { return atom.VA() }, uint64(ones), "ffffffffffffffff0000000000000000000000000000000000000000"},
		{"AtomicETH R_Key", atom[:], func() { atom.SetRKey(0x01020304) }, func() any { return atom.RKey() }, ib.RKey(0x01020304), "00000000000000000102030400000000000000000000000000000000"},
		{"AtomicETH swap", atom[:], func() { atom.SetSwapAdd(ones) }, func() any { return atom.SwapAdd() }, uint64(ones), "000000000000000000000000ffffffffffffffff0000000000000000"},
		{"AtomicETH compare", atom[:], func() { atom.SetCompare(ones) }, func() any { return atom.Compare() }, uint64(ones), "0000000000000000000000000000000000000000ffffffffffffffff"},
		{"AETH syndrome", aeth[:], func() { aeth.SetSyndrome(0x62) }, func() any { return aeth.Syndrome() }, NakRemoteAccess, "62000000"},
		{"AETH MSN", aeth[:], func() { aeth.SetMSN(0xff123456) }, func() any { return aeth.MSN() }, uint32(0x123456), "00123456"},
		{"AtomicAckETH", result[:], func() { result.SetOriginal(0x0102030405060708) }, func() any { return result.Original() }, uint64(0x0102030405060708), "0102030405060708"},
		{"ImmDt", imm[:], func() { imm.SetData(0x01020304) }, func() any { return imm.Data() }, uint32(0x01020304), "01020304"},
		{"IETH", ieth[:], func() { ieth.SetRKey(0x01020304) }, func() any { return ieth.RKey() }, ib.RKey(0x01020304), "01020304"},
		{"DETH Q_Key", deth[:], func() { deth.SetQKey(0x01020304) }, func() any { return deth.QKey() }, ib.QKey(0x01020304), "0102030400000000"},
		{"DETH QP", deth[:], func() { deth.SetSourceQP(0xff123456) }, func() any { return deth.SourceQP() }, ib.QPN(0x123456), "0000000000123456"},
		{"XRCETH", xrceth[:], func() { xrceth.SetSRQN(0xff123456) }, func() any { return xrceth.SRQN() }, uint32(0x123456), "00123456"},
		{"FETH selectivity", feth[:], func() { feth.SetSelectivity(0xff) }, func() any { return feth.Selectivity() }, uint8(3), "00000030"},
		{"FETH placement", feth[:], func() { feth.SetPlacement(0xff) }, func() any { return feth.Placement() }, uint8(15), "0000000f"},
	} {
		clear(c.b)
		c.set()
		if got := c.get(); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
		if got := fmt.Sprintf("%x", c.b); got != c.hex {
			t.Errorf("%s: bytes %s, want %s", c.name, got, c.hex)
		}
		// Set among ones, a field leaves its neighbours alone.
		for i := range c.b {
			c.b[i] = 0xff
		}
		c.set()
		if got := c.get(); got != c.want {
			t.Errorf("%s among ones: got %v, want %v", c.name, got, c.want)
		}
	}
	for i := range bth {
		bth[i] = 0xff
	}
	bth.SetSolicited(false)
	bth.SetMigReq(false)
	bth.SetBECN(false)
	bth.SetAckReq(false)
	bth.SetPadCount(0)
	if got := fmt.Sprintf("%x", bth[:]); got != "ff0fffffbfffffff7fffffff" {
		t.Errorf("bits cleared: %s", got)
	}
}

// TestFinders looks for every header in every opcode and compares its place with the order of the names.
func TestFinders(t *testing.T) {
	for op := range 256 {
		o := Opcode(op)
		h := make([]byte, o.HeaderLen())
		for i := range h {
			h[i] = byte(i)
		}
		h[0] = byte(op)
		found := finders(h)
		at := BTHSize
		for i, k := range headerKinds {
			got := found[i]
			if !o.Headers().Has(k.bit) {
				if got != nil {
					t.Errorf("%v: found a %s", o, k.name)
				}
				continue
			}
			if !bytes.Equal(got, h[at:at+k.size]) {
				t.Errorf("%v: %s is % x, want it at %d", o, k.name, got, at)
			}
			at += k.size
		}
		for n := range h {
			for i, got := range finders(h[:n]) {
				if got != nil {
					t.Errorf("%v cut to %d bytes: found a %s", o, n, headerKinds[i].name)
				}
			}
		}
	}
}

func finders(h []byte) (b [9][]byte) {
	if v := FindXRCETH(h); v != nil {
		b[0] = v[:]
	}
	if v := FindDETH(h); v != nil {
		b[1] = v[:]
	}
	if v := FindFETH(h); v != nil {
		b[2] = v[:]
	}
	if v := FindRETH(h); v != nil {
		b[3] = v[:]
	}
	if v := FindAtomicETH(h); v != nil {
		b[4] = v[:]
	}
	if v := FindAETH(h); v != nil {
		b[5] = v[:]
	}
	if v := FindAtomicAckETH(h); v != nil {
		b[6] = v[:]
	}
	if v := FindImmDt(h); v != nil {
		b[7] = v[:]
	}
	if v := FindIETH(h); v != nil {
		b[8] = v[:]
	}
	return b
}

func TestCreditCodes(t *testing.T) {
	rows := table(t, "aeth_credits.csv")
	if len(rows) != 32 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		v, err := strconv.ParseUint(row["aeth_syndrome"], 0, 8)
		if err != nil {
			t.Fatal(err)
		}
		s := Syndrome(v)
		n, limited := s.Credits()
		want, err := strconv.ParseUint(row["credits"], 10, 32)
		if limited != (err == nil) || uint64(n) != want {
			t.Errorf("code %s: %d credits, limited %v, want %q", row["code"], n, limited, row["credits"])
		}
		if !s.IsAck() {
			t.Errorf("%v is not an ACK", s)
		}
	}
}

func TestSyndromes(t *testing.T) {
	for i := range 256 {
		s := Syndrome(i)
		kinds := 0
		for _, is := range []bool{s.IsAck(), s.IsRNR(), s.IsNak(), s.IsReserved()} {
			if is {
				kinds++
			}
		}
		if kinds != 1 {
			t.Errorf("%v is of %d kinds", s, kinds)
		}
		if want := i < 0x20; s.IsAck() != want {
			t.Errorf("%v: ACK %v", s, s.IsAck())
		}
		if want := i >= 0x20 && i < 0x40; s.IsRNR() != want || want && RNRNak(s.RNRCode()) != s {
			t.Errorf("%v: RNR %v, code %d", s, s.IsRNR(), s.RNRCode())
		}
		if want := i >= 0x60 && i < 0x64; s.IsNak() != want {
			t.Errorf("%v: NAK %v", s, s.IsNak())
		}
		if _, limited := s.Credits(); limited != (i < 31) {
			t.Errorf("%v: gives credits %v", s, limited)
		}
	}
	for s, want := range map[Syndrome]string{
		AckSyndrome: "ACK", 0x08: "ACK credits 16", RNRNak(14): "RNR NAK 1.28ms", RNRNak(0): "RNR NAK 655.36ms",
		NakSequence: "NAK sequence error", NakInvalidRequest: "NAK invalid request",
		NakRemoteAccess: "NAK remote access error", NakRemoteOperation: "NAK remote operational error",
		0x64: "Syndrome(0x64)", 0x9f: "Syndrome(0x9f)",
	} {
		if s.String() != want {
			t.Errorf("%#x: %q, want %q", uint8(s), s, want)
		}
	}
}
