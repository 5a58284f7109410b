package ledger

import (
	"cmp"
	"slices"
)

// maxCarriedParts is how many gaps of earlier starts a stream follows, at most: a late frame within
// one makes two of it, and runs of dropped frames may lie between them.
const maxCarriedParts = 2*MaxGapsAhead + MaxRestingGaps + MaxWideGaps

// Position is the last number of a stream, to resume a book from, and the gaps that are open. Gaps
// beyond Last are counted, too.
//
// Filled are numbers up to Last that came late, after higher ones, and that the log has not stored:
// if the recorder is killed now, they are missing after all.
//
// First is the least number of a stream that the book has followed from its beginning: one below it
// has not been counted, and makes those between missing. Begin is the same number of a stream that
// an earlier book has followed from its beginning.
type Position struct {
	Device uint32  `json:"device"`
	Epoch  uint32  `json:"epoch"`
	First  *uint64 `json:"first,omitempty"`
	Begin  *uint64 `json:"begin,omitempty"`
	Last   uint64  `json:"last"`
	Gaps   []Gap   `json:"gaps,omitempty"`
	Filled []Gap   `json:"filled,omitempty"`
}

// Gap is a run of numbers that a book has counted as lost, for the book that goes on behind it. A
// frame of a later book that fills it is late: what is missing over all books becomes one less.
type Gap struct {
	From  uint64 `json:"from"`
	To    uint64 `json:"to"`
	Known bool   `json:"known,omitempty"` // it was acknowledged
	// Dropped: the frames came, and were given up. One that comes again is a duplicate.
	Dropped bool `json:"dropped,omitempty"`
}

func (g Gap) size() uint64                { return g.To - g.From + 1 }
func (g Gap) contains(number uint64) bool { return number-g.From <= g.To-g.From }

// overlaps reports whether two gaps have a number in common.
func (g Gap) overlaps(o Gap) bool { return g.contains(o.From) || o.contains(g.From) }

// Without is what of g is in none of others.
func (g Gap) Without(others []Gap) (left []Gap) {
	left = []Gap{g}
	for _, o := range others {
		if !slices.ContainsFunc(left, o.overlaps) {
			continue
		}
		var rest []Gap
		for _, g := range left {
			if !g.overlaps(o) {
				rest = append(rest, g)
				continue
			}
			before, behind := g, g
			if before.To = o.From - 1; !o.contains(g.From) {
				rest = append(rest, before)
			}
			if behind.From = o.To + 1; !o.contains(g.To) {
				rest = append(rest, behind)
			}
		}
		left = rest
	}
	return left
}

// Resume makes the book expect the number after p.Last, as if this run had seen that frame: what
// was lost while nobody recorded shows as missing. Of the books that are open one only may be told
// of a gap.
func (b *Book) Resume(p Position) {
	id := Stream{p.Device, p.Epoch}
	q := b.streams[id]
	if q == nil {
		q = b.open(id, p.Last+1)
		q.resumed, q.begin = true, cmp.Or(p.First, p.Begin)
		q.carry(p.Gaps)
	} else if q.next == q.first {
		q.restart(Later(p.Last+1, q.next+q.origin))
		q.begin = cmp.Or(q.begin, p.First, p.Begin)
		q.carry(p.Gaps)
	}
}

// GoOn is Resume for who reads again what another book was shown: with p.First a number below that
// is no older one, but the stream begins earlier than was known.
func (b *Book) GoOn(p Position) {
	b.Resume(p)
	q := b.streams[Stream{p.Device, p.Epoch}]
	if p.First != nil && q.next == q.first && q.next-(*p.First-q.origin) <= MaxJump {
		q.first, q.resumed = *p.First-q.origin, false
	}
}

// Advance makes the book expect the number after p.Last, unless it has come further: another book
// has the numbers up to there, and the gaps. What is missing before stays missing. It reports
// whether the book expects another number now.
func (b *Book) Advance(p Position) bool {
	q := b.streams[Stream{p.Device, p.Epoch}]
	if q == nil {
		p.Gaps = nil
		b.Resume(p)
		return true
	}
	if !b.IsBehind(p) {
		return false
	}
	b.settled += q.next - q.first
	q.gaps, q.resumed, q.succeeds, q.begin, q.below = nil, true, false, nil, nil
	q.restart(p.Last + 1)
	q.arrange()
	return true
}

