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

// Reserve cannot be done here.
func Reserve(*os.File, int64, int64) error { return errors.ErrUnsupported }

// DropCache cannot be done here.
func DropCache(*os.File) error { return errors.ErrUnsupported }

// FreeBytes is not known here.
func FreeBytes(string) (int64, error) { return 0, errors.ErrUnsupported }

// Lock does nothing here: one process a directory is the user's care.
func Lock(*os.File) (held bool, err error) { return false, nil }

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
