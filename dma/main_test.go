package dma

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/internal/shm"
)

// The test binary runs itself as the process whose memory is registered.
func TestMain(m *testing.M) {
	if os.Getenv("SOFTNIC_DMA_CHILD") != "" {
		child()
		return
	}
	os.Exit(m.Run())
}

func seeded() func() uint64 { return rand.New(rand.NewPCG(1, 2)).Uint64 }

// pages maps n pages of this process's own, off the heap.
func pages(t testing.TB, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	return b
}

// protect takes the rights on whole pages away. What is done to them later faults; the address space stays taken, so
// that nothing else comes to lie there.
func protect(t testing.TB, b []byte, prot int) {
	t.Helper()
	if err := unix.Mprotect(b, prot); err != nil {
		t.Fatal(err)
	}
}

// memory is a region that is reached by calls only, as a process's is.
type memory struct {
	b []byte
	*direct
}

func newMemory(n int) *memory {
	b := make([]byte, n)
	return &memory{b, NewEmbedded(b).(*direct)}
}

func (m *memory) Bytes(uint64, int) []byte { return nil }

func pattern(b []byte, seed byte) []byte {
	for i := range b {
		b[i] = byte(i)*7 + byte(i>>8) + seed
	}
	return b
}

// childPages is what the child maps: four pages to read and write, one to read, one hole, one to read and write.
const childPages = 7

func child() {
	b, err := unix.Mmap(-1, 0, childPages*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		panic(err)
	}
	pattern(b, 1)
	unix.Mprotect(b[4*pageSize:5*pageSize], unix.PROT_READ)
	unix.MunmapPtr(address2pointer(b[5*pageSize:]), uintptr(pageSize))
	mem, err1 := unix.Open("/proc/self/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	maps, err2 := unix.Open("/proc/self/maps", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err1 != nil || err2 != nil {
		panic("no /proc")
	}
	if err := shm.SendMsg(3, fmt.Appendf(nil, "%d", address(b)), mem, maps); err != nil {
		panic(err)
	}
	// Until the parent closes its end.
	for {
		var cmd [1]byte
		if n, _ := unix.Read(3, cmd[:]); n == 0 {
			return
		}
		switch cmd[0] {
		case 'r': // make the first page read-only
			unix.Mprotect(b[:pageSize], unix.PROT_READ)
		case 's': // add up the first page
			sum := 0
			for _, x := range b[:pageSize] {
				sum += int(x)
			}
			unix.Write(3, fmt.Appendf(nil, "%d", sum))
			continue
		}
		unix.Write(3, []byte("k"))
	}
}
