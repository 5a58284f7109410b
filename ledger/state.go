package ledger

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tallywheel/tallywheel/internal/pack"
)

// A book's state is the fields of an [image], as its describe names them, sealed by package pack.
// StateVersion is of the form of [Book.State].
const StateVersion = 3

// LeastState is room enough for the state of a book that follows one stream without gaps.
const LeastState = 6 << 10

// State is all that a book knows, for one that goes on behind it. It is at most so many bytes, at
// least [LeastState]. A stream takes 10 to 20 bytes, and 5 to 7 for a usual gap: 64 KiB hold 3,000
// streams, or one with all of its gaps. Of more, the state forgets what is worth least: old
// outages, gaps of streams that have not sent for long, and then those streams, which it counts in
// Forgotten. The book itself forgets nothing.
func (b *Book) State(most int) []byte {
	m := b.image()
	for {
		state := pack.Seal(StateVersion, m.describe)
		if over := len(state) - most; over <= 0 || !m.forget(over) {
			return state
		}
	}
}

// Restore makes a new book know what the one did that gave its state. The size of frames and the
// [Rhythm] are no part of it. After an error the book is as it was.
func (b *Book) Restore(state []byte) error {
	m := image{Book: Book{known: map[uint32]bool{}}}
	err := pack.Open(StateVersion, state, func(c *pack.Coder) {
		m.describe(c)
		if !c.IsBad() && !m.isSound() {
			c.Refuse()
		}
	})
	if err != nil {
		return fmt.Errorf("the state of a book: %w", err)
	}
	m.frameSize, m.rhythm.Rhythm = b.frameSize, b.rhythm.Rhythm
	*b = m.Book
	b.streams = map[Stream]*sequence{}
	for _, device := range m.devices {
		b.known[device] = true
	}
	for _, of := range []struct {
		list []*sequence
		to   *lineup
	}{{m.silent, &b.resting}, {m.sending, &b.active}} {
		for _, q := range of.list {
			b.streams[q.id] = q
			of.to.add(q)
		}
	}
	if m.hasRecent {
		b.recent = b.streams[b.recentK]
	}
	return nil
}

// image is a book whose streams and devices are lists.
type image struct {
	Book
	sending, silent []*sequence // the active and the resting ones; those that sent last come last
	devices         []uint32    // the known ones that no stream is of
	hasRecent       bool
}

func (b *Book) image() *image {
	m := &image{Book: *b, hasRecent: b.recent != nil}
	followed := map[uint32]bool{}
	for id := range b.streams {
		followed[id.Device] = true
	}
	for device := range b.known {
		if !followed[device] {
			m.devices = append(m.devices, device)
		}
	}
	slices.Sort(m.devices)
	for q := b.active.oldest; q != nil; q = q.newer {
		m.sending = append(m.sending, q)
	}
	for q := b.resting.oldest; q != nil; q = q.newer {
		m.silent = append(m.silent, q)
	}
	return m
}

// describe names all fields. The test of it finds those that are missing.
func (m *image) describe(c *pack.Coder) {
	pack.Signed(c, &m.now, &m.lastFrame)
	m.losses.describe(c)
	y := &m.bytes
	pack.Natural(c, &y.Read, &y.Framed, &y.Resync, &y.Partial, &y.Quarantined)
	f := &m.frames
	pack.Natural(c, &f.OK, &f.Corrupt, &f.Unique, &f.Duplicate, &f.Reordered, &f.Late, &f.LateKnown,
		&f.Missing, &f.MissingCorrupt, &f.MissingUnseen, &f.MissingByTime, &f.Requests, &f.Answered, &f.Unanswered,
		&f.Restarts, &f.Forgotten, &f.Joined, &f.Stored, &f.Durable, &f.InFlight)
	pack.Natural(c, &m.plain, &m.settled, &m.told, &m.runBytes, &m.runDamaged, &m.credit, &m.creditLeft, &m.silences)
	byCause(c, &f.Dropped, &m.unread, &m.refused)

	r, t := &m.rhythm, &m.turns
	pack.Signed(c, &r.last, &r.heard, &r.behind, &t.since)
	pack.Natural(c, &r.owed)
	c.Flags(&r.running, &t.waiting, &t.overdue, &m.outageOpen, &m.hasRecent, &m.distrusts)

	pack.Natural(c, &m.outageCount)
	pack.List(c, &m.outages, func(o *Outage) { o.describe(c) })

	a := &m.ack
	pack.Natural(c, &a.generation, &a.knownBefore, &a.notedBefore, &a.owedIn, &a.overdueIn)
	pack.Optional(c, &a.known, func(n *Counts) { n.describe(c) })
	pack.Optional(c, &a.noted, func(n *Counts) { n.describe(c) })

	pack.Natural(c, &m.recentK.Device, &m.recentK.Epoch)
	last := uint32(0)
	pack.List(c, &m.devices, func(d *uint32) {
		by := *d - last
		pack.Natural(c, &by)
		*d = last + by
		last = *d
	})
	for _, streams := range []*[]*sequence{&m.silent, &m.sending} {
		pack.List(c, streams, func(q **sequence) {
			if c.Reading() {
				*q = &sequence{}
			}
			(*q).describe(c)
			known := m.known[(*q).id.Device]
			if c.Flags(&known); known && c.Reading() {
				m.known[(*q).id.Device] = true
			}
		})
	}
}

