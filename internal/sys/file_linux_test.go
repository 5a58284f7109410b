package sys

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
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
	if cached, known := InCache(fd, 0, size); known && !cached {
		t.Error("a file that was just written is not in the cache")
	} else if !known {
		t.Skip("SKIPPED: nothing is known of the cache of this file system: that takes Linux 6.5; set TMPDIR to a disk")
	}
	if cached, _ := InCache(fd, 5000, 100); !cached {
		t.Error("100 bytes of it are not in the cache")
	}
	if err := DropCache(f); err != nil {
		t.Fatal(err)
	}
	if share, err := Cached(f); err != nil || share > 0.5 {
		t.Skipf("SKIPPED: this file system keeps its pages (tmpfs has no others): %.2f are cached, %v; set TMPDIR to a disk", share, err)
	}
	if cached, known := InCache(fd, 0, size); cached {
		t.Errorf("a file that was dropped is in the cache (known %v)", known)
	}
	if _, err := f.ReadAt(make([]byte, size), 0); err != nil {
		t.Fatal(err)
	}
	if cached, _ := InCache(fd, 0, size); !cached {
		t.Error("a file that was read is not in the cache")
	}
}
