#include "textflag.h"

// The method is that of Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel,
// 2009), for reflected bits, with vectors of four lanes. What is left of a lane of 128 bits when D more bits have been read is
//
//	low half * x^(D+32) + high half * x^(D-32)   (mod P)
//
// and is added to the lane that stands D bits on. TestConstants derives the constants: x^n mod P, reflected, and shifted by a
// bit since the product of two reflected numbers comes out one short.

DATA distance<>+0x00(SB)/8, $0x11542778a // 2048: past four vectors
DATA distance<>+0x08(SB)/8, $0x1322d1430
DATA distance<>+0x10(SB)/8, $0x1821d8bc0 // 1536
DATA distance<>+0x18(SB)/8, $0x12e958ac4
DATA distance<>+0x20(SB)/8, $0x1e88ef372 // 1024
DATA distance<>+0x28(SB)/8, $0x14a7fe880
DATA distance<>+0x30(SB)/8, $0x154442bd4 // 512: one vector
DATA distance<>+0x38(SB)/8, $0x1c6e41596
DATA distance<>+0x40(SB)/8, $0x03db1ecdc // 384: from here on the lanes of a vector, up to its last
DATA distance<>+0x48(SB)/8, $0x174359406
DATA distance<>+0x50(SB)/8, $0x0f1da05aa // 256
DATA distance<>+0x58(SB)/8, $0x15a546366
DATA distance<>+0x60(SB)/8, $0x1751997d0 // 128
DATA distance<>+0x68(SB)/8, $0x0ccaa009e
DATA distance<>+0x70(SB)/8, $0 // the last lane stays
DATA distance<>+0x78(SB)/8, $0
GLOBL distance<>(SB), RODATA|NOPTR, $0x80

DATA last<>+0x00(SB)/8, $0x163cd6124 // x^64
DATA last<>+0x08(SB)/8, $0
DATA last<>+0x10(SB)/8, $0x1f7011641 // x^64 / P
DATA last<>+0x18(SB)/8, $0x1db710641 // P
DATA last<>+0x20(SB)/8, $0xffffffff
DATA last<>+0x28(SB)/8, $0
GLOBL last<>(SB), RODATA|NOPTR, $0x30

// FOLD moves v by the distance in k, and adds the vector next: v = v.low*k.low + v.high*k.high + next.
#define FOLD(v, k, next, t) \
	VPCLMULQDQ $0x00, k, v, t;  \
	VPCLMULQDQ $0x11, k, v, v;  \
	VPTERNLOGQ $0x96, next, t, v

// func update(register uint32, p *byte, n int) uint32
TEXT ·update(SB), NOSPLIT, $0-28
	MOVL  register+0(FP), AX
	MOVQ  p+8(FP), SI
	MOVQ  n+16(FP), CX
	LEAQ  distance<>(SB), DX
	VMOVD AX, X8
	VBROADCASTI32X4 0x30(DX), Z7

	// The register is added to the first four bytes.
	CMPQ CX, $256
	JB   few
	VPXORQ    (SI), Z8, Z0
	VMOVDQU64 64(SI), Z1
	VMOVDQU64 128(SI), Z2
	VMOVDQU64 192(SI), Z3
	VBROADCASTI32X4 (DX), Z4
	ADDQ $256, SI
	SUBQ $256, CX
	CMPQ CX, $256
	JB   together

four:
	FOLD(Z0, Z4, (SI), Z9)
	FOLD(Z1, Z4, 64(SI), Z10)
	FOLD(Z2, Z4, 128(SI), Z11)
	FOLD(Z3, Z4, 192(SI), Z12)
	ADDQ $256, SI
	SUBQ $256, CX
	CMPQ CX, $256
	JAE  four

together: // four vectors are one
	VBROADCASTI32X4 0x10(DX), Z5
	VBROADCASTI32X4 0x20(DX), Z6
	FOLD(Z0, Z5, Z3, Z9)
	FOLD(Z1, Z6, Z0, Z10)
	FOLD(Z2, Z7, Z1, Z11)
	VMOVDQA64 Z2, Z0
	JMP  ones

few:
	VPXORQ (SI), Z8, Z0
	ADDQ   $64, SI
	SUBQ   $64, CX

ones:
	CMPQ CX, $64
	JB   lanes
	FOLD(Z0, Z7, (SI), Z9)
	ADDQ $64, SI
	SUBQ $64, CX
	JMP  ones

lanes: // four lanes are one
	VMOVDQU64 0x40(DX), Z4
	VPCLMULQDQ $0x00, Z4, Z0, Z1
	VPCLMULQDQ $0x11, Z4, Z0, Z2
	VEXTRACTI32X4 $3, Z0, X3
	VPXORQ Z2, Z1, Z1
	VEXTRACTI64X4 $1, Z1, Y2
	VPXOR  Y2, Y1, Y1
	VEXTRACTI128 $1, Y1, X2
	VPXOR  X2, X1, X1
	VPXOR  X3, X1, X1
	VMOVDQU 0x60(DX), X4

sixteens:
	CMPQ CX, $16
	JB   end
	VPCLMULQDQ $0x00, X4, X1, X2
	VPCLMULQDQ $0x11, X4, X1, X1
	VPXOR X2, X1, X1
	VPXOR (SI), X1, X1
	ADDQ $16, SI
	SUBQ $16, CX
	JMP  sixteens

end: // 128 bits to 96, to 64, and by Barrett's reduction to 32
	VPCLMULQDQ $0x10, X4, X1, X2
	VPSRLDQ $8, X1, X1
	VPXOR  X2, X1, X1
	VMOVDQU last<>+0x20(SB), X5
	VPAND  X5, X1, X2
	VPCLMULQDQ $0x00, last<>+0x00(SB), X2, X2
	VPSRLDQ $4, X1, X1
	VPXOR  X2, X1, X1
	VMOVDQU last<>+0x10(SB), X3
	VPAND  X5, X1, X2
	VPCLMULQDQ $0x00, X3, X2, X2
	VPAND  X5, X2, X2
	VPCLMULQDQ $0x10, X3, X2, X2
	VPXOR  X2, X1, X1
	VPEXTRD $1, X1, AX
	VZEROUPPER
	MOVL AX, ret+24(FP)
	RET
