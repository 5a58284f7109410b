package asyncfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// kinds of files that somebody may open, and how: each is made anew under a name.
var kindsOfFiles = []struct {
	name string
	make func(t *testing.T, path string) string
	read bool // open it for reading alone
}{
	{"file", func(t *testing.T, path string) string { return put(t, path, 10_000) }, false},
	{"empty file", func(t *testing.T, path string) string { return put(t, path, 0) }, false},
	{"file for reading", func(t *testing.T, path string) string { return put(t, path, 10_000) }, true},
	{"empty file for reading", func(t *testing.T, path string) string { return put(t, path, 0) }, true},
	{"link", func(t *testing.T, path string) string { return link(t, put(t, path+".to", 5000), path) }, false},
	{"made by the kernel", func(*testing.T, string) string { return "/proc/sys/kernel/ostype" }, true},
	{"made by the kernel, refused as EIO", func(*testing.T, string) string { return "/proc/self/mem" }, true},
	{"made by the kernel, mapped as EIO", func(*testing.T, string) string { return "/proc/version" }, true},
	{"made by the kernel, with a size", func(t *testing.T, _ string) string { return sysfs(t) }, true},
}

// sysfs is a file that has a size, and no pages.
func sysfs(t *testing.T) string {
	t.Helper()
	const path = "/sys/devices/system/cpu/possible"
	if _, err := os.Stat(path); err != nil {
		t.Skipf("SKIPPED: %v; run where /sys is mounted", err)
	}
	return path
}

func put(t *testing.T, path string, n int) string {
	t.Helper()
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func link(t *testing.T, to, path string) string {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// osFile is the oracle: what package os answers.
type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// calls are the same for a File and for the oracle.
type calls interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
	Size() (int64, error)
	Truncate(size int64) error
	Close() error
}

// outcome is what a call gave: of errors whether there was one, and io.EOF and os.ErrClosed for
// what they are.
type outcome struct {
	n   int64
	err string
	b   string
}

func outcomeOf(n int64, err error, b []byte) outcome {
	o := outcome{n: n, b: string(b)}
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		o.err = "EOF"
	case errors.Is(err, os.ErrClosed):
		o.err = "closed"
	default:
		o.err = "error"
	}
	return o
}

// TestEveryCallAtEveryEdge does each call at each class of offset to each kind of file by each
// backend, and what package os does there must be the answer: a map panicked near the end of all
// offsets, a window took writes that it could never hand over, files of /proc were empty.
func TestEveryCallAtEveryEdge(t *testing.T) {
	offsets := []int64{
		math.MinInt64, -1, 0, 1, 4999, 9_990, 10_000, 10_001, 1 << 20, math.MaxInt64 - 4096,
		math.MaxInt64 - 9, math.MaxInt64,
	}
	subjects := map[string]Config{
		"std": {Backend: Std}, "auto": {}, "auto for a map": {Cached: true}, "window": {Backend: Std, Buffer: 3000},
		"mmap":        {Backend: Mmap},
		"mmap shared": {Backend: Mmap, Shared: true}, "uring": {Backend: Uring},
	}
	ways := map[string]func(File) (calls,
		error){"": nil, " in batches": inBatches, " with a sync": withSync, " in chains": inChains}
	for name, cfg := range subjects {
		for way, wrap := range ways {
			everyCall(t, name+way, cfg, wrap, offsets)
		}
	}
}

// batched does its reads, writes and syncs by a batch.
type batched struct {
	File
	b Batcher
}

func inBatches(f File) (calls, error) {
	b, err := NewBatch(f, BatchConfig{Depth: 2})
	return batched{f, b}, err
}

// one does one operation; the error may come before it is begun, or with its end.
func (f batched) one(op Op) (int, error) {
	if err := f.b.SubmitOne(&op); err != nil {
		return 0, err
	}
	done, err := f.b.Reap(nil, 1)
	if err == nil && (len(done) != 1 || done[0] != &op || f.b.InFlight() != 0) {
		err = fmt.Errorf("%d came back, %d are in flight", len(done), f.b.InFlight())
	}
	return op.N, errors.Join(err, op.Err)
}

func (f batched) ReadAt(b []byte, off int64) (int, error) {
	return f.one(Op{Kind: Read, Buf: b, Off: off})
}

func (f batched) WriteAt(b []byte, off int64) (int, error) {
	return f.one(Op{Kind: Write, Buf: b, Off: off})
}