// Succeed makes a book that was shown nothing yet go on where another one is that had its device
// under another name, or that goes on, by Succeed, where such a one was. The gaps stay with that
// one, and so do the frames that fill them late.
func (b *Book) Succeed(from *Book) {
	for _, p := range from.Positions() {
		id := Stream{p.Device, p.Epoch}
		q, was := b.streams[id], from.streams[id]
		isOfDevice := !was.isUnseen() || was.succeeds     // else of that name's past, with whatever device
		if q == nil || q.next != q.first || !isOfDevice { // or it may be where this one knows
			p.Gaps = nil
			b.Advance(p)
		} else {
			q.carried, q.ahead, q.below = nil, false, nil // of another device with the same number
			q.restart(p.Last + 1)
			q.begin = cmp.Or(p.First, p.Begin)
		}
		if q = b.streams[id]; isOfDevice && q.next == q.first {
			q.succeeds = true
		}
	}
}

// Succession lists, without gaps, where Succeed has made streams go on of which nothing has come
// since.
func (b *Book) Succession() (ps []Position) {
	for _, l := range []*lineup{&b.active, &b.resting} {
		for q := l.oldest; q != nil; q = q.newer {
			if q.succeeds && q.isUnseen() {
				ps = append(ps, Position{Device: q.id.Device, Epoch: q.id.Epoch, Last: q.next + q.origin - 1})
			}
		}
	}
	return ps
}

// Inherit says to a book that goes on by Resume where another one was what that one's Succession
// is, for a book that comes behind it. A stream that does not go on there is passed over.
func (b *Book) Inherit(ps []Position) {
	for _, p := range ps {
		q := b.streams[Stream{p.Device, p.Epoch}]
		if q != nil && q.isUnseen() && q.next+q.origin-1 == p.Last {
			q.succeeds = true
		}
	}
}

// IsBehind reports whether Advance would make the book expect another number.
func (b *Book) IsBehind(p Position) bool {
	q := b.streams[Stream{p.Device, p.Epoch}]
	if q == nil {
		return true
	}
	last := q.next + q.origin - 1
	return last != p.Last && Later(last, p.Last) != last
}

// carry takes in the gaps of an earlier book. Those that cannot be are left out: files may be
// damaged.
func (q *sequence) carry(gaps []Gap) {
	for _, g := range gaps {
		isNew := !slices.ContainsFunc(q.carried, g.overlaps)
		if g.To-g.From < MaxJump && isNew && len(q.carried) < maxCarriedParts {
			q.carried = append(q.carried, g)
		}
	}
	q.arrange()
}

// arrange puts the carried gaps in order, and looks ahead.
func (q *sequence) arrange() {
	slices.SortFunc(q.carried, func(a, b Gap) int {
		if a.From-q.origin < b.From-q.origin {
			return -1
		}
		return 1
	})
	q.lookAhead()
}

// lookAhead notes whether numbers to come are among the carried gaps.
func (q *sequence) lookAhead() {
	q.ahead = slices.ContainsFunc(q.carried, func(g Gap) bool { return g.To-q.origin >= q.next })
}

// take takes a number out of the carried gap that has it, and returns the gap of that number alone.
// cut says that an older gap was forgotten for it.
func (q *sequence) take(number uint64) (was Gap, ok, cut bool) {
	i := slices.IndexFunc(q.carried, func(g Gap) bool { return g.contains(number) })
	if i < 0 {
		return Gap{}, false, false
	}
	was = q.carried[i]
	left, right := was, was
	left.To, right.From = number-1, number+1
	var parts []Gap
	if number != was.From {
		parts = append(parts, left)
	}
	if number != was.To {
		parts = append(parts, right)
	}
	q.carried = slices.Replace(q.carried, i, i+1, parts...)
	if cut = len(q.carried) > maxCarriedParts; cut {
		q.carried = slices.Delete(q.carried, 0, 1)
	}
	was.From, was.To = number, number
	return was, true, cut
}

// lateFor takes seq, in the count of q, out of a carried gap, and posts it as late. ok is false
// where it is in none: nothing is posted then.
func (b *Book) lateFor(q *sequence, seq uint64) (g Gap, ok bool) {
	g, ok, cut := q.take(seq + q.origin)
	if cut {
		b.forget(q)
	}
	if !ok || g.Dropped {
		return g, false
	}
	b.late(g)
	return g, true
}

// late posts the frames of a carried gap, which came late.
func (b *Book) late(g Gap) {
	f, n := &b.frames, g.size()
	f.Unique, f.Reordered, f.Late = f.Unique+n, f.Reordered+n, f.Late+n
	if g.Known {
		f.LateKnown += n
	} else if b.ack.noted != nil { // so is the gap
		b.ack.noted.Late += n
	}
}

// notLate takes back what late has posted of one frame.
func (b *Book) notLate(g Gap) {
	f := &b.frames
	f.Unique, f.Reordered, f.Late = f.Unique-1, f.Reordered-1, f.Late-1
	if g.Known {
		f.LateKnown--
	} else if b.ack.noted != nil {
		b.ack.noted.Late -= min(1, b.ack.noted.Late)
	}
}

