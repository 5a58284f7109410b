package sys

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The functions here ask the kernel for a thing and give it back at once: what they return is what
// a program that needs it would be told.

// TryLock asks for n bytes of memory that is never paged out.
func TryLock(n int) error {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	err = os.NewSyscallError("mlock", unix.Mlock(b))
	_ = unix.Munmap(b) // frees the lock, too
	return err
}

// TryHugePage asks for one huge page of the pool.
func TryHugePage() error {
	b, err := unix.Mmap(-1, 0, 2<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_HUGETLB)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	return os.NewSyscallError("munmap", unix.Munmap(b))
}

// TryPerf asks for a counter of this thread's page faults.
func TryPerf() error {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Config: unix.PERF_COUNT_SW_PAGE_FAULTS,
	}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("perf_event_open", err)
	}
	return unix.Close(fd)
}

// TryBPF asks for a BPF map of one entry.
func TryBPF() error {
	const mapCreate, array = 0, 2
	attr := struct{ kind, key, value, entries, flags uint32 }{array, 4, 8, 1, 0}
	fd, _, e := unix.Syscall(unix.SYS_BPF, mapCreate, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if e != 0 {
		return os.NewSyscallError("bpf", e)
	}
	return unix.Close(int(fd))
}

// Limit is one of the limits of this process, its soft and its hard value.
type Limit struct{ Soft, Hard uint64 }
