package ledger

import (
	"slices"
	"sort"
)

// sequence follows the numbers of one stream. All numbers from first to next-1 have been seen or lie in a gap, or in
// one that has been settled.
type sequence struct {
	first, next uint64
	resumed     bool  // an earlier start has followed the numbers before first
	gaps        []gap // by number, apart from each other
}

// gap is a run of numbers not seen, corrupt of which arrived damaged.
type gap struct{ from, to, corrupt uint64 }

func (g gap) size() uint64 { return g.to - g.from + 1 }

// at is the index of the first gap that ends at or above seq.
func (q *sequence) at(seq uint64) int {
	return sort.Search(len(q.gaps), func(i int) bool { return q.gaps[i].to >= seq })
}

func (q *sequence) insert(g gap) {
	if len(q.gaps) == MaxGaps {
		q.gaps = slices.Delete(q.gaps, 0, 1)
	}
	q.gaps = slices.Insert(q.gaps, q.at(g.from), g)
}

// fill takes seq out of the gap it lies in and reports whether there was one, and whether it was counted as corrupt:
// a number that is seen after all was rather unseen than corrupt, so corrupt ones go last.
func (q *sequence) fill(seq uint64) (found, corrupt bool) {
	i := q.at(seq)
	if i == len(q.gaps) || q.gaps[i].from > seq {
		return false, false
	}
	g := q.gaps[i]
	if g.corrupt == g.size() {
		g.corrupt--
		corrupt = true
	}
	left, right := gap{g.from, seq - 1, 0}, gap{seq + 1, g.to, 0}
	var parts []gap
	if g.from < seq {
		left.corrupt = min(g.corrupt, left.size())
		g.corrupt -= left.corrupt
		parts = append(parts, left)
	}
	if seq < g.to {
		right.corrupt = g.corrupt
		parts = append(parts, right)
	}
	q.gaps = slices.Replace(q.gaps, i, i+1, parts...)
	if len(q.gaps) > MaxGaps {
		q.gaps = slices.Delete(q.gaps, 0, len(q.gaps)-MaxGaps)
	}
	return true, corrupt
}
