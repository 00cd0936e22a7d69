package control

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi/ctl"
)

// A program's memory: its first and last page are its own, and between them lies shared memory.
func partsOf(o objects, addr, page uint64) *ctl.RegMRParts {
	q := &ctl.RegMRParts{MR: ctl.RegMR{PD: o.pd, Kind: ctl.MemoryParts, Addr: addr, Base: addr, Length: 4 * page, Access: 1}, Count: 3}
	q.Parts[0] = ctl.MemoryPart{Kind: ctl.MemoryProcess, Length: page}
	q.Parts[1] = ctl.MemoryPart{Kind: ctl.MemoryShared, Arena: o.arena, Offset: 512 << 10, Length: 2 * page}
	q.Parts[2] = ctl.MemoryPart{Kind: ctl.MemoryProcess, Length: page}
	return q
}

func TestRegisterParts(t *testing.T) {
	d := newDaemon(t)
	c := d.dial()
	defer unix.Close(c.open())
	o, channel := c.build()
	defer unix.Close(channel)
	page := uint64(os.Getpagesize())
	mem, err := unix.Mmap(-1, 0, int(4*page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	noError(t, err)
	defer unix.Munmap(mem)
	addr := address(mem)

	var r, again ctl.RegMRReply
	c.must(ctl.OpDeregMR, &ctl.Handle{Handle: o.mr}, &ctl.Empty{})
	c.must(ctl.OpRegMRParts, partsOf(o, addr, page), &r)
	// Rights are judged again for what is the program's own.
	noError(t, unix.Mprotect(mem[3*page:], unix.PROT_READ))
	_, err = c.call(ctl.OpReregMR, &ctl.ReregMR{Region: r.Handle, Flags: rights, MR: ctl.RegMR{Access: 3}}, &again)
	wantRefusal(t, err, unix.EACCES, "part 2")
	noError(t, unix.Mprotect(mem[3*page:], unix.PROT_READ|unix.PROT_WRITE))
	c.must(ctl.OpReregMR, &ctl.ReregMR{Region: r.Handle, Flags: rights, MR: ctl.RegMR{Access: 3}}, &again)
	if again != r {
		t.Errorf("%+v, before %+v", again, r)
	}
	// The arena is held by the part once, however often the region was changed.
	q := partsOf(o, addr, page)
	q.Region, q.Flags = r.Handle, translation
	c.must(ctl.OpRegMRParts, q, &again)
	_, err = c.call(ctl.OpRemoveArena, &ctl.Handle{Handle: o.arena}, &ctl.Empty{})
	wantRefusal(t, err, unix.EBUSY, "holds 3 rings and regions")
	plain := ctl.RegMR{Kind: ctl.MemoryProcess, Addr: addr, Base: addr, Length: 2 * page}
	c.must(ctl.OpReregMR, &ctl.ReregMR{Region: r.Handle, Flags: translation, MR: plain}, &again)
	_, err = c.call(ctl.OpRemoveArena, &ctl.Handle{Handle: o.arena}, &ctl.Empty{})
	wantRefusal(t, err, unix.EBUSY, "holds 2 rings and regions")
	c.must(ctl.OpDeregMR, &ctl.Handle{Handle: r.Handle}, &ctl.Empty{})
}

func TestRegisterPartsRefuses(t *testing.T) {
	d := newDaemon(t)
	c := d.dial()
	defer unix.Close(c.open())
	o, channel := c.build()
	defer unix.Close(channel)
	page := uint64(os.Getpagesize())
	mem, err := unix.Mmap(-1, 0, int(4*page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	noError(t, err)
	defer unix.Munmap(mem)
	const top = ^uint64(0)
	for _, test := range []struct {
		name  string
		edit  func(q *ctl.RegMRParts)
		errno unix.Errno
		words string
	}{
		{"no parts", func(q *ctl.RegMRParts) { q.Count = 0 }, unix.EINVAL, "in 0 parts"},
		{"too many", func(q *ctl.RegMRParts) { q.Count = ctl.MaxMemoryParts + 1 }, unix.EINVAL, "in 33 parts"},
		{"another kind", func(q *ctl.RegMRParts) { q.MR.Kind = ctl.MemoryShared }, unix.EINVAL, "memory of kind 0"},
		{"a part of parts", func(q *ctl.RegMRParts) { q.Parts[1].Kind = ctl.MemoryParts }, unix.EINVAL, "part 1: memory of kind 3"},
		{"embedded", func(q *ctl.RegMRParts) { q.Parts[1].Kind = ctl.MemoryEmbedded }, unix.EINVAL, "part 1: memory of kind 2"},
		{"empty part", func(q *ctl.RegMRParts) { q.Parts[0].Length = 0 }, unix.EINVAL, "part 0 has 0 bytes"},
		{"longer than the region", func(q *ctl.RegMRParts) { q.Parts[2].Length++ }, unix.EINVAL, "part 2"},
		{"of all there is", func(q *ctl.RegMRParts) { q.Parts[1].Length = top }, unix.EINVAL, "part 1"},
		{"sum wraps", func(q *ctl.RegMRParts) { q.Parts[1].Length = top - page + 1 + 3*page; q.Parts[2].Length = 1 }, unix.EINVAL, "part"},
		{"shorter than the region", func(q *ctl.RegMRParts) { q.Count = 2 }, unix.EINVAL, "short of"},
		{"no arena", func(q *ctl.RegMRParts) { q.Parts[1].Arena = 99 }, unix.EINVAL, "part 1: no such arena 99"},
		{"outside of the arena", func(q *ctl.RegMRParts) { q.Parts[1].Offset = 1<<20 - page }, unix.EINVAL, "outside of the arena"},
		{"offset wraps", func(q *ctl.RegMRParts) { q.Parts[1].Offset = top - page + 1 }, unix.EINVAL, "outside of the arena"},
		{"nothing mapped", func(q *ctl.RegMRParts) { q.MR.Addr = page }, unix.EFAULT, "part 0"},
		{"address wraps", func(q *ctl.RegMRParts) { q.MR.Addr = top - page }, unix.EINVAL, "end of the address space"},
		{"region of nothing", func(q *ctl.RegMRParts) { q.Region, q.Flags = 99, translation }, unix.EINVAL, "no such memory region 99"},
		{"rights", func(q *ctl.RegMRParts) { q.MR.Access = 2 }, unix.EINVAL, "access"},
	} {
		t.Run(test.name, func(t *testing.T) {
			q := partsOf(o, address(mem), page)
			test.edit(q)
			_, err := c.call(ctl.OpRegMRParts, q, &ctl.RegMRReply{})
			wantRefusal(t, err, test.errno, test.words)
		})
	}
	// Nothing holds on to the arena but what build has placed there.
	_, err = c.call(ctl.OpRemoveArena, &ctl.Handle{Handle: o.arena}, &ctl.Empty{})
	wantRefusal(t, err, unix.EBUSY, "holds 3 rings and regions")
}
