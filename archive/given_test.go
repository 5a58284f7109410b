package archive

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// What a table lacks of the numbers that were given is what a search for each of them does not
// find, also where runs are damaged.
func TestNumbersThatATableLacks(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s, high := &Streams{}, uint32(0)
		if seed%2 == 1 {
			high = math.MaxUint32 - 40
		}
		for range rng.IntN(12) {
			s.all = append(s.all, Stream{Number: high + rng.Uint32N(41)})
		}
		var given []Run
		for range rng.IntN(4) {
			given = append(given, Run{high + rng.Uint32N(41), high + rng.Uint32N(41)})
		}
		lacks, table := s.Lacks(given), s.Given()
		in := func(runs []Run, n uint32) bool {
			return slices.ContainsFunc(runs, func(r Run) bool { return r.From <= n && n <= r.To })
		}
		for i := range uint32(41) {
			n := high + i
			_, named := s.By(n)
			if in(table, n) != named || in(lacks, n) != (in(given, n) && !named) {
				t.Fatalf("seed %d: %d: table %v, given %v, lacks %v", seed, n, table, given, lacks)
			}
		}
		s.dir = t.TempDir()
		if s.GiveBehind(lacks); high == 0 {
			n, err := s.Number(Stream{Source: "new"})
			if err != nil || in(lacks, n) {
				t.Fatalf("seed %d: %d was given, of %v: %v", seed, n, lacks, err)
			}
		}
	}
}
