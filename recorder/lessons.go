package recorder

import (
	"slices"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/ledger"
)

// The lanes of one address tell each other the numbers that they have, for which device comes in
// which of its connections nobody knows. A lane that leaves tells them to who goes on.

// teach tells a lane the numbers that others of its address have: which device comes in which of
// its connections nobody knows. It reports whether that was new to the lane.
func (h *hub) teach(l *lane, id string) (isNew bool) {
	isNew = l.learn(h.lessons(l, id))
	for _, p := range h.of(id) {
		if p.lane != l {
			isNew = l.takeAhead(p.lane) || isNew
		}
	}
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	for name, at := range h.r.places {
		if archive.Within(name, id) {
			isNew = l.takeFrom(&at) || isNew
			h.r.places[name] = at
		}
	}
	return isNew
}

// takeFrom is takeAhead from a place where no lane is.
func (l *lane) takeFrom(at *place) (isNew bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range at.seen {
		if p.Gaps = p.Ahead(); len(p.Gaps) > 0 && l.in.book.TakeAhead(p) {
			at.seen, at.stored = p.Left(at.seen), p.Left(at.stored)
			isNew = true
		}
	}
	l.touched = l.touched || isNew
	return isNew
}

// takeAhead takes over from another lane what a start that was killed has counted of devices that
// have come to neither since: the next one to be read may have them. A kill between the two leaves
// it with both.
func (l *lane) takeAhead(from *lane) (isNew bool) {
	from.mu.Lock()
	ahead := from.in.book.Ahead()
	from.mu.Unlock()
	if len(ahead) == 0 {
		return false
	}
	l.mu.Lock()
	ahead = slices.DeleteFunc(ahead, func(p ledger.Position) bool { return !l.in.book.TakeAhead(p) })
	isNew = len(ahead) > 0
	l.touched = l.touched || isNew
	l.mu.Unlock()
	from.mu.Lock()
	defer from.mu.Unlock()
	for _, p := range ahead {
		from.in.book.LeaveAhead(p)
	}
	from.touched = from.touched || isNew
	return isNew
}

// lessons is what a lane is to be taught.
func (h *hub) lessons(l *lane, id string) (all []ledger.Position) {
	for _, p := range h.of(id) {
		if p.lane != l {
			all = append(all, p.lane.lesson()...)
		}
	}
	all = append(all, h.p.lane.seen()...) // from when it read one connection at a time, itself
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	for name, at := range h.r.places {
		if archive.Within(name, id) {
			all = append(all, at.seen...)
		}
	}
	return all
}

// learn makes the books expect what follows numbers that other lanes of the same address have. It
// reports whether that is new to them: then a checkpoint is due.
func (l *lane) learn(ps []ledger.Position) (isNew bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range ps {
		isNew = l.in.book.Advance(p) || isNew
	}
	l.touched = l.touched || isNew
	return isNew
}

// lacks reports whether any of that would be new to the books.
func (l *lane) lacks(ps []ledger.Position) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(ps, l.in.book.IsBehind)
}

// lesson is positions for the other lanes of an address. A device of which nothing is stored yet is
// not among them: who is told where it began would call missing what this lane has of it.
func (l *lane) lesson() []ledger.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	ps := l.out.positions()
	if l.out.isUnsettled() {
		ps = slices.DeleteFunc(ps, func(p ledger.Position) bool { return !l.out.hasStored(p) })
	}
	return ps
}

// handed is seen with no gaps but those of earlier starts.
func (l *lane) handed() []ledger.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.in.book.Handed()
}
