package seglog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// FS is what the log needs of a directory. All names are plain file names in it.
type FS interface {
	// Create makes an empty file, or empties the one that is there.
	Create(name string) (File, error)
	// Open opens an existing file; a missing one gives fs.ErrNotExist.
	Open(name string) (File, error)
	Rename(from, to string) error
	// Remove of a missing file gives fs.ErrNotExist.
	Remove(name string) error
	List() ([]string, error)
	// Sync makes the names durable; the contents of files are not its affair.
	Sync() error
	// FreeBytes is what may still be written; errors.ErrUnsupported where that cannot be known.
	FreeBytes() (int64, error)
	// Lock keeps other processes out until it is closed; ErrLocked if one is in.
	Lock() (io.Closer, error)
}

// File is what the log needs of a file. WriteAt may write less than asked with an error, as io.WriterAt says.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes the contents durable. After an error nothing is known of what was written since the last success.
	Sync() error
	Size() (int64, error)
}

// Dir is the directory at path of the operating system, made if it is missing.
func Dir(path string) (FS, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	return osDir(path), nil
}

type osDir string

func (d osDir) path(name string) string { return filepath.Join(string(d), name) }

func (d osDir) Create(name string) (File, error) {
	return wrap(os.OpenFile(d.path(name), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644))
}

func (d osDir) Open(name string) (File, error) {
	f, err := os.OpenFile(d.path(name), os.O_RDWR, 0)
	if errors.Is(err, os.ErrPermission) { // reading is enough for those who only look
		f, err = os.Open(d.path(name))
	}
	return wrap(f, err)
}

func wrap(f *os.File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (d osDir) Rename(from, to string) error { return os.Rename(d.path(from), d.path(to)) }
func (d osDir) Remove(name string) error     { return os.Remove(d.path(name)) }
func (d osDir) Sync() error                  { return sys.SyncDir(string(d)) }
func (d osDir) FreeBytes() (int64, error)    { return sys.FreeBytes(string(d)) }

func (d osDir) List() ([]string, error) {
	entries, err := os.ReadDir(string(d))
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

func (d osDir) Lock() (io.Closer, error) {
	f, err := os.OpenFile(d.path("LOCK"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if held, err := sys.Lock(f); err != nil {
		f.Close()
		if held {
			return nil, fmt.Errorf("%s: %w", string(d), ErrLocked)
		}
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return f, nil
}

type osFile struct{ *os.File }

func (f osFile) Sync() error { return sys.Datasync(f.File) }

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// isFull reports whether err says that there is no room.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// writeAll writes b at off and tries again where it is safe to: interrupted or short writes.
func writeAll(f File, b []byte, off int64) error {
	for tries := 0; len(b) > 0; tries++ {
		n, err := f.WriteAt(b, off)
		b, off = b[n:], off+int64(n)
		switch {
		case len(b) == 0:
		case err == nil, errors.Is(err, syscall.EINTR), errors.Is(err, io.ErrShortWrite):
			if n == 0 && tries > 100 {
				return fmt.Errorf("write: no progress: %w", io.ErrShortWrite)
			}
		default:
			return err
		}
	}
	return nil
}
