package archive

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

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

// On a disk without a free byte each sheet still takes the place of the one before, as long as it
// does not grow by much; where it does, the one before stays.
func TestSaveOnAFullDisk(t *testing.T) {
	dir := smallDisk(t, 256<<10)
	s := &StartSheet{}
	save := func(end string) error {
		s.End = end
		return s.Save(dir, true)
	}
	for _, end := range []string{"a", "b"} {
		if err := save(end); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(dir, "others"))
	for b := make([]byte, block); err == nil; {
		_, err = f.Write(b)
	}
	f.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	is := func(end string) {
		t.Helper()
		if got, err := LoadStart(dir, slog.New(slog.DiscardHandler)); err != nil || got.End != end {
			t.Fatalf("%+v, %v; want the end %.20q", got, err, end)
		}
	}
	end := "stopped"
	for range 40 {
		if end += strings.Repeat(".", slack/40); save(end) != nil {
			t.Fatalf("with %d bytes more, a sheet is not written", len(end))
		}
		is(end)
		if _, err := readStart(filepath.Join(dir, beforeFile)); err != nil {
			t.Fatal(err)
		}
	}
	if err := save(strings.Repeat("x", 128<<10)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a sheet that has no room: %v", err)
	}
	is(end)
	if err := save("stopped"); err != nil {
		t.Error(err)
	}
	is("stopped")
}

// What is not the recorder's alone is never written over for its room.
func TestRoomOfOthersIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	before, part := filepath.Join(dir, "before"), filepath.Join(dir, "part")
	may := func(want bool, what string) {
		t.Helper()
		if got := mayReuse(before, part); got != want {
			t.Errorf("%s: %v", what, got)
		}
	}
	may(false, "there is none")
	if err := os.WriteFile(before, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	may(true, "a file")
	if err := os.Symlink("/dev/full", part); err != nil {
		t.Fatal(err)
	}
	may(false, "somebody has put a link in the way")
	if err := os.Remove(part); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(before, before+".backup"); err != nil {
		t.Fatal(err)
	}
	may(false, "it has another name")
}
