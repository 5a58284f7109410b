package sys

import (
	"os"

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

// FreeBytes is the space that an ordinary user may still take on the file system of path.
func FreeBytes(path string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, os.NewSyscallError("statfs", err)
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// Lock takes an exclusive lock on the file, for this open file alone, or fails at once with held = true.
func Lock(f *os.File) (held bool, err error) {
	return LockFD(int(f.Fd()))
}

// LockFD is Lock for a bare descriptor.
func LockFD(fd int) (held bool, err error) {
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	return err == unix.EWOULDBLOCK, os.NewSyscallError("flock", err)
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
