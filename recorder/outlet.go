package recorder

import (
	"errors"
	"slices"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/internal/hist"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// Causes of dropped frames.
const (
	causeOldest   = "overflow_oldest"
	causeNewest   = "overflow_newest"
	causeDiskFull = "disk_full"
	causeFailed   = archive.CauseLogFailed
	causeStalled  = "log_stalled" // it could not write until the recorder had stopped
	causeTooLarge = "too_large"
	causeStopped  = "stopped" // the log took all that it was given, and not in time
	// a recorder that was killed behind its checkpoint had given it up, and knew why
	causeKilled = archive.CauseByKill
	// it was stored, and somebody took it away with the end of the log; or it waited for a log that
	// was taken away
	causeGone = "log_gone"
)

// fillLimit is the fill, in percent, above which drop-oldest begins.
const fillLimit = 70

// errGivenUp says that a frame which comes again was not stored when it came first, and frames
// behind it were.
var errGivenUp = errors.New("it was given up by a recorder that was killed")

// appender is what an outlet needs of the log.
type appender interface {
	TryAppendAt(stream uint32, time int64, offset uint64, data []byte) (seq uint64, err error)
}

// outlet is the second half of a lane: it brings valid frames into the log, keeps in a backlog what
// the log cannot take, and follows what it has taken until that is stored and durable. It belongs
// to whoever holds the lane's lock.
type outlet struct {
	log      appender
	stream   uint32 // of frames in the log
	overflow string // policy, see package config
	buffer   int    // what the backlog may hold, in bytes
	book     *ledger.Book
	numbered frame.Numbered // nil: the framing does not number its frames
	latency  *hist.Histogram
	// had the source before this one, and has stopped; see isNext; nil: none, or all of its frames
	// are stored
	before *lane

	// a spool that runs over into a file has what the buffer has no room for: nothing is dropped
	spools bool

	between int // frames posted and not offered to the log yet (strategy pipeline)
	backlog backlog
	staged  staged
	waste   []wasteRecord // quarantined bytes in the log's hands
	unsure  archive.Span  // … that are stored, and not durable
	gave    given         // what the log has taken, of a wire that has a spool
	marks   []given       // … and what it had taken before, see given
	// reached is the highest number of each stream that is stored: where the next start goes on.
	reached map[ledger.Stream]uint64
	dropped dropped // … and what beyond that is counted
	filled  filled  // … and what before that is not stored
}

// wasteRecord is quarantined bytes in one record of the log.
type wasteRecord struct {
	seq uint64
	n   int
}

// given is how many frames, and bytes that are in none, the log has taken of a wire, up to a
// record. So it can be said how much of that is gone, should the log lose its end.
type given struct{ sequence, frames, waste uint64 }

// inFlight is the number of frames held and not stored yet.
func (o *outlet) inFlight() int { return o.between + o.backlog.frames + o.staged.frames }

// earlier is the lane before this one, as long as the log has not stored all of its frames; else
// nil.
func (o *outlet) earlier() *lane {
	if o.before != nil && o.before.isSettled() {
		o.before = nil
	}
	return o.before
}

// isNext reports whether the log may have the next frame: not while the lane before this one has
// some that the log could not take yet, or the records of a source would not be in their order.
func (o *outlet) isNext() bool {
	before := o.earlier()
	return before == nil || before.isThrough()
}

// isUnsettled reports whether a frame is held and not stored yet, here or in a lane before this
// one.
func (o *outlet) isUnsettled() bool { return o.inFlight() > 0 || o.earlier() != nil }

// store brings a valid frame, read at a time, into the log, or into the backlog, or accounts for
// its loss. offset is where it began on the wire, or seglog.NoOffset.
func (o *outlet) store(f *frame.Frame, at int64, offset uint64) {
	data := f.Data
	if o.backlog.frames == 0 && o.isNext() {
		if seq, err := o.log.TryAppendAt(o.stream, at, offset, data); err == nil {
			o.taken(seq, at, f)
			return
		} else if !o.waitsFor(err) {
			o.drop(causeOf(err), f)
			return
		}
	}
	if cause := o.refuses(len(data)); cause != "" {
		o.drop(cause, f)
		return
	}
	o.backlog.push(at, offset, data)
	if o.overflow == config.OverflowOldest {
		for o.backlog.bytes*100 > o.buffer*fillLimit {
			_, _, data := o.backlog.front.first()
			oldest := o.numbersOf(data)
			o.drop(causeOldest, &oldest)
			o.backlog.pop()
		}
	}
}

// waitsFor reports whether a frame waits where the log refuses it for that reason. A full disk may
// have room again: who has a file to wait in does.
func (o *outlet) waitsFor(err error) bool {
	return errors.Is(err, seglog.ErrBusy) || (o.backlog.over != nil || o.spools) && errors.Is(err, seglog.ErrDiskFull)
}

// refuses says why the backlog does not take a frame of n bytes; "": it does.
func (o *outlet) refuses(n int) (cause string) {
	switch {
	case o.backlog.over != nil:
		return o.backlog.over.refuses(&o.backlog.front, n)
	case o.overflow == config.OverflowNewest && o.backlog.bytes+n > o.buffer:
		return causeNewest
	}
	return ""
}

// taken notes that the log has taken a frame, read at a time, as a record.
func (o *outlet) taken(seq uint64, at int64, f *frame.Frame) {
	o.staged.add(seq, at, f)
	o.gave.frames++
	o.gave.sequence = max(o.gave.sequence, seq)
	if len(o.filled) > 0 {
		o.filled.taken(f, seq)
	}
}

// quarantine brings the record of n bytes that are in no frame into the log, if that takes it now.
func (o *outlet) quarantine(stream uint32, at int64, offset uint64, record []byte, n int) {
	if seq, err := o.log.TryAppendAt(stream, at, offset, record); err == nil {
		o.waste = append(o.waste, wasteRecord{seq, n})
		o.gave.waste += uint64(n)
		o.gave.sequence = max(o.gave.sequence, seq)
	}
}

// drop accounts for a frame that is given up.
func (o *outlet) drop(cause string, f *frame.Frame) {
	o.book.Drop(cause, 1)
	o.dropped.add(f, o.book)
	o.filled.drop(f)
}

// causeOf is why the log does not take a frame.
func causeOf(err error) string {
	switch {
	case errors.Is(err, seglog.ErrDiskFull):
		return causeDiskFull
	case errors.Is(err, seglog.ErrTooLarge):
		return causeTooLarge
	case errors.Is(err, errGivenUp):
		return causeKilled
	case errors.Is(err, errLogGone):
		return causeGone
	}
	return causeFailed
}

// numbersOf is a frame of the backlog, which has its bytes alone.
func (o *outlet) numbersOf(data []byte) frame.Frame {
	if o.numbered != nil {
		if f, ok := o.numbered.Number(data); ok {
			return f
		}
	}
	return frame.Frame{Data: data}
}

// drain offers the backlog to the log.
func (o *outlet) drain() {
	for o.backlog.frames > 0 && o.isNext() && o.backlog.ready() {
		at, offset, data := o.backlog.front.first()
		seq, err := o.log.TryAppendAt(o.stream, at, offset, data)
		if o.waitsFor(err) || errors.Is(err, seglog.ErrClosed) { // whoever has closed it says why
			return
		}
		f := o.numbersOf(data)
		if err != nil {
			o.drop(causeOf(err), &f)
		} else {
			o.taken(seq, at, &f)
		}
		o.backlog.pop()
	}
}

// full reports whether the policy forbids to take more. The reading stops at half: what the ring
// has by then, up to 64 KiB or, of datagrams, 128 KiB, is classified in one go, and its frames have
// the other half. Where that is less, nothing of it is dropped: the backlog grows. With a file to
// run over into it stops for a moment.
func (o *outlet) full() bool {
	if over := o.backlog.over; over != nil {
		return over.isCrowded()
	}
	return (o.overflow == config.OverflowBlock || o.spools) && o.backlog.bytes > o.buffer/2
}

// settle posts what a commit made of the frames in the log, and offers it the backlog.
func (o *outlet) settle(c seglog.Commit, now int64) {
	o.staged.settle(c.Stored, c.Durable, func(r run) {
		o.book.Stored(uint64(r.n))
		o.latency.Record(time.Duration(now-r.at), int64(r.n))
		if r.numbered {
			o.raise(r.stream, r.highest())
		}
	}, func(n int) {
		o.book.Durable(uint64(n))
	})
	if o.unsure.Last <= c.Durable {
		o.unsure = archive.Span{}
	}
	stored := 0
	for ; stored < len(o.waste) && o.waste[stored].seq <= c.Stored; stored++ {
		w := o.waste[stored]
		o.book.Quarantine(w.n)
		if w.seq > c.Durable {
			o.unsure = o.unsure.Join(archive.Span{First: w.seq, Last: w.seq, Waste: uint64(w.n)})
		}
	}
	o.waste = slices.Delete(o.waste, 0, stored)
	o.filled.settle(c.Stored, c.Err != nil)
	if c.Err != nil { // what was staged will never be written
		o.waste = nil
		o.dropStaged(causeFailed)
	}
	if o.backlog.frames > 0 {
		o.drain()
	}
}

// dropStaged accounts for n frames that the log was given, and has not stored.
func (o *outlet) dropStaged(cause string) (n uint64) {
	lost, frames := o.staged.abandon()
	for _, r := range lost {
		if r.numbered { // each by its number, for others may wait behind them
			o.dropped.addRun(r.stream, ledger.Gap{From: r.number, To: r.highest(), Dropped: true}, o.book)
		}
	}
	if n = uint64(frames); n > 0 {
		o.book.Drop(cause, n)
	}
	return n
}

// unsynced is what the book counts as stored, or quarantined, and is not durable.
func (o *outlet) unsynced() archive.Span { return o.staged.unsynced().Join(o.unsure) }

// inherit takes over what is stored and not durable yet from one that holds nothing that is not
// stored.
func (o *outlet) inherit(from *outlet) {
	o.staged.inherit(&from.staged)
	o.unsure, from.unsure = o.unsure.Join(from.unsure), archive.Span{}
}

// lose posts what is still held when the log has closed: n frames that will not be stored.
func (o *outlet) lose(cause string) (n uint64) {
	o.waste, o.filled = nil, nil
	waited := uint64(o.backlog.abandon())
	if waited > 0 {
		o.book.Drop(cause, waited)
	}
	return waited + o.dropStaged(cause)
}

// raise notes that a number is stored.
func (o *outlet) raise(id ledger.Stream, number uint64) {
	if last, ok := o.reached[id]; ok && !o.isStale(id, last) {
		if o.isStale(id, number) {
			return
		}
		number = ledger.Later(number, last)
	}
	o.reached[id] = number
}

// isStale reports whether a number that is stored is beyond all that the book has of its stream:
// the device counts anew since then.
func (o *outlet) isStale(id ledger.Stream, number uint64) bool {
	_, last, ok := o.book.Follows(id)
	return ok && number != last && ledger.Later(number, last) == number
}

// reach notes what an earlier lane of the source has stored, and dropped behind that.
func (o *outlet) reach(ps []ledger.Position) {
	for _, p := range ps {
		id := ledger.Stream{Device: p.Device, Epoch: p.Epoch}
		o.raise(id, p.Last)
		for _, g := range p.Gaps {
			if g.Dropped {
				o.dropped.addRun(id, g, o.book)
			}
		}
	}
}

// positions lists how far the numbers of the streams that the book still follows are accounted for:
// up to the highest one stored, or, where all is settled, the highest one seen, for what is not
// stored of those has been dropped, and counted. A stream of which nothing is stored yet is
// accounted for up to where it began, unless the lane before this one may have some of it. What was
// dropped behind that, or is missing there, is among the gaps.
func (o *outlet) positions() []ledger.Position {
	ps := o.book.Positions()
	if o.isUnsettled() {
		ps = slices.DeleteFunc(ps, func(p ledger.Position) bool {
			return !o.hasStored(p) && p.First == nil && o.earlier() != nil
		})
		left := 2 * ledger.MaxGapsAhead // what is missing, and what was dropped
		for i, p := range ps {
			id := ledger.Stream{Device: p.Device, Epoch: p.Epoch}
			ps[i].Last = o.reached[id]
			if !o.hasStored(p) || o.isStale(id, ps[i].Last) { // nothing is stored since it began, or began anew
				ps[i].Last, _, _ = o.book.Follows(id)
			}
			ps[i].Filled = o.filled.upTo(id, ps[i].Last)
			if gaps := o.book.GapsFrom(id, ps[i].Last); len(gaps)-len(p.Gaps) <= left {
				ps[i].Gaps, left = gaps, left-(len(gaps)-len(p.Gaps))
			}
			if gaps := o.dropped.behind(id, ps[i].Last, p.Last, ps[i].Gaps); len(gaps) <= left {
				ps[i].Gaps, left = append(ps[i].Gaps, gaps...), left-len(gaps)
			}
		}
	} else {
		for id := range o.dropped {
			if _, last, ok := o.book.Follows(id); ok {
				o.reached[id] = last
			}
		}
		clear(o.dropped)
	}
	if max(len(o.reached), len(o.dropped)) > 2*ledger.MaxPositions {
		o.forget()
	}
	return ps
}

// hasStored reports whether a frame is stored of the stream of a position.
func (o *outlet) hasStored(p ledger.Position) bool {
	_, ok := o.reached[ledger.Stream{Device: p.Device, Epoch: p.Epoch}]
	return ok
}

// withoutGaps is positions for a book that may not count late frames: another one does.
func withoutGaps(ps []ledger.Position) []ledger.Position {
	for i := range ps {
		ps[i].Gaps, ps[i].Filled = nil, nil
	}
	return ps
}

// forget drops what is stored, and dropped, of streams that the book has settled.
func (o *outlet) forget() {
	kept, left := map[ledger.Stream]uint64{}, dropped{}
	for _, p := range o.book.Positions() {
		id := ledger.Stream{Device: p.Device, Epoch: p.Epoch}
		if last, ok := o.reached[id]; ok {
			kept[id] = last
		}
		if runs, ok := o.dropped[id]; ok {
			left[id] = runs
		}
	}
	o.reached, o.dropped = kept, left
}
