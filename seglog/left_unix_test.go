//go:build unix

package seglog

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What stands in the place of a spare segment, and is no ordinary file, is left alone and told
// once, by each opening; the log goes on without it. What a link leads to is not written over.
func TestSpareThatIsNoFile(t *testing.T) {
	theirs := filepath.Join(t.TempDir(), "theirs")
	if err := os.WriteFile(theirs, make([]byte, 32<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	for kind, put := range map[string]func(path string) error{
		"link":        func(path string) error { return os.Symlink(theirs, path) },
		"dangling":    func(path string) error { return os.Symlink(theirs+".none", path) },
		"folder":      func(path string) error { return os.Mkdir(path, 0o700) },
		"full folder": func(path string) error { return os.MkdirAll(filepath.Join(path, "something"), 0o700) },
		"pipe":        func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"device":      func(path string) error { return os.Symlink("/dev/null", path) },
		"loop":        func(path string) error { return os.Symlink(filepath.Base(path), path) },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			path, cfg, told := telling(t)
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
			if got := await(t, told); !errors.Is(got, errNoFile) {
				t.Errorf("told at the next opening: %v", got)
			}
			fill(t, l, 501, 1000)
			if st, err := os.Lstat(spare); err != nil || st.Mode().IsRegular() {
				t.Errorf("at the next opening, what stood in the place of a spare is %v, %v", st, err)
			}
			if last := readAll(t, l.NewReader(0), 1); last != 1000 {
				t.Errorf("read up to %d, want 1000", last)
			}
			closeLog(t, l)
			if s, err := Verify(cfg.FS); err != nil || !s.Clean() || len(s.Problems) > 0 {
				t.Errorf("Verify: %+v, %v", s, err)
			}
			if b, err := os.ReadFile(theirs); err != nil || len(b) != 32<<10 || len(bytes.TrimLeft(b, "\x00")) > 0 {
				t.Errorf("the file that the link leads to was written to: %v", err)
			}
			if _, err := os.Stat(theirs + ".none"); err == nil {
				t.Error("a file was made where the link leads to")
			}
		})
	}
}