// advance posts a frame whose number is the next one, or beyond. What lies between is missing,
// but for what earlier books have counted: that is in no span of this one.
func (b *Book) advance(q *sequence, seq uint64) {
	if len(q.below) > 0 {
		b.beginBelow(q)
	}
	var open []gap
	var lost uint64
	from := q.next
	miss := func(to uint64) { // up to before to
		if from < to {
			open, lost = append(open, gap{from: from, to: to - 1}), lost+to-from
		}
	}
	if q.ahead {
		for _, g := range q.carried {
			first, end := max(g.From-q.origin, from), min(g.To-q.origin+1, seq)
			if first < end {
				miss(first)
				b.told += end - first
				from = end
			}
		}
	}
	miss(seq)
	corrupt := b.endRun(lost)
	for _, g := range open {
		n := min(corrupt, g.size())
		b.miss(q, g.from, g.to, n)
		corrupt -= n
	}
	q.next = seq + 1
	if !q.ahead {
		b.frames.Unique++
		return
	}
	switch g, isLate := b.lateFor(q, seq); {
	case isLate:
		b.told++
	case g.Dropped:
		b.told++
		b.frames.Duplicate++
	default:
		b.frames.Unique++
	}
	q.carried = slices.DeleteFunc(q.carried, func(g Gap) bool { return g.Dropped && g.To-q.origin < q.next })
	q.lookAhead()
}

// lower posts a number before the first one of a book that goes on where an earlier one was: that
// one has counted it, as seen or as missing, unless the device counts anew.
func (b *Book) lower(q *sequence, id Stream, seq uint64) {
	e := lowFrame{seq: seq}
	if e.gap, e.late = b.lateFor(q, seq); !e.late {
		b.frames.Duplicate++
		q.isBelow(seq + q.origin)
	}
	run := q.lower(e)
	if run == nil {
		return
	}
	numbers := make([]uint64, len(run))
	for i, e := range run {
		if numbers[i] = e.seq; e.late {
			b.notLate(e.gap)
			q.carried = append(q.carried, e.gap)
		} else {
			b.frames.Duplicate--
		}
	}
	b.restart(q, id, numbers)
}

// isBelow notes a number before the one with which the stream began, if it is one: no book has
// counted it. The device may count anew; if the next frame shows that it does not, the number is no
// duplicate.
func (q *sequence) isBelow(number uint64) {
	if q.begin == nil || *q.begin-number-1 >= MaxGaps || len(q.below) == maxLow || slices.Contains(q.below, number) {
		return
	}
	q.below, q.ahead = append(q.below, number), true // see Numbered
}

// beginBelow posts the numbers before the one with which the stream began: what they leave out is
// missing.
func (b *Book) beginBelow(q *sequence) {
	begin := *q.begin
	slices.SortFunc(q.below, func(x, y uint64) int { return cmp.Compare(begin-y, begin-x) }) // the least first
	first, n := q.below[0], uint64(len(q.below))
	missing := begin - first - n
	b.settled += begin - first
	b.frames.Unique, b.frames.Reordered, b.frames.Duplicate = b.frames.Unique+n, b.frames.Reordered+n,
		b.frames.Duplicate-n
	for i, number := range q.below {
		end := begin
		if i+1 < len(q.below) {
			end = q.below[i+1]
		}
		if number+1 != end {
			q.carry([]Gap{{From: number + 1, To: end - 1}})
		}
	}
	if missing > 0 {
		b.frames.Missing, b.frames.MissingUnseen = b.frames.Missing+missing, b.frames.MissingUnseen+missing
		b.losses.lost(b.now)
	}
	q.begin, q.below = &first, nil
}

// lateAfterAll posts frames of a device that did not count anew: those that filled gaps of earlier
// books were late, and no duplicates. It returns the gaps that are left.
func (b *Book) lateAfterAll(q *sequence, carried []Gap) (left []Gap) {
	for _, g := range carried {
		if g.Dropped {
			left = append(left, g)
			continue
		}
		for _, part := range q.seen(g) {
			b.frames.Duplicate -= part.size()
			b.late(part)
			if part.From != g.From {
				before := g
				before.To = part.From - 1
				left = append(left, before)
			}
			g.From = part.To + 1
		}
		if g.From != g.To+1 { // else nothing is left
			left = append(left, g)
		}
	}
	return left
}

// seen lists the parts of a carried gap whose numbers have come since q began.
func (q *sequence) seen(g Gap) (parts []Gap) {
	at, end := max(g.From-q.origin, q.first), min(g.To-q.origin+1, q.next)
	for at < end {
		to := end
		i := q.at(at)
		if i < len(q.gaps) {
			to = min(end, max(at, q.gaps[i].from))
		}
		if at < to {
			part := g
			part.From, part.To = at+q.origin, to-1+q.origin
			parts = append(parts, part)
		}
		if at = to; i < len(q.gaps) && at >= q.gaps[i].from {
			at = q.gaps[i].to + 1
		}
	}
	return parts
}

