package crc

import "golang.org/x/sys/cpu"

// wide says that the processor, and the system with it, has what update is made of.
var wide = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasPCLMULQDQ

// update moves the register of the CRC over n bytes, a multiple of 16 and at least 64.
//
//go:noescape
func update(register uint32, p *byte, n int) uint32
