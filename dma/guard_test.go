package dma

import (
	"errors"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"
)

func TestGuarded(t *testing.T) {
	b := pages(t, 2)
	protect(t, b[pageSize:], unix.PROT_NONE)
	var sink byte
	err := Guarded(func() { sink = b[pageSize+5] })
	var f *Fault
	if !errors.As(err, &f) || f.Addr != address(b)+uintptr(pageSize)+5 || f.Mem != nil {
		t.Errorf("got %v", err)
	}
	if err := Guarded(func() { sink = b[5] }); err != nil {
		t.Error(err)
	}
	if debug.SetPanicOnFault(false) {
		t.Error("the goroutine was left with faults that panic")
	}
	_ = sink
}

func TestGuardGoroutineStays(t *testing.T) {
	done := make(chan bool)
	go func() {
		GuardGoroutine()
		Guarded(func() {})
		copyGuarded(make([]byte, 1), nil, make([]byte, 1), nil)
		done <- debug.SetPanicOnFault(false)
	}()
	if !<-done {
		t.Error("a guarded call took away the goroutine's guard")
	}
}

func TestGuardPassesOtherPanics(t *testing.T) {
	b := pages(t, 1)
	protect(t, b, unix.PROT_NONE)
	var p *Fault
	for name, f := range map[string]func(){
		"own":              func() { panic("own") },
		"nil pointer":      func() { p.Err = nil },
		"index":            func() { _ = b[:0][len(b)%7+1] },
		"fault of another": func() { copyFault(b) },
	} {
		got := func() (r any) {
			defer func() { r = recover() }()
			if name == "fault of another" {
				f()
			} else {
				Guarded(f)
			}
			return nil
		}()
		if got == nil {
			t.Errorf("%s: did not pass", name)
		}
	}
}

// copyFault touches bad while a copy of other bytes is guarded: a bug of ours, not of the memory's owner.
func copyFault(bad []byte) (err error) {
	own := make([]byte, 8)
	g := arm()
	defer func() {
		g.disarm()
		if !g.done {
			err = blame(recover(), own, nil, own, nil)
		}
	}()
	own[0] = bad[0]
	g.done = true
	return nil
}

var sinkErr error

func BenchmarkGuard(b *testing.B) {
	src, dst := make([]byte, 64), make([]byte, 64)
	m := NewEmbedded(src)
	b.Run("copy without guard", func(b *testing.B) {
		for b.Loop() {
			copyPlain(dst, src)
		}
	})
	b.Run("defer alone", func(b *testing.B) {
		for b.Loop() {
			sinkErr = copyDefer(dst, src)
		}
	})
	b.Run("goroutine not guarded", func(b *testing.B) {
		for b.Loop() {
			sinkErr = copyGuarded(dst, m, src, m)
		}
	})
	b.Run("goroutine guarded", func(b *testing.B) {
		GuardGoroutine()
		for b.Loop() {
			sinkErr = copyGuarded(dst, m, src, m)
		}
	})
}

//go:noinline
func copyPlain(dst, src []byte) {
	n := len(src)
	copy(dst[:n-8], src)
	copy(dst[n-8:], src[n-8:])
}

// copyDefer is a guard that trusts the goroutine to be guarded: what arm and disarm cost is the difference to it.
//
//go:noinline
func copyDefer(dst, src []byte) (err error) {
	done := false
	defer func() {
		if !done {
			err = blame(recover(), dst, nil, src, nil)
		}
	}()
	copyPlain(dst, src)
	done = true
	return nil
}
