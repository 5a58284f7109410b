package seglog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// Removing LOCK lets nobody in: the directory itself is locked, too.
func TestSecondWriterIsRefusedWithoutTheLockFile(t *testing.T) {
	path := t.TempDir()
	dir, err := Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	l := open(t, small(dir, SyncAlways))
	for n := range uint64(50) {
		if _, err := l.Append(0, 1, payload(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(path, lockFile)); err != nil {
		t.Fatal(err)
	}
	if second, err := Open(small(dir, SyncAlways)); !errors.Is(err, ErrLocked) {
		second.Close()
		t.Errorf("the second Open gives %v, want ErrLocked", err)
	}
	if _, err := Repair(dir); !errors.Is(err, ErrLocked) || strings.Contains(err.Error(), "\n") {
		t.Errorf("Repair gives %v, want ErrLocked", err)
	}
	// The next look makes the file again, for programs that know only that.
	if err := l.inPlace(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(path, lockFile)); err != nil {
		t.Error(err)
	}
	closeLog(t, l)
	l = open(t, small(dir, SyncAlways))
	if last := readAll(t, l.NewReader(0), 1); last != 50 {
		t.Errorf("read up to %d, want 50", last)
	}
	closeLog(t, l)
}

// removeAll removes a folder that a log writes to: a file that it makes meanwhile goes, too.
func removeAll(path string) error {
	for late := time.Now().Add(patience); ; {
		err := os.RemoveAll(path)
		if !errors.Is(err, syscall.ENOTEMPTY) || time.Now().After(late) {
			return err
		}
	}
}

// Somebody takes the folder, or the segment that is written to, away while the log runs. The log
// fails within two seconds, and says why. Opened again, it knows what is gone, and gives no number
// twice.
func TestWhatIsTakenAwayWhileRunningIsNoticed(t *testing.T) {
	for name, take := range map[string]func(path string) error{
		"folder":  removeAll,
		"moved":   func(path string) error { return os.Rename(path, path+".moved") },
		"segment": func(path string) error { return os.Remove(filepath.Join(path, segmentName(1))) },
		"replaced": func(path string) error {
			return os.Rename(filepath.Join(path, "other"), filepath.Join(path, segmentName(1)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "data")
			dir, err := Dir(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(path, "other"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			cfg := small(dir, SyncBatch)
			var mu sync.Mutex
			var told Commit
			cfg.OnCommit = func(c Commit) { mu.Lock(); defer mu.Unlock(); told = c }
			l := open(t, cfg)
			for n := range uint64(20) {
				if _, err := l.Append(0, 1, payload(n+1)); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.Sync(); err != nil {
				t.Fatal(err)
			}
			if err := take(path); err != nil {
				t.Fatal(err)
			}
			for late := time.Now().Add(patience); l.Position().Err == nil; runtime.Gosched() {
				if time.Now().After(late) {
					t.Fatalf("after %v: %+v", patience, l.Position())
				}
			}
			if _, err := l.Append(0, 1, payload(21)); !errors.Is(err, ErrFailed) || !errors.Is(err, errForeign) {
				t.Errorf("Append gives %v", err)
			}
			if err := l.Close(); !errors.Is(err, ErrFailed) {
				t.Errorf("Close gives %v", err)
			}
			if mu.Lock(); !errors.Is(told.Err, ErrFailed) || told.Stored != 20 {
				t.Errorf("OnCommit was told %+v", told)
			}
			mu.Unlock()
			if dir, err = Dir(path); err != nil {
				t.Fatal(err)
			}
			if name == "replaced" { // a file of no bytes is no segment
				if err := os.Remove(filepath.Join(path, segmentName(1))); err != nil {
					t.Fatal(err)
				}
			}
			cfg.FS, cfg.Expect = dir, Extent{First: 1, Last: l.Position().Durable}
			l, err = Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if m := l.Recovered().Missing; len(m) != 1 || m[0].From != 1 || m[0].To != 20 || l.Position().Next != 21 {
				t.Errorf("%+v, %+v", m, l.Position())
			}
			closeLog(t, l)
		})
	}
}

// The folder was moved away, and another log begun in its place: the first log destroys nothing of
// that, however soon it begins a segment.
func TestLogLeavesAnotherInItsPlaceAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	dir, err := Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	cfg := small(dir, SyncAlways)
	cfg.KeepBytes = 4 * cfg.SegmentBytes
	first := open(t, cfg)
	fill := func(l *Log, n uint64) (err error) {
		for range n {
			if _, err = l.Append(0, 1, payload(l.Position().Next)); err != nil {
				break
			}
		}
		return err
	}
	if err := fill(first, 500); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	if dir, err = Dir(path); err != nil {
		t.Fatal(err)
	}
	second := open(t, small(dir, SyncAlways))
	if err := fill(second, 1500); err != nil {
		t.Fatal(err)
	}
	if err := fill(first, 2000); !errors.Is(err, ErrFailed) {
		t.Errorf("Append to the log that was moved gives %v, want ErrFailed", err)
	}
	if err := first.Close(); !errors.Is(err, ErrFailed) {
		t.Errorf("Close gives %v", err)
	}
	closeLog(t, second)
	if s, err := Verify(dir); err != nil || !s.Clean() || s.Records != 1500 {
		t.Errorf("Verify of the second log: %+v, %v", s, err)
	}
}

// No segment with records in it is replaced by a new one, whatever became of the lock.
func TestSegmentWithRecordsIsNotReplaced(t *testing.T) {
	d := fault.New()
	l := open(t, small(faulty{d}, SyncAlways))
	if err := l.vacant(segmentName(1)); err != nil {
		t.Errorf("one without records: %v", err)
	}
	if _, err := l.Append(0, 1, payload(1)); err != nil {
		t.Fatal(err)
	}
	if err := l.vacant(segmentName(1)); !errors.Is(err, errForeign) || passes(err) {
		t.Errorf("one with a record: %v", err)
	}
	if err := l.vacant(segmentName(2)); err != nil {
		t.Errorf("none: %v", err)
	}
	closeLog(t, l)
}

// Verify runs while the log is written and retention uses old files again: it finds no damage that
// is not there.
func TestVerifyWhileRetentionRecycles(t *testing.T) {
	d := fault.New()
	cfg := small(faulty{d}, SyncBatch)
	cfg.KeepBytes = 4 * cfg.SegmentBytes
	l := open(t, cfg)
	done := make(chan error, 1)
	go func() {
		for n := range uint64(20_000) {
			if _, err := l.Append(0, 1, payload(n%50)); err != nil {
				done <- err
				return
			}
		}
		done <- l.Sync()
	}()
	for times := 0; ; times++ {
		s, err := Verify(faulty{d})
		if err != nil || !s.Clean() {
			t.Fatalf("Verify: %+v, %v", s, err)
		}
		select {
		case err := <-done:
			if err != nil || times == 0 {
				t.Error(err, times)
			}
			closeLog(t, l)
			return
		default:
		}
	}
}

// The directory of a log is made with those above it; a file in its place is an error.
func TestDirMakesWhatIsMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "c")
	for range 2 {
		if _, err := Dir(path); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := os.Stat(path); err != nil || !st.IsDir() {
		t.Error(err)
	}
	file := filepath.Join(path, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "below")} {
		if _, err := Dir(path); err == nil {
			t.Errorf("Dir(%s) gives no error", path)
		}
	}
}

// A log that fails while a commit is being told, or those who waited for it are woken, says so:
// nobody leads after that.
func TestFailureMeanwhileIsTold(t *testing.T) {
	for _, policy := range []SyncPolicy{SyncAlways, SyncBatch, SyncNever} {
		gone := fmt.Errorf("%w: gone", ErrFailed)
		told := make(chan error, 10)
		var l *Log
		cfg := small(faulty{fault.New()}, policy)
		cfg.OnCommit = func(c Commit) {
			if c.Err != nil {
				told <- c.Err
				return
			}
			l.fail(gone)
		}
		l = open(t, cfg)
		if _, err := l.TryAppend(1, 1, payload(1)); err != nil {
			t.Fatal(err)
		}
		if err := await(t, told); !errors.Is(err, gone) {
			t.Errorf("policy %v: told %v", policy, err)
		}
		_ = l.Close()
	}
}
