package asyncfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/bits"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// Errors that callers act on.
var (
	// ErrUnavailable: the backend cannot be had here; the message says why.
	ErrUnavailable = errors.New("backend is not available here")
	// ErrAlignment: a direct read or write whose offset, length or memory is not a multiple of
	// Align.
	ErrAlignment = errors.New("not aligned for direct access")
	// ErrSyncFailed: a sync has failed before, and what was written since the last good one may be
	// lost.
	ErrSyncFailed = errors.New("an earlier sync failed")
)

// AccessError is a load or store on a mapped file that had no memory behind it: the file was
// truncated by others, or a hole could not be filled because the disk is full or broken. If the
// file has become shorter than what was written to it, a sync returns one, and so does what would
// make it longer again: a write past the end, a Truncate.
type AccessError struct {
	Op   string // "read", "write", "sync" or "truncate"
	Path string
	Off  int64 // in the file, of the page that failed; of a file that is too short: its end
	Err  error // the fault, as the runtime reports it; of a file that is too short: io.ErrUnexpectedEOF
}

// Error is one line.
func (e *AccessError) Error() string {
	return fmt.Sprintf("%s %s: nothing at offset %d: the file was truncated by others, or the disk is full or broken",
		e.Op, e.Path, e.Off)
}

// Unwrap returns the fault.
func (e *AccessError) Unwrap() error { return e.Err }

// Backend is a way to do file I/O.
type Backend string

// The backends. Auto lets Open choose.
const (
	Auto  Backend = ""
	Std   Backend = "std"
	Mmap  Backend = "mmap"
	Uring Backend = "uring"
)

// Choice is what Open decided.
type Choice struct {
	Backend Backend
	Why     string // one line, for a log
}

// File is an open file. See the package comment for what its methods guarantee.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Sync makes everything written so far durable.
	Sync() error
	// Size is the length in bytes.
	Size() (int64, error)
	// Truncate sets the length; new bytes are zeros.
	Truncate(size int64) error
	// Close releases the file. It does not sync; what a window still holds is written. The second
	// call gives os.ErrClosed.
	Close() error
	// Choice says which backend this is, and why.
	Choice() Choice
}

// Config says how a file is opened. The zero value opens an existing file for reading.
type Config struct {
	Backend Backend

	Write  bool        // for reading and writing
	Create bool        // make the file if it is missing; implies Write
	Perm   fs.FileMode // of a file that is made; 0 means 0644

	// What the file is for: Auto chooses by these.
	Cached bool // most of it is in the page cache, or will be
	Depth  int  // operations that are wanted in flight at a time; see NewBatch
	// past the page cache (O_DIRECT): offsets, lengths and memory in multiples of Align. Not with
	// Mmap or Buffer
	Direct bool

	// Buffer is the size in bytes of a window that reads ahead and gathers adjacent writes; Std
	// only. 0 means none. What is in the window can be seen through this File alone until Sync,
	// Truncate or Close.
	Buffer int
	// Sequential tells Mmap to read ahead of faults. The default is not to, which suits random
	// access: reading ahead then loads up to 32 pages for each that is wanted.
	Sequential bool
	// Populate makes Mmap read all of the file and make its pages ready when it is opened, so that
	// no access waits for a fault: an open of what is not cached takes as long as the disk does.
	// Huge asks for huge pages, which few file systems have. Where either cannot be had the map is
	// an ordinary one, and Choice says so.
	Populate, Huge bool
	// Shared makes Mmap ask for the size before each read, some 200 ns, and write by ordinary
	// calls. It is for files that others truncate or append to: without it, what they append stays,
	// but is not seen, and bytes of the last page beyond a new end read as zeros, and are lost if
	// written, which Sync tells. A Truncate to what is left, or less, takes a new end over.
	Shared bool
	// Chains counts what becomes of the chains of a [ChainWriter]; nil counts nothing. Files may
	// share one.
	Chains *ChainStats
}

// Align is what direct access wants of offsets, lengths and memory, in bytes. 4096 suits every disk
// of today.
const Align = 4096

const (
	minBuffer = 512
	maxBuffer = 1 << 30
	maxDepth  = 4096
)

// Aligned returns n bytes of memory at a multiple of Align. It panics if n is negative, as make
// does.
func Aligned(n int) []byte {
	if n < 0 {
		panic(fmt.Sprintf("asyncfile: Aligned: %d bytes", n))
	}
	b := make([]byte, n+Align)
	skip := int(-sys.AddressOf(b) & (Align - 1))
	return b[skip : skip+n : skip+n]
}

// Open opens a file by the backend that cfg names, or by the one that suits what cfg says.
func Open(path string, cfg Config) (File, error) {
	cfg, err := cfg.check()
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	choice := cfg.choose()
	flags := os.O_RDONLY
	if cfg.Write {
		flags = os.O_RDWR
	}
	if cfg.Create {
		flags |= os.O_CREATE
	}
	if cfg.Direct {
		flags |= sys.ODirect
	}
	f, err := openRegular(path, flags, cfg.Perm)
	if err != nil {
		return nil, err
	}
	file, err := wrap(f, cfg, choice)
	if err != nil {
		f.Close()
		return nil, err
	}
	return file, nil
}

func openRegular(path string, flags int, perm fs.FileMode) (*os.File, error) {
	f, err := sys.OpenRegular(path, flags, perm)
	var other *sys.NoOrdinaryFile
	if errors.As(err, &other) {
		return nil, fmt.Errorf("open %s: not a regular file", path)
	}
	return f, err
}

