package loadgen

import (
	"errors"
	"time"
)

// Kinds of errors of requests that have no answer.
const (
	timedOut = "timeout"
	// the time was over, and nothing came any more, before it was a time-out
	unanswered = "unanswered at the end"
)

// NotClosed is the kind of error for a request of [Config.Close] whose answer has come, and the end
// of whose connection has not.
const NotClosed = "answered, and not closed by the server"

var errNoAnswer = errors.New("no answer in time")

// lost gives up a connection and makes another. What was asked on it has failed; where nothing was,
// it was the server's right to close it.
func (t *thread) lost(c *conn, why string) {
	for _, due := range c.due {
		t.failed(why, due)
	}
	t.renew(c)
}

// failed counts a request that has no good answer. In an open loop it counts as long as it has
// waited: a stall that ends with an error is a stall.
func (t *thread) failed(why string, due time.Duration) {
	if due < 0 { // of the warm-up
		return
	}
	t.errors[why]++
	if t.interval > 0 {
		t.waited(t.now - due)
	}
}

// lookEvery is how often answers are looked for that take too long: a time-out acts at most a tenth
// of it too late, and no more than 100 ms.
func (t *thread) lookEvery() time.Duration {
	return min(max(t.cfg.Timeout/20, time.Millisecond), 50*time.Millisecond)
}

// lookForLost gives up answers that take too long, and tries again to connect.
func (t *thread) lookForLost() {
	if t.now-t.looked < t.lookEvery() {
		return
	}
	t.looked = t.now
	for _, c := range t.conns {
		switch {
		case t.unanswered(c):
			t.notMade(c, "connect", errNoAnswer)
		case c.opening: // or the dialer says so
		case c.pauses && t.now >= c.retryAt && !t.ended():
			t.renew(c)
		case len(c.due) > 0 && t.now-c.sent > t.cfg.Timeout:
			t.tooLate(c, timedOut)
		}
	}
}

// unanswered reports a connection that the server has not taken in time. Of those that a dialer
// makes it tells itself, in time and what it waited for.
func (t *thread) unanswered(c *conn) bool {
	return c.opening && t.dialer == nil && t.now-c.sent > t.cfg.Timeout
}

// tooLate gives up answers of a connection, of which one may be there but for its end.
func (t *thread) tooLate(c *conn, why string) {
	if c.closes > 0 {
		why = NotClosed
	}
	t.lost(c, why)
}

// answersFor is how long nothing may move on any connection until answers are no longer waited for
// when the time is over.
const answersFor = time.Second

// rest waits for the answers to what has been sent, each for its time-out at most. Who stops the
// run waits for a second at most.
func (t *thread) rest(stop <-chan struct{}) {
	end := t.now + t.cfg.Timeout
	for t.moved = t.now; t.now < min(end, t.moved+answersFor); t.lookForLost() {
		select {
		case <-stop:
			end, stop = min(end, t.now+answersFor), nil
		default:
		}
		waits := false
		for _, c := range t.conns {
			waits = waits || len(c.due) > 0
		}
		if !waits || !t.turn(min(end, t.moved+answersFor, t.now+t.lookEvery())-t.now) {
			return
		}
	}
	for _, c := range t.conns {
		switch {
		case len(c.due) == 0:
		case t.now-c.sent >= t.cfg.Timeout:
			t.tooLate(c, timedOut)
		default:
			t.tooLate(c, unanswered)
		}
	}
}
