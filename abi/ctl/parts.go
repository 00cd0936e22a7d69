package ctl

// OpRegMRParts registers memory that lies in several places, or changes a registration to be of such: RegMRParts. RegMRReply
// answers it.
const OpRegMRParts Op = 35

// MaxMemoryParts is the most parts that a region is made of.
const MaxMemoryParts = 32

// MemoryPart is a run of bytes of a region made of parts.
type MemoryPart struct {
	Kind   uint32 // MemoryShared: at Offset of Arena; MemoryProcess: at the address that follows from the region's
	Arena  uint32
	Offset uint64
	Length uint64
}

// RegMRParts registers memory like RegMR, or changes a registration like ReregMR. The region's kind is MemoryParts: its
// bytes are those of the parts, one after another, whose lengths add up to its own. A part of process memory lies as far
// behind MR.Addr as the parts before it are long. What RegMR would want attached for process memory is attached here.
type RegMRParts struct {
	Region uint32 // 0: registers; otherwise the handle of the region to be changed
	Flags  uint32 // ib.ReregFlags, if Region is not 0
	MR     RegMR
	Count  uint32
	Unused uint32 // 0
	Parts  [MaxMemoryParts]MemoryPart
}
