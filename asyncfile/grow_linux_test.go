package asyncfile

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A map set the length of the file when it was written past its own end, and when it was closed:
// that cut off what others had appended meanwhile.
func TestWhatOthersAppendStays(t *testing.T) {
	for _, s := range subjects(t) {
		write := func(n int, off int64) {
			t.Helper()
			if _, err := s.f.WriteAt(bytes.Repeat([]byte{'w'}, n), off); err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
		}
		size := func(when string, want int) {
			t.Helper()
			if st, err := os.Stat(s.path); err != nil || st.Size() != int64(want) {
				t.Errorf("%s: %d bytes %s, %v; want %d", s.name, st.Size(), when, err, want)
			}
		}
		write(100, 0)
		if err := s.f.Sync(); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		others, err := os.OpenFile(s.path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		theirs := bytes.Repeat([]byte{'o'}, 1<<20)
		if _, err := others.Write(theirs); err != nil {
			t.Fatal(err)
		}
		write(4, 100)
		if err := s.f.Sync(); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		size("after a write past the end", 100+len(theirs))
		write(1000, 104)
		if _, err := others.Write(theirs); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(others.Close(), s.f.Close()); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		size("after close", 100+2*len(theirs))
		got, err := os.ReadFile(s.path)
		want := append(bytes.Repeat([]byte{'w'}, 1104), bytes.Repeat(theirs, 2)[1004:]...)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: other bytes%s, %v", s.name, firstDifference(got, want), err)
		}
	}
}

// A map wanted room on the disk for all of a gap, and ahead of what was written.
func TestGapsTakeNoRoom(t *testing.T) {
	dir := smallDisk(t, 1<<20)
	for _, s := range subjectsIn(t, dir) {
		if n, err := s.f.WriteAt([]byte("x"), 64<<20); n != 1 || err != nil {
			t.Errorf("%s: a byte behind a gap of 64 MiB: %d, %v", s.name, n, err)
		}
		if err := s.f.Truncate(100 << 20); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		var got [3]byte
		if n, err := s.f.ReadAt(got[:], 64<<20-1); n != 3 || err != nil || string(got[:]) != "\x00x\x00" {
			t.Errorf("%s: %d, %v, %q", s.name, n, err, got)
		}
		var disk syscall.Statfs_t
		if err := syscall.Statfs(dir, &disk); err != nil || disk.Bfree < disk.Blocks/2 {
			t.Errorf("%s: %d of %d blocks are free, %v", s.name, disk.Bfree, disk.Blocks, err)
		}
		if err := errors.Join(s.f.Sync(), s.f.Close(), os.Remove(s.path)); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	}
}

// What cannot be mapped was written all the same, with an error beside the count of bytes; nothing
// could be done with the file from then on.
func TestTooLongToMap(t *testing.T) {
	path := put(t, filepath.Join(smallDisk(t, 1<<20), "file"), 5000)
	const far = 1 << 62
	for _, shared := range []bool{false, true} {
		f, err := Open(path, Config{Backend: Mmap, Write: true, Shared: shared})
		if err != nil {
			t.Fatal(err)
		}
		works := func(size int64) {
			t.Helper()
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := f.Size(); n != size || err != nil || st.Size() != size {
				t.Errorf("shared: %v: size %d, %v; of the file %d, want %d", shared, n, err, st.Size(), size)
			}
			if n, err := f.ReadAt(make([]byte, 6000), 0); int64(n) != size || err != io.EOF {
				t.Errorf("shared: %v: read %d, %v", shared, n, err)
			}
		}
		if n, err := f.WriteAt([]byte("x"), far); n != 0 || err == nil {
			t.Errorf("shared: %v: a write of one byte: %d, %v", shared, n, err)
		}
		works(5000)
		if err := f.Truncate(far); err == nil {
			t.Errorf("shared: %v: the file is longer than what can be mapped", shared)
		}
		works(5000)
		if shared { // and where others have made it so long
			if err := os.Truncate(path, far); err != nil {
				t.Fatal(err)
			}
			if n, err := f.ReadAt(make([]byte, 10), 0); n != 0 || err == nil {
				t.Errorf("%d, %v", n, err)
			}
			if n, err := f.Size(); n != far || err != nil {
				t.Errorf("size %d, %v", n, err)
			}
			if err := f.Truncate(10); err != nil {
				t.Error(err)
			}
			works(10)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			t.Error(err)
		}
	}
}
