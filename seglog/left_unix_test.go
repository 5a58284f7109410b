//go:build unix

package seglog

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// What stands in the place of a spare segment, and is no ordinary file, is left alone and told
// once; the log goes on without it, and opens again.
func TestSpareThatIsNoFile(t *testing.T) {
	for kind, put := range map[string]func(path string) error{
		"folder":      func(path string) error { return os.Mkdir(path, 0o700) },
		"full folder": func(path string) error { return os.MkdirAll(filepath.Join(path, "something"), 0o700) },
		"pipe":        func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"device":      func(path string) error { return os.Symlink("/dev/null", path) },
		"loop":        func(path string) error { return os.Symlink(filepath.Base(path), path) },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			path := t.TempDir()
			dir, err := Dir(path)
			if err != nil {
				t.Fatal(err)
			}
			told := make(chan error, 100)
			cfg := small(dir, SyncNever)
			cfg.OnLeft = func(err error) { told <- err }
			l := open(t, cfg)
			spare := filepath.Join(path, readySpare(t, l))
			if err := errors.Join(os.Remove(spare), put(spare)); err != nil {
				t.Fatal(err)
			}
			fill(t, l, 1, 500)
			if got := await(t, told); !errors.Is(got, errNoFile) {
				t.Errorf("told: %v", got)
			}
			if st, err := os.Lstat(spare); err != nil || st.Mode().IsRegular() {
				t.Errorf("what stood in the place of a spare is %v, %v", st, err)
			}
			closeLog(t, l)
			select {
			case err := <-told:
				t.Errorf("told a second time: %v", err)
			default:
			}
			l = open(t, cfg)
			if kind == "full folder" { // all others are removed, as a spare file is
				if got := await(t, told); !errors.Is(got, errNoFile) {
					t.Errorf("told at the next opening: %v", got)
				}
			}
			fill(t, l, 501, 1000)
			if last := readAll(t, l.NewReader(0), 1); last != 1000 {
				t.Errorf("read up to %d, want 1000", last)
			}
			closeLog(t, l)
			if s, err := Verify(dir); err != nil || !s.Clean() || len(s.Problems) > 0 {
				t.Errorf("Verify: %+v, %v", s, err)
			}
		})
	}
}

// readySpare waits for a spare segment and returns its name.
func readySpare(t *testing.T, l *Log) (name string) {
	t.Helper()
	for late := time.Now().Add(patience); name == ""; runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatal("no spare segment is made ready")
		}
		l.shelf.mu.Lock()
		if len(l.shelf.next) > 0 {
			name = l.shelf.next[0]
		}
		l.shelf.mu.Unlock()
	}
	return name
}

// fill adds records up to last and waits until they are stored.
func fill(t *testing.T, l *Log, next, last uint64) {
	t.Helper()
	for late := time.Now().Add(patience); next <= last; runtime.Gosched() {
		if _, err := l.TryAppend(0, 1, payload(next)); err == nil {
			next++
		} else if !errors.Is(err, ErrBusy) || time.Now().After(late) {
			t.Fatalf("record %d: %v; %+v", next, err, l.Position())
		}
	}
	settles(t, l, last)
}

func await(t *testing.T, told <-chan error) error {
	t.Helper()
	select {
	case err := <-told:
		return err
	case <-time.After(patience):
		t.Fatal("nobody was told")
		return nil
	}
}
