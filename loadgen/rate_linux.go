package loadgen

import (
	"math"
	"time"
)

// An open loop: requests are due at moments of a rate, whatever became of those before.

// due is when the next request of an open loop is. It is counted from the beginning: a sum of
// intervals is off by the error of each, and one more would be due within a second of 300.
func (t *thread) due() time.Duration {
	return time.Duration(math.Round((float64(t.asks) + t.behind) * t.interval))
}

// sendDue sends what is due, on connections that wait for nothing.
func (t *thread) sendDue() {
	for last := min(t.now, t.length-1); len(t.idle) > 0 && t.due() <= last; {
		c := t.idle[len(t.idle)-1]
		t.idle = t.idle[:len(t.idle)-1]
		if c.fd < 0 || c.opening || len(c.due) > 0 {
			continue // it comes back when it is connected, or it came twice: the server had closed it while it was idle
		}
		c.due = append(c.due, t.due())
		t.asks++
		t.sendNext(c)
	}
}

// leaveUnsent counts what was due and could not be sent in time.
func (t *thread) leaveUnsent() {
	for ; t.interval > 0 && t.due() < t.length; t.asks++ {
		if t.due() < 0 { // of the warm-up
			continue
		}
		t.waited(t.now - t.due())
		t.unsent++
	}
}

// waited counts a request of an open loop that has no good answer by how long it has waited: left
// out, the worst would not be in the percentiles.
func (t *thread) waited(d time.Duration) {
	t.atLeast++
	t.record(d)
}

// learn has the next wait for what is due end earlier if the last ended late, so that two of three
// end in time. The thread turns until then, for no more than a tenth of its time.
func (t *thread) learn(late time.Duration) {
	if late > t.early {
		t.early += 2 * time.Microsecond
	} else {
		t.early -= time.Microsecond
	}
	t.early = min(max(t.early, 0), earliest, time.Duration(t.interval/10))
}

// earliest bounds how early a wait ends: one that is later than that was not the timer's fault.
const earliest = 200 * time.Microsecond
