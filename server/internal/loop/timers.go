package loop

import (
	"math"
	"time"
)

const never = math.MaxInt64

// timers is a heap of connections by the time of their next look; a connection is in it at most
// once, knows its place, and leaves when it ends. The time is an early bound: a deadline that moves
// back costs nothing until the look finds that there is nothing to do yet.
type timers struct{ heap []timer }

type timer struct {
	at int64
	c  *Conn
}

// set makes the look at c happen no later than at.
func (t *timers) set(at int64, c *Conn) {
	if c.place == 0 {
		t.heap = append(t.heap, timer{})
		t.up(len(t.heap)-1, timer{at, c})
	} else if at < t.heap[c.place-1].at {
		t.up(c.place-1, timer{at, c})
	}
	c.lookAt.Store(t.heap[c.place-1].at)
}

// remove takes c out.
func (t *timers) remove(c *Conn) {
	if c.place == 0 {
		return
	}
	i, n := c.place-1, len(t.heap)-1
	c.place = 0
	c.lookAt.Store(0)
	last := t.heap[n]
	t.heap[n] = timer{}
	t.heap = t.heap[:n]
	if i == n {
		return
	}
	if i > 0 && last.at < t.heap[(i-1)/2].at {
		t.up(i, last)
	} else {
		t.down(i, last)
	}
}

// up puts e at place i or above.
func (t *timers) up(i int, e timer) {
	for i > 0 {
		above := (i - 1) / 2
		if t.heap[above].at <= e.at {
			break
		}
		t.put(i, t.heap[above])
		i = above
	}
	t.put(i, e)
}

// down puts e at place i or below.
func (t *timers) down(i int, e timer) {
	for {
		below := 2*i + 1
		if below >= len(t.heap) {
			break
		}
		if r := below + 1; r < len(t.heap) && t.heap[r].at < t.heap[below].at {
			below = r
		}
		if e.at <= t.heap[below].at {
			break
		}
		t.put(i, t.heap[below])
		i = below
	}
	t.put(i, e)
}

func (t *timers) put(i int, e timer) {
	t.heap[i] = e
	e.c.place = i + 1
}

// pop takes a connection whose time has come; nil if there is none.
func (t *timers) pop(now int64) *Conn {
	if len(t.heap) == 0 || t.heap[0].at > now {
		return nil
	}
	c := t.heap[0].c
	t.remove(c)
	return c
}

// until is the time to the first look; negative if there is none.
func (t *timers) until(now int64) time.Duration {
	if len(t.heap) == 0 {
		return -1
	}
	return time.Duration(max(t.heap[0].at-now, 0))
}
