package rtconst

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReader: a line counts that has what Go's standard library says; the figure is the median.
func TestReader(t *testing.T) {
	right := " 6e4bcb4b bb9cfa42e1ce869e6baa869ffbc2cc179dc13bcd7797d6e27f2facfd75723acb"
	r := &reader{}
	for _, ns := range []string{"3000", "1000", "2000"} {
		if err := r.Read(ns + right); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{
		"", "hello", "1000", "1000 6e4bcb4c" + right[9:],
		"1000" + right[:len(right)-2], "1000" + right[:len(right)-1] + "a",
	} {
		if r.Read(line) == nil {
			t.Errorf("%q is taken", line)
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(exe)
	if err != nil {
		t.Fatal(err)
	}
	v, err := r.Values(exe)
	if err != nil || len(v) != 2 || v[0].V != 2000 {
		t.Errorf("%+v: %v", v, err)
	} else if loaded := v[1].V; loaded < 100_000 || loaded > float64(info.Size()) {
		t.Errorf("%.0f of %d bytes of the test are loaded", loaded, info.Size())
	}
	if _, err := r.Values(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a program that is not there has a size")
	}
}

// TestNumbersInSources: the hash that stands in the sources, and the checksum in that of Go, are
// those of the standard library.
func TestNumbersInSources(t *testing.T) {
	for _, name := range []string{"c/const.c", "rust/const.rs", "go/constants/constants.go"} {
		b, err := os.ReadFile(filepath.Join("../../contestants", name))
		if err != nil {
			t.Fatal(err)
		}
		digits := strings.NewReplacer("0x", "", ", ", "", ",", "", "\n", "", "\t", "", " ", "").Replace(string(b))
		if !strings.Contains(digits, hex.EncodeToString(hash[:])) {
			t.Errorf("%s does not have the hash %x", name, hash)
		}
	}
}
