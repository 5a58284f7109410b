package server

import "time"

// timers is a heap of connections by the time of their next look. A connection's time is only ever an early bound: deadlines move on
// with every request, and nothing is done for that until the look finds that there is nothing to do yet.
type timers struct{ heap []timer }

type timer struct {
	at int64
	c  *conn
}

func (t *timers) push(at int64, c *conn) {
	t.heap = append(t.heap, timer{at, c})
	h := t.heap
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if h[up].at <= h[i].at {
			break
		}
		h[up], h[i] = h[i], h[up]
		i = up
	}
}

// pop takes the first connection whose time has come; nil if there is none.
func (t *timers) pop(now int64) *conn {
	for len(t.heap) > 0 && t.heap[0].at <= now {
		first := t.heap[0]
		t.drop()
		if first.c.timerAt.Load() == first.at { // else a look was set earlier since
			first.c.timerAt.Store(0)
			return first.c
		}
	}
	return nil
}

func (t *timers) drop() {
	h := t.heap
	n := len(h) - 1
	h[0], h[n] = h[n], timer{}
	h = h[:n]
	t.heap = h
	for i := 0; ; {
		least := i
		for _, k := range [2]int{2*i + 1, 2*i + 2} {
			if k < n && h[k].at < h[least].at {
				least = k
			}
		}
		if least == i {
			return
		}
		h[least], h[i] = h[i], h[least]
		i = least
	}
}

// until is the time to the first look; negative if there is none.
func (t *timers) until(now int64) time.Duration {
	if len(t.heap) == 0 {
		return -1
	}
	return time.Duration(max(t.heap[0].at-now, 0))
}
