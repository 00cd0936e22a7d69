package nic

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi"
)

// What a resize is charged: the difference, and nothing if it fails.
func TestResizeCQ(t *testing.T) {
	_, a, _ := newPair(t, nil)
	used := func() uint64 { return a.dev.ledger.used[resCQEs] }
	q, _ := a.newCQ(t, 100)
	base := used() - 128
	resize := func(entries uint32, want syscall.Errno) {
		t.Helper()
		block := make([]byte, abi.CQBlockSize(abi.CQCapacity(min(entries, 1<<16))))
		if err := a.ctx.ResizeCQ(q, block, entries); errno(err) != want {
			t.Fatalf("resize to %d: %v, want %v", entries, err, want)
		}
		if got := used() - base; got != uint64(q.Capacity()) {
			t.Errorf("%d entries are charged for a queue of %d", got, q.Capacity())
		}
	}
	resize(1000, 0)
	resize(1, 0)
	if q.Capacity() != 64 {
		t.Errorf("capacity %d", q.Capacity())
	}
	resize(0, syscall.EINVAL)
	resize(a.dev.limits.MaxCQE+1, syscall.EINVAL)
	if err := a.ctx.ResizeCQ(q, make([]byte, abi.CQBlockSize(64)-1), 64); errno(err) != syscall.EINVAL {
		t.Errorf("a short block: %v", err)
	}
	// Memory that is gone: nothing has changed, and the queue works.
	gone, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_NONE, unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(gone)
	if err := a.ctx.ResizeCQ(q, gone, 100); errno(err) != syscall.EFAULT {
		t.Errorf("a block that is gone: %v", err)
	}
	resize(64, 0)
	if err := a.ctx.DestroyCQ(q); err != nil {
		t.Fatal(err)
	}
	if used() != base {
		t.Errorf("%d entries are charged for a queue that is gone", used()-base)
	}
	if err := a.ctx.ResizeCQ(q, make([]byte, 1<<16), 64); errno(err) != syscall.EINVAL {
		t.Errorf("a queue that is gone: %v", err)
	}
}

// Another user's quota counts entries, also those that a resize adds.
func TestResizeCQQuota(t *testing.T) {
	_, h, _ := newPair(t, func(c *Config) { c.Limits.MaxCQE = 4 << 20 })
	var a app
	a.open(t, h.dev, ContextConfig{Tenant: 1001}, h.addr)
	q, _ := a.newCQ(t, 64)
	block := make([]byte, abi.CQBlockSize(1<<20))
	if err := a.ctx.ResizeCQ(q, block, 1<<20); errno(err) != syscall.EDQUOT {
		t.Errorf("a resize beyond the quota: %v", err)
	}
	if q.Capacity() != 64 {
		t.Errorf("capacity %d", q.Capacity())
	}
}
