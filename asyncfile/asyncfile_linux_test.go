package asyncfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/uring"
)

// After Sync no page of the file may differ from the disk.
func TestSyncLeavesNothingDirty(t *testing.T) {
	for _, s := range subjects(t) {
		look, err := os.Open(s.path)
		if err != nil {
			t.Fatal(err)
		}
		defer look.Close()
		dirty := 0
		for i := range 5 {
			if _, err := s.f.WriteAt(make([]byte, 100_000), int64(i*70_000)); err != nil {
				t.Fatal(err)
			}
			n, err := sys.Dirty(look)
			if err != nil {
				t.Skipf("SKIPPED: %v; it needs Linux 6.5", err)
			}
			dirty += n
			if err := s.f.Sync(); err != nil {
				t.Fatal(err)
			}
			if n, err := sys.Dirty(look); err != nil || n != 0 {
				t.Errorf("%s: %d pages are not on the disk after a sync, %v", s.name, n, err)
			}
		}
		if dirty == 0 {
			t.Skipf("SKIPPED: %s is on a file system that has no dirty pages; let TMPDIR be on a disk", s.path)
		}
		if w, ok := s.f.(SyncWriter); ok {
			if _, err := w.WriteSync(make([]byte, 50_000), 1000); err != nil {
				t.Error(err)
			}
			if n, err := sys.Dirty(look); err != nil || n != 0 {
				t.Errorf("%s: %d pages are not on the disk after WriteSync, %v", s.name, n, err)
			}
		}
		s.f.Close()
	}
}

func TestTruncatedUnderTheMap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	page := int64(os.Getpagesize())
	if err := os.WriteFile(path, make([]byte, 8*page), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path, Config{Backend: Mmap, Write: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, page); err != nil {
		t.Fatal(err)
	}
	before := debug.SetPanicOnFault(false)
	var ae *AccessError
	n, err := f.ReadAt(make([]byte, 100), 5*page+7)
	if n != 0 || !errors.As(err, &ae) || ae.Off != 5*page || ae.Op != "read" {
		t.Errorf("read: %d, %v", n, err)
	}
	n, err = f.WriteAt(make([]byte, 100), 6*page)
	if n != 0 || !errors.As(err, &ae) || ae.Off != 6*page || ae.Op != "write" || !strings.Contains(err.Error(), path) {
		t.Errorf("write: %d, %v", n, err)
	}
	if debug.SetPanicOnFault(before) {
		t.Error("faults panic for the caller's own code now")
	}
	if _, err := f.ReadAt(make([]byte, 100), 0); err != nil {
		t.Errorf("what is still there: %v", err)
	}

	shared, err := Open(path, Config{Backend: Mmap, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	for _, size := range []int64{3*page + 10, page / 2, 5 * page} {
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		if n, err := shared.Size(); n != size || err != nil {
			t.Errorf("size %d, %v; want %d", n, err, size)
		}
		if n, err := shared.ReadAt(make([]byte, 100), size-50); n != 50 || err != io.EOF {
			t.Errorf("at the end of %d bytes: %d, %v", size, n, err)
		}
	}
}

// What several write behind each other's ends is all there, through one File and through two: a
// length that one had seen before the other wrote was set again, which cut off what was written.
func TestSharedMapThatManyLengthen(t *testing.T) {
	const pieces, piece, writers = 96, 1000, 6
	for round := range 60 {
		path := filepath.Join(t.TempDir(), "file")
		files := make([]File, 1+round%2)
		for i := range files {
			f, err := Open(path, Config{Backend: Mmap, Shared: true, Create: true})
			if err != nil {
				t.Fatal(err)
			}
			files[i] = f
		}
		want := make([]byte, pieces*piece)
		for i := range want {
			want[i] = byte(i/piece + 1)
		}
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				f := files[w%len(files)]
				for at := w * piece; at < len(want); at += writers * piece {
					b := want[at : at+piece]
					if n, err := f.WriteAt(b, int64(at)); n != piece || err != nil {
						t.Errorf("write at %d: %d, %v", at, n, err)
					}
					got := make([]byte, piece)
					if n, err := f.ReadAt(got, int64(at)); n != piece || !bytes.Equal(got, b) {
						t.Errorf("read at %d what was written there: %d, %v", at, n, err)
					}
				}
			})
		}
		all.Wait()
		for _, f := range files {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) || t.Failed() {
			t.Fatalf("round %d, %d files: %d bytes, want %d%s", round, len(files), len(got), len(want),
				firstDifference(got, want))
		}
	}
}

