//go:build unix

package sys

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MapsBeyondEnd says that a mapping may be longer than its file, so that the file can grow under
// it.
const MapsBeyondEnd = true

// MapFile maps the first n bytes of a file, shared with it. Unmap releases the mapping.
func MapFile(f *os.File, n int, write bool) ([]byte, error) {
	prot := unix.PROT_READ
	if write {
		prot |= unix.PROT_WRITE
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var p unsafe.Pointer
	if raw.Control(func(fd uintptr) {
		p, err = unix.MmapPtr(int(fd), 0, nil, uintptr(n), prot, unix.MAP_SHARED)
	}) != nil {
		return nil, os.ErrClosed
	}
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// Unmap releases what MapFile or DoubleMap gave.
func Unmap(b []byte) error {
	return os.NewSyscallError("munmap", unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b))))
}

// SyncMap writes the changed pages of a mapping to the disk and waits.
func SyncMap(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	return os.NewSyscallError("msync", unix.Msync(b, unix.MS_SYNC))
}

// AdviseRandom keeps the kernel from reading ahead of faults.
func AdviseRandom(b []byte) error {
	return os.NewSyscallError("madvise", unix.Madvise(b, unix.MADV_RANDOM))
}

// AdviseSequential makes the kernel read far ahead of faults.
func AdviseSequential(b []byte) error {
	return os.NewSyscallError("madvise", unix.Madvise(b, unix.MADV_SEQUENTIAL))
}
