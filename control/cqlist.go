package control

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/nic"
)

// listCQs answers with one page of the completion queues of all sessions that the caller may see; it needs no open device.
// It takes no other session's lock, so that a session which is busy keeps nobody waiting.
func (s *Session) listCQs(q *ctl.ListCQs) (any, error) {
	r := new(ctl.ListCQsReply)
	page := make([]nic.CQStatus, len(r.CQs))
	for i, d := range s.devices {
		number := uint32(i + 1)
		if number < q.After.Device {
			continue
		}
		after := nic.CQCursor{}
		if number == q.After.Device {
			after = nic.CQCursor{Context: q.After.Context, Handle: q.After.CQ}
		}
		n := d.NIC.CQs(after, s.sees, page[:len(r.CQs)-int(r.N)])
		for j := range page[:n] {
			r.CQs[r.N] = cqInfo(d, number, &page[j])
			r.N++
		}
	}
	return r, nil
}

// sees tells whose objects the session may look at: its own user's, and everybody's if that is the daemon's or root.
func (s *Session) sees(tenant uint64) bool {
	return !s.foreign || s.peer.UID == 0 || tenant == uint64(s.peer.UID)
}

func cqInfo(d *Device, number uint32, q *nic.CQStatus) ctl.CQInfo {
	i := ctl.CQInfo{
		Place: ctl.CQPlace{Device: number, CQ: q.Handle, Context: q.Context},
		UID:   uint32(q.Tenant), PID: uint32(q.Process),
		Capacity: q.Capacity, Occupancy: q.Occupancy, HighWater: q.HighWater, Overruns: q.Overruns, Events: q.Events,
		Queues: uint32(q.Queues), Demand: q.Demand,
		ModCount: q.ModerationCount, ModPeriod: q.ModerationPeriod, Armed: uint32(q.Armed),
	}
	copy(i.Device[:ctl.NameSize-1], d.NIC.Name())
	copy(i.ProcessName[:ctl.ProcessNameSize-1], processName(q.Process))
	if q.Channel {
		i.Flags |= ctl.CQChannel
	}
	if q.Dead {
		i.Flags |= ctl.CQDead
	}
	if d.reclaimsOnCompletion() {
		i.Flags |= ctl.CQReclaimCompletion
	}
	return i
}

// processName returns the name of a process that lives, which its session sees to; empty if it cannot be read. The process
// chooses the name: what might steer a terminal is left out.
func processName(pid int) string {
	if pid <= 0 {
		return ""
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, string(bytes.TrimSuffix(b, []byte("\n"))))
}
