package nic

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
)

func TestPKeyTable(t *testing.T) {
	for _, c := range []struct {
		keys []ib.PKey
		ok   bool
	}{
		{nil, true},
		{[]ib.PKey{0xffff, 0x8001, 0x7002}, true},
		{[]ib.PKey{0xffff, 0x8000}, false}, // partition 0
		{[]ib.PKey{0xffff, 0}, false},
		{[]ib.PKey{0x8001, 1}, false}, // one partition twice
		{[]ib.PKey{0xffff, 1, 2, 3, 4}, false},
	} {
		table, err := newPKeys(c.keys, 4)
		if (err == nil) != c.ok || !c.ok && !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%v: %v", c.keys, err)
		}
		if c.ok && (len(table) != 4 || table[3] != 0 || c.keys == nil && table[0] != ib.DefaultPKey) {
			t.Errorf("%v: %v", c.keys, table)
		}
	}
}

// What passes between queue pairs by their P_Keys: the partition must be one, and one of both a full member (IBA 10.9.3).
func TestPKeyMembership(t *testing.T) {
	const full, limited, other, empty = 1, 2, 3, 4 // indexes
	for _, c := range []struct {
		name string
		a, b uint16 // index in a's table, in b's
		pass bool
	}{
		{"default", 0, 0, true},
		{"full and full", full, full, true},
		{"full and limited", full, limited, true},
		{"limited and full", limited, full, true},
		{"limited and limited", limited, limited, false},
		{"another partition", full, other, false},
	} {
		// A partition stands in a table once: each host's second entry is a member, full or limited as the case is.
		tables := func(index uint16) func(*Config) {
			return func(cfg *Config) {
				cfg.Limits.PKeyTableLen = 8
				cfg.PKeys = []ib.PKey{0xffff, 0x8123, 0x4123, 0x8777}
				if index == limited {
					cfg.PKeys[1], cfg.PKeys[2] = 0x4124, 0x0123
				} else {
					cfg.PKeys[2] = 0x4124
				}
			}
		}
		ca, cb := newCables(64)
		a := newHost(t, "softnic0", "10.0.0.1", ca, tables(c.a))
		b := newHost(t, "softnic1", "10.0.0.2", cb, tables(c.b))
		w := &world{devs: []*Device{a.dev, b.dev}}
		x, y := a.newQP(t, nil), b.newQP(t, nil)
		x.connect(t, y)
		y.connect(t, x)
		for _, end := range []struct {
			q     *QP
			ctx   *Context
			index uint16
		}{{x.qp, a.ctx, c.a}, {y.qp, b.ctx, c.b}} {
			moveTo(t, w, end.ctx, end.q, end.index)
		}
		y.postRecv(1, y.sge(0, 100))
		x.postSend(abi.SendWQE{WRID: 1, Opcode: uint8(ib.WRSend), Flags: uint8(ib.SendSignaled)}, x.sge(0, 100))
		w.run(100 * time.Millisecond)
		if got := len(y.poll(t)) == 1; got != c.pass {
			t.Errorf("%s: passed %v, want %v", c.name, got, c.pass)
		}
		if n := b.dev.PortAttr().BadPKeyCntr; (n == 0) != c.pass {
			t.Errorf("%s: %d bad P_Keys counted", c.name, n)
		}
	}

	a := newHost(t, "softnic0", "10.0.0.1", newCable(4), func(cfg *Config) { cfg.Limits.PKeyTableLen = 8 })
	x := a.newQP(t, nil)
	init := ib.QPAttr{State: ib.StateInit, PortNum: 1}
	mask := ib.QPAttrState | ib.QPAttrPKeyIndex | ib.QPAttrPort | ib.QPAttrAccessFlags
	for index, want := range map[uint16]string{empty: "the entry is empty", 8: "length is 8"} {
		init.PKeyIndex = index
		if err := a.ctx.ModifyQP(x.qp, &init, mask); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), want) {
			t.Errorf("index %d: %v", index, err)
		}
	}
}

// moveTo takes a connected queue pair to another entry of the P_Key table, as is allowed while its send queue is drained.
func moveTo(t *testing.T, w *world, c *Context, q *QP, index uint16) {
	t.Helper()
	for _, step := range []struct {
		attr ib.QPAttr
		mask ib.QPAttrMask
	}{
		{ib.QPAttr{State: ib.StateSQD}, ib.QPAttrState},
		{ib.QPAttr{State: ib.StateSQD, PKeyIndex: index}, ib.QPAttrState | ib.QPAttrPKeyIndex},
		{ib.QPAttr{State: ib.StateRTS}, ib.QPAttrState},
	} {
		if err := c.ModifyQP(q, &step.attr, step.mask); err != nil {
			t.Fatal(err)
		}
		w.run(time.Millisecond)
	}
}
