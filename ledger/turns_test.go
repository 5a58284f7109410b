package ledger

import (
	"testing"
	"time"
)

// A request is unanswered once: when the next one comes, or when its time is over; an answer that
// comes late takes it back.
func TestTurns(t *testing.T) {
	const within = 5 * time.Second
	type step func(b *Book)
	ask := func(s int) step { return func(b *Book) { b.TurnOver(); b.Asked(time.Duration(s) * time.Second) } }
	look := func(s int) step { return func(b *Book) { b.Overdue(time.Duration(s)*time.Second, within) } }
	answer := func(b *Book) { b.Answered(); b.TurnOver() }
	none := func(b *Book) { b.Unanswered() }
	for name, c := range map[string]struct {
		steps                []step
		answered, unanswered uint64
	}{
		"answered":               {[]step{ask(0), answer, look(9)}, 1, 0},
		"the next one comes":     {[]step{ask(0), none, ask(1), answer}, 1, 1},
		"in time":                {[]step{ask(0), look(4), answer}, 1, 0},
		"its time is over":       {[]step{ask(0), look(5), look(6)}, 0, 1},
		"… and it is answered":   {[]step{ask(0), look(5), answer, look(20)}, 1, 0},
		"… and the next comes":   {[]step{ask(0), look(5), none, ask(7), answer}, 1, 1},
		"… and that is late too": {[]step{ask(0), look(5), none, ask(7), look(12)}, 0, 2},
		"damage behind it":       {[]step{ask(0), (*Book).Damaged, look(9)}, 0, 0},
		"damage when it is over": {[]step{ask(0), look(5), (*Book).Damaged, look(9), ask(10), answer}, 1, 1},
	} {
		b := NewBook(0)
		b.At(1e9)
		for _, s := range c.steps {
			s(b)
		}
		f := b.Frames()
		if f.Answered != c.answered || f.Unanswered != c.unanswered {
			t.Errorf("%s: %d answered, %d unanswered; want %d and %d", name, f.Answered, f.Unanswered, c.answered,
				c.unanswered)
		}
		if c.unanswered > 0 && b.LastLoss() != 1e9 {
			t.Errorf("%s: the last loss was at %d", name, b.LastLoss())
		}
	}
}
