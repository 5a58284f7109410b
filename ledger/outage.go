package ledger

import (
	"slices"
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

// OutageGoesOn gives the open outage, if there is one, another cause: it lasts for another reason
// than it began for.
func (b *Book) OutageGoesOn(cause string) {
	if b.outageOpen {
		b.outages[len(b.outages)-1].Cause = cause
	}
}

// ClockSetBack is what the cause of an outage says besides, where the clock was set to before its
// beginning while it lasted.
const ClockSetBack = "the clock was set back meanwhile: how long it was is not known"

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
		o.Cause += "; " + ClockSetBack
	}
	o.To = max(o.To, o.From) // less is two goroutines that have read the clock
}

// outagesJoin is how far apart outages of one cause are at most that are one: a port that is read
// for a moment, as while there is room for one read, is not well again.
const outagesJoin = 100 * time.Millisecond

// HasOutage reports whether the time between two, in ns since 1970, is in an outage that is over.
func (b *Book) HasOutage(from, to int64) bool {
	return slices.ContainsFunc(b.outages, func(o Outage) bool {
		return o.To != 0 && int64(o.From) <= from && to <= int64(o.To)
	})
}

// Outage posts an outage that is over, between two times in ns since 1970. One that is open begins
// behind it, or has ended by then.
func (b *Book) Outage(from, to int64, cause string) {
	if b.outageOpen && int64(b.outages[len(b.outages)-1].From) < from {
		b.OutageEnds(from)
	}
	end := len(b.outages)
	if b.outageOpen {
		end--
	}
	if end > 0 {
		last := &b.outages[end-1]
		if last.Cause == cause && int64(last.From) <= from && from-int64(last.To) <= int64(outagesJoin) {
			last.To = max(last.To, Time(to))
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
