package recorder

import (
	"slices"

	"github.com/tallywheel/tallywheel/ledger"
)

// isReadTo notes up to when, in ns since 1970, what comes is taken of a source that stops. It is
// nobody's from then on: the outage until the source is read again begins then, and not at the end
// of the stop, which waits for what was taken. The first word counts. mu is held.
func (l *lane) isReadTo(at int64) {
	if l.readTo == 0 {
		l.readTo = at
	}
}

// readOn says that the source was read then, though it was to end: the process that reads it hears
// of that later. mu is held.
func (l *lane) readOn(at int64) {
	if l.readTo != 0 && l.in.spooled {
		l.readTo = max(l.readTo, at)
	}
}

// wasReadTo is isReadTo by who leaves a source that nobody read as it stopped, or by a recorder
// before this one, which was killed while it stopped; 0: it was not.
func (l *lane) wasReadTo(at int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isReadTo(at)
}

// lastRead is up to when what came was taken of a source that has stopped, in ns since 1970; 0: it
// was not read then.
func (l *lane) lastRead() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.readTo
}

// readTo is up to when what came was taken of sources that have stopped, of those that were read
// then. Peers stop with their source, those that were not there, too; one that was read on after
// that has its own time, and its source that of the last of them.
func readTo(sources []*port) map[string]ledger.Time {
	all := map[string]ledger.Time{}
	for _, p := range sources {
		stopped := p.lane.lastRead()
		if stopped == 0 {
			continue
		}
		last := stopped
		for _, q := range p.family() {
			at := max(stopped, q.lane.lastRead())
			all[q.lane.cfg.ID], last = ledger.Time(at), max(last, at)
		}
		all[p.lane.cfg.ID] = ledger.Time(last)
	}
	return all
}

// endOutages ends, in the last sheet of sources, the outages that are open, and those for want of
// room, where nobody read any more: the outage until they are read again begins there. That is last
// in ns since 1970, or before, by readTo. What began later is of a clock that was set back since
// then, or of a source that had stopped already.
func endOutages(s *ledger.Sheet, readTo map[string]ledger.Time, last ledger.Time) {
	for i := range s.Ports {
		p := &s.Ports[i]
		at := last
		if stopped, ok := readTo[p.ID]; ok {
			at = min(at, stopped)
		}
		n := len(p.Outages)
		p.Outages = slices.DeleteFunc(p.Outages, func(o ledger.Outage) bool {
			return isWantOfRoom(o) && o.From >= at && (o.To == 0 || o.From <= s.At)
		})
		p.OutageCount -= uint64(n - len(p.Outages))
		for j := range p.Outages {
			o := &p.Outages[j]
			if isOver := o.To != 0; isOver && (!isWantOfRoom(*o) || o.To <= at || o.From >= at) {
				continue
			}
			if o.From > max(at, s.At) {
				o.ClockWasSet()
			}
			o.From, o.To = min(o.From, at), at
		}
	}
}

func isWantOfRoom(o ledger.Outage) bool {
	why := o.Why()
	return why == outageNoMemory || why == outageSpillFull || why == outageSpillFailed
}
