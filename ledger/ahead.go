package ledger

import "slices"

// What the sheet of a start that was killed has counted beyond the last number that was stored goes
// over to one book. Where a device may come in the wire of another book, that one has to know it,
// or it is named twice; and no two may have it, or a frame that comes late counts twice.

// isUnseen reports whether nothing of the stream has come since it was resumed.
func (q *sequence) isUnseen() bool { return q.resumed && q.next == q.first }

// Ahead lists what earlier books have counted beyond the last number of streams of which nothing
// has come to this one.
func (b *Book) Ahead() (ps []Position) {
	for id, q := range b.streams {
		if !q.ahead || !q.isUnseen() {
			continue
		}
		p := Position{Device: id.Device, Epoch: id.Epoch, Last: q.next + q.origin - 1}
		for _, g := range q.carried {
			if g.From-q.origin >= q.next {
				p.Gaps = append(p.Gaps, g)
			}
		}
		if len(p.Gaps) > 0 {
			ps = append(ps, p)
		}
	}
	return ps
}

// Ahead is the gaps beyond the last number.
func (p Position) Ahead() (gaps []Gap) {
	for _, g := range p.Gaps {
		if Later(p.Last, g.From) != p.Last {
			gaps = append(gaps, g)
		}
	}
	return gaps
}

// Left is positions without the gaps of this one, which another book has taken over.
func (p Position) Left(all []Position) []Position {
	all = slices.Clone(all)
	for i, q := range all {
		if q.Device == p.Device && q.Epoch == p.Epoch {
			all[i].Gaps = without(q.Gaps, p.Gaps)
		}
	}
	return all
}

// TakeAhead takes over what another book has Ahead of a stream. false: something of that has come
// to this one, which has counted by itself.
func (b *Book) TakeAhead(p Position) bool {
	q := b.streams[Stream{p.Device, p.Epoch}]
	if q == nil {
		b.Resume(p)
		return true
	}
	if !q.isUnseen() || q.next+q.origin-1 != p.Last {
		return false
	}
	q.carry(p.Gaps)
	return true
}

// LeaveAhead forgets what another book has taken over.
func (b *Book) LeaveAhead(p Position) {
	if q := b.streams[Stream{p.Device, p.Epoch}]; q != nil {
		q.carried = without(q.carried, p.Gaps)
		q.arrange()
	}
}

// without is gaps without those of others.
func without(gaps, others []Gap) []Gap {
	return slices.DeleteFunc(slices.Clone(gaps), func(g Gap) bool { return slices.Contains(others, g) })
}
