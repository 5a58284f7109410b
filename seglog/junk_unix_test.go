//go:build unix

package seglog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Whatever junk stands beside a healthy log, named as its files are and with any number: the log
// opens, misses nothing, gives the numbers that follow, and has all of its records.
func TestJunkBesideALog(t *testing.T) {
	path, cfg, _ := telling(t)
	l := open(t, cfg)
	fill(t, l, 1, 500)
	closeLog(t, l)
	healthy, err := list(cfg.FS)
	if err != nil {
		t.Fatal(err)
	}
	contents := [][]byte{nil, {7}, []byte("my notes"), bytes.Repeat([]byte{7}, 5000), make([]byte, 5000)}
	suffixes := []string{
		segmentSuffix, segmentSuffix, segmentSuffix, indexSuffix, segmentSuffix + tornSuffix,
		segmentSuffix + damagedSuffix,
		segmentSuffix + movedSuffix, segmentSuffix + partSuffix, spareSuffix, ".00c0ffee" + untoldSuffix,
	}
	rounds := 100
	if testing.Short() {
		rounds = 30
	}
	for seed := range rounds {
		random := rand.New(rand.NewPCG(uint64(seed), 1))
		copied := t.TempDir()
		if err := os.CopyFS(copied, os.DirFS(path)); err != nil {
			t.Fatal(err)
		}
		var names []string
		for range 1 + random.IntN(4) {
			base := random.Uint64() >> random.IntN(64)
			switch random.IntN(4) {
			case 0:
				base = random.Uint64N(2) - 1 // 0, or the highest number that there is
			case 1:
				base = 1<<63 + random.Uint64N(3) - 1
			}
			if base == 501 { // the one place where there might have been more
				continue
			}
			name := fmt.Sprintf("%020d%s", base, suffixes[random.IntN(len(suffixes))])
			if random.IntN(8) == 0 {
				name = kept{base, "0a1b2c3d"}.name()
			}
			if slices.Contains(healthy, name) {
				continue
			}
			content := contents[random.IntN(len(contents))]
			if err := os.WriteFile(filepath.Join(copied, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
			names = append(names, fmt.Sprintf("%s of %d bytes", name, len(content)))
		}
		what := fmt.Sprintf("seed %d: %s", seed, strings.Join(names, ", "))
		if cfg.FS, err = Dir(copied); err != nil {
			t.Fatal(err)
		}
		if s, err := Verify(cfg.FS); err != nil || s.Records != 500 || lost(s) > 0 {
			t.Fatalf("%s: %+v, %v", what, s, err)
		}
		if random.IntN(2) == 0 {
			if _, err := Repair(cfg.FS); err != nil {
				t.Fatalf("%s: repair: %v", what, err)
			}
		}
		l, err := Open(cfg)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if r := l.Recovered(); len(r.Missing) > 0 || l.Position().Next != 501 {
			t.Fatalf("%s: %+v, %d is next", what, r, l.Position().Next)
		}
		fill(t, l, 501, 600)
		closeLog(t, l)
		if s, err := Verify(cfg.FS); err != nil || !s.Clean() || s.Records != 600 || s.Lost > 0 || s.First != 1 {
			t.Fatalf("%s: in the end: %+v, %v", what, s, err)
		}
	}
}
