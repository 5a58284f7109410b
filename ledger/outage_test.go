package ledger

import (
	"slices"
	"testing"
	"time"
)

// TestOutageThatIsOver posts outages apart from the one that is open: each is there once, before
// that one, however often it is posted, and those of one cause that nearly touch are one.
func TestOutageThatIsOver(t *testing.T) {
	const s = int64(time.Second)
	for name, c := range map[string]struct {
		post func(b *Book)
		want []Outage
	}{
		"one after the other": {func(b *Book) {
			b.Outage(1*s, 2*s, "x")
			b.Outage(2*s+int64(outagesJoin), 4*s, "x")
			b.Outage(4*s+int64(outagesJoin)+1, 5*s, "x")
		}, []Outage{{Time(1 * s), Time(4 * s), "x"}, {Time(4*s + int64(outagesJoin) + 1), Time(5 * s), "x"}}},
		"of two causes": {func(b *Book) {
			b.Outage(1*s, 2*s, "x")
			b.Outage(2*s, 3*s, "y")
		}, []Outage{{Time(1 * s), Time(2 * s), "x"}, {Time(2 * s), Time(3 * s), "y"}}},
		"before one that is open": {func(b *Book) {
			b.OutageBegins(2*s, "y")
			b.Outage(1*s, 2*s, "x")
		}, []Outage{{Time(1 * s), Time(2 * s), "x"}, {Time(2 * s), 0, "y"}}},
		"with the clock set back": {func(b *Book) {
			b.Outage(1*s, 9*s, "x")
			b.Outage(2*s, 3*s, "x")
		}, []Outage{{Time(1 * s), Time(9 * s), "x"}}},
		"behind one that is open": {func(b *Book) {
			b.OutageBegins(1*s, "y")
			b.Outage(2*s, 3*s, "x")
		}, []Outage{{Time(2 * s), Time(3 * s), "x"}, {Time(1 * s), 0, "y"}}},
		"while it lasts": {func(b *Book) {
			b.Outage(1*s, 0, "x")
			b.Outage(1*s, 0, "x")
			b.OutageBegins(4*s, "y")
			b.Outage(1*s, 4*s, "z")
			b.OutageEnds(5 * s)
		}, []Outage{{Time(1 * s), Time(4 * s), "z"}, {Time(4 * s), Time(5 * s), "y"}}},
		"again, as one that goes on": {func(b *Book) {
			for range 2 {
				b.Outage(1*s, 2*s, "x")
				b.Outage(2*s+1, 0, "x")
			}
			b.Outage(2*s+1, 3*s, "x")
			b.Outage(1*s, 2*s, "x")
		}, []Outage{{Time(1 * s), Time(3 * s), "x"}}},
		"behind one whose end nobody knows": {func(b *Book) {
			b.Outage(1*s, 0, "x")
			b.Outage(3*s, 0, "y")
			b.Outage(3*s, 4*s, "y")
		}, []Outage{{Time(1 * s), Time(3 * s), "x"}, {Time(3 * s), Time(4 * s), "y"}}},
		"while it lasts, with the clock set back": {func(b *Book) {
			b.Outage(1*s, 9*s, "x")
			b.Outage(2*s, 0, "x")
		}, []Outage{{Time(1 * s), Time(9 * s), "x"}, {Time(2 * s), 0, "x"}}},
	} {
		b := NewBook(0)
		c.post(b)
		p := b.Sheet("x", "", Held{}, nil)
		if !slices.Equal(p.Outages, c.want) || p.OutageCount != uint64(len(c.want)) {
			t.Errorf("%s: %d outages: %+v; want %+v", name, p.OutageCount, p.Outages, c.want)
		}
		for _, o := range c.want {
			apart := o.To != 0 || !b.IsOut()
			if has := b.HasOutage(int64(o.From)+1, int64(o.From)+2); has != apart {
				t.Errorf("%s: the time within %+v is in an outage that is over, or of its own: %v", name, o, has)
			}
		}
	}
	b := NewBook(0)
	for i := range int64(2 * maxOutages) {
		b.OutageEnds(2 * i * s)
		b.Outage(2*i*s, (2*i+1)*s, "x")
		b.OutageBegins((2*i+1)*s, "y")
	}
	p := b.Sheet("x", "", Held{}, nil)
	if n := len(p.Outages); n != maxOutages || p.OutageCount != 4*maxOutages || p.Outages[n-1].Cause != "y" ||
		p.Outages[n-1].To != 0 {
		t.Errorf("%d of %d outages: the last is %+v", n, p.OutageCount, p.Outages[n-1])
	}
	if !b.HasForgotten(1) || b.HasForgotten(int64(p.Outages[0].From)) {
		t.Error("it does not know what it keeps no more")
	}
}

// An outage that the clock was set in says so, forward as back, also where another cause comes
// behind; one that was over before does not.
func TestOutagesInWhichTheClockWasSet(t *testing.T) {
	const s = int64(time.Second)
	b := NewBook(0)
	b.Outage(1*s, 2*s, "over before")
	b.Outage(3*s, 0, "no room")
	b.OutageBegins(4*s, "away")
	b.ClockWasSet(5*s, 6*s)
	b.ClockWasSet(6*s, 7*s)
	b.OutageGoesOn("away, then another")
	b.OutageEnds(7 * s)
	b.Outage(3*s, 8*s, "no room")
	b.Outage(9*s, 10*s, "later")
	told := "; " + ClockSet
	want := []Outage{
		{Time(1 * s), Time(2 * s), "over before"},
		{Time(3 * s), Time(8 * s), "no room" + told},
		{Time(4 * s), Time(7 * s), "away, then another" + told},
		{Time(9 * s), Time(10 * s), "later"},
	}
	if p := b.Sheet("x", "", Held{}, nil); !slices.Equal(p.Outages, want) {
		t.Errorf("%+v; want %+v", p.Outages, want)
	}
	b.Outage(20*s, 30*s, "before it was set back")
	b.ClockWasSet(9*s, 10*s) // it was seen behind the outage, and may have come in it
	o := b.Sheet("x", "", Held{}, nil).Outages
	if o[3].Cause != "later"+told || o[3].Why() != "later" || o[4].Cause != "before it was set back" {
		t.Errorf("%+v", o)
	}
}
