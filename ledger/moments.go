package ledger

import (
	"slices"

	"github.com/tallywheel/tallywheel/internal/pack"
)

// moments is when something was lost. What comes late, after all, takes its moment with it: then
// the last loss is the one before. Of what may come late the last maxMoments moments are known;
// older ones stay, whether or not it comes.
type moments struct {
	final int64    // the last of what does not come any more, or is forgotten, ns since 1970; 0: none
	open  []moment // of what may still come, the newest last
	ids   uint32   // so many were given
}

const maxMoments = 64

// moment is when so much was found to be lost.
type moment struct {
	id uint32 // a gap has it
	of lateBy
	at int64
	n  uint64
}

// lateBy is how something comes that was lost.
type lateBy uint32

const (
	lateNumber lateBy = iota // a frame, by its number
	lateTime                 // … that did not come when one was expected
	lateAnswer               // an answer
)

// lost notes something that does not come any more.
func (m *moments) lost(at int64) { m.final = max(m.final, at) }

// missed notes n that may come late, and returns the number of the moment.
func (m *moments) missed(of lateBy, at int64, n uint64) uint32 {
	if i := len(m.open) - 1; i >= 0 && m.open[i].of == of && m.open[i].at == at {
		m.open[i].n += n
		return m.open[i].id
	}
	if len(m.open) == maxMoments {
		m.lost(m.open[0].at)
		m.open = slices.Delete(m.open, 0, 1)
	}
	m.ids++
	m.open = append(m.open, moment{m.ids, of, at, n})
	return m.ids
}

// came takes n out of a moment, if it is known.
func (m *moments) came(id uint32, n uint64) {
	if i := slices.IndexFunc(m.open, func(o moment) bool { return o.id == id }); i >= 0 {
		m.take(i, n)
	}
}

// cameLast takes n out of the last moments of that kind.
func (m *moments) cameLast(of lateBy, n uint64) {
	for i := len(m.open) - 1; i >= 0 && n > 0; i-- {
		if m.open[i].of == of {
			n -= m.take(i, n)
		}
	}
}

func (m *moments) take(i int, n uint64) (taken uint64) {
	taken = min(n, m.open[i].n)
	if m.open[i].n -= taken; m.open[i].n == 0 {
		m.open = slices.Delete(m.open, i, i+1)
	}
	return taken
}

// setBack says that the clock was set back to a time: all that was lost was lost by then.
func (m *moments) setBack(to int64) {
	m.final = min(m.final, to)
	for i := range m.open {
		m.open[i].at = min(m.open[i].at, to)
	}
}

// SetBack says that the clock was set back to a time in the start that began at since: what that
// had lost by then has no later time. That of starts before it stays by the clock of then.
func (p *Past) SetBack(since, to Time) {
	if p.of() == since {
		p.LastLoss = min(p.LastLoss, to)
	}
}

// NotLater is a time that an account of the start had before s was drawn up: if it is later than s,
// the clock was set back since, and it is the time to which it was.
func (s *Sheet) NotLater(at Time) Time {
	if at <= s.At || s.Clock == nil {
		return at
	}
	for _, step := range slices.Backward(s.Clock.Steps) {
		if step.By < 0 && !step.Between {
			return min(at, step.At)
		}
	}
	return at
}

// last is the last of all; 0: nothing was lost.
func (m *moments) last() int64 {
	last := m.final
	for _, o := range m.open {
		last = max(last, o.at)
	}
	return last
}

func (m *moments) describe(c *pack.Coder) {
	pack.Signed(c, &m.final)
	pack.Natural(c, &m.ids)
	pack.List(c, &m.open, func(o *moment) {
		pack.Natural(c, &o.id)
		pack.Natural(c, &o.of)
		pack.Signed(c, &o.at)
		pack.Natural(c, &o.n)
	})
}
