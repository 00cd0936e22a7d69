package shm

import "golang.org/x/sys/unix"

// Ranges are up to [MaxRanges] ranges of a process's memory and the places here that belong to them, moved by one system
// call: 416 ns a range of 64 bytes where a call for each costs 1,700. The zero Ranges is empty.
type Ranges struct {
	n      int
	bytes  int
	here   [MaxRanges][]byte
	there  [MaxRanges]uint64
	local  [MaxRanges]unix.Iovec
	remote [MaxRanges]unix.RemoteIovec
}

// Len returns how many ranges there are.
func (r *Ranges) Len() int { return r.n }

// Full reports whether no range can be added.
func (r *Ranges) Full() bool { return r.n == MaxRanges }

// Add adds the bytes b, not empty, and the address they belong to in the process.
func (r *Ranges) Add(b []byte, addr uint64) {
	i := r.n
	r.here[i], r.there[i] = b, addr
	r.local[i].Base = &b[0]
	r.local[i].SetLen(len(b))
	r.remote[i] = unix.RemoteIovec{Base: uintptr(addr), Len: len(b)}
	r.bytes += len(b)
	r.n++
}

// Range returns the bytes and the address of range i.
func (r *Ranges) Range(i int) (b []byte, addr uint64) { return r.here[i], r.there[i] }

// Reset empties r and forgets the memory.
func (r *Ranges) Reset() {
	clear(r.here[:r.n])
	clear(r.local[:r.n])
	r.n, r.bytes = 0, 0
}

// ReadRanges copies from the process. In case of an error, that of [Process.Read], the range i failed after n bytes, and
// those before it were copied.
func (p *Process) ReadRanges(r *Ranges) (i, n int, err error) {
	done := 0
	if p.vm && r.n > 1 {
		done, _ = progress(unix.ProcessVMReadv(p.pid, r.local[:r.n], r.remote[:r.n], 0))
		if done == r.bytes {
			return r.n, 0, nil
		}
	}
	for i := range r.n {
		b := r.here[i]
		if done >= len(b) {
			done -= len(b)
			continue
		}
		// One at a time, the call tells exactly what is wrong.
		n, err := p.Read(b[done:], r.there[i]+uint64(done))
		if err != nil {
			return i, done + n, err
		}
		done = 0
	}
	return r.n, 0, nil
}

// WriteRanges copies to the process, and is like ReadRanges.
func (p *Process) WriteRanges(r *Ranges) (i, n int, err error) {
	done := 0
	if p.vm && r.n > 1 {
		done, _ = progress(unix.ProcessVMWritev(p.pid, r.local[:r.n], r.remote[:r.n], 0))
		if done == r.bytes {
			return r.n, 0, nil
		}
	}
	for i := range r.n {
		b := r.here[i]
		if done >= len(b) {
			done -= len(b)
			continue
		}
		n, err := p.Write(b[done:], r.there[i]+uint64(done))
		if err != nil {
			return i, done + n, err
		}
		done = 0
	}
	return r.n, 0, nil
}
