package control

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi/ctl"
)

// A ring keeps its arena, and is free of the one before; the header keeps the arena that it was made in.
func TestResizeCQArenas(t *testing.T) {
	d := newDaemon(t)
	c := d.dial()
	unix.Close(c.open())
	o, ch := c.build()
	defer unix.Close(ch)
	var arenas [2]uint32
	for i := range arenas {
		mem := memfd(t, 1<<20)
		var h ctl.HandleReply
		c.must(ctl.OpAddArena, &ctl.AddArena{Size: 1 << 20}, &h, mem)
		unix.Close(mem)
		arenas[i] = h.Handle
	}
	resize := func(entries, arena uint32, offset uint64) (uint32, error) {
		var r ctl.ResizeCQReply
		_, err := c.call(ctl.OpResizeCQ, &ctl.ResizeCQ{CQ: o.cq, Entries: entries, Arena: arena, Offset: offset}, &r)
		return r.Capacity, err
	}
	remove := func(arena uint32) error {
		_, err := c.call(ctl.OpRemoveArena, &ctl.Handle{Handle: arena}, &ctl.Empty{})
		return err
	}
	for name, bad := range map[string]struct {
		entries, arena uint32
		offset         uint64
	}{
		"no entries":      {0, arenas[0], 0},
		"too many":        {1<<32 - 1, arenas[0], 0},
		"no such arena":   {64, 999, 0},
		"outside":         {1 << 14, arenas[0], 1 << 19},
		"beyond":          {64, arenas[0], 1<<64 - 64},
		"between lines":   {64, arenas[0], 8},
		"wraps, by sizes": {64, arenas[0], 1<<64 - 4096},
	} {
		if _, err := resize(bad.entries, bad.arena, bad.offset); err == nil {
			t.Errorf("%s: accepted", name)
		} else {
			wantRefusal(t, err, syscall.EINVAL)
		}
	}
	if n, err := resize(1000, arenas[0], 64); n != 1024 || err != nil {
		t.Fatalf("capacity %d, %v", n, err)
	}
	wantRefusal(t, remove(arenas[0]), syscall.EBUSY)
	if n, err := resize(65, arenas[1], 0); n != 128 || err != nil {
		t.Fatalf("capacity %d, %v", n, err)
	}
	noError(t, remove(arenas[0]))
	wantRefusal(t, remove(arenas[1]), syscall.EBUSY)
	wantRefusal(t, remove(o.arena), syscall.EBUSY)
	c.must(ctl.OpDestroyQP, &ctl.Handle{Handle: o.qp}, &ctl.Empty{})
	c.must(ctl.OpDestroyCQ, &ctl.Handle{Handle: o.cq}, &ctl.Empty{})
	c.must(ctl.OpDeregMR, &ctl.Handle{Handle: o.mr}, &ctl.Empty{})
	noError(t, remove(arenas[1]))
	noError(t, remove(o.arena))
}
