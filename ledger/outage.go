package ledger

import (
	"slices"
	"strings"
	"time"
)

// OutageBegins opens an outage at a time in ns since 1970; one that is open already goes on under
// its first cause.
func (b *Book) OutageBegins(at int64, cause string) {
	if b.outageOpen {
		return
	}
	b.outageOpen = true
	b.outageCount++
	if len(b.outages) == maxOutages {
		b.outages = slices.Delete(b.outages, 0, 1)
	}
	b.outages = append(b.outages, Outage{From: Time(at), Cause: cause})
}

// IsOut reports whether an outage is open.
func (b *Book) IsOut() bool { return b.outageOpen }

// OpenOutage is the outage that is open; nil: there is none.
func (b *Book) OpenOutage() *Outage {
	if !b.outageOpen {
		return nil
	}
	o := b.outages[len(b.outages)-1]
	return &o
}

// OutageGoesOn gives the open outage, if there is one, another cause: it lasts for another reason
// than it began for.
func (b *Book) OutageGoesOn(cause string) {
	if b.outageOpen {
		b.outages[len(b.outages)-1].becauseOf(cause)
	}
}

// ClockSet is what the cause of an outage says besides, where the clock was set while it lasted.
const ClockSet = "the clock was set meanwhile: how long it lasts is not known"

// ClockWasSet says that the clock was set between two times by its new reckoning, in ns since 1970:
// the outages that last, or that have ended between the two, say so. One that ends later ended
// before the clock was set back.
func (b *Book) ClockWasSet(from, to int64) {
	for i := range b.outages {
		if o := &b.outages[i]; o.To == 0 || int64(o.To) >= from && int64(o.To) <= to {
			o.ClockWasSet()
		}
	}
}

// ClockWasSet has the cause say that the clock was set while the outage lasted.
func (o *Outage) ClockWasSet() {
	if !o.SaysClockWasSet() {
		o.Cause += "; " + ClockSet
	}
}

// SaysClockWasSet reports whether the cause says that the clock was set meanwhile.
func (o *Outage) SaysClockWasSet() bool { return strings.HasSuffix(o.Cause, "; "+ClockSet) }

// Why is the cause without what it says of the clock.
func (o *Outage) Why() string { return strings.TrimSuffix(o.Cause, "; "+ClockSet) }

// becauseOf gives another cause, which says the same of the clock.
func (o *Outage) becauseOf(cause string) {
	was := o.SaysClockWasSet()
	if o.Cause = cause; was {
		o.ClockWasSet()
	}
}

// smallestStep is what counts as a step of the clock, in ns.
const smallestStep = 250e6

// OutageEnds closes the open outage, if there is one. None ends before it begins.
func (b *Book) OutageEnds(at int64) {
	if !b.outageOpen {
		return
	}
	b.outageOpen = false
	o := &b.outages[len(b.outages)-1]
	if o.To = Time(at); o.From-o.To >= smallestStep {
		o.From = o.To
		o.ClockWasSet()
	}
	o.To = max(o.To, o.From) // less is two goroutines that have read the clock
}

// outagesJoin is how far apart outages of one cause are at most that are one: a port that is read
// for a moment, as while there is room for one read, is not well again.
const outagesJoin = 100 * time.Millisecond

// HasOutage reports whether the time between two, in ns since 1970, is in an outage that is over,
// or in one of Outage.
func (b *Book) HasOutage(from, to int64) bool {
	return slices.ContainsFunc(b.outages[:b.apart()], func(o Outage) bool {
		return int64(o.From) <= from && (o.To == 0 || to <= int64(o.To))
	})
}

// HasForgotten reports whether an outage that began then may have been posted, and is kept no more.
func (b *Book) HasForgotten(from int64) bool {
	return b.outageCount > uint64(len(b.outages)) && len(b.outages) > 0 && from < int64(b.outages[0].From)
}

// apart is how many outages there are beside one that is open by OutageBegins, which is the last.
func (b *Book) apart() int {
	if b.outageOpen {
		return len(b.outages) - 1
	}
	return len(b.outages)
}

// Outage posts an outage between two times in ns since 1970, whether or not another one is open; to
// is 0 while it lasts. It may be posted again, as is known then: the time when it began names it.
// An older one of those that has no end has ended by then.
func (b *Book) Outage(from, to int64, cause string) {
	end := b.apart()
	for i := end - 1; i >= 0; i-- {
		o := &b.outages[i]
		if int64(o.From) == from && o.To == 0 {
			o.becauseOf(cause)
			o.To = Time(to)
			return
		}
		if int64(o.From) > from {
			continue
		}
		if o.To == 0 {
			o.To = Time(from)
		}
		known := int64(o.To)
		if o.Why() != cause {
			continue
		}
		switch {
		case to != 0 && to <= known: // as where the clock was set back
			return
		case known <= from && from-known <= int64(outagesJoin), known > from && to > known:
			o.To = Time(to)
			return
		}
	}
	b.outageCount++
	if len(b.outages) == maxOutages {
		b.outages = slices.Delete(b.outages, 0, 1)
		end--
	}
	b.outages = slices.Insert(b.outages, end, Outage{From: Time(from), To: Time(to), Cause: cause})
}
