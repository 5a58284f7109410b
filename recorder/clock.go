package recorder

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ledger"
)

// smallestStep is what counts as a step of the clock. A time service that only slews it changes
// half a millisecond a second.
const smallestStep = 250 * time.Millisecond

// maxSteps is how many steps the books keep; the oldest go first.
const maxSteps = 64

// clockWatch notices when the clock is set, by a clock that is not.
type clockWatch struct {
	mu           sync.Mutex
	wall         int64 // ns since 1970
	uptime       time.Duration
	synchronised *bool
	count        uint64
	steps        []ledger.ClockStep
	set          setting // by the readings since wasSet was asked

	began time.Duration // uptime at the first reading of this start
	from  int64         // since when, by the clock as it is, it has not been set
	wrong []archive.WrongClock
	own   int // index in wrong of the first one that this start has seen
}

// setting is how the clock was set: the zero value says that it was not.
type setting struct {
	// in ns since 1970, by its new reckoning: before it was set, as was known last, and when that
	// was seen
	from, to int64
	back     bool // it was set back, maybe beside others
}

// carry brings in what earlier starts know of wrong clocks. It comes before the first reading.
func (c *clockWatch) carry(wrong []archive.WrongClock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = slices.Clone(wrong)
	c.own = len(c.wrong)
}

// goOn goes on with the account of the recorder before this one, of the same start; nil: there is
// none.
func (c *clockWatch) goOn(before *ledger.Clock) {
	if before == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count += before.StepCount
	c.steps = slices.Concat(before.Steps, c.steps)
	c.steps = c.steps[max(0, len(c.steps)-maxSteps):]
}

// between notes that a start has begun, at a time, before the one before it was over by its own
// clock: somebody has set that back. To another time it may have been set as well, unnoticed.
func (c *clockWatch) between(began, ended int64, log *slog.Logger) (wasSet bool) {
	by := time.Duration(began - ended)
	if by > -smallestStep {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(ledger.ClockStep{At: ledger.Time(began), By: int64(by), Between: true})
	log.Warn("the clock was set back since the start before this one: its times and those of now do not compare",
		"at least by", -by, "that start was over", ledger.Time(ended))
	return true
}

// note takes a step to the account. mu is held.
func (c *clockWatch) note(step ledger.ClockStep) {
	c.count++
	if len(c.steps) == maxSteps {
		c.steps = slices.Delete(c.steps, 0, 1)
	}
	c.steps = append(c.steps, step)
}

// wrongTimes is for the next start. Nobody knows whether the clock is right that this start has, if
// nobody keeps it: it may be set when the recorder does not run. A kill may come some time behind
// the sheet.
func (c *clockWatch) wrongTimes() []archive.WrongClock {
	c.mu.Lock()
	defer c.mu.Unlock()
	wrong := slices.Clone(c.wrong)
	if c.wall == 0 || c.synchronised == nil || *c.synchronised {
		return wrong
	}
	for i := range wrong[c.own:] { // by how much is known by this clock alone
		wrong[c.own+i].By, wrong[c.own+i].Unkept = 0, true
	}
	now := archive.WrongClock{From: ledger.Time(c.from), To: ledger.Time(c.wall + int64(2*idlePeriod)), Unkept: true}
	if n := len(wrong); n > 0 {
		before := wrong[n-1] // of the start before: one range will do for the two
		if before.Unkept && before.From <= now.From && now.From <= before.To+ledger.Time(24*time.Hour) {
			now.From, now.To = before.From, max(now.To, before.To)
			wrong = wrong[:n-1]
		}
	}
	wrong = append(wrong, now)
	return wrong[max(0, len(wrong)-maxSteps):]
}

// wrongClock is a time that no clock shows which has been set: boards without a battery begin in
// 1970 or with their firmware.
var wrongClock = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

// age is how old a record of a time is at least, by the last readings: a clock that was set, or
// that nobody keeps, makes no record older than it is.
func (c *clockWatch) age(at int64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.synchronised != nil && *c.synchronised
	known, behind, unkept := at >= c.from || kept && at >= wrongClock, int64(0), false
	for i, w := range c.wrong {
		if int64(w.From) <= at && at <= int64(w.To) && w.Unkept {
			unkept = true
		} else if int64(w.From) <= at && at <= int64(w.To) {
			known = known || kept || i >= c.own
			behind = max(behind, w.By)
		}
	}
	since, age := c.uptime-c.began, time.Duration(c.wall-at-behind)
	switch {
	case !known:
		return since
	case unkept: // it may be of this start as well
		return min(since, age)
	}
	return age
}

// look reads both clocks, and says what has changed.
func (c *clockWatch) look(log *slog.Logger) {
	up, err := uptime()
	if err != nil {
		return // no kernel that records lacks it
	}
	c.at(time.Now().UnixNano(), up)
	on, err := sys.ClockSynchronised()
	if err != nil {
		return // forbidden in some containers: then it stays unknown
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.synchronised == nil || *c.synchronised != on {
		log.Info("the clock", "synchronised", on)
	}
	c.synchronised = &on
}

// at takes a reading of both clocks and returns by how much the wall clock was set since the last
// one; 0: it was not.
func (c *clockWatch) at(wall int64, uptime time.Duration) (by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.wall
	if c.wall == 0 {
		c.began, c.from = uptime, wall
	} else {
		by = time.Duration(wall-c.wall) - (uptime - c.uptime)
	}
	c.wall, c.uptime = wall, uptime
	if by.Abs() < smallestStep {
		return 0
	}
	c.isSet(int64(by))
	c.note(ledger.ClockStep{At: ledger.Time(wall), By: int64(by)})
	c.set = setting{from: last + int64(by), to: wall, back: c.set.back || by < 0}
	return by
}

// wasSet returns how the clock was set since this was asked last.
func (c *clockWatch) wasSet() (was setting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, c.set = c.set, setting{}
	return was
}

// lookAtClock notices what has become of the clock. Where it was set, the outages of then cannot
// say how long they last; where it was set back, all that was lost by then was lost by the time
// that it shows now.
func (r *Recorder) lookAtClock() {
	r.clock.look(r.slog)
	was := r.clock.wasSet()
	if was == (setting{}) {
		return
	}
	for _, p := range r.all() {
		p.lane.clockWasSet(was)
	}
	r.mu.Lock()
	for source, at := range r.places { // which are not read
		at.isSet = true
		r.places[source] = at
	}
	r.mu.Unlock()
	if was.back {
		r.acks.setBack(r.since) // behind those that are leaving: one that has left meanwhile is in there
	}
}

func (l *lane) clockWasSet(was setting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in.book.ClockWasSet(was.from, was.to)
	if was.back {
		l.in.book.SetBack(time.Now().UnixNano())
	}
	l.touched = true
}

// isSet notes that the times of this start before now were given by a clock that was behind by so
// much. mu is held.
func (c *clockWatch) isSet(by int64) {
	c.wrong = append(c.wrong, archive.WrongClock{From: ledger.Time(c.from), To: ledger.Time(c.wall - by)})
	for i := range c.wrong[c.own:] {
		c.wrong[c.own+i].By += by
	}
	if len(c.wrong) > maxSteps {
		c.wrong = slices.Delete(c.wrong, 0, 1)
		c.own = max(0, c.own-1)
	}
	c.from = c.wall
}

// account is what a sheet says of the clock.
func (c *clockWatch) account() *ledger.Clock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &ledger.Clock{
		Synchronised: c.synchronised, StepCount: c.count,
		Steps: append([]ledger.ClockStep{}, c.steps...),
	}
}
