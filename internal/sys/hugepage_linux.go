package sys

import (
	"errors"
	"math/bits"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugeShift is where flags of mmap have the size of a huge page, as a power of two.
const hugeShift = 26

// TryHugePagesOf asks for n huge pages of the pool of that size, and gives them back untouched.
func TryHugePagesOf(size uint64, n int) error {
	length := size * uint64(n)
	if int(length) < 0 || uint64(int(length)) != length {
		return os.NewSyscallError("mmap", unix.ENOMEM) // more than there are addresses
	}
	b, err := unix.Mmap(-1, 0, int(length), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_HUGETLB|(bits.Len64(size)-1)<<hugeShift)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	return os.NewSyscallError("munmap", unix.Munmap(b))
}

// CollapseHuge asks the kernel to make n transparent huge pages of memory that this process has
// touched for that (madvise MADV_COLLAPSE, Linux 6.1), one after the other, and gives all back. got
// is how many it could make. An error is that it cannot be asked.
func CollapseHuge(size, n int) (got int, err error) {
	b, err := unix.Mmap(-1, 0, size*(n+1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return 0, os.NewSyscallError("mmap", err)
	}
	defer func() { err = errors.Join(err, os.NewSyscallError("munmap", unix.Munmap(b))) }()
	first := -uintptr(unsafe.Pointer(&b[0])) & uintptr(size-1)
	for i := range n {
		page := b[int(first)+i*size:][:size]
		page[0] = 1
		switch e := unix.Madvise(page, unix.MADV_COLLAPSE); e {
		case nil:
			got++
		case unix.ENOMEM, unix.EAGAIN, unix.EBUSY: // there is none
		default:
			return 0, os.NewSyscallError("madvise MADV_COLLAPSE", e)
		}
	}
	return got, nil
}

// CPUTime is what this process has used, of all CPUs, in ns.
func CPUTime() int64 {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return 0 // cannot be: the arguments are right
	}
	return r.Utime.Nano() + r.Stime.Nano()
}
