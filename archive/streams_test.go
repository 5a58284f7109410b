package archive

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Many streams get their numbers by one write: all, in the order asked for, or none.
func TestNumbersOfMany(t *testing.T) {
	dir := t.TempDir()
	s, err := LoadStreams(dir)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Number(Stream{Source: "b", Frame: "line"}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	wants := []Stream{
		{Source: "a", Frame: "line"},
		{Source: "b", Frame: "line"},
		{Source: "b", Frame: "raw"},
		{Source: "a", Frame: "line"},
		{Source: "b", Frame: "line", Quarantine: true},
	}
	part := filepath.Join(dir, StreamsFile+".part")
	if err := os.Mkdir(part, 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Numbers(wants); err == nil || s.Has("a") {
		t.Errorf("numbers %v are given and not durable", got)
	}
	if err := os.Remove(part); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := s.Numbers(wants)
		if want := []uint32{2, 1, 3, 2, 4}; err != nil || len(got) != len(want) {
			t.Fatal(got, err)
		} else {
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("numbers %v, want %v", got, want)
					break
				}
			}
		}
		if s, err = LoadStreams(dir); err != nil || !s.Has("a") || s.Has("c") {
			t.Fatal(err)
		}
	}
}

// What is no file, in the place of one that is replaced, does not take the place of the one before.
func TestFolderIsNotKeptAsTheOneBefore(t *testing.T) {
	dir := t.TempDir()
	path, before := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, text := range []string{"1", "2"} {
		if err := replaceFile(path, before, []byte(text), false); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(path, before, []byte("3"), false); err == nil {
		t.Error("a folder was replaced by a file")
	}
	if b, err := os.ReadFile(before); string(b) != "1" {
		t.Errorf("the one before is %q, %v", b, err)
	}
}

// Whoever reads a file while it is replaced finds one: the old or the new.
func TestReplacedFileIsAlwaysThere(t *testing.T) {
	dir := t.TempDir()
	path, before := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := replaceFile(path, before, []byte("0"), false); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		for i := range 500 {
			if err := replaceFile(path, before, []byte{'0' + byte(i%10)}, false); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for looks := 0; ; looks++ {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
		if b, err := os.ReadFile(path); err != nil || len(b) != 1 {
			t.Errorf("look %d finds %q, %v", looks, b, err)
			<-done
			return
		}
	}
}
