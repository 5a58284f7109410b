package loadgen

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// maxOpening is how many connections of a thread are made at a time: a server's queue has room for
// so many.
const maxOpening = 100

// open makes the connections, before the first run. It ends with ctx, and where one cannot be made
// in time.
func (t *thread) open(ctx context.Context) error {
	t.began, t.over = time.Now(), true
	for next, opening := 0, 0; ; {
		t.tick()
		for ; next < len(t.conns) && opening < maxOpening; next, opening = next+1, opening+1 {
			t.connect(t.conns[next])
		}
		opening = 0
		for _, c := range t.conns[:next] {
			switch {
			case c.failed != nil:
				return fmt.Errorf("connect to %v: %w", t.to, sys.TooFewFiles(c.failed))
			case t.unanswered(c):
				return fmt.Errorf("connect to %v: no answer within %v", t.to, t.cfg.Timeout)
			case c.opening:
				opening++
			}
		}
		if opening == 0 && next == len(t.conns) {
			return nil
		}
		if opening < maxOpening && next < len(t.conns) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stopped while connecting to %v: %w", t.to, err)
		}
		if !t.turn(t.lookEvery()) {
			return errors.New("epoll_wait fails")
		}
	}
}

// connect begins a connection.
func (t *thread) connect(c *conn) {
	c.made++
	c.fd, c.tls, c.wire, c.opening, c.waits, c.failed, c.sent = -1, nil, nil, true, false, nil, t.now
	c.pauses, c.fresh, c.begun = false, true, t.now
	c.unsent, c.partial, c.skip, c.chunked, c.toEnd, c.last, c.closes, c.unread = nil, nil, 0, false, false, false, 0,
		false
	if t.dialer != nil {
		t.dialer.dial(c.index)
		return
	}
	fd, open, err := sys.Connect(t.to)
	if err != nil {
		t.notMade(c, "connect", err)
		return
	}
	events := uint32(sys.Readable)
	if c.fd = fd; !open {
		events |= sys.Writable
	}
	if err := t.epoll.Add(fd, events, uint64(c.index)); err != nil {
		t.notMade(c, "connect", err)
	} else if open {
		t.opened(c)
	}
}

// opened is a connection that is made.
func (t *thread) opened(c *conn) {
	c.opening, c.down = false, false
	t.moved = t.now
	t.made++
	switch {
	case t.interval > 0:
		t.idle = append(t.idle, c)
	case t.ended(), t.once && c.tried, c.user == thinks:
	case c.user == waits:
		t.userSends(c)
	default:
		t.sendBurst(c)
	}
}

// notMade is a connection that cannot be made now.
func (t *thread) notMade(c *conn, kind string, err error) {
	c.shut()
	c.opening, c.down, c.failed, c.pauses, c.retryAt = false, true, err, true, t.now+retryAfter
	t.errors[kind]++
}

// retryAfter is how long one that was not made, or that the server closed before anything was asked
// on it, is not made again.
const retryAfter = 100 * time.Millisecond

// renew makes a connection anew, and in a closed loop sends on it, once its user has thought; with
// Config.Close it is made after that. When the time is over it waits for the next run: the server
// sees no connection that no request follows, and its work for it does not go into this run.
func (t *thread) renew(c *conn) {
	c.shut()
	c.fd, c.due = -1, c.due[:0]
	if t.cfg.ThinkMax > 0 && c.user == asks && !t.ended() && !(t.once && c.tried) {
		t.think(c, t.cfg.ThinkMin)
	}
	switch {
	case t.ended(), t.cfg.Close && (t.once || c.user == thinks):
	case c.fresh && !c.pauses && t.now < c.begun+retryAfter:
		c.pauses, c.retryAt = true, c.begun+retryAfter
	default:
		t.connect(c)
	}
}