func (f batched) Sync() error {
	_, err := f.one(Op{Kind: Sync})
	return err
}

func (f batched) Close() error { return errors.Join(f.b.Close(), f.File.Close()) }

// synced writes by WriteSync, chained by WriteChain in parts.
type synced struct {
	File
	SyncWriter
}

type chained struct {
	File
	ChainWriter
}

func withSync(f File) (calls, error) {
	if w, ok := f.(SyncWriter); ok && f.Sync() == nil { // a file that the kernel makes cannot be synced
		return synced{f, w}, nil
	}
	return nil, ErrUnavailable
}

func inChains(f File) (calls, error) {
	if w, ok := f.(ChainWriter); ok {
		return chained{f, w}, nil
	}
	return nil, ErrUnavailable
}

func (f synced) WriteAt(b []byte, off int64) (int, error) { return f.WriteSync(b, off) }

func (f chained) WriteAt(b []byte, off int64) (n int, err error) {
	parts := [][]byte{b[:len(b)/3], b[len(b)/3 : len(b)/2], b[len(b)/2:]}
	written, err := f.WriteChain(parts, off, false)
	for _, p := range parts[:written] {
		n += len(p)
	}
	return n, err
}

// everyCall does each call at each offset to each kind of file, and to one of package os.
func everyCall(t *testing.T, name string, cfg Config, wrap func(File) (calls, error), offsets []int64) {
	if cfg.Backend == Uring && ringed() != nil {
		t.Logf("SKIPPED: %s: %v; run on a kernel that has it and lets this process use it", name, ringed())
		return
	}
	for _, kind := range kindsOfFiles {
		t.Run(name+"/"+kind.name, func(t *testing.T) {
			cfg.Write = !kind.read
			dir := t.TempDir()
			path := kind.make(t, filepath.Join(dir, "a"))
			opened, err := Open(path, cfg)
			if errors.Is(err, ErrUnavailable) && cfg.Backend == Mmap &&
				strings.HasPrefix(kind.name, "made by the kernel") {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			f := calls(opened)
			if wrap != nil {
				if f, err = wrap(opened); errors.Is(err, ErrUnavailable) { // this backend has no such calls
					opened.Close()
					return
				} else if err != nil {
					t.Fatal(err)
				}
			}
			flags := os.O_RDONLY
			if cfg.Write {
				flags = os.O_RDWR
			}
			g, err := os.OpenFile(kind.make(t, filepath.Join(dir, "b")), flags, 0)
			if err != nil {
				t.Fatal(err)
			}
			same := func(what string, call func(calls) outcome) {
				t.Helper()
				if got, want := call(f), call(osFile{g}); got != want {
					t.Errorf("%s: %.80v, want %.80v", what, got, want)
				}
			}
			edges(t, offsets, same)
			same("close", func(f calls) outcome { return outcomeOf(0, f.Close(), nil) })
			same("read after close",
				func(f calls) outcome { n, err := f.ReadAt(make([]byte, 1), 0); return outcomeOf(int64(n), err, nil) })
			if !kind.read { // of others a sync may have failed before, which counts more
				same("sync after close", func(f calls) outcome { return outcomeOf(0, f.Sync(), nil) })
			}
			same("size after close", func(f calls) outcome { n, err := f.Size(); return outcomeOf(n, err, nil) })
			same("close again", func(f calls) outcome { return outcomeOf(0, f.Close(), nil) })
			if !kind.read {
				a, errA := os.ReadFile(path)
				b, errB := os.ReadFile(g.Name())
				if errA != nil || errB != nil || !bytes.Equal(a, b) {
					t.Errorf("the files differ: %d and %d bytes, %v, %v", len(a), len(b), errA, errB)
				}
			}
		})
	}
}

func edges(t *testing.T, offsets []int64, same func(string, func(calls) outcome)) {
	t.Helper()
	for _, off := range offsets {
		for _, n := range []int{0, 1, 10, 5000} {
			same(fmt.Sprintf("read of %d at %d", n, off), func(f calls) outcome {
				b := make([]byte, n)
				read, err := f.ReadAt(b, off)
				return outcomeOf(int64(read), err, b[:read])
			})
			same(fmt.Sprintf("write of %d at %d", n, off), func(f calls) outcome {
				n, err := f.WriteAt(bytes.Repeat([]byte{'w'}, n), off)
				return outcomeOf(int64(n), err, nil)
			})
			same(fmt.Sprintf("size after a write of %d at %d", n, off), func(f calls) outcome {
				n, err := f.Size()
				return outcomeOf(n, err, nil)
			})
		}
	}
	same("sync", func(f calls) outcome { return outcomeOf(0, f.Sync(), nil) })
	for _, size := range []int64{math.MinInt64, -1, 0, 1, 5000, math.MaxInt64} {
		same(fmt.Sprintf("truncate to %d", size), func(f calls) outcome { return outcomeOf(0, f.Truncate(size), nil) })
		same(fmt.Sprintf("size after truncate to %d", size), func(f calls) outcome {
			n, err := f.Size()
			return outcomeOf(n, err, nil)
		})
	}
	same("sync at the end", func(f calls) outcome { return outcomeOf(0, f.Sync(), nil) })
}

// TestWhatIsNoFile: to open a pipe waited for its writer for ever, and to open a device may do
// something to it.
func TestWhatIsNoFile(t *testing.T) {
	late := time.AfterFunc(time.Minute, func() { panic("open does not return") })
	defer late.Stop()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, dir, "/dev/null", link(t, fifo, filepath.Join(dir, "to a pipe"))} {
		for _, cfg := range []Config{{}, {Write: true}, {Create: true}, {Backend: Mmap}} {
			f, err := Open(path, cfg)
			if err == nil {
				f.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "not a regular file") ||
				!strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v", path, err)
			}
		}
		if _, err := CachedShare(path); err == nil || err.Error() != "open "+path+": not a regular file" {
			t.Errorf("what is cached of it: %v", err)
		}
	}
	if _, err := Open(filepath.Join(dir, "absent"), Config{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	f, err := Open(link(t, filepath.Join(dir, "new"), filepath.Join(dir, "to nothing")),
		Config{Create: true, Perm: 0o640})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(dir, "new")); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", st, err)
	}
}

