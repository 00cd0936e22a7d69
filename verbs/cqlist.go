package verbs

import (
	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/abi/ctl"
)

// CQStatus is a completion queue of any application at one moment: whose it is, how full it is, how full it has been.
type CQStatus struct {
	Device  string
	PID     int    // of the application; 0 if the daemon cannot see it
	Process string // its name; empty if that cannot be read
	UID     int
	Context uint64 // counts the contexts of the device, from 1
	Handle  int    // of the queue in its context

	Capacity  int
	Occupancy int    // completions that wait
	HighWater int    // the most that ever waited at once
	Overruns  uint64 // completions that were lost
	Overrun   bool   // the queue is dead, and every queue pair of it in the error state

	Channel          bool // it has a completion channel
	Armed            ArmState
	Events           uint64 // completion events sent
	ModerationCount  int
	ModerationPeriod int // microseconds

	Queues int // send and receive queues that complete into it
	Demand int // sum of their depths: requests that can be posted at once, each with a completion
	// ReclaimOnCompletion says that the device gives the slots of a queue back when requests complete, and not when their
	// completions are polled: Demand is no upper bound then.
	ReclaimOnCompletion bool
}

// ArmState is what a completion queue's application asked to be woken by.
type ArmState uint8

// Arm states.
const (
	NotArmed       ArmState = ArmState(abi.ArmNone)
	ArmedNext      ArmState = ArmState(abi.ArmNext)
	ArmedSolicited ArmState = ArmState(abi.ArmSolicited)
)

func (a ArmState) String() string {
	switch a {
	case ArmedNext:
		return "next"
	case ArmedSolicited:
		return "solicited"
	}
	return "no"
}

// CQs lists the completion queues of all applications of the daemon. The daemon's own user, and root, see everybody's;
// others those of their own user. The error wraps ErrNoDaemon if there is no daemon.
func CQs(opts ...Option) ([]CQStatus, error) {
	c, err := connect(opts)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return ListCQs(c)
}

// CQs lists the completion queues of the daemon's, or the embedded device's, applications, as the function does.
func (c *Context) CQs() ([]CQStatus, error) {
	if err := c.fail(); err != nil {
		return nil, err
	}
	return ListCQs(c.conn)
}

// Status looks at this queue: how full it is, how full it has been, and what could be posted.
func (q *CQ) Status() (CQStatus, error) {
	list, err := q.ctx.CQs()
	if err != nil {
		return CQStatus{}, err
	}
	for i := range list {
		if s := &list[i]; s.Device == q.ctx.name && uint32(s.Context) == q.ctx.serial && s.Handle == int(q.handle) {
			return *s, nil
		}
	}
	return CQStatus{}, ErrClosed
}

// ListCQs lists the completion queues at the other end of a connection.
func ListCQs(c ctl.Conn) ([]CQStatus, error) {
	var list []CQStatus
	for after := (ctl.CQPlace{}); ; {
		var r ctl.ListCQsReply
		if _, err := c.Call(ctl.OpListCQs, &ctl.ListCQs{After: after}, &r); err != nil {
			return nil, err
		}
		n := min(int(r.N), len(r.CQs))
		for i := range n {
			list = append(list, cqStatus(&r.CQs[i]))
			after = r.CQs[i].Place
		}
		if n == 0 {
			return list, nil
		}
	}
}

func cqStatus(i *ctl.CQInfo) CQStatus {
	return CQStatus{
		Device: text(i.Device[:]), PID: int(i.PID), Process: text(i.ProcessName[:]), UID: int(i.UID),
		Context: i.Place.Context, Handle: int(i.Place.CQ),
		Capacity: int(i.Capacity), Occupancy: int(i.Occupancy), HighWater: int(i.HighWater), Overruns: i.Overruns,
		Overrun: i.Flags&ctl.CQDead != 0, Channel: i.Flags&ctl.CQChannel != 0, Armed: ArmState(i.Armed), Events: i.Events,
		ModerationCount: int(i.ModCount), ModerationPeriod: int(i.ModPeriod), Queues: int(i.Queues), Demand: int(i.Demand),
		ReclaimOnCompletion: i.Flags&ctl.CQReclaimCompletion != 0,
	}
}
