#include "textflag.h"

// STEP folds X by the multipliers in K and adds the message block at off(SI). X4 and X5 are scratch.
#define STEP(X, K, off) \
	MOVOA     X, X4          \
	PCLMULQDQ $0x00, K, X    \
	PCLMULQDQ $0x11, K, X4   \
	PXOR      X4, X          \
	MOVOU     off(SI), X5    \
	PSHUFB    X14, X5        \
	PXOR      X5, X

// CARRY folds X by the multipliers in K and adds it to X3. X4 is scratch.
#define CARRY(X, K) \
	MOVOA     X, X4          \
	PCLMULQDQ $0x00, K, X    \
	PCLMULQDQ $0x11, K, X4   \
	PXOR      X, X3          \
	PXOR      X4, X3

// func clmul(p *byte, n int, init uint64, f *folding) (lo, hi uint64)
TEXT ·clmul(SB), NOSPLIT, $0-48
	MOVQ  p+0(FP), SI
	MOVQ  n+8(FP), CX
	MOVQ  init+16(FP), X0
	MOVQ  f+24(FP), DI
	MOVOU (DI), X14      // order
	MOVOU 64(DI), X11    // k128
	MOVOU (SI), X5
	PXOR  X5, X0

	// The first block takes the n%16 odd bytes, so that whole blocks follow.
	MOVQ   CX, AX
	ANDQ   $15, AX
	JZ     whole
	SUBQ   AX, CX
	MOVQ   AX, BX
	SHLQ   $4, BX
	MOVOU  80(DI)(BX*1), X5 // part[n%16]
	PSHUFB X5, X0
	ADDQ   AX, SI
	JMP    begun

whole:
	PSHUFB X14, X0
	ADDQ   $16, SI
	SUBQ   $16, CX

begun:
	CMPQ   CX, $48
	JLT    tail
	MOVOU  (SI), X1
	MOVOU  16(SI), X2
	MOVOU  32(SI), X3
	PSHUFB X14, X1
	PSHUFB X14, X2
	PSHUFB X14, X3
	ADDQ   $48, SI
	SUBQ   $48, CX
	MOVOU  16(DI), X8       // k512

lanes:
	CMPQ CX, $64
	JLT  merge
	STEP(X0, X8, 0)
	STEP(X1, X8, 16)
	STEP(X2, X8, 32)
	STEP(X3, X8, 48)
	ADDQ $64, SI
	SUBQ $64, CX
	JMP  lanes

merge:
	MOVOU 32(DI), X9        // k384
	MOVOU 48(DI), X10       // k256
	CARRY(X0, X9)
	CARRY(X1, X10)
	CARRY(X2, X11)
	MOVOA X3, X0

tail:
	TESTQ CX, CX
	JZ    done
	STEP(X0, X11, 0)
	ADDQ  $16, SI
	SUBQ  $16, CX
	JMP   tail

done:
	MOVQ   X0, lo+32(FP)
	PSRLDQ $8, X0
	MOVQ   X0, hi+40(FP)
	RET

// func barrett(lo, hi uint64, k *reduction) uint16
//
// Bit i of the 128 bits stands for x^(127-i); a product of reversed operands comes out multiplied by x.
TEXT ·barrett(SB), NOSPLIT, $0-26
	MOVQ      lo+0(FP), X0   // degrees 127 … 64
	MOVQ      hi+8(FP), X1   // degrees 63 … 0
	MOVQ      k+16(FP), DI
	MOVQ      (DI), X2       // x^80
	PCLMULQDQ $0x00, X2, X0
	PSLLDQ    $6, X1         // · x^16
	PXOR      X1, X0         // degrees 79 … 0
	MOVQ      8(DI), X2      // x^64
	MOVOA     X0, X1
	PCLMULQDQ $0x00, X2, X1
	PXOR      X1, X0
	PSRLDQ    $8, X0
	MOVQ      X0, AX         // degrees 63 … 0
	MOVQ      AX, BX
	SHLQ      $16, BX        // without the lowest 16
	MOVQ      BX, X0
	MOVQ      16(DI), X2     // floor(x^64 / P)
	PCLMULQDQ $0x00, X2, X0
	MOVQ      X0, BX         // the quotient is in bits 31 … 78
	PSRLDQ    $8, X0
	MOVQ      X0, CX
	SHRQ      $31, BX
	SHLQ      $33, CX
	ORQ       CX, BX
	SHLQ      $16, BX
	MOVQ      BX, X0
	MOVQ      24(DI), X2     // P without its highest term
	PCLMULQDQ $0x00, X2, X0
	PSRLDQ    $8, X0
	MOVQ      X0, CX
	SHRQ      $47, CX
	SHRQ      $48, AX
	XORQ      CX, AX
	MOVW      AX, ret+24(FP)
	RET