// carries lists the gaps that a later book is to know, in order: of those that are open, and of
// what was dropped, the newest ones, and the widest of the others.
func (b *Book) carries(q *sequence, newest int) []Gap {
	if len(q.carried)+len(q.gaps) == 0 {
		return nil
	}
	gaps := slices.Clone(q.carried)
	for _, g := range newestAndWidest(q.gaps, newest) {
		gaps = append(gaps, Gap{From: g.from + q.origin, To: g.to + q.origin, Known: b.isKnown(g.generation)})
	}
	slices.SortFunc(gaps, func(x, y Gap) int {
		if x.From-q.origin < y.From-q.origin {
			return -1
		}
		return 1
	})
	return gaps
}

// newestAndWidest picks the last ones of gaps, and the [MaxWideGaps] widest of the others, in their
// order. More frames can come late for a wide gap than for a narrow one.
func newestAndWidest[G interface{ size() uint64 }](gaps []G, newest int) []G {
	older := gaps[:max(0, len(gaps)-newest)]
	if len(older) <= MaxWideGaps {
		return gaps
	}
	var widest []int // the widest first
	for i, g := range older {
		if len(widest) == MaxWideGaps && g.size() <= older[widest[MaxWideGaps-1]].size() {
			continue
		}
		at, _ := slices.BinarySearchFunc(widest, g.size(),
			func(i int, size uint64) int { return cmp.Compare(size, older[i].size()) })
		widest = slices.Insert(widest[:min(len(widest), MaxWideGaps-1)], at, i)
	}
	slices.Sort(widest)
	picked := make([]G, 0, MaxWideGaps+newest)
	for _, i := range widest {
		picked = append(picked, older[i])
	}
	return append(picked, gaps[len(older):]...)
}

// GapsFrom lists the gaps of a stream for a later book that goes on behind a number: all behind it,
// up to [MaxGapsAhead], but no fewer than the last [MaxRestingGaps]; and the [MaxWideGaps] widest
// of the others. The later book calls all numbers behind it missing that it is not told of, for
// nothing of them is stored.
func (b *Book) GapsFrom(id Stream, number uint64) []Gap {
	q := b.streams[id]
	if q == nil {
		return nil
	}
	return b.gapsFrom(q, number)
}

func (b *Book) gapsFrom(q *sequence, number uint64) []Gap {
	newest := MaxRestingGaps
	if last := q.next + q.origin - 1; number != last ||
		slices.ContainsFunc(q.carried, func(g Gap) bool { return isBehind(g, last) }) {
		newest = MaxGapsAhead
	}
	gaps := b.carries(q, newest)
	ahead := slices.IndexFunc(gaps, func(g Gap) bool { return isBehind(g, number) })
	if ahead < 0 {
		ahead = len(gaps)
	}
	return newestAndWidest(gaps, min(MaxGapsAhead, max(MaxRestingGaps, len(gaps)-ahead)))
}

// isBehind reports whether some of a gap lies behind a number: a book that was told of it has not
// come that far.
func isBehind(g Gap, number uint64) bool { return Later(g.To, number) != number }

// isKnown reports whether what was missed in a generation was acknowledged.
func (b *Book) isKnown(generation uint32) bool {
	return b.ack.known != nil && generation < b.ack.knownBefore
}

// MayCome reports whether a number that is not above all others of its stream has not come yet: it
// is missing, here or in an earlier book, or below where a stream seemed to begin.
func (b *Book) MayCome(id Stream, number uint64) bool {
	q := b.streams[id]
	return q != nil && (!q.resumed && number-q.origin < q.first || b.Misses(id, number, number) ||
		slices.ContainsFunc(q.carried, func(g Gap) bool { return !g.Dropped && g.contains(number) }))
}

// Misses reports whether the numbers from–to of a stream are missing now, all of them.
func (b *Book) Misses(id Stream, from, to uint64) bool {
	q := b.streams[id]
	if q == nil {
		return false
	}
	i := q.at(from - q.origin)
	return i < len(q.gaps) && q.gaps[i].from <= from-q.origin && to-q.origin <= q.gaps[i].to
}

// KnowCarried says that the gaps of earlier books were acknowledged.
func (b *Book) KnowCarried() {
	for _, q := range b.streams {
		know(q.carried)
		if q.before != nil {
			know(q.before.carried)
		}
	}
}

func know(gaps []Gap) {
	for i := range gaps {
		gaps[i].Known = true
	}
}

// Known is the position with all of its gaps acknowledged.
func (p Position) Known() Position {
	p.Gaps = slices.Clone(p.Gaps)
	know(p.Gaps)
	return p
}