// Batches of one file counted its users in common, and without a lock: run with -race.
func TestBatchesOfOneFileBesideSync(t *testing.T) {
	for _, s := range subjects(t) {
		var users sync.WaitGroup
		for i := range 4 {
			users.Go(func() {
				b, err := NewBatch(s.f, BatchConfig{Depth: 8})
				if err != nil {
					t.Error(err)
					return
				}
				ops := make([]Op, 8)
				for range 20 {
					for j := range ops {
						ops[j] = Op{Kind: Kind(j % 3), Buf: make([]byte, 512), Off: int64(i*8+j) * 512}
					}
					_, err := b.Submit(ops)
					_, reapErr := b.Reap(nil, len(ops))
					if err := errors.Join(err, reapErr); err != nil {
						t.Errorf("%s: %v", s.name, err)
						break
					}
				}
				if err := b.Close(); err != nil {
					t.Errorf("%s: %v", s.name, err)
				}
			})
		}
		for range 20 {
			if err := s.f.Sync(); err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
		}
		users.Wait()
		if err := s.f.Close(); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	}
}

// Sync beside Close had the descriptor's bare number: it failed with EBADF, or synced what was
// opened next.
func TestSyncBesideClose(t *testing.T) {
	path := put(t, filepath.Join(t.TempDir(), "file"), 5000)
	for range 300 {
		f, err := Open(path, Config{Backend: Std, Write: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("x"), 0); err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if err := f.Sync(); err != nil && !errors.Is(err, os.ErrClosed) {
					t.Errorf("%v", err)
				}
			})
		}
		both.Go(func() {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		if err := f.Sync(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("sync after close: %v", err)
		}
	}
}

// A map that cannot be made longer leaves the shorter one: every call panicked afterwards.
func TestMapThatCannotGrow(t *testing.T) {
	path := put(t, filepath.Join(t.TempDir(), "file"), 5000)
	f, err := Open(path, Config{Backend: Mmap, Write: true})
	if err != nil {
		t.Fatal(err)
	}
	m := f.(*mapped)
	real := m.mapFile
	m.mapFile = func(*os.File, int, bool) ([]byte, error) { return nil, syscall.ENOMEM }
	if n, err := f.WriteAt(make([]byte, 10), 1<<20); n != 0 || !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("%d, %v", n, err)
	}
	if err := f.Truncate(1 << 20); !errors.Is(err, syscall.ENOMEM) {
		t.Error(err)
	}
	b := make([]byte, 6000)
	if n, err := f.ReadAt(b, 0); n != 5000 || err != io.EOF {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := f.WriteAt([]byte("ok"), 4998); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	m.mapFile = func(f *os.File, n int, write bool) ([]byte, error) { // no room to grow further
		if n > 1<<20+2 {
			return nil, syscall.ENOMEM
		}
		return real(f, n, write)
	}
	if n, err := f.WriteAt([]byte("ok"), 1<<20); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(path); err != nil || st.Size() != 1<<20+2 {
		t.Errorf("%v, %v", st.Size(), err)
	}
}

