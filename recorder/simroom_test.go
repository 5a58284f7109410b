package recorder

import (
	"time"

	"github.com/tallywheel/tallywheel/archive"
)

// In a crowded hall one peer makes room for another: the one that was gone for longest, of those
// whose frames the log has. Who is there is looked at often, and held against what the kernel knows
// of their connections.

// lookAtRoom is how often it is looked at who has made room.
const lookAtRoom = 20 * time.Millisecond

// roomSettles is how long a peer must have been one that could make room, and how much longer than
// another, so that it must do so before that one.
const roomSettles = 100 * time.Millisecond

// rooms is what a look has seen of a hall.
type rooms struct {
	of  *port // its source, as long as that has the same books
	at  time.Time
	all map[*lane]room
}

// room is a peer.
type room struct {
	*feeder
	left time.Time // when the last of its connections was closed; zero: one is open, or waits
	idle time.Time // since when, at every look, it could make room; zero: it could not
}

// whoMadeRoom looks who is there in crowded halls, and judges who is not any more.
func (s *stage) whoMadeRoom() {
	for _, h := range s.halls {
		if !h.crowded {
			continue
		}
		was, is := h.rooms, s.roomsOf(h)
		if h.rooms = is; is.of == nil || is.of != was.of || s.isUpset(was.at.Add(-roomSettles), is.at) {
			continue
		}
		for lane, a := range was.all {
			if _, ok := is.all[lane]; ok {
				continue
			}
			s.madeRoom++
			if w := a.e.cutOff(was.at); w != nil {
				s.complain("%s has made room while it was connected, by wire %d", a.id, w.n)
				continue
			}
			if is.has(a.feeder) { // it has come again since the last look, and left at another time
				continue
			}
			left := a.e.leftLast(s.life)
			for lane, b := range is.all {
				before := was.all[lane]
				if could := !before.idle.IsZero() && is.at.Sub(before.idle) > roomSettles; could && !b.idle.IsZero() &&
					left.Sub(b.left) > roomSettles {
					s.complain("%s has made room, gone for %v, and not %s, gone for %v", a.id, is.at.Sub(left), b.id,
						is.at.Sub(b.left))
				}
			}
		}
	}
}

// has reports whether a caller is there.
func (r rooms) has(f *feeder) bool {
	for _, a := range r.all {
		if a.feeder == f {
			return true
		}
	}
	return false
}

// roomsOf looks who is there.
func (s *stage) roomsOf(h *hall) rooms {
	is := rooms{at: time.Now(), all: map[*lane]room{}}
	s.r.mu.Lock()
	var peers []*port
	for _, p := range s.r.ports {
		if p.lane.cfg.ID == h.id {
			is.of, peers = p, p.peers
		}
	}
	s.r.mu.Unlock()
	for _, p := range peers {
		for _, f := range h.callers {
			if !archive.Within(p.lane.cfg.ID, f.id) {
				continue
			}
			a := room{feeder: f}
			if left, ok := f.e.goneSince(s.life); ok {
				a.left = left
				if p.lane.isSettled() {
					a.idle = is.at
				}
			}
			if before := h.rooms.all[p.lane]; !before.idle.IsZero() && !a.idle.IsZero() && before.left.Equal(a.left) {
				a.idle = before.idle
			}
			is.all[p.lane] = a
		}
	}
	return is
}

// goneSince is when a process has closed the last connection of a caller; false: it has not, or
// another one has come.
func (e *endpoint) goneSince(l *life) (left time.Time, ok bool) {
	e.k.mu.Lock()
	for _, w := range e.wires {
		if w.closed.at.IsZero() && !w.broken {
			e.k.mu.Unlock()
			return left, false
		}
	}
	e.k.mu.Unlock()
	left = e.leftLast(l)
	return left, !left.IsZero()
}

// leftLast is when a process has closed the last connection of a caller, of those that it has read
// and closed; zero: there is none.
func (e *endpoint) leftLast(l *life) (left time.Time) {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	for _, w := range e.wires {
		if w.shown && w.closed.life == l.n && w.closed.at.After(left) {
			left = w.closed.at
		}
	}
	return left
}

// cutOff is a connection of a caller that was read then, and that the process has closed since,
// though the device had not ended it; nil: there is none.
func (e *endpoint) cutOff(then time.Time) *wire {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	for _, w := range e.wires {
		if w.shown && !w.begun.After(then) && w.closed.at.After(then) && !w.left {
			return w
		}
	}
	return nil
}
