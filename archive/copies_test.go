package archive

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tallywheel/tallywheel/ledger"
)

// A line of the history that stands there again, as somebody who puts a copy behind it leaves it,
// has lost nothing more: neither the line of a start nor that of a source that has left it.
func TestCopiedLinesCountOnce(t *testing.T) {
	dir := t.TempDir()
	sheet := func(since int64, part uint64) *StartSheet {
		lost := ledger.Port{
			ID: "a", Proof: ledger.ProofNumbers, Heard: true,
			Frames: ledger.Frames{Missing: 1, MissingUnseen: 1},
		}
		return &StartSheet{
			End: "stopped", Identity: "ab", Sheet: ledger.NewSheet(since+1e9, since, []ledger.Port{lost}),
			Part: part > 0, Parts: part,
		}
	}
	for _, s := range []*StartSheet{sheet(1e9, 1), sheet(1e9, 2), sheet(1e9, 0), sheet(5e9, 0), sheet(9e9, 1)} {
		if err := s.Keep(dir); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, HistoryFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Collect(bytes.Lines(whole))
	for name, text := range map[string][]byte{
		"none":        whole,
		"all of them": slices.Concat(whole, whole),
		"each, at once": slices.Concat(lines[0], lines[0], lines[1], lines[1], lines[2], lines[2], lines[3],
			lines[3], lines[4], lines[4]),
		"the first behind": slices.Concat(whole, lines[0]),
		"the parts later":  slices.Concat(whole, lines[1], lines[0], lines[4]),
	} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := PastOf(dir, "ab", nil, nil)
		if err != nil || p == nil || p.LostWire.Frames != 5 || p.Starts != 3 {
			t.Errorf("%s twice: %+v, %v; want 5 frames of 3 starts", name, p, err)
		}
		parts, err := sheet(9e9, 0).PartsBehind(dir)
		if len(parts) != 1 || err != nil {
			t.Errorf("%s twice: %d parts, %v; want one", name, len(parts), err)
		}
		starts, _, err := LastStarts(dir, 9)
		if err != nil || len(starts) != 3 {
			t.Fatalf("%s twice: %d starts, %v; want 3", name, len(starts), err)
		}
		for i, missing := range []uint64{1, 1, 3} {
			if n := starts[i].Sheet.Ports[0].Frames.Missing; n != missing {
				t.Errorf("%s twice: %d missing in start %d, want %d", name, n, i, missing)
			}
		}
	}
}