// byCause is counts by the cause, in its order.
func byCause(c *pack.Coder, fields ...*map[string]uint64) {
	for _, m := range fields {
		causes := slices.Sorted(maps.Keys(*m))
		pack.List(c, &causes, func(cause *string) {
			c.Text(cause)
			n := (*m)[*cause]
			if pack.Natural(c, &n); c.Reading() && !c.IsBad() {
				count(m, *cause, n)
			}
		})
	}
}

func (o *Outage) describe(c *pack.Coder) {
	pack.Signed(c, &o.From, &o.To)
	c.Text(&o.Cause)
}

func (n *Counts) describe(c *pack.Coder) {
	pack.Natural(c, &n.Corrupt, &n.MissingCorrupt, &n.MissingUnseen, &n.MissingByTime, &n.Late, &n.Unanswered,
		&n.Restarts, &n.Forgotten, &n.Joined, &n.Resync)
	byCause(c, &n.Dropped, &n.Unread, &n.Refused)
	pack.Optional(c, &n.Kernel, func(k *Kernel) {
		for _, p := range []**uint64{&k.Overrun, &k.BufferOverrun, &k.Framing, &k.Parity, &k.Break} {
			pack.Optional(c, p, func(n *uint64) { pack.Natural(c, n) })
		}
	})
}

func (q *sequence) describe(c *pack.Coder) {
	pack.Natural(c, &q.id.Device, &q.id.Epoch)
	c.Flags(&q.resumed, &q.forgot, &q.ahead, &q.succeeds)
	c.Near(&q.origin, middle)
	c.Near(&q.first, middle)
	c.Near(&q.next, q.first)
	last := q.first
	pack.List(c, &q.gaps, func(g *gap) {
		c.Near(&g.from, last)
		c.Near(&g.to, g.from)
		pack.Natural(c, &g.corrupt)
		pack.Natural(c, &g.generation, &g.moment)
		last = g.to
	})
	carried := func(g *Gap) {
		c.Near(&g.From, q.origin+q.first)
		c.Near(&g.To, g.From)
		c.Flags(&g.Known, &g.Dropped)
	}
	pack.List(c, &q.carried, carried)
	pack.List(c, &q.low, func(l *lowFrame) {
		c.Near(&l.seq, q.first)
		c.Flags(&l.late)
		carried(&l.gap)
	})
	if len(q.low) > 0 {
		c.Near(&q.lowAt, q.next)
	}
	number := func(n *uint64) { c.Near(n, q.origin+q.first) }
	pack.Optional(c, &q.begin, number)
	pack.List(c, &q.below, number)
	pack.Optional(c, &q.before, func(e *earlier) {
		pack.Natural(c, &e.next)
		pack.Optional(c, &e.begin, number)
		pack.Natural(c, &e.generation)
		c.Flags(&e.resumed)
		pack.List(c, &e.carried, carried)
	})
}

// isSound reports whether a book can be so. What only makes its numbers wrong is not looked at: the
// CRC says that somebody has counted so.
func (m *image) isSound() bool {
	if len(m.losses.open) > maxMoments || len(m.outages) > maxOutages || m.outageOpen && len(m.outages) == 0 ||
		len(m.sending) > MaxStreams || len(m.silent) > MaxPositions-MaxStreams {
		return false
	}
	seen := map[Stream]bool{}
	for _, q := range slices.Concat(m.sending, m.silent) {
		if seen[q.id] || !q.isSound() {
			return false
		}
		seen[q.id] = true
	}
	return !m.hasRecent || seen[m.recentK]
}

// isSound reports whether the gaps lie apart from each other, in order, and within what was seen.
func (q *sequence) isSound() bool {
	at := q.first
	for _, g := range q.gaps {
		if g.from < at || g.to < g.from || g.to >= q.next || g.corrupt > g.size() {
			return false
		}
		at = g.to + 1
	}
	return q.first <= q.next && len(q.low) <= maxLow && len(q.below) <= maxLow && (q.begin != nil || len(q.below) == 0)
}

// forget takes out what is worth least, until the state is about so many bytes shorter. ok is false
// where there is nothing left to take.
func (m *image) forget(over int) (ok bool) {
	for ; over > 0 && len(m.outages) > 1; ok = true {
		over -= pack.Size(m.outages[0].describe)
		m.outages = m.outages[1:]
	}
	lists := [...]*[]*sequence{&m.silent, &m.sending}
	for _, l := range lists {
		for i, q := range *l {
			if over <= 0 || len(q.gaps) <= MaxRestingGaps {
				continue
			}
			lean := *q
			lean.gaps, lean.forgot = q.gaps[len(q.gaps)-MaxRestingGaps:], true
			if !q.forgot {
				m.frames.Forgotten++
			}
			(*l)[i], ok = &lean, true
			over -= pack.Size(q.describe) - pack.Size(lean.describe)
		}
	}
	for ; over > 0 && len(m.devices) > 0; ok = true {
		over--
		m.devices = m.devices[1:]
	}
	for _, l := range lists {
		for ; over > 0 && len(*l) > 0; ok = true {
			q := (*l)[0]
			m.settled += q.next - q.first
			m.frames.Forgotten++
			m.hasRecent = m.hasRecent && q.id != m.recentK
			over -= pack.Size(q.describe) + 1 // whether its device is known
			*l = (*l)[1:]
		}
	}
	return ok
}
