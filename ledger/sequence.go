package ledger

import (
	"slices"
	"sort"
)

// sequence follows the numbers of one stream. All numbers from first to next-1 have been seen or
// lie in a gap, or in one that has been settled.
//
// Its numbers are those of the device less origin, which puts the first one in the middle of what
// 64 bits can count: so a larger number is a later one, also where the device counts across 2^64.
type sequence struct {
	id          Stream
	origin      uint64
	first, next uint64
	resumed     bool     // an earlier start has followed the numbers before first
	begin       *uint64  // resumed: the number with which the stream began, as the device counts; nil: it is not known
	below       []uint64 // numbers before that which have come since next was counted
	succeeds    bool     // first is where another name's book was that had the device; see [Book.Succeed]
	forgot      bool     // gaps were dropped
	gaps        []gap    // by number, apart from each other
	carried     []Gap    // of earlier books, as the device counts; in order, apart from each other
	ahead       bool     // some of those are not below next

	low    []lowFrame // the last numbers before first that came one after the other, rising
	lowAt  uint64     // … next was this then
	before *earlier   // nil: the device has not begun anew

	in           *lineup // where it stands, between older and newer
	older, newer *sequence
}

// earlier is where a device was that seemed to count anew.
type earlier struct {
	next    uint64 // as the device counts
	resumed bool
	begin   *uint64
	carried []Gap

	generation uint32 // when it seemed so, see [Book.BeginAck]
}

const middle = 1 << 63

func newSequence(id Stream, first uint64) *sequence {
	q := &sequence{id: id}
	q.restart(first)
	return q
}

// restart makes number, as the device counts, the first and next one.
func (q *sequence) restart(number uint64) {
	q.origin, q.first, q.next = number-middle, middle, middle
}

// lineup is streams in the order in which they sent. The zero value is empty.
type lineup struct {
	oldest, newest *sequence
	n              int
}

func (l *lineup) add(q *sequence) {
	q.in, q.older, q.newer = l, l.newest, nil
	if l.newest != nil {
		l.newest.newer = q
	} else {
		l.oldest = q
	}
	l.newest = q
	l.n++
}

func (l *lineup) remove(q *sequence) {
	if q.older != nil {
		q.older.newer = q.newer
	} else {
		l.oldest = q.newer
	}
	if q.newer != nil {
		q.newer.older = q.older
	} else {
		l.newest = q.older
	}
	q.in, q.older, q.newer = nil, nil, nil
	l.n--
}

// rest keeps the gaps of a stream that is not followed now in no more memory than they need: those
// beyond MaxRestingGaps are forgotten before, see Book.touch.
func (q *sequence) rest() {
	q.gaps = append(make([]gap, 0, len(q.gaps)), q.gaps...)
}

// gap is a run of numbers not seen, corrupt of which arrived damaged. They were missed in one
// generation, see [Book.BeginAck].
type gap struct {
	from, to, corrupt uint64
	generation        uint32
	moment            uint32 // when, see moments
}

func (g gap) size() uint64 { return g.to - g.from + 1 }

// at is the index of the first gap that ends at or above seq.
func (q *sequence) at(seq uint64) int {
	return sort.Search(len(q.gaps), func(i int) bool { return q.gaps[i].to >= seq })
}

// lowFrame is a number before first.
type lowFrame struct {
	seq  uint64
	late bool // it was in a gap of an earlier book …
	gap  Gap  // … which this was of it
}

// maxLow is how many numbers before first are kept in mind, late ones among them.
const maxLow = 64

// lower takes in a number before first. It returns the run of those that shows a device which
// counts anew; nil: it does not show.
func (q *sequence) lower(e lowFrame) (run []lowFrame) {
	if n := len(q.low); n > 0 && (e.seq <= q.low[n-1].seq || q.lowAt != q.next) {
		q.low = q.low[:0]
	}
	if len(q.low) == maxLow {
		q.low = slices.Delete(q.low, 0, 1)
	}
	q.low, q.lowAt = append(q.low, e), q.next
	before := 0
	for _, e := range q.low {
		if !e.late {
			before++
		}
	}
	if before < RestartRun {
		return nil
	}
	return q.low
}

// isBack reports whether a device that seemed to count anew goes on with seq where it was before.
func (q *sequence) isBack(seq uint64) bool {
	return q.before != nil && seq+q.origin == q.before.next && !q.forgot
}

func (q *sequence) insert(g gap) {
	q.gaps = slices.Insert(q.gaps, q.at(g.from), g)
}

// fill takes seq out of the gap it lies in and reports whether there was one, and the gap of seq
// alone as it was counted: a number that is seen after all was rather unseen than corrupt, so
// corrupt ones go last.
func (q *sequence) fill(seq uint64) (found bool, was gap) {
	i := q.at(seq)
	if i == len(q.gaps) || q.gaps[i].from > seq {
		return false, gap{}
	}
	g := q.gaps[i]
	was = gap{seq, seq, 0, g.generation, g.moment}
	if g.corrupt == g.size() {
		g.corrupt--
		was.corrupt = 1
	}
	left, right := gap{g.from, seq - 1, 0, g.generation, g.moment}, gap{seq + 1, g.to, 0, g.generation, g.moment}
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
	return true, was
}
