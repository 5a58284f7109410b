package lab

import (
	"strings"
	"testing"
)

// TestCount: one of something is no more than one.
func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 rounds", 1: "1 round", 2: "2 rounds"} {
		if got := Count(n, "round"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if w := new(noises).warnings(1, MinRounds); len(w) != 1 || !strings.HasPrefix(w[0], "only 1 round: too few") {
		t.Errorf("%q", w)
	}
}

// TestShellWord: a path is one word of a command, and what it is.
func TestShellWord(t *testing.T) {
	for text, want := range map[string]string{
		"/mnt/disk-1": "/mnt/disk-1", "": "''", "a b": "'a b'", "$HOME;x": "'$HOME;x'", "it's": `'it'\''s'`,
	} {
		if got := shellWord(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
