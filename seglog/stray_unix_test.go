//go:build unix

package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// noFiles is what may stand where a file belongs.
var noFiles = map[string]func(path string) error{
	"pipe":        func(path string) error { return syscall.Mkfifo(path, 0o600) },
	"folder":      func(path string) error { return os.Mkdir(path, 0o700) },
	"full folder": func(path string) error { return os.MkdirAll(filepath.Join(path, "something"), 0o700) },
}

// What stands in the place of the newest index, and is no file, keeps neither the log from opening
// nor a repair from its work: it is set aside, and told.
func TestNewestIndexThatIsNoFile(t *testing.T) {
	for kind, put := range noFiles {
		for _, damaged := range []bool{false, true} {
			path, cfg, told := telling(t)
			l := open(t, cfg)
			fill(t, l, 1, 500)
			base := l.seg.base
			closeLog(t, l)
			index := filepath.Join(path, indexName(base))
			if err := errors.Join(os.Remove(index), put(index)); err != nil {
				t.Fatal(err)
			}
			if damaged {
				f, err := os.OpenFile(filepath.Join(path, segmentName(base)), os.O_RDWR, 0)
				if err == nil {
					_, err = f.WriteAt(make([]byte, 40), headerBytes+50)
					err = errors.Join(err, f.Close())
				}
				if err == nil {
					_, err = Repair(cfg.FS)
				}
				if err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
			}
			l, err := Open(cfg)
			if err != nil {
				t.Fatalf("%s, damaged %v: %v", kind, damaged, err)
			}
			if !damaged {
				if got := await(t, told); !errors.Is(got, errNoFile) ||
					!strings.Contains(got.Error(), indexName(base)+damagedSuffix) {
					t.Errorf("%s: told %v", kind, got)
				}
			}
			fill(t, l, 501, 1000)
			closeLog(t, l)
			if st, err := os.Lstat(index); err != nil || !st.Mode().IsRegular() {
				t.Errorf("%s, damaged %v: the index is not made again: %v", kind, damaged, err)
			}
			if st, err := os.Lstat(index + damagedSuffix); err != nil || st.Mode().IsRegular() {
				t.Errorf("%s, damaged %v: what stood there is gone: %v", kind, damaged, err)
			}
			if s, err := Verify(cfg.FS); err != nil || !s.Clean() || s.Last != 1000 || s.Lost > 0 != damaged {
				t.Errorf("%s, damaged %v: %+v, %v", kind, damaged, s, err)
			}
		}
	}
}

// What has the name of a segment for which the log has no place makes no record lost, whatever the
// number in its name; in the place of one that was there it does.
func TestStraysAreNoLoss(t *testing.T) {
	puts := map[string]func(path string) error{
		"text":  func(path string) error { return os.WriteFile(path, []byte("no segment"), 0o600) },
		"large": func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte{7}, 32<<10), 0o600) },
	}
	for kind, put := range noFiles {
		puts[kind] = put
	}
	for kind, put := range puts {
		for _, place := range []string{"behind", "within", "newest"} {
			path, cfg, _ := telling(t)
			l := open(t, cfg)
			fill(t, l, 1, 500)
			newest := l.seg.base
			closeLog(t, l)
			bases := []uint64{999, 9999}
			switch place {
			case "within":
				bases = []uint64{newest - 1, newest + 1}
			case "newest":
				bases = []uint64{newest}
				if err := os.Remove(filepath.Join(path, segmentName(newest))); err != nil {
					t.Fatal(err)
				}
			}
			for _, base := range bases {
				if err := put(filepath.Join(path, segmentName(base))); err != nil {
					t.Fatal(err)
				}
			}
			if s, err := Verify(cfg.FS); err != nil || s.Clean() || place != "newest" && lost(s) > 0 {
				t.Errorf("%s, %s: before a repair: %+v, %v", kind, place, s, err)
			}
			if _, err := Repair(cfg.FS); err != nil {
				t.Fatalf("%s, %s: %v", kind, place, err)
			}
			s, err := Verify(cfg.FS)
			if want := place == "newest"; err != nil || !s.Clean() || s.Lost > 0 != want || s.Records+s.Lost != 500 {
				t.Errorf("%s, %s: %+v, %v", kind, place, s, err)
			}
			for _, base := range bases {
				if _, err := os.Lstat(filepath.Join(path, segmentName(base)+damagedSuffix)); err != nil {
					t.Errorf("%s, %s: %v", kind, place, err)
				}
			}
			l = openHarmed(t, cfg)
			if r := l.Recovered(); len(r.Missing) > 0 != (place == "newest") || l.Position().Next != 501 {
				t.Errorf("%s, %s: %+v, %d is next", kind, place, r, l.Position().Next)
			}
			closeLog(t, l)
		}
	}
}

// lost is how many records a summary says to be unreadable.
func lost(s Summary) (n uint64) {
	for _, p := range s.Problems {
		if p.To > 0 {
			n += p.To - p.From + 1
		}
	}
	return n
}

