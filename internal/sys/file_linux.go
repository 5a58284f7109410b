package sys

import (
	"errors"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// withFD calls with the file's descriptor, which a Close elsewhere waits for: by its bare number
// the call might reach the file that is opened next.
func withFD(f *os.File, call func(fd int) error) (err error) {
	raw, connErr := f.SyscallConn()
	if connErr != nil || raw.Control(func(fd uintptr) { err = call(int(fd)) }) != nil {
		return os.ErrClosed
	}
	return err
}

// Datasync makes the file's data, and what is needed to read it back, durable.
func Datasync(f *os.File) error {
	return withFD(f, func(fd int) error {
		for {
			if err := unix.Fdatasync(fd); err != unix.EINTR {
				return os.NewSyscallError("fdatasync", err)
			}
		}
	})
}

// ODirect opens a file past the page cache: offsets, lengths and memory must then be multiples of
// the device's block.
const ODirect = unix.O_DIRECT

// DropCache drops the file's clean pages from the page cache; what is dirty stays.
func DropCache(f *os.File) error {
	return withFD(f, func(fd int) error {
		return os.NewSyscallError("fadvise", unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED))
	})
}

// Populate makes the pages of a mapping of a file ready, reading what is not cached (madvise(2),
// MADV_POPULATE_READ, Linux 5.14).
func Populate(b []byte) error {
	return os.NewSyscallError("madvise MADV_POPULATE_READ", unix.Madvise(b, unix.MADV_POPULATE_READ))
}

// AdviseHuge asks for huge pages (madvise(2), MADV_HUGEPAGE), which few file systems have.
func AdviseHuge(b []byte) error {
	return os.NewSyscallError("madvise MADV_HUGEPAGE", unix.Madvise(b, unix.MADV_HUGEPAGE))
}

// Cached is the share of a file's pages that are in the page cache, 0 to 1. The file must not be
// empty.
func Cached(f *os.File) (share float64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	err = withFD(f, func(fd int) error {
		m, err := unix.Mmap(fd, 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return os.NewSyscallError("mmap", err)
		}
		pages := make([]byte, (len(m)+os.Getpagesize()-1)/os.Getpagesize())
		_, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)),
			uintptr(unsafe.Pointer(&pages[0])))
		for _, p := range pages {
			share += float64(p&1) / float64(len(pages)) // the other bits mean nothing
		}
		err = unix.Munmap(m)
		if e != 0 {
			err = e
		}
		return os.NewSyscallError("mincore", err)
	})
	return share, err
}

// FreeBytes is the space that an ordinary user may still take on the file system of path.
func FreeBytes(path string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, os.NewSyscallError("statfs", err)
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// NamelessFile makes a file in a folder that has no name: it goes with its last descriptor. On a
// file system that makes none it has one for a moment, of the pattern of os.CreateTemp.
func NamelessFile(dir, pattern string) (*os.File, error) {
	f, err := os.OpenFile(dir, unix.O_TMPFILE|os.O_RDWR, 0o600)
	if err == nil || !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) {
		return f, err
	}
	if f, err = os.CreateTemp(dir, pattern); err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// FreeFiles is how many files may still be made on the file system of path; false where it makes
// inodes as they are needed.
func FreeFiles(path string) (n int64, bounds bool, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, false, os.NewSyscallError("statfs", err)
	}
	return int64(s.Ffree), s.Files > 0, nil
}

// Lock takes an exclusive lock on the file, for this open file alone, or fails at once with held =
// true.
func Lock(f *os.File) (held bool, err error) {
	err = withFD(f, func(fd int) error {
		held, err = LockFD(fd)
		return err
	})
	return held, err
}

// LockFD is Lock for a bare descriptor.
func LockFD(fd int) (held bool, err error) {
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	return err == unix.EWOULDBLOCK, os.NewSyscallError("flock", err)
}

// Unlock takes back what Lock has taken, also where a process that is just being started has the
// file for a moment: until it runs a program, it has all that is open.
func Unlock(f *os.File) error {
	return withFD(f, func(fd int) error { UnlockFD(fd); return nil })
}

// UnlockFD takes back what LockFD has taken, for all processes that have the descriptor.
func UnlockFD(fd int) { _ = unix.Flock(fd, unix.LOCK_UN) }

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

// cachestat is struct cachestat of <linux/mman.h>.
type cachestat struct{ cache, dirty, writeback, evicted, recentlyEvicted uint64 }

