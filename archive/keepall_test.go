package archive

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tallywheel/tallywheel/ledger"
)

// Sheets that are kept by one write, which a full disk or a kill cuts anywhere, are there once each
// when the same ones have been kept again.
func TestSheetsKeptByOneWrite(t *testing.T) {
	for seed := range uint64(150) {
		rng, dir := rand.New(rand.NewPCG(seed, 3)), t.TempDir()
		path := filepath.Join(dir, HistoryFile)
		var want []string
		part := uint64(0)
		for range 1 + rng.IntN(5) {
			var sheets []*StartSheet
			for range 1 + rng.IntN(6) {
				part++
				end := fmt.Sprintf("part %d", part)
				want = append(want, end)
				s := ledger.NewSheet(int64(part), 7, nil)
				sheets = append(sheets, &StartSheet{End: end, Part: true, Parts: part, Sheet: s})
			}
			before, _ := os.ReadFile(path) // an error: there is none yet
			for range rng.IntN(3) {
				if err := KeepAll(dir, sheets); err != nil {
					t.Fatal(err)
				}
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(path, int64(len(before)+rng.IntN(len(b)-len(before)+1))); err != nil {
					t.Fatal(err)
				}
			}
			if err := KeepAll(dir, sheets); err != nil {
				t.Fatal(err)
			}
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		err = EachStart(bytes.NewReader(b), func(s StartSheet) error { got = append(got, s.End); return nil })
		if err != nil || !slices.Equal(got, want) || bytes.Count(b, []byte{'\n'}) != len(want) {
			t.Fatalf("seed %d: %v; want %v; %v", seed, got, want, err)
		}
	}
}
