package recorder

import (
	"slices"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/ledger"
)

// maxDroppedRuns is how many runs of dropped numbers are kept of a stream: more than a burst makes.
const maxDroppedRuns = 16

// dropped is the numbers that an outlet has given up beyond what it knows to be stored. The book
// has counted them, so the next start must not call them missing. The zero value is empty.
type dropped map[ledger.Stream][]ledger.Gap

// add takes in a frame that was given up.
func (d *dropped) add(f *frame.Frame, book *ledger.Book) {
	if f.Sequenced {
		d.addRun(ledger.Stream{Device: f.Device, Epoch: f.Epoch}, ledger.Gap{From: f.Seq, To: f.Seq, Dropped: true}, book)
	}
}

// addRun takes in numbers that were given up. Where there are too many runs, those that only
// missing numbers are between become one; else the oldest is forgotten.
func (d *dropped) addRun(id ledger.Stream, g ledger.Gap, book *ledger.Book) {
	if *d == nil {
		*d = dropped{}
	}
	runs := (*d)[id]
	if n := len(runs); n > 0 && runs[n-1].To+1 == g.From {
		runs[n-1].To = g.To
		return
	}
	if runs = append(runs, g); len(runs) > maxDroppedRuns {
		if oldest := runs[0]; book.Misses(id, oldest.To+1, runs[1].From-1) {
			runs[1].From = oldest.From
		}
		runs = slices.Delete(runs, 0, 1)
	}
	(*d)[id] = runs
}

// behind is what of the runs of a stream lies behind a number, up to last, and in none of gaps. The
// rest is forgotten.
func (d dropped) behind(id ledger.Stream, number, last uint64, gaps []ledger.Gap) (left []ledger.Gap) {
	var kept []ledger.Gap
	for _, g := range d[id] {
		if ledger.Later(g.To, last) != last || ledger.Later(g.To, number) == number { // the device counts anew, or it is stored
			continue
		}
		if ledger.Later(g.From, number) == number {
			g.From = number + 1
		}
		kept = append(kept, g)
		left = append(left, g.Without(gaps)...)
	}
	if delete(d, id); len(kept) > 0 {
		d[id] = kept
	}
	return left
}