// A file of the log's that has another name, too, as in a backup made of hard links, stays under
// that as it was, also when retention takes the segment, and when the log makes a file of that
// name.
func TestHardLinksKeepTheirBytes(t *testing.T) {
	path, backup := t.TempDir(), t.TempDir()
	dir, err := Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	cfg := small(dir, SyncNever)
	cfg.KeepBytes = 4 * cfg.SegmentBytes
	l := open(t, cfg)
	fill(t, l, 1, 300)
	readySpare(t, l)
	inUse := l.seg.name()
	kept := map[string][]byte{}
	names, err := dir.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(path, name))
		if err == nil && name != inUse && name != durableFile { // what is written to changes under all names
			kept[name] = b
			err = os.Link(filepath.Join(path, name), filepath.Join(backup, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	fill(t, l, 301, 3000)
	closeLog(t, l)
	l = open(t, cfg)
	fill(t, l, 3001, 3300)
	closeLog(t, l)
	segments := 0
	for name, was := range kept {
		if b, err := os.ReadFile(filepath.Join(backup, name)); err != nil || !bytes.Equal(b, was) {
			t.Errorf("%s was written over under its other name: %v", name, err)
		}
		if _, err := os.Lstat(filepath.Join(path, name)); err == nil && name != lockFile {
			t.Errorf("%s is still in the log: nothing was tried", name)
		}
		if _, ok := segmentBase(name); ok {
			segments++
		}
	}
	if segments == 0 || len(kept) < segments+2 {
		t.Errorf("only %d files were in the backup", len(kept))
	}
}

// A segment that is a link, to a file on another disk, is read as any other; when retention takes
// it, the link goes, and the file that it leads to stays as it was.
func TestLinkedSegment(t *testing.T) {
	path, elsewhere := t.TempDir(), t.TempDir()
	dir, err := Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	cfg := small(dir, SyncNever)
	l := open(t, cfg)
	fill(t, l, 1, 1000)
	closeLog(t, l)
	first, moved := filepath.Join(path, segmentName(1)), filepath.Join(elsewhere, "moved")
	was, err := os.ReadFile(first)
	if err := errors.Join(err, os.WriteFile(moved, was, 0o600), os.Remove(first),
		os.Symlink(moved, first)); err != nil {
		t.Fatal(err)
	}
	l = open(t, cfg)
	if last := readAll(t, l.NewReader(0), 1); last != 1000 {
		t.Errorf("read up to %d, want 1000", last)
	}
	closeLog(t, l)
	cfg.KeepBytes = 3 * cfg.SegmentBytes
	cfg.OnLeft = func(err error) { t.Errorf("told: %v", err) }
	l = open(t, cfg)
	fill(t, l, 1001, 2000)
	for late := time.Now().Add(patience); ; runtime.Gosched() {
		if _, err := os.Lstat(first); errors.Is(err, os.ErrNotExist) {
			break
		}
		if time.Now().After(late) {
			t.Fatal("retention leaves the link")
		}
	}
	closeLog(t, l)
	if b, err := os.ReadFile(moved); err != nil || !bytes.Equal(b, was) {
		t.Errorf("the file that the link leads to was written over: %v", err)
	}
}

// A folder in the place of an index, or of a segment that retention takes, hinders neither the log
// nor retention; it is told, and stays.
func TestRetentionGoesOnPastAFolder(t *testing.T) {
	path, cfg, told := telling(t)
	l := open(t, cfg)
	fill(t, l, 1, 1000)
	closeLog(t, l)
	index := filepath.Join(path, indexName(1))
	if err := errors.Join(os.Remove(index), os.MkdirAll(filepath.Join(index, "something"), 0o700)); err != nil {
		t.Fatal(err)
	}
	cfg.KeepBytes = l.Position().Bytes + 2*cfg.SegmentBytes
	l = open(t, cfg)
	second := filepath.Join(path, segmentName(l.shelf.sealed()[1].base))
	if err := errors.Join(os.Remove(second), os.Mkdir(second, 0o700)); err != nil {
		t.Fatal(err)
	}
	fill(t, l, 1001, 3000)
	for _, path := range []string{index, second} {
		if got := await(t, told); !errors.Is(got, errNoFile) || !strings.Contains(got.Error(), path) {
			t.Errorf("told: %v; want it of %s", got, path)
		}
	}
	for late := time.Now().Add(patience); l.Position().First < 900; runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatalf("retention has stopped: %+v", l.Position())
		}
	}
	closeLog(t, l)
	if _, err := os.Stat(filepath.Join(index, "something")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(second); err != nil {
		t.Error(err)
	}
}

// A segment that may only be read is read. A log that would go on in it says why it cannot, before
// anything is lost.
func TestSegmentThatMayOnlyBeRead(t *testing.T) {
	path := t.TempDir()
	plain, err := Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	l := open(t, small(plain, SyncBatch))
	fill(t, l, 1, 1000)
	newest := l.seg.name()
	closeLog(t, l)
	for _, why := range []error{syscall.EACCES, syscall.EPERM, syscall.EROFS} {
		for name, refused := range map[string]bool{segmentName(1): false, newest: true} {
			dir, err := DirWith(path, func(path string, create bool) (File, error) {
				if filepath.Base(path) == name {
					return nil, &os.PathError{Op: "open", Path: path, Err: why}
				}
				return plain.(osDir).open(path, create)
			})
			if err != nil {
				t.Fatal(err)
			}
			if last := readAll(t, NewReader(dir, 0), 1); last != 1000 {
				t.Errorf("%v: read up to %d, want 1000", why, last)
			}
			l, err := Open(small(dir, SyncBatch))
			if refused != (err != nil) || refused && !(errors.Is(err, why) && strings.Contains(err.Error(), name)) {
				t.Errorf("%s, %v: the log opens with %v", name, why, err)
			}
			if err == nil {
				closeLog(t, l)
			}
		}
	}
}

// Files of others that only end as those of the log do stay.
func TestFilesOfOthersStay(t *testing.T) {
	path := t.TempDir()
	dir, err := Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"wheel.spare", "film.part", "1.spare", "sheet.json.part", "99999999999999999999.spare"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(path, name), []byte("theirs"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		l := open(t, small(dir, SyncBatch))
		fill(t, l, l.Position().Next, l.Position().Next+300)
		closeLog(t, l)
	}
	for _, name := range names {
		if b, err := os.ReadFile(filepath.Join(path, name)); err != nil || string(b) != "theirs" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
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

// telling is a small log that tells what it leaves where it is.
func telling(t *testing.T) (path string, cfg Config, told <-chan error) {
	t.Helper()
	path = t.TempDir()
	dir, err := Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	c := make(chan error, 100)
	cfg = small(dir, SyncNever)
	cfg.OnLeft = func(err error) { c <- err }
	return path, cfg, c
}

// What stands in the place of LOCK and is no file is named.
func TestLockThatIsNoFile(t *testing.T) {
	for kind, put := range map[string]func(path string) error{
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"link":   func(path string) error { return os.Symlink(lockFile, path) },
	} {
		path := t.TempDir()
		dir, err := Dir(path)
		if err == nil {
			err = put(filepath.Join(path, lockFile))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(small(dir, SyncNever)); err == nil || errors.Is(err, errNoFile) == (kind == "link") ||
			!strings.Contains(err.Error(), "LOCK: ") || !strings.Contains(err.Error(), "away") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// A process that is just being started has all files of the one that starts it, until it runs a
// program: a log that was closed meanwhile was called in use.
func TestClosedLogCanBeOpenedWhileAProcessStarts(t *testing.T) {
	dir, err := Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	lock, err := dir.Lock()
	if err != nil {
		t.Fatal(err)
	}
	l := lock.(*dirLock)
	for _, f := range []*os.File{l.file, l.folder} {
		child, err := syscall.Dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(child)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := dir.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
