package config

import (
	"strings"
	"testing"
)

// A tab in the indentation is named with its line, and with what to do.
func TestTabInTheIndentation(t *testing.T) {
	for text, line := range map[string]string{
		"log: {dir: ./x}\nsources:\n  - id: a\n\tframe: line\n": "line 4: ",
		"log:\n\tdir: ./x\n":                    "line 2: ",
		"log:\n  dir: ./x\n \tsync: batch\n":    "line 3: ",
		"sources:\n  -\tid: a\n    frame: line": "line 2: ",
		"\tlog: {dir: ./x}\n":                   "line 1: ",
	} {
		_, err := Parse([]byte(text))
		if want := line + "a tab in the indentation, where YAML wants spaces: replace it with spaces"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
	if _, err := Parse([]byte("log:\t{dir: ./x}\nsources: []\n")); err != nil { // it stands between words
		t.Error(err)
	}
}
