package shm

import "golang.org/x/sys/unix"

// A page that is touched first costs a fault, several times what it costs to copy a page, and whoever waits for the one
// that faults waits too. So pages are entered beforehand, many at a time, as an adapter's driver pins what is registered.
const (
	// prefaultMost bounds what is entered of one memory: of a larger one most may never be used.
	prefaultMost = 256 << 20
	// prefaultStep is entered at a time: threads that map and unmap wait for one step at most.
	prefaultStep = 4 << 20
)

// Prefault makes the pages of mem, which is mapped to be written, exist, up to 256 MiB of them. It is advice: what cannot be
// made now, or before Linux 5.14, is made when it is touched.
func Prefault(mem []byte) {
	steps(mem, func(at, n uintptr) bool { return madvise(at, n, unix.MADV_POPULATE_WRITE) == nil })
}

// PrefaultPresent is Prefault for who maps the memory of another process: it enters the pages that the memory has, up to 256 MiB,
// and leaves the others alone, for who makes a page of a memfd pays for it.
func PrefaultPresent(mem []byte) {
	page := uintptr(unix.Getpagesize())
	present := make([]byte, prefaultStep/page)
	steps(mem, func(at, n uintptr) bool {
		if mincore(at, n, present) != nil {
			return false
		}
		n /= page
		for i := uintptr(0); i < n; {
			first := i
			for i < n && present[i]&1 != 0 {
				i++
			}
			if first < i && madvise(at+first*page, (i-first)*page, unix.MADV_POPULATE_WRITE) != nil {
				return false
			}
			for i < n && present[i]&1 == 0 {
				i++
			}
		}
		return true
	})
}

// steps calls f for the pages that hold the beginning of mem, some at a time, until it returns false.
func steps(mem []byte, f func(at, n uintptr) bool) {
	mem = mem[:min(len(mem), prefaultMost)]
	begin, end := pages(mem)
	for begin < end {
		n := min(end-begin, prefaultStep)
		if !f(begin, n) {
			return
		}
		begin += n
	}
}
