//go:build !linux

// Package sys is the one place for system calls that the standard library does not offer as we need
// them.
package sys

import (
	"errors"
	"os"
	"runtime"
)

// Datasync makes the file's data durable.
func Datasync(f *os.File) error { return f.Sync() }

// ODirect is 0 where a file cannot be opened past the page cache.
const ODirect = 0

// DropCache cannot be done here.
func DropCache(*os.File) error { return errors.ErrUnsupported }

// Populate cannot be done here.
func Populate([]byte) error { return errors.ErrUnsupported }

// AdviseHuge cannot be done here.
func AdviseHuge([]byte) error { return errors.ErrUnsupported }

// Cached is not known here.
func Cached(*os.File) (share float64, err error) { return 0, errors.ErrUnsupported }

// FreeBytes is not known here.
func FreeBytes(string) (int64, error) { return 0, errors.ErrUnsupported }

// FileSystem is not known here.
func FileSystem(string) (kernel, memory string) { return "", "" }

// Lock does nothing here: one process a directory is the user's care.
func Lock(*os.File) (held bool, err error) { return false, nil }

// Unlock does nothing here.
func Unlock(*os.File) error { return nil }

// OpenFile is os.OpenFile.
func OpenFile(path string, flag int, perm os.FileMode) (*os.File, error) {
	return os.OpenFile(path, flag, perm)
}

// OpenRegular opens a regular file, and nothing else: to open a pipe is to wait for its other end,
// and to open a device may be to use it.
func OpenRegular(path string, flag int, perm os.FileMode) (*os.File, error) {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return nil, &NoOrdinaryFile{path}
	}
	return os.OpenFile(path, flag, perm)
}

// SyncDir makes the names in a directory durable, where directories can be synced.
func SyncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// MayWrite is not known here: making a file says it.
func MayWrite(string) error { return nil }

// QuickAck does nothing here.
func QuickAck(int) {}
