package archive

import (
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
