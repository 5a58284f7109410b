//go:build unix

package seglog

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNotLeftByARepair: what has the name of a segment that a repair has left, and is none of the
// log, is left alone when the log is opened, and keeps its bytes in a repair. It became a segment,
// which kept the log from opening, or took the place of one that a repair could read.
func TestNotLeftByARepair(t *testing.T) {
	theirs := filed(t, 400)(t)
	entries, err := os.ReadDir(theirs)
	if err != nil {
		t.Fatal(err)
	}
	segment := func(base uint64) []byte {
		name := segmentName(base)
		if i := slices.IndexFunc(entries, func(e os.DirEntry) bool { return e.Name() == name }); i < 0 {
			name = segmentName(1)
		}
		b, err := os.ReadFile(filepath.Join(theirs, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	puts := map[string]func(path string, base uint64) error{
		"text":  func(path string, _ uint64) error { return os.WriteFile(path, []byte("notes\n"), 0o600) },
		"zeros": func(path string, _ uint64) error { return os.WriteFile(path, make([]byte, 32<<10), 0o600) },
		"a segment of another log, of that number if it has one": func(path string, base uint64) error {
			return os.WriteFile(path, segment(base), 0o600)
		},
		"link to nowhere":  func(path string, _ uint64) error { return os.Symlink("nowhere", path) },
		"link to a folder": func(path string, _ uint64) error { return os.Symlink(t.TempDir(), path) },
	}
	for kind, put := range noFiles {
		puts[kind] = func(path string, _ uint64) error { return put(path) }
	}
	mine := filed(t, 300)
	for kind, put := range puts {
		path := mine(t)
		dir, err := Dir(path)
		if err != nil {
			t.Fatal(err)
		}
		bases, err := segmentBases(dir)
		if err != nil || len(bases) < 3 {
			t.Fatal(bases, err)
		}
		places := []uint64{1, bases[1], bases[1] + 1, 301, 400, maxSequence}
		var was []string
		for _, base := range places {
			name := filepath.Join(path, segmentName(base)+movedSuffix)
			if err := put(name, base); err != nil {
				t.Fatal(err)
			}
			was = append(was, lookAt(t, name))
		}
		l, err := Open(small(dir, SyncBatch))
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if r := l.Recovered(); !r.Clean || r.Last != 300 || len(r.Missing)+len(r.Damaged) > 0 {
			t.Errorf("%s: %+v", kind, r)
		}
		closeLog(t, l)
		for i, base := range places {
			if now := lookAt(t, filepath.Join(path, segmentName(base)+movedSuffix)); now != was[i] {
				t.Errorf("%s: %s is %.40q now, and was %.40q", kind, segmentName(base)+movedSuffix, now, was[i])
			}
		}
		// of a segment with one batch that is damaged, and both headers, a repair keeps the others
		name := filepath.Join(path, segmentName(bases[1]))
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b[20], b[headerCopy+20], b[headerBytes+500] = b[20]^1, b[headerCopy+20]^1, b[headerBytes+500]^1
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Repair(dir); err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if s, err := Verify(dir); err != nil || !s.Clean() || s.Last != 300 || s.Records < 298 {
			t.Errorf("%s: a repair keeps %d of 300 records, up to %d; %v", kind, s.Records, s.Last, err)
		}
		for i, base := range places {
			name := filepath.Join(path, segmentName(base)+movedSuffix)
			if now := lookAt(t, name); now != was[i] && (base != bases[1] || lookAt(t, name+damagedSuffix) != was[i]) {
				t.Errorf("%s: %s is %.40q now, and was %.40q", kind, filepath.Base(name), now, was[i])
			}
		}
	}
}

// TestLeavingsThatMayNotBeRead: the segment may be one of the log's: an error names it.
func TestLeavingsThatMayNotBeRead(t *testing.T) {
	path := filed(t, 300)(t)
	dir, err := Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	bases, err := segmentBases(dir)
	if err != nil {
		t.Fatal(err)
	}
	name := segmentName(bases[1])
	if err := dir.Rename(name, name+movedSuffix); err != nil {
		t.Fatal(err)
	}
	_, opened := Open(small(unreadable{dir, name + movedSuffix}, SyncBatch))
	_, repaired := Repair(unreadable{dir, name + movedSuffix})
	for _, err := range []error{opened, repaired} {
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), name+movedSuffix) {
			t.Error(err)
		}
	}
	l := open(t, small(dir, SyncBatch))
	if r := l.Recovered(); !r.Clean || r.Last != 300 {
		t.Errorf("once it may be read: %+v", r)
	}
	closeLog(t, l)
}

// unreadable is a directory with a file that may not be read.
type unreadable struct {
	FS
	name string
}

func (u unreadable) Open(name string) (File, error) {
	if name == u.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return u.FS.Open(name)
}

// filed makes logs of that many records in folders, each a copy of the others.
func filed(t *testing.T, records uint64) func(t *testing.T) (path string) {
	t.Helper()
	first := t.TempDir()
	dir, err := Dir(first)
	if err != nil {
		t.Fatal(err)
	}
	l := open(t, small(dir, SyncNever))
	fill(t, l, 1, records)
	closeLog(t, l)
	return func(t *testing.T) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "log")
		if err := os.CopyFS(path, os.DirFS(first)); err != nil {
			t.Fatal(err)
		}
		return path
	}
}

// lookAt says what stands under a name: its kind, where a link leads, and what a file holds.
func lookAt(t *testing.T, name string) string {
	t.Helper()
	st, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "nothing"
	}
	if err != nil {
		t.Fatal(err)
	}
	said := []byte(st.Mode().String() + " ")
	switch {
	case st.Mode().IsRegular():
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, bytes.TrimRight(b, "\x00")...)
	case st.Mode()&fs.ModeSymlink != 0:
		to, err := os.Readlink(name)
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, to...)
	}
	return string(said)
}
