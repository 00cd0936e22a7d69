package control

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi/ctl"
)

const translation, domain, rights = 1, 2, 4 // of rereg

// A region moves from one arena to another, and its memory with it; the keys stay.
func TestRereg(t *testing.T) {
	d := newDaemon(t)
	c := d.dial()
	defer unix.Close(c.open())
	o, channel := c.build()
	defer unix.Close(channel)
	mem := memfd(t, 1<<16)
	defer unix.Close(mem)
	var h ctl.HandleReply
	c.must(ctl.OpAddArena, &ctl.AddArena{Size: 1 << 16}, &h, mem)

	var first, r ctl.RegMRReply
	c.must(ctl.OpRegMR, &ctl.RegMR{PD: o.pd, Arena: h.Handle, Length: 4096, Access: 1}, &first)
	_, err := c.call(ctl.OpRemoveArena, &ctl.Handle{Handle: h.Handle}, &ctl.Empty{})
	wantRefusal(t, err, unix.EBUSY, "holds 1 rings and regions")
	c.must(ctl.OpReregMR, &ctl.ReregMR{Region: first.Handle, Flags: translation, MR: *o.newMR()}, &r)
	if r != first {
		t.Errorf("%+v, before %+v", r, first)
	}
	c.must(ctl.OpRemoveArena, &ctl.Handle{Handle: h.Handle}, &ctl.Empty{})

	c.must(ctl.OpAllocPD, &ctl.Empty{}, &h)
	c.must(ctl.OpReregMR, &ctl.ReregMR{Region: first.Handle, Flags: domain | rights, MR: ctl.RegMR{PD: h.Handle, Access: 3}}, &r)
	_, err = c.call(ctl.OpDeallocPD, &ctl.Handle{Handle: h.Handle}, &ctl.Empty{})
	wantRefusal(t, err, unix.EBUSY, "dealloc pd")
	c.must(ctl.OpDeregMR, &ctl.Handle{Handle: first.Handle}, &ctl.Empty{})
	c.must(ctl.OpDeallocPD, &ctl.Handle{Handle: h.Handle}, &ctl.Empty{})
}

// Memory of the application's own that is read-only does not become writable by a change of rights.
func TestReregReadOnlyMemory(t *testing.T) {
	d := newDaemon(t)
	c := d.dial()
	defer unix.Close(c.open())
	var h ctl.HandleReply
	c.must(ctl.OpAllocPD, &ctl.Empty{}, &h)
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	noError(t, err)
	defer unix.Munmap(page)
	addr := address(page)
	var r ctl.RegMRReply
	c.must(ctl.OpRegMR, &ctl.RegMR{PD: h.Handle, Kind: ctl.MemoryProcess, Addr: addr, Base: addr, Length: 100}, &r)
	writable := &ctl.ReregMR{Region: r.Handle, Flags: rights, MR: ctl.RegMR{Access: 1}}
	_, err = c.call(ctl.OpReregMR, writable, &r)
	wantRefusal(t, err, unix.EACCES, "rereg mr")
	noError(t, unix.Mprotect(page, unix.PROT_READ|unix.PROT_WRITE))
	c.must(ctl.OpReregMR, writable, &r)
	c.must(ctl.OpDeregMR, &ctl.Handle{Handle: r.Handle}, &ctl.Empty{})
}

func TestWindows(t *testing.T) {
	d := newDaemon(t)
	c, other := d.dial(), d.dial()
	defer unix.Close(c.open())
	defer unix.Close(other.open())
	var pd ctl.HandleReply
	c.must(ctl.OpAllocPD, &ctl.Empty{}, &pd)
	var one, two ctl.AllocMWReply
	c.must(ctl.OpAllocMW, &ctl.AllocMW{PD: pd.Handle, Type: 1}, &one)
	c.must(ctl.OpAllocMW, &ctl.AllocMW{PD: pd.Handle, Type: 2}, &two)
	if one.RKey == 0 || one.RKey>>8 == two.RKey>>8 || one.RKey&0xff != 0 {
		t.Errorf("keys %#x and %#x", one.RKey, two.RKey)
	}
	_, err := other.call(ctl.OpDeallocMW, &ctl.Handle{Handle: one.Handle}, &ctl.Empty{})
	wantRefusal(t, err, unix.EINVAL, "no such memory window")
	_, err = c.call(ctl.OpDeallocPD, &pd, &ctl.Empty{})
	wantRefusal(t, err, unix.EBUSY, "dealloc pd")
	c.must(ctl.OpDeallocMW, &ctl.Handle{Handle: one.Handle}, &ctl.Empty{})
	c.must(ctl.OpDeallocMW, &ctl.Handle{Handle: two.Handle}, &ctl.Empty{})
	c.must(ctl.OpDeallocPD, &ctl.Handle{Handle: pd.Handle}, &ctl.Empty{})
}