// statCache asks about n bytes of a file from off; n = 0: to its end. Linux 6.5. It does not tell
// the scheduler: it counts pages and never waits.
func statCache(fd int, off, n int64) (c cachestat, e unix.Errno) {
	const sysCachestat = 451
	window := struct{ off, len uint64 }{uint64(off), uint64(n)}
	_, _, e = unix.RawSyscall6(sysCachestat, uintptr(fd), uintptr(unsafe.Pointer(&window)), uintptr(unsafe.Pointer(&c)),
		0, 0, 0)
	return c, e
}

// Dirty is the number of pages of the file that are changed in memory and not on the disk yet.
// Linux 6.5.
func Dirty(f *os.File) (int, error) {
	var c cachestat
	err := withFD(f, func(fd int) (err error) {
		var e unix.Errno
		if c, e = statCache(fd, 0, 0); e != 0 {
			err = os.NewSyscallError("cachestat", e)
		}
		return err
	})
	return int(c.dirty + c.writeback), err
}

// InCache says whether n bytes of an open file from off can most likely be read without waiting
// for its disk; n must be positive and the bytes within the file.
//
// cachestat counts the pages of the cache, also those that are being read right now; those are read
// in order, so the last byte is asked for, too. Of a file that is not the caller's to write
// cachestat says nothing (Linux 6.15): then a byte is asked for each few pages. Some file systems
// do not know reads that must not wait, as tmpfs, NFS and FUSE: theirs are never Prompt.
func InCache(fd int, off, n int64) Presence {
	const every = 64 << 10
	page := int64(os.Getpagesize())
	pages := uint64((off+n-1)/page - off/page + 1)
	counted := false
	switch c, e := statCache(fd, off, n); {
	case e == 0 && c.cache == pages:
		counted = true
	case e == 0 && c.cache > 0:
		return Absent
	default: // of an overlay cachestat counts nothing
		for at := off; at < off+n; at += every {
			if e := readNow(fd, at); e == unix.EAGAIN {
				return Absent
			} else if e != 0 {
				return Unknown
			}
		}
	}
	switch e := readNow(fd, off+n-1); {
	case e == 0:
		return Prompt
	case e == unix.EAGAIN:
		return Absent
	case counted:
		return Counted
	}
	return Unknown
}

// readNow reads a byte of a file, or returns EAGAIN if it would have to wait for it (preadv2,
// RWF_NOWAIT, Linux 4.14).
func readNow(fd int, off int64) unix.Errno {
	var b [1]byte
	v := unix.Iovec{Base: &b[0]}
	v.SetLen(1)
	lo, hi := uintptr(off), uintptr(uint64(off)>>32)
	if unsafe.Sizeof(lo) == 8 {
		hi = 0 // lo has all of it
	}
	_, _, e := unix.RawSyscall6(unix.SYS_PREADV2, uintptr(fd), uintptr(unsafe.Pointer(&v)), 1, lo, hi, unix.RWF_NOWAIT)
	return e
}

// OpenFile is os.OpenFile for what is known to be an ordinary file. It does not ask whether the
// network poller takes it: those are five system calls, and the answer is no.
func OpenFile(path string, flag int, perm os.FileMode) (*os.File, error) {
	for {
		fd, err := unix.Open(path, flag|unix.O_CLOEXEC, uint32(perm.Perm()))
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), path), nil
		case unix.EINTR:
		default:
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// OpenRegular opens a regular file, and nothing else: to open a pipe is to wait for its other end,
// and to open a device may be to use it. So it looks first, and opens what it has looked at.
func OpenRegular(path string, flag int, perm os.FileMode) (*os.File, error) {
	look, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT && flag&os.O_CREATE != 0 {
		return os.OpenFile(path, flag, perm)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(look)
	var st unix.Stat_t
	if err := unix.Fstat(look, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, &NoOrdinaryFile{path}
	}
	for {
		fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(look), flag&^os.O_CREATE|unix.O_CLOEXEC, 0)
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), path), nil
		case unix.EINTR:
		case unix.ENOENT: // no /proc here
			return os.OpenFile(path, flag, perm)
		default:
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// GiveBackPages has the kernel forget pages of a file that are mapped and not written to: they come
// back from the file when they are touched.
func GiveBackPages(from, bytes uintptr) {
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, bytes, unix.MADV_DONTNEED)
}
