package loadgen

import (
	"container/heap"
	"time"
)

// user is a connection that sends its next request later.
type user struct {
	at time.Duration
	c  *conn
}

// userState is what the user of a connection does. A connection that is made anew, because the
// server had closed it while its user thought, does not have the user begin again.
type userState uint8

const (
	asks   userState = iota // its request is under way, or there is no thinking
	thinks                  // it is in the heap, once
	waits                   // it has thought, and there is no connection yet
)

// users is a heap: the first one is the next.
type users []user

func (u users) Len() int           { return len(u) }
func (u users) Less(i, j int) bool { return u[i].at < u[j].at }
func (u users) Swap(i, j int)      { u[i], u[j] = u[j], u[i] }
func (u *users) Push(x any)        { *u = append(*u, x.(user)) }

// Pop implements [heap.Interface].
func (u *users) Pop() any {
	last := len(*u) - 1
	x := (*u)[last]
	*u = (*u)[:last]
	return x
}

// goOn has a connection send its next request, in a closed loop: at once, or when its user has
// thought.
func (t *thread) goOn(c *conn) {
	if t.cfg.ThinkMax > 0 {
		t.think(c, t.cfg.ThinkMin)
	} else {
		t.sendBurst(c)
	}
}

// think has the user of a connection think at least for so long, at most for the longest time.
func (t *thread) think(c *conn, least time.Duration) {
	d := least + time.Duration(t.random.Int64N(int64(t.cfg.ThinkMax-least)+1))
	c.user = thinks
	heap.Push(&t.users, user{t.now + d, c})
}

// wakeUsers has those send who have thought. Who has no connection sends when it is made.
func (t *thread) wakeUsers() {
	for len(t.users) > 0 && t.users[0].at <= t.now && !t.ended() {
		c := heap.Pop(&t.users).(user).c
		c.user = waits
		switch {
		case c.opening || c.pauses:
		case c.fd < 0:
			t.connect(c)
		default:
			t.userSends(c)
		}
	}
}

// userSends sends for a user who has thought.
func (t *thread) userSends(c *conn) {
	c.user = asks
	t.sendBurst(c)
}
