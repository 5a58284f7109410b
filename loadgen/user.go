package loadgen

import (
	"container/heap"
	"time"
)

// user is a connection that sends its next request later.
type user struct {
	at   time.Duration
	c    *conn
	made int // the connection may be another one by then
}

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
		t.thinks(c, t.cfg.ThinkMin)
	} else {
		t.sendBurst(c)
	}
}

// thinks has the user of a connection think at least for so long, at most for the longest time.
func (t *thread) thinks(c *conn, least time.Duration) {
	d := least + time.Duration(t.random.Int64N(int64(t.cfg.ThinkMax-least)+1))
	heap.Push(&t.users, user{t.now + d, c, c.made})
}

// wakeUsers has those send who have thought.
func (t *thread) wakeUsers() {
	for len(t.users) > 0 && t.users[0].at <= t.now {
		u := heap.Pop(&t.users).(user)
		switch c := u.c; {
		case c.made != u.made || c.opening || len(c.due) > 0 || c.failed != nil:
		case c.fd < 0:
			t.connect(c)
		default:
			t.sendBurst(c)
		}
	}
}
