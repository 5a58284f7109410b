package uring

import (
	"encoding/binary"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

// WaitID completes when a child of this process has changed as options say, with 0; Child tells
// which, and how. kind, id and options are those of waitid(2): unix.P_PID and its number, P_PIDFD
// and a descriptor, or P_ALL and 0; unix.WEXITED and so on. It completes with ECHILD if there is no
// such child. Whoever else waits for the child, as os.Process does, may take it first. Linux 6.7.
func (o *Op) WaitID(kind, id, options int) *Op {
	e := o.set(OpWaitID)
	x := o.extra()
	x.child = siginfo{}
	if kind < 0 || id < 0 || id > math.MaxInt32 || options < 0 || options > math.MaxInt32 {
		o.fail(unix.EINVAL)
	}
	e.fd, e.len, e.fileIdx, e.off = int32(id), uint32(kind), uint32(options), uint64(uintptr(unsafe.Pointer(&x.child)))
	return o
}

// siginfo is siginfo_t as waitid fills it.
type siginfo [128]byte

// siginfoFields is where the fields of a signal from a child begin: behind three words, at a
// multiple of a pointer's size.
const siginfoFields = (12 + unsafe.Sizeof(uintptr(0)) - 1) &^ (unsafe.Sizeof(uintptr(0)) - 1)

func (s *siginfo) word(at uintptr) int { return int(int32(binary.NativeEndian.Uint32(s[at:]))) }

// Child is what a WaitID found.
type Child struct {
	PID int // 0: no child has changed yet, of a WaitID with unix.WNOHANG
	// 1 (CLD_EXITED): it ended by itself; 2 (CLD_KILLED), 3 (CLD_DUMPED): by a signal; others: see
	// sigaction(2)
	Code   int
	Status int // its exit code, or the signal
}

// Child is the answer to a WaitID that succeeded.
func (o *Op) Child() Child {
	if o.Code() != OpWaitID || o.Res != 0 {
		return Child{}
	}
	s := &o.extra().child
	return Child{PID: s.word(siginfoFields), Code: s.word(8), Status: s.word(siginfoFields + 8)}
}
