// Package beat lets the parts of a process that look after something each second do it together,
// so that an idle machine wakes once for all of them. Waking costs more than what they do then.
package beat

import "time"

// Next is how long to wait for the next beat of that period, which is longer than 0. Beats are the
// moments at which the time since 1970, by the clock on the wall, is a multiple of the period.
//
// A beat that is less than an eighth of the period away is left out: a clock that is set, or runs
// behind the timers, would give one twice. So a wait is up to one and an eighth of the period.
func Next(period time.Duration) time.Duration {
	wait := period - time.Duration(time.Now().UnixNano()%int64(period))
	if wait < period/8 {
		wait += period
	}
	return wait
}
