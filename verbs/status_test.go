package verbs_test

import (
	"context"
	"encoding/csv"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/link/fault"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
	"github.com/softnic/softnicd/wire"
)

// notYet are the statuses that this version has no way to raise, and what brings them. There are none.
var notYet = map[string]string{}

// provoked says for each status how it comes about for real.
var provoked = map[string]func(*testing.T){
	"SUCCESS": func(t *testing.T) {
		a, b := newPair(t)
		check(t, b.qp.PostRecv(b.recv(1, 0, 64)))
		check(t, a.qp.PostSend(a.send(2, 64)))
		a.expect(2, ib.WCSuccess)
		b.expect(1, ib.WCSuccess)
	},
	"LOC_LEN_ERR": func(t *testing.T) {
		// A message that is longer than its receive.
		a, b := newPair(t)
		check(t, b.qp.PostRecv(b.recv(1, 0, 63)))
		check(t, a.qp.PostSend(a.send(2, 64)))
		wantError(b, 1, ib.WCLocLenErr)
		// And on the sender's side an atomic whose result does not have eight bytes.
		a, b = newPair(t)
		check(t, a.qp.PostSend(a.rdma(ib.WRAtomicFetchAdd, 2, 4, b, 0)))
		wantError(a, 2, ib.WCLocLenErr)
	},
	"LOC_QP_OP_ERR": func(t *testing.T) {
		a, _ := newPair(t)
		bad := a.send(1, 64)
		bad.Opcode = 31
		check(t, a.qp.PostSend(bad))
		wantError(a, 1, ib.WCLocQPOpErr)
	},
	"LOC_PROT_ERR": func(t *testing.T) {
		a, _ := newPair(t)
		bad := a.send(1, 64)
		bad.SGList[0].LKey ^= 0x100
		check(t, a.qp.PostSend(bad))
		wantError(a, 1, ib.WCLocProtErr)
		// And on the receiver's side.
		a, b := newPair(t)
		recv := b.recv(2, 0, 64)
		recv.SGList[0].Addr += 1 << 20
		check(t, b.qp.PostRecv(recv))
		check(t, a.qp.PostSend(a.send(1, 64)))
		wantError(b, 2, ib.WCLocProtErr)
	},
	"WR_FLUSH_ERR": func(t *testing.T) {
		a, _ := newPair(t)
		check(t, a.qp.PostRecv(a.recv(1, 0, 64)))
		check(t, a.qp.Modify(&verbs.QPAttr{State: ib.StateErr}, ib.QPAttrState))
		wantError(a, 1, ib.WCWRFlushErr)
		check(t, a.qp.PostSend(a.send(2, 64)))
		wantError(a, 2, ib.WCWRFlushErr)
	},
	"MW_BIND_ERR": func(t *testing.T) {
		// The region was not registered for windows.
		a, _ := newPair(t)
		check(t, a.qp.PostSend(bindWR(1, must(a.pd.AllocMW(ib.MWType2)), a.mr, 0)))
		wantError(a, 1, ib.WCMWBindErr)
	},
	"BAD_RESP_ERR": func(t *testing.T) {
		// The response of a READ says that more follows, and it was asked for no more.
		a, b := newTamperedPair(t, func(p *wire.Packet) {
			if p.Opcode == wire.RCReadResponseOnly {
				p.Opcode = wire.RCReadResponseFirst
			}
		})
		check(t, a.qp.PostSend(a.rdma(ib.WRRDMARead, 1, 64, b, 0)))
		wantError(a, 1, ib.WCBadRespErr)
	},
	"LOC_ACCESS_ERR": func(t *testing.T) {
		// A WRITE with immediate and a wrong key uses up a receive, which reports it.
		a, b := newPair(t)
		check(t, b.qp.PostRecv(b.recv(1, 0, 64)))
		check(t, a.qp.PostSend(a.rdma(ib.WRRDMAWriteWithImm, 2, 64, b, 0x100)))
		wantError(b, 1, ib.WCLocAccessErr)
		wantError(a, 2, ib.WCRemAccessErr)
	},
	"REM_INV_REQ_ERR": func(t *testing.T) {
		a, b := newPair(t)
		check(t, b.qp.PostRecv(b.recv(1, 0, 63)))
		check(t, a.qp.PostSend(a.send(2, 64)))
		wantError(a, 2, ib.WCRemInvReqErr)
	},
	"REM_ACCESS_ERR": func(t *testing.T) {
		for _, op := range []ib.WROpcode{ib.WRRDMAWrite, ib.WRRDMARead, ib.WRAtomicFetchAdd} {
			a, b := newPair(t)
			check(t, a.qp.PostSend(a.rdma(op, 1, 8, b, 0x100)))
			wantError(a, 1, ib.WCRemAccessErr)
		}
	},
	"REM_OP_ERR": func(t *testing.T) {
		a, b := newPair(t)
		recv := b.recv(1, 0, 64)
		recv.SGList[0].LKey ^= 0x100
		check(t, b.qp.PostRecv(recv))
		check(t, a.qp.PostSend(a.send(2, 64)))
		wantError(a, 2, ib.WCRemOpErr)
	},
	"REM_ABORT_ERR": func(t *testing.T) {
		// The end of a message is lost, which had a receive of a shared queue. The next message is received.
		var net embedded.Network
		b := newTypedSide(t, openDevice(t, embedded.Options{Network: &net, Wrap: func(p nic.Port) nic.Port {
			return tampered{p, func(p *wire.Packet) {
				if p.Opcode == wire.UCSendLast {
					p.BTH().SetPSN(p.PSN().Next())
				}
			}}
		}}), ib.QPTypeUC, true)
		a := newTypedSide(t, openDevice(t, embedded.Options{Network: &net}), ib.QPTypeUC, false)
		connectUC(t, a, b)
		b.postRecv(b.recv(1, 0, 20000), b.recv(2, 0, 20000))
		check(t, a.qp.PostSend(a.send(3, 20000), a.send(4, 10)))
		if wc := b.expect(1, ib.WCRemAbortErr); wc.VendorErr == 0 {
			t.Errorf("completion %+v without a vendor error", wc)
		}
		b.expect(2, ib.WCSuccess)
		a.expect(3, ib.WCSuccess)
		a.expect(4, ib.WCSuccess)
	},
	"RETRY_EXC_ERR": func(t *testing.T) {
		a, b := newUnconnectedPair(t, nil)
		connectSides(t, a, b, verbs.RCAttr{Timeout: 1, RetryCnt: 1})
		check(t, b.qp.Close()) // nobody answers
		check(t, a.qp.PostSend(a.send(1, 64)))
		wantError(a, 1, ib.WCRetryExcErr)
	},
	"RNR_RETRY_EXC_ERR": func(t *testing.T) {
		a, b := newUnconnectedPair(t, nil)
		connectSides(t, a, b, verbs.RCAttr{RNRRetry: 1, MinRNRTimer: 1})
		check(t, a.qp.PostSend(a.send(1, 64)))
		wantError(a, 1, ib.WCRNRRetryExcErr)
	},
	"FATAL_ERR": func(t *testing.T) {
		// The device stumbles twice in the service of one program, and gives it up.
		a, b := newTamperedPair(t, func(p *wire.Packet) {
			if p.Opcode == wire.RCReadResponseOnly {
				p.Payload = []wire.Piece{{Mem: stumble{}, Len: p.Len}}
			}
		})
		check(t, a.qp.PostSend(a.rdma(ib.WRRDMARead, 1, 64, b, 0)))
		wantError(a, 1, ib.WCGeneralErr)
		for _, s := range []*side{a, b} {
			check(t, s.qp.Modify(&verbs.QPAttr{State: ib.StateReset}, ib.QPAttrState))
		}
		connectSides(t, a, b, verbs.RCAttr{})
		check(t, a.qp.PostRecv(a.recv(4, 0, 64)))
		check(t, a.qp.PostSend(a.rdma(ib.WRRDMARead, 2, 64, b, 0), a.rdma(ib.WRRDMARead, 3, 64, b, 0)))
		wantError(a, 2, ib.WCFatalErr)
		seen := map[uint64]bool{}
		for range 2 {
			wc := a.next()
			if wc.Status != ib.WCWRFlushErr {
				t.Errorf("behind the fatal error: %+v", wc)
			}
			seen[wc.WRID] = true
		}
		if !seen[3] || !seen[4] {
			t.Errorf("flushed %v, want 3 and 4", seen)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		for {
			e, err := a.ctx.AsyncEvent(ctx)
			check(t, err)
			if e.Type == ib.EventDeviceFatal {
				break
			}
		}
	},
	"GENERAL_ERR": func(t *testing.T) {
		// The device stumbles over a response. What it was about is the only request that has this status.
		a, b := newTamperedPair(t, func(p *wire.Packet) {
			if p.Opcode == wire.RCReadResponseOnly {
				p.Payload = []wire.Piece{{Mem: stumble{}, Len: p.Len}}
			}
		})
		check(t, a.qp.PostSend(a.rdma(ib.WRRDMARead, 1, 64, b, 0), a.rdma(ib.WRRDMARead, 2, 64, b, 0)))
		wantError(a, 1, ib.WCGeneralErr)
		wantError(a, 2, ib.WCWRFlushErr)
	},
}

// Every status that the table does not call impossible is raised here, or is listed as not built yet.
func TestStatuses(t *testing.T) {
	f, err := os.Open("testdata/wc_status.csv")
	check(t, err)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	check(t, err)
	seen := map[string]bool{}
	for _, row := range rows[1:] {
		value, name := must(strconv.Atoi(row[0])), row[1]
		seen[name] = true
		if got := ib.WCStatus(value).Name(); got != "IBV_WC_"+name {
			t.Errorf("status %d is %s, want %s", value, got, name)
		}
		raise, reason := provoked[name], notYet[name]
		switch {
		case impossible(name, row[3]):
			if raise != nil || reason != "" {
				t.Errorf("%s: the table says that nobody raises it", name)
			}
		case raise == nil && reason == "":
			t.Errorf("%s: no test raises it", name)
		case raise != nil && reason != "":
			t.Errorf("%s: it is raised, and listed as not built", name)
		case raise != nil:
			t.Run(name, raise)
		}
	}
	for name := range provoked {
		if !seen[name] {
			t.Errorf("%s is not in the table", name)
		}
	}
	t.Logf("not built: %v", notYet)
}

// impossible is what the table says of statuses of reliable datagrams, of the kernel's MAD layer and of tag matching.
func impossible(name, when string) bool {
	return strings.Contains(when, "never") || strings.Contains(when, "RD only") || strings.Contains(when, "kernel only") ||
		strings.HasPrefix(name, "TM_") || name == "LOC_RDD_VIOL_ERR"
}

// wantError waits for a failed completion, of which nothing is valid but wr_id, status, qp_num and vendor_err, and wants
// the queue pair in the error state when it is seen.
func wantError(s *side, id uint64, status ib.WCStatus) {
	s.t.Helper()
	wc := s.expect(id, status)
	want := verbs.WC{WRID: id, Status: status, QPN: s.qp.QPN(), VendorErr: wc.VendorErr}
	if wc != want || wc.VendorErr == 0 {
		s.t.Errorf("completion %+v, want %+v and a vendor error", wc, want)
	}
	// A responder is in ERR when its NAK has left, a moment after the completion.
	for end := time.Now().Add(5 * time.Second); s.qp.State() != ib.StateErr; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%v, and the queue pair is in %v", status, s.qp.State())
		}
	}
}

