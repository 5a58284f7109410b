package seglog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// FS is what the log needs of a directory. All names are plain file names in it.
type FS interface {
	// Create makes an empty file, in the place of the one that is there.
	Create(name string) (File, error)
	// Open opens an existing file; a missing one gives fs.ErrNotExist. A file that may only be read
	// opens, too: its WriteAt fails.
	Open(name string) (File, error)
	Rename(from, to string) error
	// Remove of a missing file gives fs.ErrNotExist.
	Remove(name string) error
	List() ([]string, error)
	// Sync makes the names durable; the contents of files are not its affair.
	Sync() error
	// FreeBytes is what may still be written; errors.ErrUnsupported where that cannot be known.
	FreeBytes() (int64, error)
	// Track returns a function that reports whether name still stands for the file that it stands
	// for now: somebody may take it away, or put another in its place. An error of that function
	// says that it cannot be told at this moment.
	Track(name string) (same func() (bool, error), err error)
	// Lock keeps other processes out until it is closed; ErrLocked if one is in.
	Lock() (io.Closer, error)
}

// File is what the log needs of a file. WriteAt may write less than asked with an error, as
// io.WriterAt says.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes the contents durable. After an error nothing is known of what was written since
	// the last success.
	Sync() error
	Size() (int64, error)
}

// Holder is what the lock of an FS may offer beside: to notice that it keeps nobody out any more.
type Holder interface {
	// Held returns an error when others may have come in: the directory, or what the lock is on,
	// was replaced.
	Held() error
}

// SyncWriter is what a File may offer beside: to write and make durable in one go. A commit that is
// synced is then one call.
type SyncWriter interface {
	// WriteSync is WriteAt and then Sync. All bytes written with an error means that the sync
	// failed.
	WriteSync(b []byte, off int64) (n int, err error)
}

// ChainWriter is what a File may offer beside: to write parts one after the other, each by an
// operation of its own; see Config.Chain.
type ChainWriter interface {
	// WriteChain writes parts from off on, and syncs after the last if sync is set. The parts
	// before written are whole, and nothing after is begun. All of them written with an error means
	// that the sync failed.
	WriteChain(parts [][]byte, off int64, sync bool) (written int, err error)
}

// errNoDir is what is nil where a directory is wanted.
var errNoDir = errors.New("seglog: no directory")

// list lists the files of a directory.
func list(dir FS) ([]string, error) {
	if dir == nil {
		return nil, errNoDir
	}
	return dir.List()
}

// Who may look at a log beside its owner: the group. What devices say can be confidential.
const (
	FilePerm   = 0o640 // of its files, and of what stands beside them
	folderPerm = 0o750
)

// Dir is the directory at path of the operating system, made if it is missing. Its files are those
// of package os. What it makes can be read by its owner and by the group, and by nobody else.
func Dir(path string) (FS, error) {
	return DirWith(path, func(path string, create bool) (File, error) {
		flags := os.O_RDWR
		if create {
			flags |= os.O_CREATE | os.O_TRUNC
		}
		return wrap(sys.OpenFile(path, flags, FilePerm))
	})
}

// DirWith is Dir whose files are opened for reading and writing by a function of the caller's:
// another file engine. With create it makes the file, or empties the one that is there. Readers
// open a file that is being written once more: what is written, and appended, by one opening must
// be seen at once by the others. Of package asyncfile's mmap that is true with Config.Shared alone.
func DirWith(path string, open func(path string, create bool) (File, error)) (FS, error) {
	if path == "" { // a setting that is missing, and not the working directory
		return nil, errNoDir
	}
	if err := makeDir(filepath.Clean(path)); err != nil {
		return nil, err
	}
	return osDir{path, open}, nil
}

// makeDir makes a directory, and those above it, with durable names: else a power cut may take the
// log with all that is in it.
func makeDir(path string) error {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return nil
	}
	above := filepath.Dir(path)
	if above != path {
		if err := makeDir(above); err != nil {
			return err
		}
	}
	err := os.Mkdir(path, folderPerm)
	switch {
	case errors.Is(err, os.ErrExist): // a folder that came meanwhile, or something else
		if err := CheckDir(path); err != nil {
			return err
		}
	case err != nil:
		return fmt.Errorf("%w: make the folder for the user who records, or name another one", err)
	}
	if err := sys.SyncDir(above); err != nil && !errors.Is(err, os.ErrPermission) {
		return err
	}
	return nil
}

type osDir struct {
	dir  string
	open func(path string, create bool) (File, error)
}

func (d osDir) path(name string) string { return filepath.Join(d.dir, name) }

