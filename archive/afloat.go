package archive

import (
	"slices"

	"github.com/tallywheel/tallywheel/ledger"
)

// afloat is the numbers of a stream in one lane that a sheet calls seen and not stored: the frames
// were in flight. They are in the log, or they are gone with the process.
type afloat struct {
	filled []ledger.Gap // up to the highest number that was stored; they came late
	ahead  []ledger.Gap // behind it
	// highest is the highest number that the log has got since. What is afloat behind it is counted
	// by who goes on there.
	highest *uint64
}

// afloat lists what the sheet calls afloat, by lane, and takes what was filled out of its
// positions.
func (s *StartSheet) afloat() map[string]map[ledger.Stream]*afloat {
	all := map[string]map[ledger.Stream]*afloat{}
	at := func(lane string, id ledger.Stream) *afloat {
		if all[lane] == nil {
			all[lane] = map[ledger.Stream]*afloat{}
		}
		if all[lane][id] == nil {
			all[lane][id] = &afloat{}
		}
		return all[lane][id]
	}
	for lane, ps := range s.Positions {
		for i, p := range ps {
			// files may be damaged
			p.Filled = slices.DeleteFunc(p.Filled, func(g ledger.Gap) bool { return g.To-g.From >= ledger.MaxJump })
			if ps[i].Filled = nil; len(p.Filled) > 0 {
				at(lane, idOf(p)).filled = p.Filled
			}
		}
	}
	for lane, seen := range s.Seen {
		left := s.inFlight(lane)
		stored := map[ledger.Stream]ledger.Position{}
		for _, p := range s.Positions[lane] {
			stored[idOf(p)] = p
		}
		for _, p := range seen {
			from, ok := stored[idOf(p)]
			if !ok || p.Last == from.Last || ledger.Later(p.Last, from.Last) != p.Last ||
				s.isElsewhere(lane, idOf(p)) ||
				len(from.Gaps) >= ledger.MaxGapsAhead { // the sheet may not have room for all of them
				continue
			}
			ahead := ledger.Gap{From: from.Last + 1, To: p.Last}.Without(from.Gaps)
			if n := numbers(ahead); n <= left { // else the sheet is of a device that counts anew
				at(lane, idOf(p)).ahead, left = ahead, left-n
			}
		}
	}
	return all
}

// inFlight is how many frames of a lane's account the sheet calls in flight.
func (s *StartSheet) inFlight(lane string) (n uint64) {
	for _, p := range s.accounts() {
		if Within(lane, p.ID) {
			n += p.Frames.InFlight
		}
	}
	return n
}

// isElsewhere reports whether another lane of the address has a stream, too: what one of them has
// seen may be the other's to store.
func (s *StartSheet) isElsewhere(lane string, id ledger.Stream) bool {
	for name, ps := range s.Positions {
		if name != lane && AddressOf(name) == AddressOf(lane) && find(ps, id) != nil {
			return true
		}
	}
	return false
}

// lands notes that the log has got a number, and reports whether the sheet knows it as afloat.
func (a *afloat) lands(number uint64) bool {
	if a.highest == nil || ledger.Later(number, *a.highest) == number {
		a.highest = &number
	}
	return remove(&a.ahead, number) || remove(&a.filled, number)
}

// remove takes a number out of those that gaps hold, and reports whether it was there.
func remove(gaps *[]ledger.Gap, number uint64) bool {
	i := slices.IndexFunc(*gaps, func(g ledger.Gap) bool { return number-g.From <= g.To-g.From })
	if i < 0 {
		return false
	}
	if g := &(*gaps)[i]; g.From == number && g.To != number { // they come in order, as a rule
		g.From++
		return true
	}
	*gaps = slices.Replace(*gaps, i, i+1, (*gaps)[i].Without([]ledger.Gap{{From: number, To: number}})...)
	return true
}

// sunk is what has not come to the log, and how many numbers that is.
func (a *afloat) sunk() (lost []ledger.Gap, n uint64) {
	lost = a.filled
	for _, g := range a.ahead {
		if a.highest != nil && ledger.Later(g.From, *a.highest) != g.From {
			lost = append(lost, g)
		}
	}
	return lost, numbers(lost)
}

// numbers is how many the gaps hold.
func numbers(gaps []ledger.Gap) (n uint64) {
	for _, g := range gaps {
		n += g.To - g.From + 1
	}
	return n
}
