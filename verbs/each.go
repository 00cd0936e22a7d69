package verbs

import (
	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
)

// Entry is a completion where it lies in the queue. Each field is read when it is asked for, so that who wants wr_id and
// status pays for these. Which fields mean something is as for WC.
type Entry struct{ v abi.CQEView }

// WRID returns what the work request was posted with.
func (e Entry) WRID() uint64 { return e.v.WRID() }

// Status returns how the work request ended.
func (e Entry) Status() ib.WCStatus { return ib.WCStatus(e.v.Status()) }

// Opcode returns what it did.
func (e Entry) Opcode() ib.WCOpcode { return ib.WCOpcode(e.v.Opcode()) }

// VendorErr returns more about an error.
func (e Entry) VendorErr() uint32 { return e.v.VendorErr() }

// ByteLen returns how many bytes were received, or read.
func (e Entry) ByteLen() uint32 { return e.v.ByteLen() }

// Flags returns which optional fields are valid.
func (e Entry) Flags() ib.WCFlags { return ib.WCFlags(e.v.Flags()) }

// ImmData returns the immediate, in host order, with ib.WCWithImm.
func (e Entry) ImmData() uint32 { return e.v.Imm() }

// InvalidatedKey returns the key that the peer has invalidated, with ib.WCWithInv.
func (e Entry) InvalidatedKey() ib.RKey { return ib.RKey(e.v.Imm()) }

// QPN returns the queue pair's number.
func (e Entry) QPN() ib.QPN { return ib.QPN(e.v.QPN()) }

// SrcQP returns the sender's number, of a receive.
func (e Entry) SrcQP() ib.QPN { return ib.QPN(e.v.SrcQP()) }

// PKeyIndex returns the index of the P_Key.
func (e Entry) PKeyIndex() uint16 { return e.v.PKeyIndex() }

// SLID returns the source LID, 0 on Ethernet.
func (e Entry) SLID() uint16 { return e.v.SLID() }

// SL returns the service level: the priority of a VLAN tag.
func (e Entry) SL() uint8 { return e.v.SL() }

// DLIDPathBits returns the path bits of the destination LID, 0 on Ethernet.
func (e Entry) DLIDPathBits() uint8 { return e.v.DLIDPathBits() }

// Timestamp returns the raw clock of the device, in nanoseconds; see Context.WallClock.
func (e Entry) Timestamp() int64 { return int64(e.v.Timestamp()) }

// PollEach is Poll without copies (ibv_start_poll, ibv_next_poll, ibv_end_poll in one): it calls f for each completion
// that is there, oldest first, until f returns false or most were taken, the one for which f returned false included. It
// returns how many were taken; errors are those of Poll.
//
// The entry is valid until f returns. The queue is locked meanwhile: f may post, but must not use the queue, nor take a
// queue pair of it to RESET or close one. The places of all entries are given back to the device when PollEach returns.
func (q *CQ) PollEach(most int, f func(Entry) bool) (int, error) {
	if most <= 0 {
		return 0, nil
	}
	n, err := q.each(most, f)
	return q.polled(n, err)
}

func (q *CQ) each(most int, f func(Entry) bool) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock() // also when f panics
	if q.closed.Load() {
		return 0, ErrClosed
	}
	if n = q.visit(most, f); n > 0 {
		return n, nil
	}
	if err = q.over(); err != nil {
		if n = q.visit(most, f); n > 0 {
			return n, nil
		}
	}
	return 0, err
}

// visit is take for PollEach.
func (q *CQ) visit(most int, f func(Entry) bool) (n int) {
	defer q.release()
	for n < most {
		v, ok := q.next()
		if !ok {
			break
		}
		if q.account(v) {
			n++
			if !f(Entry{v}) {
				break
			}
		}
	}
	return n
}
