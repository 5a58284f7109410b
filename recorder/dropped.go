package recorder

import (
	"slices"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/ledger"
)

// maxDroppedRuns is how many runs of dropped numbers are kept of a stream: as a sheet has room for.
const maxDroppedRuns = ledger.MaxGapsAhead

// dropped is the numbers that an outlet has given up beyond what it knows to be stored: runs of
// each stream, in the order in which the device counts. The book has counted them, so the next
// start must not call them missing. The zero value is empty.
type dropped map[ledger.Stream][]ledger.Gap

// add takes in a frame that was given up.
func (d *dropped) add(f *frame.Frame, book *ledger.Book) {
	if f.Sequenced {
		d.addRun(ledger.Stream{Device: f.Device, Epoch: f.Epoch}, ledger.Gap{From: f.Seq, To: f.Seq, Dropped: true},
			book)
	}
}

// addRun takes in numbers that were given up, in any order: a network may change it. Where there
// are too many runs, the two oldest become one if only missing numbers are between them; else the
// oldest is forgotten.
func (d *dropped) addRun(id ledger.Stream, g ledger.Gap, book *ledger.Book) {
	if *d == nil {
		*d = dropped{}
	}
	runs := (*d)[id]
	from := len(runs) // runs from here to to touch g; most come in order, so the search begins at the end
	for from > 0 && int64(runs[from-1].From-g.To) > 1 {
		from--
	}
	to := from
	for from > 0 && int64(g.From-runs[from-1].To) <= 1 {
		from--
		g.From, g.To = earlier(g.From, runs[from].From), ledger.Later(g.To, runs[from].To)
	}
	if runs = slices.Replace(runs, from, to, g); len(runs) > maxDroppedRuns {
		if oldest := runs[0]; book.Misses(id, oldest.To+1, runs[1].From-1) {
			runs[1].From = oldest.From
		}
		runs = slices.Delete(runs, 0, 1)
	}
	(*d)[id] = runs
}

// earlier is the number that the device has counted first.
func earlier(a, b uint64) uint64 {
	if ledger.Later(a, b) == a {
		return b
	}
	return a
}

// behind is what of the runs of a stream lies behind a number, up to last, and in none of gaps,
// which are in the order of the runs. The rest is forgotten.
func (d dropped) behind(id ledger.Stream, number, last uint64, gaps []ledger.Gap) (left []ledger.Gap) {
	var kept []ledger.Gap
	for _, g := range d[id] {
		// the device counts anew, or it is stored
		if ledger.Later(g.To, last) != last || ledger.Later(g.To, number) == number {
			continue
		}
		if ledger.Later(g.From, number) == number {
			g.From = number + 1
		}
		kept = append(kept, g)
		for len(gaps) > 0 && int64(gaps[0].To-g.From) < 0 {
			gaps = gaps[1:]
		}
		within := 0
		for within < len(gaps) && int64(g.To-gaps[within].From) >= 0 {
			within++
		}
		left = append(left, g.Without(gaps[:within])...)
	}
	if delete(d, id); len(kept) > 0 {
		d[id] = kept
	}
	return left
}

// numberRun is numbers of one stream that follow each other.
type numberRun struct {
	of       ledger.Stream
	from, to uint64
}

// has reports whether a number of a stream is in the run.
func (r *numberRun) has(of ledger.Stream, number uint64) bool {
	return r.of == of && number-r.from <= r.to-r.from
}

// runsOf is the numbers of the frames in a queue, which nobody changes meanwhile; nil: they have
// none. It needs no lock.
func (o *outlet) runsOf(q queue) (runs []numberRun) {
	if o.numbered == nil {
		return nil
	}
	last := map[ledger.Stream]int{} // run of each stream, by its place
	for q.frames > 0 {
		_, _, data := q.first()
		q.pop()
		f, ok := o.numbered.Number(data)
		if !ok {
			continue
		}
		of := ledger.Stream{Device: f.Device, Epoch: f.Epoch}
		if i, ok := last[of]; ok && runs[i].to+1 == f.Seq {
			runs[i].to++
			continue
		}
		last[of] = len(runs)
		runs = append(runs, numberRun{of, f.Seq, f.Seq})
	}
	return slices.Clip(runs)
}
