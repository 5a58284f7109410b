package sys

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Datasync makes the file's data, and what is needed to read it back, durable.
func Datasync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// ODirect opens a file past the page cache: offsets, lengths and memory must then be multiples of
// the device's block.
const ODirect = unix.O_DIRECT

// Reserve takes room on the disk for n bytes from off, without changing the size of the file. A
// file system that cannot gives errors.ErrUnsupported.
func Reserve(f *os.File, off, n int64) error {
	for {
		switch err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, off, n); err {
		case unix.EINTR:
		case unix.EOPNOTSUPP, unix.ENOSYS:
			return errors.ErrUnsupported
		default:
			return os.NewSyscallError("fallocate", err)
		}
	}
}

// DropCache drops the file's clean pages from the page cache; what is dirty stays.
func DropCache(f *os.File) error {
	return os.NewSyscallError("fadvise", unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}

// FreeBytes is the space that an ordinary user may still take on the file system of path.
func FreeBytes(path string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, os.NewSyscallError("statfs", err)
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// Lock takes an exclusive lock on the file, for this open file alone, or fails at once with held =
// true.
func Lock(f *os.File) (held bool, err error) {
	return LockFD(int(f.Fd()))
}

// LockFD is Lock for a bare descriptor.
func LockFD(fd int) (held bool, err error) {
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	return err == unix.EWOULDBLOCK, os.NewSyscallError("flock", err)
}

// MayWrite returns nil if this process may make files in a folder, by the permissions and the mount
// as they are now: else EACCES, EROFS, or what keeps it from being known.
func MayWrite(dir string) error {
	err := unix.Faccessat(unix.AT_FDCWD, dir, unix.R_OK|unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	if err != nil {
		return &os.PathError{Op: "access", Path: dir, Err: err}
	}
	return nil
}

// SyncDir makes the names in a directory durable.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Dirty is the number of pages of the file that are changed in memory and not on the disk yet.
// Linux 6.5.
func Dirty(f *os.File) (int, error) {
	const sysCachestat = 451
	window := struct{ off, len uint64 }{}
	var stat struct{ cache, dirty, writeback, evicted, recentlyEvicted uint64 }
	_, _, e := unix.Syscall6(sysCachestat, f.Fd(), uintptr(unsafe.Pointer(&window)), uintptr(unsafe.Pointer(&stat)), 0, 0, 0)
	if e != 0 {
		return 0, os.NewSyscallError("cachestat", e)
	}
	return int(stat.dirty + stat.writeback), nil
}
