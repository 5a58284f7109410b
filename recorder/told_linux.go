package recorder

import (
	"slices"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/ledger"
)

// tell tells the lane what a mark says that is no call of a reader.
func (p *spooled) tell(m spool.Mark) error {
	l := p.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	p.at.Store(p.from.Steady())
	switch m.Kind {
	case spool.Opened:
		l.counts.told, l.wordless = [5]uint64{}, false
		l.begin(m.Time)
	case spool.Absent:
		why, words := p.absence(m)
		switch {
		case !l.in.book.IsOut():
			l.wordless = !words
		case words && l.wordless && m.A < spool.NotConnected: // they came before describe has them
			l.wordless = false
			l.in.book.OutageGoesOn(why)
		}
		l.isOut(m.Time, why)
	case spool.Unattended:
		end := m.Time + int64(m.B)
		l.in.book.At(end)
		switch why := unattendedFor(m.A); m.A {
		case spool.Killed, spool.Restarted: // it may have been missed already
			l.in.book.OutageBegins(m.Time, why)
			l.in.book.OutageEnds(end)
		default: // else it is noted beside the marks; a reader of an older program has only these
			if !l.in.book.HasOutage(m.Time, end) {
				l.in.book.Outage(m.Time, end, why)
			}
		}
		if l.in.restart(); l.state == ledger.StateWaiting { // the reader was missed
			l.state, l.why = ledger.StateOpen, ""
			l.isBack()
		}
	case spool.Counted:
		l.counted(m.Time, m.A, m.B)
	case spool.Lost:
		l.in.book.At(m.Time)
		if n := m.Refused(); n > 0 {
			l.in.book.Refuse(refusedDescriptors, n)
			l.in.book.Unread(unreadRefused, m.B)
		}
		switch m.A {
		case spool.Uncertain:
			l.in.book.Unread(ledger.UnreadUncertain, m.B)
		case spool.Discarded:
			l.giveUp(unreadStopped, m.B)
		case spool.Untaken:
			l.giveUp(unreadFailed, m.B)
		case spool.Spilled:
			l.in.book.Unread(causeSpillFailed, m.B)
			held, err := p.from.Held()
			if err != nil {
				return err
			}
			l.breakOff(held, m.Time)
			p.from.Done(len(held))
		}
	}
	return nil
}

// unattendedFor is why nobody read.
func unattendedFor(cause uint32) string {
	switch cause {
	case spool.NoRoom:
		return outageNoMemory
	case spool.Restarted:
		return outageAll
	case spool.SpillFull:
		return outageSpillFull
	case spool.SpillFailed:
		return outageSpillFailed
	}
	return outageReader
}

// missed posts when nobody read for want of room: what is over since it was asked last, and what
// lasts. A recorder that goes on is told again what the one before may have posted.
func (p *spooled) missed() {
	times, known := p.spool.Unread(p.unread)
	lasts := spool.Time{}
	if n := len(times); n > 0 && times[n-1].To == 0 {
		lasts = times[n-1]
	}
	if known == p.unread && lasts == p.lasts {
		return
	}
	l := p.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	if was := p.lasts; was.From != 0 &&
		!slices.ContainsFunc(times, func(t spool.Time) bool { return t.From == was.From }) {
		l.in.book.Outage(was.From, time.Now().UnixNano(), unattendedFor(was.Why)) // nobody has noted when it ended
	}
	for _, t := range times {
		if p.unread > 0 || !l.in.book.HasForgotten(t.From) {
			l.in.book.Outage(t.From, t.To, unattendedFor(t.Why))
		}
	}
	p.unread, p.lasts, l.touched = known, lasts, true
}

// breakOff gives up what is held before bytes that are lost: what comes behind them is not the rest
// of a frame. mu is held.
func (l *lane) breakOff(held []byte, at int64) {
	pause := max(0, time.Duration(at-l.in.now))
	l.in.end(held, at, AtGone)
	l.in.beat(0, pause)
	l.in.restart()
}

// absence is why a device cannot be opened, and whether that is in words that were made for it.
func (p *spooled) absence(m spool.Mark) (why string, words bool) {
	switch m.A {
	case spool.NotConnected:
		return outageNotConnected, true
	case spool.Connecting:
		_, other := deviceOf(p.lane.cfg)
		return outageConnecting + other, true
	}
	if p.why != nil {
		if text := p.why(); text != "" {
			return text, true
		}
	}
	if m.A == 0 {
		return "it cannot be opened", false
	}
	return syscall.Errno(m.A).Error(), false
}

// counts is what a driver has counted, by the marks of a spool.
type counts struct {
	told [5]uint64 // each counter as it stood last, and 1; 0: it is not known since the device was opened
}

// counted posts where a counter of the driver stands: how much that is more than before. mu is
// held.
func (l *lane) counted(at int64, which uint32, n uint64) {
	if which >= uint32(len(l.counts.told)) {
		return // a reader of another version
	}
	before := l.counts.told[which]
	l.counts.told[which] = n + 1
	if l.kernel == nil {
		l.kernel = &ledger.Kernel{}
	}
	k := *l.kernel // sheets have the one before
	of := []**uint64{&k.Overrun, &k.BufferOverrun, &k.Framing, &k.Parity, &k.Break}[which]
	var sum uint64
	if *of != nil {
		sum = **of
	}
	if before != 0 {
		sum += uint64(uint32(n - (before - 1))) // across the driver's 2^32, too
	}
	*of = &sum
	if k.Lost() > l.kernel.Lost() {
		l.in.book.At(at)
		l.in.book.Overrun()
		l.overrun = time.Now()
	}
	l.kernel = &k
}