func wrap(f *os.File, cfg Config, choice Choice) (File, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("open %s: not a regular file", f.Name())
	}
	switch choice.Backend {
	case Mmap:
		m, err := newMapped(f, cfg, choice)
		if err == nil {
			return m, nil
		}
		if errors.Is(err, syscall.ENODEV) || st.Size() == 0 && errors.Is(err, syscall.EIO) { // of /sys; of /proc, EIO
			err = fmt.Errorf("map %s: %w: it has no pages; the std backend reads it", f.Name(), ErrUnavailable)
		}
		if cfg.Backend == Mmap {
			return nil, err
		}
		choice = Choice{Std, fmt.Sprintf("not mapped: %v", err)}
		if errors.Is(err, ErrUnavailable) {
			choice.Why = "the kernel makes this file as it is read: it has no pages to map"
		}
	case Uring:
		return newRinged(f, cfg, choice)
	}
	return newStd(disk{f}, cfg, choice), nil
}

func (c Config) check() (Config, error) {
	c.Write = c.Write || c.Create
	if c.Perm == 0 {
		c.Perm = 0o644
	}
	switch {
	case c.Backend != Auto && c.Backend != Std && c.Backend != Mmap && c.Backend != Uring:
		return c, Available(c.Backend)
	case c.Buffer != 0 && (c.Buffer < minBuffer || c.Buffer > maxBuffer):
		return c, fmt.Errorf("buffer of %d bytes: want %d to %d, or 0 for none", c.Buffer, minBuffer, maxBuffer)
	case c.Depth < 0 || c.Depth > maxDepth:
		return c, fmt.Errorf("depth %d: want 0 to %d", c.Depth, maxDepth)
	case c.Direct && sys.ODirect == 0:
		return c, fmt.Errorf("direct access: %w: this system cannot open files past the page cache", ErrUnavailable)
	case c.Direct && (c.Buffer != 0 || c.Backend == Mmap):
		return c, errors.New("direct access goes with neither a buffer nor a map")
	case (c.Populate || c.Huge) && c.Backend != Mmap:
		return c, errors.New("pages that are populated or huge go with the mmap backend only")
	case c.Buffer != 0 && c.Backend != Std && c.Backend != Auto:
		return c, errors.New("a buffer goes with the std backend only")
	}
	return c, nil
}

// CachedShare is the share of a file's pages that are in the page cache, 0 to 1, by mincore(2);
// [errors.ErrUnsupported] where there is no such call.
func CachedShare(path string) (float64, error) {
	f, err := openRegular(path, os.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Size() == 0 {
		return 0, err
	}
	share, err := sys.Cached(f)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return share, nil
}

// Available says why a backend cannot be had here; nil if it can.
func Available(b Backend) error {
	switch b {
	case Auto, Std, Mmap:
		return nil
	case Uring:
		return ringed()
	}
	return fmt.Errorf("backend %q: want std, mmap or uring", b)
}

// choose says which backend suits; the reasons are measured by `make bench`.
func (c Config) choose() Choice {
	if c.Backend != Auto {
		return Choice{c.Backend, "asked for"}
	}
	ring := ringed()
	switch {
	case c.Buffer > 0:
		return Choice{Std, "a buffered window is what the std backend has"}
	case (c.Direct || c.Depth > 1) && !c.Cached && ring == nil:
		return Choice{Uring, "many operations in flight past the page cache are what io_uring is for"}
	case (c.Direct || c.Depth > 1) && !c.Cached:
		return Choice{Std, fmt.Sprintf("io_uring would suit, but: %v", ring)}
	case c.Cached && !c.Write && !c.Shared && !c.Direct && bits.UintSize == 64:
		return Choice{Mmap, "cached data that is only read is quickest by a map"}
	}
	return Choice{Std, "one operation at a time is quickest by ordinary calls"}
}

// poison remembers the first sync that failed: after it, no sync may succeed.
type poison struct{ err atomic.Pointer[error] }

func (p *poison) sync(path string, do func() error) error {
	if first := p.err.Load(); first != nil {
		return fmt.Errorf("sync %s: %w: %w", path, ErrSyncFailed, *first)
	}
	err := do()
	if err != nil && !errors.Is(err, os.ErrClosed) {
		p.err.CompareAndSwap(nil, &err)
	}
	return err
}

// maxTries bounds what is tried again: calls that were interrupted, or that moved nothing.
const maxTries = 1000

// again reports whether an error is worth another try.
func again(err error) bool {
	return errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.EAGAIN)
}

// aligned refuses what direct access cannot do, before the kernel does it with EINVAL.
func aligned(op, path string, b []byte, off int64) error {
	if (int64(sys.AddressOf(b))|int64(len(b))|off)&(Align-1) != 0 {
		return fmt.Errorf("%s %s: %d bytes at %d: %w: want multiples of %d; Aligned gives such memory", op, path,
			len(b), off, ErrAlignment, Align)
	}
	return nil
}

// tooFar refuses what would end beyond what an offset can say, as the kernel does.
func tooFar(op, path string, n int, off int64) error {
	switch {
	case off <= math.MaxInt64-int64(n):
		return nil
	case op == "read":
		return &fs.PathError{Op: op, Path: path, Err: syscall.EINVAL}
	}
	return &fs.PathError{Op: op, Path: path, Err: syscall.EFBIG}
}

// readOnly is the error of a write to a file that was opened for reading.
func readOnly(path string) error {
	return fmt.Errorf("write %s: opened for reading: %w", path, syscall.EBADF)
}

func negative(op, path string, off int64) error {
	return &fs.PathError{Op: op, Path: path, Err: fmt.Errorf("negative offset or size %d", off)}
}
