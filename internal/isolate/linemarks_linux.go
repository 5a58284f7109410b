package isolate

import (
	"errors"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/spool"
)

// count writes down what the driver has counted, where that has changed, and wakes nobody else.
func (l *line) count(d device) {
	isNew := false
	for _, c := range d.counts() {
		if told, ok := l.told[c.which]; ok && told == c.n {
			continue
		}
		l.mu.Lock()
		err := l.producer.Note(spool.Mark{Time: time.Now().UnixNano(), Kind: spool.Counted, A: c.which, B: c.n})
		l.mu.Unlock()
		if err != nil {
			return // there is no room: the next look has it, for the counter stands there
		}
		l.told[c.which], isNew = c.n, true
	}
	if isNew {
		l.over.move()
		l.bell.Tell()
	}
}

// discard counts what the kernel holds, and nobody will read.
func (l *line) discard(d device) {
	l.mu.Lock()
	l.lost += d.discard()
	l.mu.Unlock()
	l.noteLost()
}

// loses counts bytes of a connection that waits, before that is off the shelf: whoever comes after
// a kill finds one of the two.
func (l *line) loses(n uint64) {
	if n == 0 {
		return
	}
	l.mu.Lock()
	l.lost += n
	said := l.said
	l.mu.Unlock()
	l.say(said)
}

// noteLost writes down what is lost. Where that has no room, it stays with what the shelf has.
func (l *line) noteLost() {
	l.mu.Lock()
	n := l.lost
	l.mu.Unlock()
	m := spool.Mark{Time: time.Now().UnixNano(), Kind: spool.Lost, A: spool.Discarded, B: n}
	if n > 0 && l.note(m) {
		l.mu.Lock()
		l.lost -= n
		l.mu.Unlock()
	}
}

// inherit goes on with what the reader before has counted since the line was to end, and with what
// it has said of a device that is not open.
func (l *line) inherit(before adoption) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := before.Port
	if p.LostOf == l.lane.Book {
		l.late, l.lost = p.Lost, p.Unmarked
	}
	if before.fd < 0 {
		p.Ended = 0
		l.said = p
	}
}

// counted is what is said of a device, with what is lost.
func (l *line) counted(p Port) Port {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.Lost, p.LostOf, p.Unmarked = l.late, 0, l.lost
	if p.Lost+p.Unmarked > 0 {
		p.LostOf = l.lane.Book
	}
	return p
}

// unblock writes down for how long there was no room, where a device is not read any more before
// there is some.
func (l *line) unblock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stuck.IsZero() {
		l.far.Unblock(time.Since(l.stuck))
		l.stuck = time.Time{}
	}
}

// wasBlocked is unblock for the reader before, which died when there was no room.
func (l *line) wasBlocked(died time.Time) {
	if since, _, ok := l.far.Blocked(); ok {
		l.far.Unblock(died.Sub(time.Unix(0, since)))
	}
}

// gone writes down that the device is.
func (l *line) gone(err error) {
	now := spool.MomentOf(time.Now())
	l.note(spool.Mark{Time: now.Wall, Kind: spool.Closed, A: errnoOf(err), B: uint64(now.Steady)})
}

// forget closes a device that is not read any more, here and on the shelf.
func (l *line) forget(d device) {
	was := d.about()
	_ = d.Close() // it is gone, or nobody cares
	l.say(Port{Path: was.Path, Identity: was.Identity, Why: "it was closed"})
}

// say puts what is known of a device that is not open on the shelf.
func (l *line) say(p Port) {
	l.mu.Lock()
	l.said = p
	l.mu.Unlock()
	if err := l.link.Put(PortOf(l.source), l.counted(p)); err != nil {
		l.log.Warn("the keeper has ended", "error", err)
	}
}

// tellEnd puts on the shelf that the line ends where a mark of that would wait behind a file: the
// recorder may stop before it is shown that.
func (l *line) tellEnd() {
	if !l.over.holds() || l.isDropped() {
		return
	}
	l.mu.Lock()
	p := l.said
	l.late, l.lost = l.late+l.lost, 0 // nothing more is marked
	l.mu.Unlock()
	p.Ended = l.lane.Book
	l.say(p)
}

// absent writes down why the device cannot be opened. The words are for the shelf, and come before
// the mark.
func (l *line) absent(err error) {
	l.say(Port{Identity: l.wire.identity(), Why: err.Error()})
	now := spool.MomentOf(time.Now())
	l.note(spool.Mark{Time: now.Wall, Kind: spool.Absent, A: errnoOf(err), B: uint64(now.Steady)})
}

// errnoOf is the number of an error of the kernel; 0: it is none, or the end of a stream.
func errnoOf(err error) uint32 {
	var errno syscall.Errno
	if errors.Is(err, spool.ErrReplaced) {
		return spool.Replaced
	}
	if errors.As(err, &errno) {
		return uint32(errno)
	}
	return 0
}

// pause waits for so long, or until the line ends.
func (l *line) pause(d time.Duration) {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-l.ctx.Done():
	case <-wait.C:
	}
}

// note writes a mark. Where there is no room it waits until the recorder has made some, or the time
// to end is over: then nobody will look at the spool, and it is false.
func (l *line) note(m spool.Mark) (isNoted bool) {
	for {
		l.mu.Lock()
		err := l.producer.Note(m)
		over := l.ctx.Err() != nil && time.Now().After(l.giveUp)
		if err == nil && m.Kind == spool.Lost && l.ctx.Err() != nil {
			l.late += m.B
		}
		l.mu.Unlock()
		l.over.move()
		l.bell.Ring()
		if err == nil {
			return true
		}
		if over || !errors.Is(err, spool.ErrFull) {
			l.log.Error("what happened to the device cannot be written down", "mark", m.Kind, "error", err)
			return false
		}
		time.Sleep(fullLook)
	}
}
