package sys

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fixed are the seals of memory whose size never changes, so that no access to it can fault.
const fixed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// SealedMemory makes a memfd (Linux 3.17) of size bytes that can neither shrink nor grow.
func SealedMemory(name string, size int64) (fd int, err error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err = unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL) // Linux 6.3; vm.memfd_noexec may ask for it
	if err == unix.EINVAL {
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return -1, os.NewSyscallError("memfd_create", err)
	}
	if err = os.NewSyscallError("ftruncate", unix.Ftruncate(fd, size)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, fixed)
		err = os.NewSyscallError("fcntl F_ADD_SEALS", err)
	}
	if err != nil {
		return -1, errors.Join(err, CloseFD(fd))
	}
	return fd, nil
}

// SealedSize is the size of a memfd, which never changes; an error if it might.
func SealedSize(fd int) (int64, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return 0, os.NewSyscallError("fcntl F_GET_SEALS", err)
	}
	if seals&fixed != fixed {
		return 0, fmt.Errorf("memory that is not sealed against shrinking and growing (seals %#x)", seals)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return 0, os.NewSyscallError("fstat", err)
	}
	return stat.Size, nil
}

// MapTail maps the first head bytes of fd and then, twice and back to back, the size bytes behind
// them: b[head+i] and b[head+size+i] are one byte. Both must be multiples of the page size. Unmap
// releases it.
func MapTail(fd, head, size int) (b []byte, err error) {
	whole := uintptr(head) + 2*uintptr(size)
	at, err := unix.MmapPtr(-1, 0, nil, whole, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON) // reserves the addresses
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	for _, part := range []struct{ to, from, n int }{{0, 0, head}, {head, head, size}, {head + size, head, size}} {
		if part.n == 0 {
			continue
		}
		_, err := unix.MmapPtr(fd, int64(part.from), unsafe.Add(at, part.to), uintptr(part.n),
			unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED|unix.MAP_FIXED)
		if err != nil {
			return nil, errors.Join(os.NewSyscallError("mmap", err), unix.MunmapPtr(at, whole))
		}
	}
	return unsafe.Slice((*byte)(at), whole), nil
}

// Futex operations on memory that processes share: without FUTEX_PRIVATE_FLAG.
const (
	futexWait = 0
	futexWake = 1
)

// FutexWait sleeps while word is value, until a FutexWake of any process, at most so long, and
// gives the P back meanwhile. It may return without a reason.
func FutexWait(word *atomic.Uint32, value uint32, atMost time.Duration) {
	ts := unix.NsecToTimespec(int64(atMost))
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(value),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// FutexWaitRaw is FutexWait that keeps the P. A signal ends it, as the runtime's monitor sends one
// (see [Interrupts]): the kernel would go on with a wait that has no limit, so each has one. It is
// not inlined: a loop of raw calls needs one real call a turn, or the garbage collector can never
// stop it.
//
//go:noinline
func FutexWaitRaw(word *atomic.Uint32, value uint32, atMost time.Duration) {
	ts := unix.NsecToTimespec(int64(atMost))
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(value),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// FutexWake wakes those who sleep at word.
func FutexWake(word *atomic.Uint32) {
	const all = 1<<31 - 1
	_, _, _ = unix.RawSyscall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, all)
}