// Without a repair, too, what has but the name of a segment makes no record lost when the log is
// opened, and keeps it from nothing: it is set aside, also where the one before it was not closed.
// A newest segment whose header is gone is lost, and told; the log does not open where its place
// has what cannot be one that was cut.
func TestOpeningPastStrays(t *testing.T) {
	puts := map[string]func(path string) error{}
	for kind, content := range map[string][]byte{
		"few bytes": []byte("note"), "empty": nil,
		"large": bytes.Repeat([]byte{7}, 32<<10),
	} {
		puts[kind] = func(path string) error { return os.WriteFile(path, content, 0o600) }
	}
	for kind, put := range noFiles {
		puts[kind] = func(path string) error {
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			return put(path)
		}
	}
	for kind, put := range puts {
		_, noFile := noFiles[kind]
		for _, closed := range []bool{true, false} {
			for _, place := range []string{"behind", "known", "true"} {
				path, cfg, _ := telling(t)
				l := open(t, cfg)
				fill(t, l, 1, 500)
				newest := l.seg.base
				if err := l.Sync(); err != nil {
					t.Fatal(err)
				}
				if closed {
					closeLog(t, l)
				}
				copied := copyOf(t, path) // as it is after a kill
				if !closed {
					closeLog(t, l)
				}
				base := uint64(9999)
				if place == "true" {
					base = newest
				}
				name := filepath.Join(copied, segmentName(base))
				if err := put(name); err != nil {
					t.Fatal(err)
				}
				dir, err := Dir(copied)
				if err != nil {
					t.Fatal(err)
				}
				cfg.FS = dir
				if place == "known" {
					cfg.Expect.Last = 9998
				}
				what := fmt.Sprintf("%s, closed %v, %s", kind, closed, place)
				l, err = Open(cfg)
				if (kind == "large" || noFile) && place != "behind" {
					if corrupt := (*CorruptError)(nil); !errors.As(err, &corrupt) {
						t.Errorf("%s: opening gives %v", what, err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				r := l.Recovered()
				if !slices.Equal(r.Damaged, []string{segmentName(base) + damagedSuffix}) {
					t.Errorf("%s: set aside are %v", what, r.Damaged)
				}
				if place == "behind" && (len(r.Missing) > 0 || l.Position().Next != 501) {
					t.Errorf("%s: %+v, %d is next", what, r.Missing, l.Position().Next)
				}
				if place != "behind" && (len(r.Missing) == 0 || l.Position().Next <= 501 && !closed) {
					t.Errorf("%s: nothing is missing, %d is next", what, l.Position().Next)
				}
				closeLog(t, l)
			}
		}
	}
}

// Below the first record that the log says it keeps, what has but the name of a segment makes no
// record lost, at the start and by a repair: retention took what was there.
func TestStraysBelowWhatIsKept(t *testing.T) {
	puts := map[string]func(path string) error{}
	for kind, content := range map[string][]byte{
		"few bytes": []byte("note"), "empty": nil, "zeros": make([]byte, 5000),
		"large": bytes.Repeat([]byte{7}, 32<<10),
	} {
		puts[kind] = func(path string) error { return os.WriteFile(path, content, 0o600) }
	}
	maps.Copy(puts, noFiles)
	for kind, put := range puts {
		for _, repairs := range []bool{false, true} {
			path, cfg, _ := telling(t)
			cfg.KeepBytes = 4 * cfg.SegmentBytes
			l := open(t, cfg)
			fill(t, l, 1, 1000)
			closeLog(t, l)
			bases, err := segmentBases(cfg.FS)
			if err != nil || bases[0] < 3 {
				t.Fatalf("segments %v, %v", bases, err)
			}
			for _, base := range []uint64{1, bases[0] - 1} {
				if err := put(filepath.Join(path, segmentName(base))); err != nil {
					t.Fatal(err)
				}
			}
			what := fmt.Sprintf("%s, with a repair: %v", kind, repairs)
			if s, err := Verify(cfg.FS); err != nil || s.Clean() || lost(s) > 0 {
				t.Errorf("%s: before: %+v, %v", what, s, err)
			}
			if repairs {
				if _, err := Repair(cfg.FS); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			l = open(t, cfg)
			if r := l.Recovered(); len(r.Missing) > 0 || r.First != bases[0] || l.Position().Next != 1001 {
				t.Errorf("%s: %+v", what, r)
			}
			closeLog(t, l)
			for _, base := range []uint64{1, bases[0] - 1} {
				if _, err := os.Lstat(filepath.Join(path, segmentName(base)+damagedSuffix)); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			if s, err := Verify(cfg.FS); err != nil || !s.Clean() || s.Lost > 0 {
				t.Errorf("%s: in the end: %+v, %v", what, s, err)
			}
		}
	}
}

// copyOf copies the folder of a log that may be open: what it renames meanwhile is copied anew.
func copyOf(t *testing.T, path string) (copied string) {
	t.Helper()
	for {
		copied = t.TempDir()
		err := os.CopyFS(copied, os.DirFS(path))
		if err == nil {
			return copied
		}
		if !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}
