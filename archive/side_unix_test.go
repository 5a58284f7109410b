//go:build unix

package archive

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What is no ordinary file under the name of a side file is an error that says so; a pipe keeps
// nobody waiting.
func TestSideFileThatIsNone(t *testing.T) {
	uses := map[string]func(dir string) error{
		currentFile: func(dir string) error {
			_, err := LoadStart(dir, slog.New(slog.DiscardHandler))
			return err
		},
		beforeFile: func(dir string) error {
			_, err := LoadStart(dir, slog.New(slog.DiscardHandler))
			return err
		},
		HistoryFile: func(dir string) error {
			_, _, lastErr := LastStarts(dir, 1)
			_, pastErr := PastOf(dir, "", nil, nil)
			if lastErr == nil {
				t.Error("the last starts are read from what is no file")
			}
			return pastErr
		},
		StreamsFile: func(dir string) error { _, err := LoadStreams(dir); return err },
		AckFile:     func(dir string) error { _, err := LoadAck(dir); return err },
	}
	for name, use := range uses {
		for kind, put := range map[string]func(path string) error{
			"pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
			"folder": func(path string) error { return os.Mkdir(path, 0o700) },
			"device": func(path string) error { return os.Symlink("/dev/zero", path) },
		} {
			dir := t.TempDir()
			if err := put(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			if err := use(dir); err == nil ||
				!strings.Contains(err.Error(), name+" is no ordinary file: move it away") {
				t.Errorf("%s in the place of %s: %v", kind, name, err)
			}
		}
	}
}

// A pipe or a folder where a file is written keeps nobody waiting either.
func TestSideFileThatCannotBeWritten(t *testing.T) {
	uses := map[string]func(dir string) error{
		HistoryFile:           func(dir string) error { return (&StartSheet{}).Keep(dir) },
		currentFile + ".part": func(dir string) error { return (&StartSheet{}).Save(dir, false) },
	}
	for name, use := range uses {
		for kind, put := range map[string]func(path string,
			mode uint32) error{"pipe": syscall.Mkfifo, "folder": syscall.Mkdir} {
			dir := t.TempDir()
			if err := put(filepath.Join(dir, name), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := use(dir); err == nil ||
				!strings.Contains(err.Error(), name+" is no ordinary file: move it away") {
				t.Errorf("%s in the place of %s: %v", kind, name, err)
			}
		}
	}
}

// What a link in the place of a file in the making leads to is not written over, nor what has
// another name.
func TestPartThatLeadsElsewhere(t *testing.T) {
	for kind, put := range map[string]func(from, to string) error{"link": os.Symlink, "hard link": os.Link} {
		dir, theirs := t.TempDir(), filepath.Join(t.TempDir(), "theirs")
		if err := os.WriteFile(theirs, []byte("theirs"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := put(theirs, filepath.Join(dir, currentFile+".part")); err != nil {
			t.Fatal(err)
		}
		s := &StartSheet{LogStored: 7}
		if err := s.Save(dir, true); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if b, err := os.ReadFile(theirs); err != nil || string(b) != "theirs" {
			t.Errorf("%s: it leads to %q, %v", kind, b, err)
		}
		if st, err := os.Lstat(filepath.Join(dir, currentFile)); err != nil || !st.Mode().IsRegular() {
			t.Errorf("%s: the sheet is %v, %v", kind, st, err)
		}
		if stored := Known(dir).Given; stored != 7 {
			t.Errorf("%s: the sheet knows %d records", kind, stored)
		}
	}
}
