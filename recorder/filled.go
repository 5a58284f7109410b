package recorder

import (
	"slices"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/ledger"
)

// maxFilled is how many late frames are followed until they are stored.
const maxFilled = 1024

// filled is the frames that came after higher numbers of their streams, and are not stored yet. If
// the recorder is killed, nothing else tells that they are gone: the next start goes on behind the
// highest number that is stored. The zero value is empty.
type filled []late

type late struct {
	stream   ledger.Stream
	number   uint64
	sequence uint64 // of its record; 0: the log has not taken it yet
}

// add takes in a frame that came late. Where there are too many, the oldest is forgotten of those
// behind the highest number that is stored of their streams, for who goes on there counts them; a
// log that stands still has all of the others among its oldest.
func (l *filled) add(f *frame.Frame, book *ledger.Book, reached map[ledger.Stream]uint64) {
	if len(*l) == maxFilled {
		i := max(0, slices.IndexFunc(*l, func(e late) bool {
			last, ok := reached[e.stream]
			return !ok || isBehind(e.number, last)
		}))
		book.Forget((*l)[i].stream)
		*l = slices.Delete(*l, i, i+1)
	}
	*l = append(*l, late{stream: ledger.Stream{Device: f.Device, Epoch: f.Epoch}, number: f.Seq})
}

// waiting is where the frame f stands that the log has not taken yet; -1: it did not come late.
func (l filled) waiting(f *frame.Frame) int {
	of := late{stream: ledger.Stream{Device: f.Device, Epoch: f.Epoch}, number: f.Seq}
	return slices.Index(l, of)
}

// taken notes that the log has taken a frame, as a record.
func (l filled) taken(f *frame.Frame, sequence uint64) {
	if i := l.waiting(f); i >= 0 {
		l[i].sequence = sequence
	}
}

// drop forgets a frame that is given up: its book has counted that.
func (l *filled) drop(f *frame.Frame) {
	if i := l.waiting(f); i >= 0 {
		*l = slices.Delete(*l, i, i+1)
	}
}

// dropRuns is drop for all frames of some runs.
func (l *filled) dropRuns(runs []numberRun) {
	*l = slices.DeleteFunc(*l, func(e late) bool {
		return e.sequence == 0 && slices.ContainsFunc(runs, func(r numberRun) bool { return r.has(e.stream, e.number) })
	})
}

// forget forgets those that wait, for some of them are gone, and nobody knows which.
func (l *filled) forget(book *ledger.Book) {
	*l = slices.DeleteFunc(*l, func(e late) bool {
		if e.sequence == 0 {
			book.Forget(e.stream)
		}
		return e.sequence == 0
	})
}

// settle forgets what is stored; where the log has failed, all that it had.
func (l *filled) settle(stored uint64, failed bool) {
	*l = slices.DeleteFunc(*l, func(e late) bool { return e.sequence > 0 && (failed || e.sequence <= stored) })
}

// isBehind reports whether a device counts a number after another one.
func isBehind(number, last uint64) bool {
	return number != last && ledger.Later(number, last) == number
}

// upTo is the numbers of a stream that are not behind last: those are counted by who goes on there.
func (l filled) upTo(id ledger.Stream, last uint64) (runs []ledger.Gap) {
	for _, e := range l {
		if e.stream != id || isBehind(e.number, last) {
			continue
		}
		if n := len(runs); n > 0 && runs[n-1].To+1 == e.number {
			runs[n-1].To++
		} else {
			runs = append(runs, ledger.Gap{From: e.number, To: e.number})
		}
	}
	return runs
}
