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
		"Datasync": Datasync(f), "Reserve": Reserve(f, 0, 4096), "DropCache": DropCache(f), "Cached": cached, "Dirty": dirty, "Lock": locked,
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