var (
	// errNoFile: what stands in a file's place is a directory, a pipe or the like. To open a pipe
	// may take for ever. Where the log would write over it, a link is no file either: what it leads
	// to is not the log's.
	errNoFile = errors.New("it is no ordinary file")
	// errShared: a file that the log would write over has another name, too, as in a backup made of
	// hard links.
	errShared = errors.New("it has another name, too")
)

// Create takes what is there out of the folder first: under another name it stays as it is.
func (d osDir) Create(name string) (File, error) {
	if err := d.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return d.open(d.path(name), true)
}

func (d osDir) Open(name string) (File, error) {
	st, err := os.Lstat(d.path(name))
	if err != nil {
		return nil, err
	}
	own := isScratch(name)
	if own {
		err = d.mayOverwrite(name, st)
	} else if !st.Mode().IsRegular() {
		// a link to a file is as good as a file
		if st, err = os.Stat(d.path(name)); err != nil || !st.Mode().IsRegular() {
			err = fmt.Errorf("%s: %w", d.path(name), errNoFile)
		}
	}
	if err != nil {
		return nil, err
	}
	f, err := d.open(d.path(name), false)
	// reading is enough for those who only look
	if !own && (errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS)) {
		f, readErr := os.Open(d.path(name))
		if readErr != nil {
			return nil, readErr
		}
		return readOnly{osFile{f}, err}, nil
	}
	return f, err
}

// mayOverwrite is an error for what is no file of the log's alone.
func (d osDir) mayOverwrite(name string, st fs.FileInfo) error {
	switch {
	case !st.Mode().IsRegular():
		return fmt.Errorf("%s: %w", d.path(name), errNoFile)
	case sys.Links(st) > 1:
		return fmt.Errorf("%s: %w", d.path(name), errShared)
	}
	return nil
}

// readOnly is a file that this process may only read, and why.
type readOnly struct {
	osFile
	why error
}

// WriteAt implements io.WriterAt.
func (f readOnly) WriteAt([]byte, int64) (int, error) { return 0, f.why }

func wrap(f *os.File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Rename gives the name of a spare segment only to what may be written over.
func (d osDir) Rename(from, to string) error {
	if st, err := os.Lstat(d.path(from)); err == nil && isScratch(to) {
		if err := d.mayOverwrite(from, st); err != nil {
			return err
		}
	}
	return os.Rename(d.path(from), d.path(to))
}

func (d osDir) Sync() error               { return sys.SyncDir(d.dir) }
func (d osDir) FreeBytes() (int64, error) { return sys.FreeBytes(d.dir) }

// Remove leaves what is neither a file nor a link where it is; under the name of a spare segment a
// link, too.
func (d osDir) Remove(name string) error {
	st, err := os.Lstat(d.path(name))
	if err == nil && !st.Mode().IsRegular() && (isScratch(name) || st.Mode()&fs.ModeSymlink == 0) {
		return fmt.Errorf("%s: %w", d.path(name), errNoFile)
	}
	return os.Remove(d.path(name))
}

func (d osDir) List() ([]string, error) {
	f, err := os.Open(d.dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1) // there may be many, and no more is asked of them than their names
	slices.Sort(names)
	return names, err
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

// passes reports whether err may pass, and leaves nothing in doubt: the batch is tried again, at
// the same place. A failed sync never does, whatever its cause.
func passes(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, errSync) || errors.Is(err, errForeign) {
		return false
	}
	if errors.Is(err, errBegin) || isFull(err) {
		return true
	}
	for _, e := range []error{syscall.EAGAIN, syscall.EINTR, syscall.ENOMEM, syscall.ENOBUFS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
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

// writeSync writes b and makes it durable, by one call where the file offers that. A sync that
// fails is marked with errSync.
func writeSync(f File, b []byte, off int64) error {
	w, ok := f.(SyncWriter)
	if !ok {
		if err := writeAll(f, b, off); err != nil {
			return err
		}
		return syncFile(f)
	}
	n, err := w.WriteSync(b, off)
	if err != nil && n == len(b) {
		return fmt.Errorf("%w: %w", errSync, err)
	}
	return err
}

// writeParts is writeSync, or writeAll if sync is not set, with an operation for each part.
func writeParts(f ChainWriter, parts [][]byte, off int64, sync bool) error {
	n, err := f.WriteChain(parts, off, sync)
	if err != nil && n == len(parts) {
		return fmt.Errorf("%w: %w", errSync, err)
	}
	return err
}

func syncFile(f File) error {
	if err := f.Sync(); err != nil {
		return fmt.Errorf("%w: %w", errSync, err)
	}
	return nil
}
