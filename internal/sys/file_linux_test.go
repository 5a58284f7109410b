package sys

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A file that was closed has no descriptor any more: the number it had may be another file's.
func TestClosedFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	_, cached := Cached(f)
	_, dirty := Dirty(f)
	_, locked := Lock(f)
	for name, err := range map[string]error{
		"Datasync": Datasync(f), "DropCache": DropCache(f), "Cached": cached,
		"Dirty": dirty, "Lock": locked,
	} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCached: what was written and synced is cached, and what was dropped is not, where the file
// system lets go of it.
func TestCached(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 1<<20+1)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if share, err := Cached(f); err != nil || share < 0.99 || share > 1.01 {
		t.Errorf("%.2f of a file that was just written is cached: %v", share, err)
	}
	if err := DropCache(f); err != nil {
		t.Fatal(err)
	}
	share, err := Cached(f)
	if err != nil {
		t.Fatal(err)
	}
	if share > 0.5 {
		t.Skipf("SKIPPED: this file system keeps its pages (tmpfs has no others): %.2f are cached; set TMPDIR to a disk", share)
	}
}

// TestInCache: what was written and synced is in the cache, what was dropped is not, and what was
// read again is.
func TestInCache(t *testing.T) {
	const size = 1<<20 + 1
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	fd := int(f.Fd())
	switch InCache(fd, 0, size) {
	case Absent:
		t.Error("a file that was just written is not in the cache")
	case Unknown:
		t.Skip("SKIPPED: nothing is known of the cache of this file system: that takes Linux 6.5; set TMPDIR to a disk")
	}
	if p := InCache(fd, 5000, 100); p < Counted {
		t.Errorf("100 bytes of it are not in the cache (presence %d)", p)
	}
	if err := DropCache(f); err != nil {
		t.Fatal(err)
	}
	if share, err := Cached(f); err != nil || share > 0.5 {
		t.Skipf("SKIPPED: this file system keeps its pages (tmpfs has no others): %.2f are cached, %v; set TMPDIR to a disk", share, err)
	}
	if p := InCache(fd, 0, size); p >= Counted {
		t.Errorf("a file that was dropped is in the cache (presence %d)", p)
	}
	if _, err := f.ReadAt(make([]byte, size), 0); err != nil {
		t.Fatal(err)
	}
	if p := InCache(fd, 0, size); p < Counted {
		t.Errorf("a file that was read is not in the cache (presence %d)", p)
	}
}

// TestPromptIsWhatAReadHasShown: only where the file system has answered a read that must not wait
// a part is Prompt. It may wait for something else: FUSE for a process, which may be this one.
func TestPromptIsWhatAReadHasShown(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "/dev/shm"} {
		f, err := os.CreateTemp(dir, "")
		if err != nil {
			t.Logf("SKIPPED: %s: %v; mount a tmpfs there", dir, err)
			continue
		}
		t.Cleanup(func() { f.Close(); os.Remove(f.Name()) })
		if _, err := f.Write(make([]byte, 5000)); err != nil {
			t.Fatal(err)
		}
		n, err := unix.Preadv2(int(f.Fd()), [][]byte{make([]byte, 1)}, 4999, unix.RWF_NOWAIT)
		answered := n == 1 && err == nil
		if p := InCache(int(f.Fd()), 0, 5000); (p == Prompt) != answered {
			t.Errorf("%s: the presence is %d; a read that must not wait gave %d, %v", dir, p, n, err)
		}
	}
}

// TestSendFileKeepingP sends a part of a file from an offset, and what the socket does not take is
// EAGAIN.
func TestSendFileKeepingP(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write([]byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	if n, err := SendFileKeepingP(fds[0], int(f.Fd()), 3, 5); n != 5 || err != nil {
		t.Errorf("5 bytes are sent as %d, %v", n, err)
	}
	b := make([]byte, 10)
	if n, err := unix.Read(fds[1], b); err != nil || string(b[:n]) != "34567" {
		t.Errorf("%q comes, %v; want 34567", b[:max(n, 0)], err)
	}
	if n, err := SendFileKeepingP(fds[0], int(f.Fd()), 10, 5); n != 0 || err != nil {
		t.Errorf("behind the end %d bytes are sent, %v", n, err)
	}
	for err == nil {
		_, err = SendFileKeepingP(fds[0], int(f.Fd()), 0, 10)
	}
	if err != unix.EAGAIN {
		t.Errorf("a full socket says %v, want %v", err, unix.EAGAIN)
	}
}
