package spool

import (
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// Moment is one reading of two clocks.
type Moment struct {
	Wall   int64 // ns since 1970
	Steady int64 // ns, by a clock that nobody sets, and all processes of the machine share
}

// origin is a moment by this process's own steady clock, which is read without a system call, and
// by that of the machine (CLOCK_MONOTONIC): both go at the same pace.
var origin = struct {
	own     time.Time
	machine int64
}{time.Now(), int64(sys.Monotonic())}

// MomentOf is the moment of a time that time.Now gave.
func MomentOf(t time.Time) Moment {
	return Moment{t.UnixNano(), origin.machine + int64(t.Sub(origin.own))}
}

// Time is what time.Now gave at the moment.
func (m Moment) Time() time.Time { return origin.own.Add(time.Duration(m.Steady - origin.machine)) }

// Steady is what the steady clock of [Moment] shows.
func Steady() time.Duration { return time.Duration(MomentOf(time.Now()).Steady) }
