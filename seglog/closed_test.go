package seglog

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// TestCloseOfAnEmptyLog: one that was closed in order before it had a record was told to have been
// cut off. There is no room for a mark of it; but there is nothing of it that was lost, either,
// unless a batch had been begun.
func TestCloseOfAnEmptyLog(t *testing.T) {
	for name, policy := range policies {
		d := fault.New()
		for i := range 3 {
			l := open(t, small(faulty{d}, policy))
			if r := l.Recovered(); !r.Clean || r.Last != 0 {
				t.Errorf("%s: opening %d: %+v", name, i, r)
			}
			closeLog(t, l)
		}
		f, err := d.Open(segmentName(1))
		if err == nil {
			_, err = f.WriteAt([]byte("part of a batch"), headerBytes+40)
		}
		if err != nil {
			t.Fatal(err)
		}
		l := open(t, small(faulty{d}, policy))
		if r := l.Recovered(); r.Clean {
			t.Errorf("%s: behind a batch that was cut off: %+v", name, r)
		}
		closeLog(t, l)
	}
}

// TestReaderThatWasClosed: it opened the log again.
func TestReaderThatWasClosed(t *testing.T) {
	cfg := small(faulty{fault.New()}, SyncAlways)
	l := open(t, cfg)
	defer closeLog(t, l)
	for range 3 {
		if _, err := l.Append(1, 1, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for name, r := range map[string]interface {
		Next() (Record, error)
		End() error
		Close() error
	}{
		"outside": NewReader(cfg.FS, 0), "live": l.NewReader(0), "reverse": NewReverse(cfg.FS, 0),
		"live reverse": l.NewReverse(0),
	} {
		if _, err := r.Next(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := errors.Join(r.Close(), r.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if rec, err := r.Next(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: after close: %+v, %v", name, rec, err)
		}
	}
	r := l.NewReader(0)
	if err := errors.Join(r.Close(), r.SeekTime(0)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("SeekTime after close: %v", err)
	}
}

// TestNoDirectory: what is nil where a directory is wanted is an error.
func TestNoDirectory(t *testing.T) {
	calls := map[string]func() error{
		"Reader":       func() error { _, err := NewReader(nil, 0).Next(); return err },
		"SeekTime":     func() error { return NewReader(nil, 0).SeekTime(0) },
		"End":          func() error { return NewReader(nil, 0).End() },
		"Reverse":      func() error { _, err := NewReverse(nil, 0).Next(); return err },
		"Open":         func() error { _, err := Open(Config{}); return err },
		"Verify":       func() error { _, err := Verify(nil); return err },
		"Repair":       func() error { _, err := Repair(nil); return err },
		"Segments":     func() error { _, err := Segments(nil); return err },
		"Exists":       func() error { _, err := Exists(nil); return err },
		"Identity":     func() error { _, err := Identity(nil); return err },
		"LastSequence": func() error { _, err := LastSequence(nil); return err },
		"Before":       func() error { _, err := Before(nil, Extent{}); return err },
		"VerifyProven": func() error { _, _, err := VerifyProven(nil, Extent{}, Held{}); return err },
		"ProveEntry":   func() error { _, err := ProveEntry(nil, 1, nil); return err },
		"Dir":          func() error { _, err := Dir(""); return err },
		"CheckDir":     func() error { return CheckDir("") },
	}
	for name, call := range calls {
		if err := call(); err == nil || !strings.HasPrefix(err.Error(), "seglog: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
