package ib

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

// rows reads a table of testdata, its heading left out.
func rows(t *testing.T, name string) [][]string {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return all[1:]
}

func TestWCStatusTable(t *testing.T) {
	table := rows(t, "wc_status.csv")
	if len(table) != len(wcStatuses) {
		t.Fatalf("%d rows, %d statuses", len(table), len(wcStatuses))
	}
	for _, row := range table {
		v, err := strconv.ParseUint(row[0], 10, 8)
		if err != nil {
			t.Fatal(err)
		}
		if s := WCStatus(v); s.Name() != "IBV_WC_"+row[1] || s.String() == "" {
			t.Errorf("%d: %s, %q, want %s", v, s.Name(), s, row[1])
		}
	}
}

func TestStrings(t *testing.T) {
	for _, c := range []struct{ got, want any }{
		{WCRetryExcErr.String(), "transport retry counter exceeded"},
		{WCRetryExcErr.Name(), "IBV_WC_RETRY_EXC_ERR"},
		{WCStatus(99).String(), "WCStatus(99)"},
		{WCStatus(99).Name(), "WCStatus(99)"},
		{WCSend, "SEND"}, {WCRDMAWrite, "RDMA_WRITE"}, {WCRDMARead, "RDMA_READ"}, {WCCompSwap, "COMP_SWAP"},
		{WCFetchAdd, "FETCH_ADD"}, {WCBindMW, "BIND_MW"}, {WCLocalInv, "LOCAL_INV"}, {WCFlush, "FLUSH"},
		{WCAtomicWrite, "ATOMIC_WRITE"}, {WCRecv, "RECV"}, {WCRecvRDMAWithImm, "RECV_RDMA_WITH_IMM"},
		{WCOpcode(7), "WCOpcode(7)"},
		{WRRDMAWrite, "RDMA_WRITE"}, {WRSendWithInv, "SEND_WITH_INV"}, {WRAtomicFetchAdd, "ATOMIC_FETCH_AND_ADD"},
		{WROpcode(10), "WROpcode(10)"}, {WRAtomicWrite, "ATOMIC_WRITE"}, {WROpcode(16), "WROpcode(16)"},
		{QPTypeRC, "RC"}, {QPTypeUD, "UD"}, {QPTypeXRCRecv, "XRC_RECV"}, {QPType(0), "QPType(0)"}, {QPType(13), "QPType(13)"},
		{StateReset, "RESET"}, {StateRTS, "RTS"}, {StateErr, "ERR"}, {QPState(8), "QPState(8)"},
		{EventQPFatal.Name(), "IBV_EVENT_QP_FATAL"}, {EventWQFatal.Name(), "IBV_EVENT_WQ_FATAL"},
		{EventQPLastWQEReached, "last WQE reached"}, {EventType(20), "EventType(20)"}, {EventType(20).Name(), "EventType(20)"},
		{PortActive, "ACTIVE"}, {PortDown, "DOWN"}, {PortState(6), "PortState(6)"},
		{QPAttrMask(0), "0"}, {QPAttrState | QPAttrPKeyIndex | QPAttrPort, "STATE|PKEY_INDEX|PORT"},
		{QPAttrMask(1<<30) | QPAttrRateLimit, "RATE_LIMIT|0x40000000"},
		{AccessLocalWrite | AccessRemoteAtomic, "LOCAL_WRITE|REMOTE_ATOMIC"},
		{SendFence | SendInline, "FENCE|INLINE"}, {WCGRH | WCWithImm, "GRH|WITH_IMM"},
		{CapXRC | CapMemWindow2B, "XRC|MEM_WINDOW_TYPE_2B"},
		{MTU1024, "1024"}, {MTU(0), "MTU(0)"}, {MTU(6), "MTU(6)"},
		{PSN(0x123), "0x000123"}, {QPN(0x11), "0x000011"},
		{GIDTypeRoCEv2, "RoCE v2"}, {GIDTypeRoCEv1, "IB/RoCE v1"},
		{SRQAttrMaxWR | SRQAttrLimit, "MAX_WR|LIMIT"}, {SRQAttrMask(4), "0x4"},
	} {
		if got := fmt.Sprint(c.got); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestRNRTimers(t *testing.T) {
	table := rows(t, "rnr_timers.csv")
	if len(table) != 32 {
		t.Fatalf("%d rows", len(table))
	}
	for _, row := range table {
		code, err := strconv.ParseUint(row[0], 10, 8)
		if err != nil {
			t.Fatal(err)
		}
		us, err := strconv.Atoi(row[3])
		if err != nil {
			t.Fatal(err)
		}
		if got := RNRTimer(uint8(code)); got != time.Duration(us)*time.Microsecond {
			t.Errorf("code %d: %v, want %d us", code, got, us)
		}
	}
	if RNRTimer(33) != RNRTimer(1) {
		t.Error("only five bits of the code count")
	}
}

func TestAckTimeout(t *testing.T) {
	for exp, want := range map[uint8]time.Duration{
		0: 0, 1: 8192, 14: 67108864, 31: 8796093022208, 32: 0, 46: 67108864,
	} {
		if got := AckTimeout(exp); got != want {
			t.Errorf("exponent %d: %v, want %v", exp, got, want)
		}
	}
}

func TestStaticRates(t *testing.T) {
	for code, want := range map[uint8]uint64{0: 0, 1: 0, 2: 25e8, 3: 1e10, 5: 5e9, 15: 25e9, 16: 1e11, 20: 5e10, 24: 12e11, 25: 0, 255: 0} {
		if got := StaticRate(code); got != want {
			t.Errorf("code %d: %d bit/s, want %d", code, got, want)
		}
	}
}
