package recorder

import (
	"math"

	"github.com/tallywheel/tallywheel/seglog"
)

// replay is a log to which frames come again that it has. It knows them by where on the wire they
// began, so that it does not matter how records lie in the log, nor which of them a kill took. What
// it had, and has no more, or cannot read, it takes again: memory still has that.
type replay struct {
	appender
	had   map[uint32]*had // by stream
	lost  uint64          // the first record behind the checkpoint that is gone, or cannot be read; 0: none is
	again func()          // has the lane told once more of what is stored: no commit will; nil: nobody is told
}

// had is the records of a stream behind a checkpoint.
type had struct {
	sequences map[uint64]uint64 // by their offset on the wire
	end       uint64            // they begin before it
}

// newReplay reads what a log has of streams behind a sequence. They have come from one wire since.
func newReplay(log wireLog, behind uint64, streams ...uint32) (*replay, error) {
	r := &replay{appender: log, had: map[uint32]*had{}}
	for _, s := range streams {
		r.had[s] = &had{sequences: map[uint64]uint64{}}
	}
	err := log.since(behind, func(rec seglog.Record) {
		if h := r.had[rec.Stream]; h != nil && rec.Offset != seglog.NoOffset {
			h.sequences[rec.Offset], h.end = rec.Seq, max(h.end, rec.Offset+1)
		}
	}, func(first uint64) {
		if r.lost == 0 {
			r.lost = first
		}
	})
	return r, err
}

// next is the least sequence of the records that begin at an offset or behind it. That of a record
// which is before it on the wire may be higher: frames wait for a log that takes nothing, and bytes
// that are in none do not, and what was lost is stored again behind what was not.
func (r *replay) next(offset uint64) (seq uint64, ok bool) {
	seq = math.MaxUint64
	for _, h := range r.had {
		for at, n := range h.sequences {
			if at >= offset {
				seq = min(seq, n)
			}
		}
	}
	if ok = seq != math.MaxUint64; ok && r.lost > 0 {
		seq = min(seq, r.lost)
	}
	return seq, ok
}

// TryAppendAt implements appender.
func (r *replay) TryAppendAt(stream uint32, time int64, offset uint64, data []byte) (uint64, error) {
	h := r.had[stream]
	if h == nil || offset >= h.end {
		return r.appender.TryAppendAt(stream, time, offset, data)
	}
	seq, ok := h.sequences[offset]
	switch {
	case !ok && r.lost > 0: // it may have had it
		return r.appender.TryAppendAt(stream, time, offset, data)
	case !ok:
		return 0, errGivenUp
	}
	if r.again != nil {
		r.again()
	}
	return seq, nil
}