// rdma is a request for the first n bytes of the peer's memory, with the key changed by flip.
func (s *side) rdma(op ib.WROpcode, id uint64, n int, peer *side, flip ib.RKey) verbs.SendWR {
	wr := s.send(id, n)
	wr.Opcode, wr.RemoteAddr, wr.RKey = op, peer.mr.Addr(), peer.mr.RKey()^flip
	return wr
}

// quick is the limits of devices that do not wait long for acknowledgements.
var quick = nic.Limits{AckFloor: 2 * time.Millisecond}

// newUnconnectedPair makes two quick devices on one network; wrap goes around the port of the first.
func newUnconnectedPair(t testing.TB, wrap func(nic.Port) nic.Port) (a, b *side) {
	t.Helper()
	var net embedded.Network
	a = newSide(t, openDevice(t, embedded.Options{Network: &net, Limits: quick, Wrap: wrap}), 256, smallCap)
	b = newSide(t, openDevice(t, embedded.Options{Network: &net, Limits: quick}), 256, smallCap)
	return a, b
}

// newFaultyPair connects two devices; what the first sends and receives passes a plan, which set replaces.
func newFaultyPair(t testing.TB, plan fault.Plan) (a, b *side, set func(fault.Plan)) {
	t.Helper()
	faulty(t)
	var net embedded.Network
	var ports []*fault.Port // one for each shard
	d := must(newDevice(embedded.Options{Network: &net, Limits: quick, Wrap: func(p nic.Port) nic.Port {
		ports = append(ports, must(fault.Wrap(p, plan)))
		return ports[len(ports)-1]
	}}))
	ctx := must(d.Open())
	t.Cleanup(func() {
		check(t, ctx.Close())
		check(t, d.Close())
	})
	a = newSide(t, ctx, 256, smallCap)
	b = newSide(t, openDevice(t, embedded.Options{Network: &net, Limits: quick}), 256, smallCap)
	connectSides(t, a, b, verbs.RCAttr{})
	return a, b, func(plan fault.Plan) {
		d.NIC().WithPort(func() {
			for _, port := range ports {
				check(t, port.SetPlan(plan))
			}
		})
	}
}

// newTamperedPair connects two devices; change is done to every packet that the first receives.
func newTamperedPair(t testing.TB, change func(*wire.Packet)) (a, b *side) {
	t.Helper()
	a, b = newUnconnectedPair(t, func(p nic.Port) nic.Port { return tampered{p, change} })
	connectSides(t, a, b, verbs.RCAttr{})
	return a, b
}

type tampered struct {
	nic.Port
	change func(*wire.Packet)
}

func (p tampered) Recv(now clock.Time, packets []wire.Packet) int {
	n := p.Port.Recv(now, packets)
	for i := range packets[:n] {
		p.change(&packets[i])
	}
	return n
}

// stumble is memory over which the device falls.
type stumble struct{}

func (stumble) Bytes(uint64, int) []byte   { panic("a mistake in the device") }
func (stumble) Read([]byte, uint64) error  { panic("a mistake in the device") }
func (stumble) Write([]byte, uint64) error { panic("a mistake in the device") }
