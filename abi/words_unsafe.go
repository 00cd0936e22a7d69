//go:build amd64 || arm64 || riscv64 || loong64

package abi

// The build constraint is the little-endian 64-bit machines: a word in shared memory is a word of the machine.

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/softnic/softnicd/ib"
)

// words is memory seen as 64-bit and as 32-bit words. Both views are bounds-checked slices, so that nothing outside this
// file needs unsafe.
type words struct {
	q []uint64
	d []uint32
}

// newWords views the first n bytes of b, which must be aligned for 64-bit atomics.
func newWords(b []byte, n uint64) (words, error) {
	if n%8 != 0 || n > uint64(len(b)) {
		return words{}, fmt.Errorf("abi: memory of %d bytes is too small, %d needed: %w", len(b), n, syscall.EINVAL)
	}
	if n == 0 {
		return words{}, nil
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%8 != 0 {
		return words{}, errUnaligned
	}
	return words{unsafe.Slice((*uint64)(p), n/8), unsafe.Slice((*uint32)(p), n/4)}, nil
}

var errUnaligned = fmt.Errorf("abi: memory is not aligned to 8 bytes: %w", syscall.EINVAL)

// The Go structs have the layout of the offset tables in wqe.go, and the C header is generated from them. A difference
// makes one of these constants negative, which is no uintptr: the build fails.
const (
	_ uintptr = -(unsafe.Sizeof(SendWQE{}) ^ SendWQESize)
	_ uintptr = -unsafe.Offsetof(SendWQE{}.WRID)
	_ uintptr = -(unsafe.Offsetof(SendWQE{}.Opcode) ^ 8)
	_ uintptr = -(unsafe.Offsetof(SendWQE{}.Flags) ^ 9)
	_ uintptr = -(unsafe.Offsetof(SendWQE{}.Count) ^ 10)
	_ uintptr = -(unsafe.Offsetof(SendWQE{}.Imm) ^ 12)
	_ uintptr = -(unsafe.Offsetof(SendWQE{}.RemoteAddr) ^ 16)
	_ uintptr = -(unsafe.Offsetof(SendWQE{}.RKey) ^ 24)
	_ uintptr = -(unsafe.Offsetof(SendWQE{}.SRQN) ^ 28)
	_ uintptr = -(unsafe.Offsetof(SendWQE{}.Operand) ^ 32)
	_ uintptr = -(unsafe.Offsetof(SendWQE{}.Compare) ^ 40)

	_ uintptr = -(unsafe.Sizeof(RecvWQE{}) ^ RecvWQESize)
	_ uintptr = -unsafe.Offsetof(RecvWQE{}.WRID)
	_ uintptr = -(unsafe.Offsetof(RecvWQE{}.Count) ^ 8)

	_ uintptr = -(unsafe.Sizeof(ib.SGE{}) ^ SGESize)
	_ uintptr = -unsafe.Offsetof(ib.SGE{}.Addr)
	_ uintptr = -(unsafe.Offsetof(ib.SGE{}.Length) ^ 8)
	_ uintptr = -(unsafe.Offsetof(ib.SGE{}.LKey) ^ 12)

	_ uintptr = -(unsafe.Sizeof(CQE{}) ^ cqeBody)
	_ uintptr = -unsafe.Offsetof(CQE{}.WRID)
	_ uintptr = -(unsafe.Offsetof(CQE{}.ByteLen) ^ 8)
	_ uintptr = -(unsafe.Offsetof(CQE{}.Imm) ^ 12)
	_ uintptr = -(unsafe.Offsetof(CQE{}.QPN) ^ 16)
	_ uintptr = -(unsafe.Offsetof(CQE{}.SrcQP) ^ 20)
	_ uintptr = -(unsafe.Offsetof(CQE{}.Status) ^ 24)
	_ uintptr = -(unsafe.Offsetof(CQE{}.Opcode) ^ 25)
	_ uintptr = -(unsafe.Offsetof(CQE{}.Flags) ^ 26)
	_ uintptr = -(unsafe.Offsetof(CQE{}.VendorErr) ^ 28)
	_ uintptr = -(unsafe.Offsetof(CQE{}.Timestamp) ^ 32)
	_ uintptr = -(unsafe.Offsetof(CQE{}.PKeyIndex) ^ 40)
	_ uintptr = -(unsafe.Offsetof(CQE{}.SLID) ^ 42)
	_ uintptr = -(unsafe.Offsetof(CQE{}.SL) ^ 44)
	_ uintptr = -(unsafe.Offsetof(CQE{}.DLIDPathBits) ^ 45)
	_ uintptr = -(unsafe.Offsetof(CQE{}.Queue) ^ 46)
	_ uintptr = -(unsafe.Offsetof(CQE{}.NetworkType) ^ 47)
	_ uintptr = -(unsafe.Offsetof(CQE{}.QPSlot) ^ 48)
	_ uintptr = -(unsafe.Offsetof(CQE{}.WQEIndex) ^ 52)
)

// Headers hold what their tables say, and nothing overlaps.
const (
	_ uint = QPHeaderSize - (offRQTaken + 4)
	_ uint = CQHeaderSize - (offCQProduced + 4)
	_ uint = DoorbellSize - (offBellLeaf + MaxQPSlots/8)
	_ uint = offBellLeaf - (offBellMiddle + 64*8)
	_ uint = DevicePageSize - (offPageSleeping + MaxShards*CacheLine)
	_ uint = -(CQESize - cqeBody - 8)
	_ uint = -(offCQESequence ^ (cqeBody + 4))
	_ uint = -(SendWQEAlign % 8)
	_ uint = -(RecvWQEAlign % 8)
	_ uint = -(CQRound & (CQRound - 1))
)