// What is written behind an end that others have moved is gone: Sync said nothing, and Close made
// the file as long as it had been, with zeros.
func TestSyncTellsOfForeignTruncation(t *testing.T) {
	path := put(t, filepath.Join(t.TempDir(), "file"), 10_000)
	f, err := Open(path, Config{Backend: Mmap, Write: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("x"), 10_000); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	if n, err := f.WriteAt([]byte("bytes"), 200); n != 5 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	var ae *AccessError
	// To lengthen the file again put zeros there, and Sync knew nothing of it.
	n, err := f.WriteAt([]byte("more"), 10_001)
	if n != 0 || !errors.As(err, &ae) || ae.Op != "write" || ae.Off != 100 {
		t.Errorf("a write behind the end: %d, %v", n, err)
	}
	if err := f.Truncate(20_000); !errors.As(err, &ae) || ae.Op != "truncate" || ae.Off != 100 {
		t.Errorf("truncate: %v", err)
	}
	if err := f.Sync(); !errors.As(err, &ae) || ae.Op != "sync" || ae.Off != 100 {
		t.Errorf("sync: %v", err)
	}
	if err := f.Sync(); !errors.Is(err, ErrSyncFailed) {
		t.Errorf("sync again: %v", err)
	}
	if _, err := f.ReadAt(make([]byte, 1), 9000); !errors.As(err, &ae) || strings.Contains(err.Error(), "nil pointer") {
		t.Errorf("read: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(path); err != nil || st.Size() != 100 {
		t.Errorf("%d bytes after close, %v", st.Size(), err)
	}
}

// A write that a window could not hand over stayed in it, and failed every call after it.
func TestWindowIsNotPoisoned(t *testing.T) {
	path := put(t, filepath.Join(t.TempDir(), "file"), 100)
	f, err := Open(path, Config{Backend: Std, Buffer: 512})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.WriteAt([]byte("x"), 0); n != 0 || !errors.Is(err, syscall.EBADF) {
		t.Errorf("a write to a file that is read: %d, %v", n, err)
	}
	if n, err := f.ReadAt(make([]byte, 10), 0); n != 10 || err != nil {
		t.Errorf("the read after it: %d, %v", n, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// The pages of a map are ready where that is asked for, and what is cached of a file is told.
func TestPopulate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	const pages = 512
	want := bytes.Repeat([]byte("0123456789abcdef"), pages*os.Getpagesize()/16)
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	if share, err := CachedShare(path); err != nil || share < 0.99 {
		t.Errorf("%.2f of a file that was just written is cached: %v", share, err)
	}
	if share, err := CachedShare(os.DevNull); err == nil {
		t.Errorf("%.2f of a device is cached", share)
	}
	for _, cfg := range []Config{
		{Backend: Mmap, Populate: true},
		{Backend: Mmap, Huge: true},
		{Backend: Mmap, Populate: true, Huge: true, Write: true},
	} {
		f, err := Open(path, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if ready, why := residentOf(t, path),
			f.Choice().Why; cfg.Populate && !strings.Contains(why, "as they are touched") != (ready == len(want)) ||
			!cfg.Populate && ready != 0 {
			t.Errorf("%+v: %d of %d bytes are mapped before anything is read (%s)", cfg, ready, len(want), why)
		}
		got := make([]byte, len(want))
		if n, err := f.ReadAt(got, 0); n != len(want) || err != nil || !bytes.Equal(got, want) {
			t.Errorf("%+v: read %d bytes: %v", cfg, n, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := Open(path, Config{Populate: true}); err == nil {
		t.Error("Populate is taken without a map")
	}
}

// residentOf is how much of the map of a file this process has mapped, in bytes.
func residentOf(t *testing.T, path string) (bytes int) {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	of := false
	for line := range strings.Lines(string(smaps)) {
		switch f := strings.Fields(line); {
		case strings.Contains(f[0], "-"): // a mapping begins
			of = f[len(f)-1] == path
		case of && f[0] == "Rss:":
			kb, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			bytes += kb << 10
		}
	}
	return bytes
}