// A fault elsewhere is a bug of somebody else, and must not be swallowed.
func TestOtherPanicsGoOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f, err := Open(path, Config{Backend: Mmap, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, 100), 0); err != nil {
		t.Fatal(err)
	}
	var blind error
	defer func() {
		if recover() == nil && blind == nil {
			t.Error("a fault in the caller's memory became an error of the file")
		}
	}()
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := os.OpenFile(victim, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	mem, err := sys.MapFile(g, 1<<16, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadAt(mem[1<<15:1<<15+100], 0); runtime.GOARCH == "arm" && err != nil {
		blind = err
		t.Skipf("SKIPPED: an emulated machine does not tell the address of a fault: %v; run on a real one", err)
	}
}

// smallDisk mounts a file system of so many bytes, or skips.
func smallDisk(t *testing.T, bytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Skipf("SKIPPED: mounting a small file system: %v; run as root", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

func TestFullDisk(t *testing.T) {
	dir := smallDisk(t, 1<<20)
	for _, b := range []Backend{Std, Mmap, Uring} {
		if b == Uring && ringed() != nil {
			continue
		}
		path := filepath.Join(dir, string(b))
		f, err := Open(path, Config{Backend: b, Create: true})
		if err != nil {
			t.Fatal(err)
		}
		var off int64
		block := bytes.Repeat([]byte{0xab}, 10_000)
		for err == nil && off < 4<<20 {
			var n int
			n, err = f.WriteAt(block, off)
			off += int64(n)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: after %d bytes: %v", b, off, err)
		}
		// os.File does not count the part of a write that came before its error.
		if size, err := f.Size(); err != nil || size < off || size > off+int64(len(block)) {
			t.Errorf("%s: size %d, %v; %d bytes were written", b, size, err, off)
		}
		got := make([]byte, off)
		if _, err := f.ReadAt(got, 0); err != nil && err != io.EOF || bytes.Count(got, block[:1]) != len(got) {
			t.Errorf("%s: what was written cannot be read: %v", b, err)
		}
		f.Close()
		os.Remove(path)
	}
}

// A store into a hole that has no room on the disk.
func TestHoleOnAFullDisk(t *testing.T) {
	dir := smallDisk(t, 1<<20)
	path := filepath.Join(dir, "holes")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(8 << 20); err != nil {
		t.Fatal(err)
	}
	f.Close()
	m, err := Open(path, Config{Backend: Mmap, Write: true})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var ae *AccessError
	for off := int64(0); off < 8<<20 && err == nil; off += 4096 {
		_, err = m.WriteAt([]byte("x"), off)
	}
	if !errors.As(err, &ae) || ae.Op != "write" {
		t.Errorf("stores into 8 MiB of holes on a disk of 1 MiB: %v", err)
	}
}

func TestDirect(t *testing.T) {
	for _, b := range []Backend{Std, Uring} {
		if b == Uring && ringed() != nil {
			continue
		}
		f, err := Open(filepath.Join(t.TempDir(), "file"), Config{Backend: b, Create: true, Direct: true})
		if err != nil {
			t.Skipf("SKIPPED: direct access: %v; let TMPDIR be on a disk", err)
		}
		data := Aligned(4 * Align)
		copy(data[Align:], "past the cache")
		if _, err := f.WriteAt(data, 0); err != nil {
			t.Fatal(err)
		}
		back := Aligned(Align)
		if _, err := f.ReadAt(back, Align); err != nil || !bytes.HasPrefix(back, []byte("past the cache")) {
			t.Errorf("%s: %q, %v", b, back[:20], err)
		}
		for _, bad := range []struct {
			b   []byte
			off int64
		}{{data[1 : 1+Align], 0}, {data[:100], 0}, {data[:Align], 7}} {
			if _, err := f.ReadAt(bad.b, bad.off); !errors.Is(err, ErrAlignment) {
				t.Errorf("%s: read: %v", b, err)
			}
			if _, err := f.WriteAt(bad.b, bad.off); !errors.Is(err, ErrAlignment) {
				t.Errorf("%s: write: %v", b, err)
			}
		}
		if err := f.Truncate(Align + 100); err != nil {
			t.Fatal(err)
		}
		batch, err := NewBatch(f, BatchConfig{})
		if err != nil {
			t.Fatal(err)
		}
		ops := []Op{
			{Buf: Aligned(Align), Off: 0},
			{Buf: Aligned(Align), Off: Align},
			{Buf: Aligned(Align), Off: 8 * Align},
		}
		if _, err := batch.Submit(ops); err != nil {
			t.Fatal(err)
		}
		if _, err := batch.Reap(nil, 3); err != nil {
			t.Fatal(err)
		}
		if ops[0].N != Align || ops[0].Err != nil || ops[1].N != 100 || ops[1].Err != io.EOF || ops[2].N != 0 ||
			ops[2].Err != io.EOF {
			t.Errorf("%s: %+v", b, []any{ops[0].N, ops[0].Err, ops[1].N, ops[1].Err, ops[2].N, ops[2].Err})
		}
		if err := errors.Join(batch.Close(), f.Close()); err != nil {
			t.Error(err)
		}
	}
}

func chainFile(t *testing.T) (*ringFile, string) {
	t.Helper()
	if err := ringed(); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	path := filepath.Join(t.TempDir(), "chain")
	f, err := Open(path, Config{Backend: Uring, Create: true, Chains: new(ChainStats)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f.(*ringFile), path
}

func parts(n int) (all [][]byte, flat []byte) {
	for i := range n {
		p := bytes.Repeat([]byte{byte(i + 1)}, 20+i%7)
		all, flat = append(all, p), append(flat, p...)
	}
	return all, flat
}

// A chain that breaks at any index: a passing cause is got over, another is reported, and what was
// written is known.
func TestChainBreaksAtEveryIndex(t *testing.T) {
	const n = 64
	all, flat := parts(n)
	for _, cause := range []syscall.Errno{syscall.EINTR, syscall.EAGAIN, syscall.ENOSPC, syscall.EIO, 0} { // 0: short
		for at := range n + 1 { // n: the sync
			if at == n && cause == 0 {
				continue
			}
			f, path := chainFile(t)
			seen, broken := 0, false
			f.script = &script{
				short: func(op *uring.Op, n int) int {
					if !broken && cause == 0 && seen == at {
						broken = true
						seen++
						return n / 2
					}
					seen++
					return n
				},
				verdict: func(op *uring.Op) {
					i := 0
					for op != &f.ops[i] {
						i++
					}
					switch {
					case broken && op.Res < 0, cause == 0:
					case i == at && !broken:
						op.Res = -int32(cause)
					case i > at && !broken: // the kernel would not have begun it
						op.Res = -int32(syscall.ECANCELED)
						broken = i == n
					}
					broken = broken || i == n
				},
			}
			written, err := f.WriteChain(all, 0, true)
			counts := f.stats.Counts()
			var ce *ChainError
			failed := -1
			if errors.As(err, &ce) {
				failed = ce.Failed
			}
			passing := cause == syscall.EINTR && at < n || cause == syscall.EAGAIN && at < n || cause == 0
			switch {
			case passing && (err != nil || written != n || counts.Breaks != 1 || counts.Whole != 1):
				t.Fatalf("%v at %d: %d, %v, %v", cause, at, written, counts, err)
			case !passing && (!errors.Is(err, cause) || written != at || failed != at || counts.LastIndex != at ||
				counts.Errors[cause] != 1 || counts.Failed[ChainFailure{cause, at}] != 1):
				t.Fatalf("%v at %d: %d, %v, %v", cause, at, written, counts, err)
			}
			if !passing && at == n {
				if err := f.Sync(); !errors.Is(err, ErrSyncFailed) {
					t.Fatalf("a sync after one that failed: %v", err)
				}
			}
			if got, err := os.ReadFile(path); err != nil || passing && !bytes.Equal(got, flat) {
				t.Fatalf("%v at %d: the file holds other bytes, %v", cause, at, err)
			}
			f.Close()
		}
	}
}

func TestLongChainsAndStats(t *testing.T) {
	f, path := chainFile(t)
	all, flat := parts(200)
	if n, err := f.WriteChain(all, 0, true); n != 200 || err != nil {
		t.Fatal(n, err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, flat) {
		t.Error("the file holds other bytes", err)
	}
	if n, err := f.WriteChain(nil, 0, true); n != 0 || err != nil {
		t.Error(n, err)
	}
	f.script = &script{verdict: func(op *uring.Op) { op.Res = -int32(syscall.ENOSPC) }}
	if n, err := f.WriteChain(all[:3], 0, false); n != 0 || !errors.Is(err, syscall.ENOSPC) {
		t.Error(n, err)
	}
	f.script = &script{verdict: func(op *uring.Op) {
		if op != &f.ops[0] {
			op.Res = -int32(syscall.ENOSPC)
		}
	}}
	if n, err := f.WriteChain(all[:3], 0, false); n != 1 || !errors.Is(err, syscall.ENOSPC) {
		t.Error(n, err)
	}
	want := "2 of 4 batches whole (50.00 %), 201 of 206 parts, 0 taken up again; no space left on device ×2 at index 0, 1; last at index 1"
	if c := f.stats.Counts(); c.String() != want {
		t.Errorf("%v\nwant %s", c, want)
	}
	if c := new(ChainStats).Counts(); c.SuccessRate() != 1 || c.LastIndex != -1 {
		t.Errorf("nothing yet: %v", c)
	}
	if _, err := f.WriteChain(all, -1, false); err == nil {
		t.Error("a negative offset")
	}
}

// The batch of a locked goroutine, with more operations than depth.
func TestLockedBatch(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f, _ := chainFile(t)
	b, err := NewBatch(f, BatchConfig{Depth: 4, Locked: true})
	if err != nil {
		t.Fatal(err)
	}
	ops := make([]Op, 10)
	for i := range ops {
		ops[i] = Op{Kind: Write, Buf: bytes.Repeat([]byte{byte(i)}, 100), Off: int64(i * 100)}
	}
	ops[9] = Op{Kind: Sync}
	if n, err := b.Submit(ops); n != 4 || err != nil {
		t.Fatalf("%d taken, %v", n, err)
	}
	if _, err := b.Reap(nil, 5); err == nil {
		t.Error("a wait for more than is in flight")
	}
	done, err := b.Reap(nil, 4)
	for next := 4; err == nil && next < len(ops); {
		var n int
		n, err = b.Submit(ops[next:])
		next += n
		if err == nil {
			done, err = b.Reap(done, n)
		}
	}
	if err != nil || len(done) != len(ops) {
		t.Fatal(len(done), err)
	}
	for _, op := range done {
		if op.Err != nil || op.N != len(op.Buf) {
			t.Errorf("%+v", op)
		}
	}
	if _, err := b.Submit([]Op{{Kind: 9}}); err == nil {
		t.Error("an unknown kind")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// A sync for which there was no ring, since the process had no descriptor left for one, was taken
// for a failed one: no later one succeeded.
func TestSyncThatWasNotBegun(t *testing.T) {
	f, _ := chainFile(t)
	if _, err := f.WriteAt([]byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 1
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	syncErr := f.Sync()
	n, writeErr := f.WriteSync([]byte("y"), 0)
	_, chainErr := f.WriteChain(nil, 0, true)
	_, batchErr := NewBatch(f, BatchConfig{})
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{syncErr, writeErr, chainErr, batchErr} {
		if !errors.Is(err, syscall.EMFILE) {
			t.Errorf("without a descriptor: %v", err)
		}
	}
	if ce := (*ChainError)(nil); n != 0 || !errors.As(writeErr, &ce) || ce.Failed != 0 {
		t.Errorf("%d bytes were written, %v", n, writeErr)
	}
	if err := f.Sync(); err != nil {
		t.Errorf("a sync with descriptors: %v", err)
	}
	if n, err := f.WriteSync([]byte("y"), 0); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// A batch of a closed file was refused with an error that is not os.ErrClosed.
func TestBatchOfAClosedFile(t *testing.T) {
	for _, s := range subjects(t) {
		if err := s.f.Close(); err != nil {
			t.Error(err)
		}
		b, err := NewBatch(s.f, BatchConfig{Depth: 2})
		if err == nil { // goroutines find it with the first operation
			op := Op{Buf: make([]byte, 1)}
			if err = b.SubmitOne(&op); err == nil {
				_, err = b.Reap(nil, 1)
			}
			err = errors.Join(err, op.Err, b.Close())
		}
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: %v", s.name, err)
		}
	}
}

// TestManyFailuresOfChains: of more than a thousand different failures none is lost, and no more
// are told apart.
func TestManyFailuresOfChains(t *testing.T) {
	var s ChainStats
	const n = maxFailures + 100
	for range 2 {
		for i := range n {
			s.add(n, i, 0, syscall.EIO)
		}
	}
	c := s.Counts()
	if len(c.Failed) != maxFailures+1 || c.Failed[ChainFailure{syscall.EIO, OtherParts}] != 2*(n-maxFailures) ||
		c.Failed[ChainFailure{syscall.EIO, 7}] != 2 || c.Errors[syscall.EIO] != 2*n {
		t.Errorf("%d failures told apart of %d, others %d", len(c.Failed), c.Errors[syscall.EIO],
			c.Failed[ChainFailure{syscall.EIO, OtherParts}])
	}
}
