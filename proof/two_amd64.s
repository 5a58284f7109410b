#include "textflag.h"

// ROUNDS does four rounds of one message, whose next four words are in m. a and c are its state:
// its words A, B, E and F, and C, D, G and H.
#define ROUNDS(m, k, a, c) \
	MOVOU       k(DX), X0   \
	PADDD       m, X0       \
	SHA256RNDS2 X0, a, c    \
	PSHUFD      $0x0e, X0, X0 \
	SHA256RNDS2 X0, c, a

// LOAD takes sixteen bytes of a message, which are big-endian.
#define LOAD(off, p, m) \
	MOVOU  off(p), m \
	PSHUFB X14, m

// LAST completes the four words behind those in m; before are the four ahead of m.
#define LAST(before, m, next) \
	MOVO       m, X13          \
	PALIGNR    $4, before, X13 \
	PADDD      X13, next       \
	SHA256MSG2 m, next

// FIRST begins words anew in the place of those ahead of m.
#define FIRST(before, m) SHA256MSG1 m, before

// Two streams: the words of one are in X5 to X8, its state is in X1 and X2; the other's in X9 to
// X12, X3 and X4.
#define BOTH(k, ma, mb) \
	ROUNDS(ma, k, X1, X2) \
	ROUNDS(mb, k, X3, X4)

// Sixteen rounds behind the first sixteen.
#define SIXTEEN(k) \
	BOTH(k+0, X5, X9)      \
	LAST(X8, X5, X6)       \
	LAST(X12, X9, X10)     \
	FIRST(X8, X5)          \
	FIRST(X12, X9)         \
	BOTH(k+16, X6, X10)    \
	LAST(X5, X6, X7)       \
	LAST(X9, X10, X11)     \
	FIRST(X5, X6)          \
	FIRST(X9, X10)         \
	BOTH(k+32, X7, X11)    \
	LAST(X6, X7, X8)       \
	LAST(X10, X11, X12)    \
	FIRST(X6, X7)          \
	FIRST(X10, X11)        \
	BOTH(k+48, X8, X12)    \
	LAST(X7, X8, X5)       \
	LAST(X11, X12, X9)     \
	FIRST(X7, X8)          \
	FIRST(X11, X12)

// ENTER takes a state from memory, in the order that the instructions want.
#define ENTER(p, a, c) \
	MOVOU   (p), X0     \
	MOVOU   16(p), c    \
	PSHUFD  $0xb1, X0, X0 \
	PSHUFD  $0x1b, c, c \
	MOVO    X0, a       \
	PALIGNR $8, c, a    \
	PBLENDW $0xf0, X0, c

// LEAVE puts it back.
#define LEAVE(p, a, c) \
	PSHUFD  $0x1b, a, X0 \
	PSHUFD  $0xb1, c, c  \
	MOVO    X0, a        \
	PBLENDW $0xf0, c, a  \
	PALIGNR $8, X0, c    \
	MOVOU   a, (p)       \
	MOVOU   c, 16(p)

DATA order<>+0(SB)/8, $0x0405060700010203
DATA order<>+8(SB)/8, $0x0c0d0e0f08090a0b
GLOBL order<>(SB), RODATA|NOPTR, $16

// func blocks(a, b *[8]uint32, p, q *byte, n int, k *[64]uint32)
TEXT ·blocks(SB), NOSPLIT, $64-48
	MOVQ  a+0(FP), AX
	MOVQ  b+8(FP), BX
	MOVQ  p+16(FP), SI
	MOVQ  q+24(FP), DI
	MOVQ  n+32(FP), CX
	MOVQ  k+40(FP), DX
	MOVOU order<>(SB), X14
	ENTER(AX, X1, X2)
	ENTER(BX, X3, X4)

next:
	MOVOU X1, 0(SP)
	MOVOU X2, 16(SP)
	MOVOU X3, 32(SP)
	MOVOU X4, 48(SP)

	LOAD(0, SI, X5)
	LOAD(0, DI, X9)
	BOTH(0, X5, X9)
	LOAD(16, SI, X6)
	LOAD(16, DI, X10)
	BOTH(16, X6, X10)
	FIRST(X5, X6)
	FIRST(X9, X10)
	LOAD(32, SI, X7)
	LOAD(32, DI, X11)
	BOTH(32, X7, X11)
	FIRST(X6, X7)
	FIRST(X10, X11)
	LOAD(48, SI, X8)
	LOAD(48, DI, X12)
	BOTH(48, X8, X12)
	LAST(X7, X8, X5)
	LAST(X11, X12, X9)
	FIRST(X7, X8)
	FIRST(X11, X12)
	SIXTEEN(64)
	SIXTEEN(128)
	BOTH(192, X5, X9)
	LAST(X8, X5, X6)
	LAST(X12, X9, X10)
	FIRST(X8, X5)
	FIRST(X12, X9)
	BOTH(208, X6, X10)
	LAST(X5, X6, X7)
	LAST(X9, X10, X11)
	BOTH(224, X7, X11)
	LAST(X6, X7, X8)
	LAST(X10, X11, X12)
	BOTH(240, X8, X12)

	MOVOU 0(SP), X0
	PADDD X0, X1
	MOVOU 16(SP), X0
	PADDD X0, X2
	MOVOU 32(SP), X0
	PADDD X0, X3
	MOVOU 48(SP), X0
	PADDD X0, X4
	ADDQ  $64, SI
	ADDQ  $64, DI
	DECQ  CX
	JNZ   next

	LEAVE(AX, X1, X2)
	LEAVE(BX, X3, X4)
	RET

// func has() bool
TEXT ·has(SB), NOSPLIT, $0-1
	MOVB  $0, ret+0(FP)
	XORL  AX, AX
	CPUID
	CMPL  AX, $7
	JLT   none
	MOVL  $1, AX
	XORL  CX, CX
	CPUID
	ANDL  $0x00080200, CX // SSSE3 and SSE4.1
	CMPL  CX, $0x00080200
	JNE   none
	MOVL  $7, AX
	XORL  CX, CX
	CPUID
	SHRL  $29, BX
	ANDL  $1, BX
	MOVB  BX, ret+0(FP)

none:
	RET
