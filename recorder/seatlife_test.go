package recorder

import (
	"math/rand/v2"
	"testing"
	"time"
)

// seatWorld is a seat with those around it, each of which goes on a step at a time: the hub, the
// reader, what the keeper's shelf has of the peer, and what of that the recorder was not told yet.
type seatWorld struct {
	*seat
	waiting  []*guest // nobody has given them to the reader
	next     *guest   // on the shelf: passed, and not taken
	device   *guest   // on the shelf: the reader has it
	isTaken  bool     // … and has not taken it off its first place yet
	untold   []string
	read     map[*guest]int // how often each was read
	replaced int            // connections that were passed over one that was not taken
}

// stub is a connection of nothing.
type stub struct{ connection }

func (stub) close() error { return nil }

// begin is a recorder that begins, with what the shelf has.
func (w *seatWorld) begin() {
	if w.untold = nil; w.seat != nil { // what it had not passed has its own place on the shelf
		var rest []*guest
		for _, d := range w.rest {
			rest = append(rest, d.(*guest))
		}
		w.waiting = append(rest, w.waiting...)
	}
	w.seat = newSeat(make(chan struct{}, 1), nil, time.Time{})
	if w.guest, w.passed = w.device, w.next; w.guest == nil {
		w.guest = w.passed
	}
	w.hand = func(g *guest) bool {
		if w.next != nil {
			w.replaced++
		}
		w.next = g
		return true
	}
	w.begins()
}

// steps lists what can happen now but for a connection that comes, and the kill of the recorder.
func (w *seatWorld) steps() (all []func()) {
	if len(w.waiting) > 0 {
		all = append(all, func() {
			g := w.waiting[0]
			w.waiting = w.waiting[1:]
			if before, _ := w.taken(); before == nil {
				w.give(g)
			} else {
				w.later(g)
			}
		})
	}
	switch {
	case w.isTaken:
		all = append(all, func() {
			w.next, w.isTaken = nil, false
			w.untold = append(w.untold, "taken")
		})
	case w.device != nil:
		all = append(all, func() {
			w.read[w.device]++
			w.device = nil
			w.untold = append(w.untold, "ended")
		})
	case w.next != nil:
		all = append(all, func() { w.device, w.isTaken = w.next, true })
	}
	if len(w.untold) > 0 {
		all = append(all, func() {
			said := w.untold[0]
			if w.untold = w.untold[1:]; said == "taken" {
				w.took()
			} else {
				w.vacate()
			}
		})
	}
	return all
}

// A connection that waits for a seat is read, once, within a bound of steps, and the seat is free
// behind the last one: in whatever order the hub, the reader and what is told of it go on, and
// wherever the recorder is killed.
func TestSeatIsGivenWithinABound(t *testing.T) {
	for seed := range uint64(5000) {
		rng := rand.New(rand.NewPCG(seed, 14))
		w := &seatWorld{read: map[*guest]int{}}
		w.begin()
		var came []*guest
		for range 60 {
			switch all := w.steps(); rng.IntN(8) {
			case 0:
				g := &guest{connection: stub{}, giveBack: func() {}}
				came, w.waiting = append(came, g), append(w.waiting, g)
			case 1:
				w.begin()
			default:
				if len(all) > 0 {
					all[rng.IntN(len(all))]()
				}
			}
		}
		const most = 6 // steps of one connection: given, taken, off its place, told, ended, told
		for left := most * (len(came) + 1); left > 0; left-- {
			all := w.steps()
			if len(all) == 0 {
				break
			}
			all[rng.IntN(len(all))]()
		}
		g, _ := w.taken()
		if len(w.steps()) > 0 || len(w.waiting) > 0 || g != nil || w.replaced > 0 {
			t.Fatalf("seed %d: %d wait, the seat is free: %v; %d were displaced", seed, len(w.waiting), g == nil,
				w.replaced)
		}
		for i, g := range came {
			if w.read[g] != 1 {
				t.Fatalf("seed %d: connection %d was read %d times", seed, i, w.read[g])
			}
		}
	}
}
