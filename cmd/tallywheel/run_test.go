package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/ledger"
)

// The printed sheet has each count under its name.
func TestPrintedSheet(t *testing.T) {
	p := ledger.Port{ID: "line-1", OutageCount: 14, Bytes: ledger.Bytes{Read: 1}, Frames: ledger.Frames{
		OK: 2, Unique: 3, Duplicate: 4, Reordered: 5, Corrupt: 6, Missing: 7, MissingByTime: 8, Stored: 9, Durable: 10,
		Dropped: map[string]uint64{"a": 5, "b": 6}, InFlight: 12,
	}}
	s := ledger.NewSheet(1, 1, []ledger.Port{p})
	v := s.Judge()
	s.Verdict = &v
	var out bytes.Buffer
	if err := printSheet(&out, s, false); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	cells := func(line string) []string { return regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(line), -1) }
	names, counts := cells(lines[0]), cells(lines[1])
	if len(names) != len(counts) {
		t.Fatalf("%q has not a count for each of %q", counts, names)
	}
	got := map[string]string{}
	for i, name := range names {
		got[name] = counts[i]
	}
	for name, want := range map[string]string{
		"port": "line-1", "read B": "1", "frames": "2", "unique": "3", "duplicate": "4", "reordered": "5",
		"corrupt": "6", "missing": "7",
		"missing by time": "8", "stored": "9", "durable": "10", "dropped": "11", "in flight": "12", "outages": "14",
	} {
		if got[name] != want {
			t.Errorf("%s: %s, want %s", name, got[name], want)
		}
	}
	if want := "bad: " + v.Text + "; every equation balances"; lines[2] != want {
		t.Errorf("the last line is %q, want %q", lines[2], want)
	}
}
