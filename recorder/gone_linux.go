package recorder

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// Somebody may remove or cut the newest segment while the recorder runs, or before another goes on
// with its start. Then the log ends before what a checkpoint of a spool says is stored. The log
// gives no number again that may have been given (seglog.Extent, Stored), and stands for those by a
// hole. Each source goes on at a checkpoint whose record is there, if it has one: what came behind
// is in its spool, and is stored again. Where it has none, it goes on at the older one, and what
// the log had taken before that and does not have is dropped, by a cause of its own.

// maxMarks is how many marks a lane keeps: one for each power of two of records behind it, and the
// one with which its spool began.
const maxMarks = 64

// marked is marks with the next, of which those are kept that are needed: whatever the log has
// lost, one is before its end by not much more than that, and what lies between is counted there.
func marked(marks []given, next given) []given {
	for len(marks) > 0 && marks[len(marks)-1].sequence >= next.sequence {
		marks = marks[:len(marks)-1]
	}
	kept := make([]given, 0, len(marks)+1)
	for i, m := range marks {
		if i == 0 || distance(m, next) != distance(marks[i-1], next) {
			kept = append(kept, m)
		}
	}
	return append(kept[:min(len(kept), maxMarks-1)], next)
}

// distance is that of a mark before another one, in records, as a power of two.
func distance(m, from given) int { return bits.Len64(from.sequence - m.sequence) }

// lose takes out of the books what a checkpoint says is stored, up to a record, and is not in the
// log. It returns the newest record at most that one which is there.
func (p *spooled) lose(upTo uint64) (kept uint64, err error) {
	if kept, err = p.log.newest(upTo); err != nil {
		return 0, err
	}
	l := p.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	o := &l.out
	o.marks = slices.DeleteFunc(slices.Clone(o.marks), func(m given) bool { return m.sequence > kept })
	there := given{sequence: kept}
	from, isWhole := uint64(0), true
	if n := len(o.marks); n > 0 {
		there.frames, there.waste, from = o.marks[n-1].frames, o.marks[n-1].waste, o.marks[n-1].sequence
		err = p.log.since(from, func(rec seglog.Record) {
			switch {
			case rec.Seq > kept || rec.Offset == seglog.NoOffset:
			case rec.Offset >= l.in.offset: // it comes again
				isWhole = isWhole && rec.Stream != o.stream && rec.Stream != l.in.wasteStream
			case rec.Stream == o.stream:
				there.frames++
			case rec.Stream == l.in.wasteStream:
				there.waste += uint64(len(archive.Payload(&archive.Stream{Quarantine: true}, rec.Data)))
			}
		}, func(uint64) {}) // what is gone is not there
		if err != nil {
			return 0, err
		}
	}
	p.gone = given{
		frames: o.gave.frames - min(there.frames, o.gave.frames), waste: o.gave.waste - min(there.waste, o.gave.waste),
	}
	if o.gave = there; isWhole {
		o.marks = marked(o.marks, there)
	}
	l.touched = true
	if p.gone.frames > 0 || p.gone.waste > 0 {
		l.in.book.At(time.Now().UnixNano())
		l.in.book.Unstore(p.gone.frames, p.gone.waste)
	}
	if p.gone.frames > 0 {
		l.in.book.Drop(causeGone, p.gone.frames)
	}
	return kept, nil
}

// storedBefore is the newest record that a recorder before this one knew to be stored, of the start
// that this one goes on with, as far as it seems; 0: it goes on with none.
func (r *Recorder) storedBefore(left *archive.StartSheet) (last uint64) {
	if r.iso == nil || left == nil || r.iso.start.Since == 0 || r.iso.start.Since != int64(left.Sheet.Since) ||
		r.iso.start.Identity != left.Identity || !left.HasNoEnd() {
		return 0
	}
	last = left.LogStored
	for _, l := range r.iso.left {
		last = max(last, l.spool.Sequence())
	}
	if last >= 1<<63 { // no log is that long
		return 0
	}
	return last
}

// lostEnd reports whether the log ended before what was known of it when it was opened.
func (r *Recorder) lostEnd() bool {
	at := r.log.Recovered()
	return slices.ContainsFunc(at.Missing, func(m seglog.Missing) bool { return m.To == at.Last })
}

// nameGone leaves out of what the log has lost at its end, while the start went on, what sources
// have named: each has dropped what is gone, or has stored it again. What was there before the
// oldest of their spools stays, as records of a start before this one. So does all of it where an
// account has left, or died, or a spool was given up: nobody has named what was theirs.
func (r *Recorder) nameGone() {
	if !r.restarted || r.found == nil || r.iso.lost || r.iso.died || len(r.iso.named) == 0 {
		return
	}
	end, found := r.log.Recovered().Last, *r.found
	before := slices.Min(r.iso.named)
	found.Missing = []ledger.MissingRecords{} // and not nil, for JSON
	for _, m := range r.found.Missing {
		if m.To == end {
			m.To, m.AtMost = min(m.To, before), m.AtMost && before >= m.To
		}
		if m.From <= m.To {
			found.Missing = append(found.Missing, m)
		}
	}
	if r.found = &found; len(found.Missing)+len(found.SetAside) == 0 && found.Unsynced == 0 && found.CutAt == "" {
		r.found = nil
	}
}

// newest implements wireLog.
func (l liveLog) newest(upTo uint64) (uint64, error) {
	if upTo < l.Position().First {
		return upTo, nil
	}
	r := l.NewReverse(upTo + 1)
	defer r.Close()
	for {
		rec, err := r.Next()
		var gap *seglog.GapError
		var damage *seglog.CorruptError
		switch {
		case err == nil:
			return rec.Seq, nil
		case err == io.EOF:
			return 0, nil
		case errors.As(err, &damage): // it is there
			return upTo, nil
		case errors.As(err, &gap):
			upTo = gap.From - 1
		default:
			return 0, fmt.Errorf("the log up to record %d: %w", upTo, err)
		}
	}
}
