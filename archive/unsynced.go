package archive

import (
	"errors"
	"io"

	"github.com/tallywheel/tallywheel/seglog"
)

// Span is what of one source the log has stored, and a power cut can still take.
type Span struct {
	First uint64 `json:"first"` // records of the log; others may stand between
	Last  uint64 `json:"last"`
	N     uint64 `json:"n"`               // frames
	Waste uint64 `json:"waste,omitempty"` // quarantined bytes
}

// IsEmpty reports whether nothing is in the span.
func (s Span) IsEmpty() bool { return s.N == 0 && s.Waste == 0 }

// Join is the span of what is in both.
func (s Span) Join(o Span) Span {
	switch {
	case s.IsEmpty():
		return o
	case o.IsEmpty():
		return s
	}
	return Span{min(s.First, o.First), max(s.Last, o.Last), s.N + o.N, s.Waste + o.Waste}
}

// TakeBack finds the frames that the sheet counts as stored, and that a power cut has taken from
// the log before they were durable; what that has ends with the record end. It returns how many
// they are, and puts them back in flight. Quarantined bytes that went with them count as not kept.
// None of the frames is in what the log says is missing, or in the books of a later start: the
// sheet's positions are behind them.
func (s *StartSheet) TakeBack(log *seglog.Log, streams *Streams, end uint64) (lost uint64, err error) {
	var all Span
	for _, u := range s.Unsynced {
		all = all.Join(u)
	}
	if all.Last <= end {
		return 0, nil
	}
	if all.First+rebuildRecords <= end { // too many to look at: the number of records has to do
		return all.Last - end, nil
	}
	all.Last = end // what is behind it is a hole, if it is there
	found, gone, err := s.stillThere(log, streams, all)
	for source, u := range s.Unsynced {
		n, waste := u.N-min(u.N, found[source].frames), u.Waste-min(u.Waste, found[source].waste)
		lost += n
		if s.takenBack == nil {
			s.takenBack = map[string]uint64{}
		}
		s.takenBack[source] = n
		for _, p := range s.accounts() {
			if f, y := &p.Frames, &p.Bytes; p.ID == source {
				kept := min(waste, y.Quarantined)
				y.Quarantined, waste = y.Quarantined-kept, waste-kept
				back := min(n, f.Stored-min(f.Stored, f.Durable))
				f.Stored, f.InFlight, n = f.Stored-back, f.InFlight+back, n-back
			}
		}
	}
	return lost - min(lost, gone), err
}

// stillThere counts what is in a part of the log that the sheet does not know to be durable, by
// source, and the records in gaps there.
func (s *StartSheet) stillThere(log *seglog.Log, streams *Streams, part Span) (found map[string]stored, gone uint64,
	err error,
) {
	found = map[string]stored{}
	r := log.NewReader(part.First)
	defer r.Close()
	for {
		rec, err := r.Next()
		var gap *seglog.GapError
		switch {
		case errors.As(err, &gap):
			if gap.From <= part.Last {
				gone += min(gap.To, part.Last) - gap.From + 1
			}
			continue
		case err == io.EOF || err == nil && rec.Seq > part.Last:
			return found, gone, nil
		case err != nil:
			return found, gone, err
		}
		e, ok := streams.By(rec.Stream)
		if u := s.Unsynced[e.Source]; ok && u.First <= rec.Seq && rec.Seq <= u.Last {
			found[e.Source] = found[e.Source].with(e, rec.Data)
		}
	}
}

// Unsure adds what of a source the log has stored, and is not durable.
func (s *StartSheet) Unsure(source string, u Span) {
	if u.IsEmpty() {
		return
	}
	if s.Unsynced == nil {
		s.Unsynced = map[string]Span{}
	}
	s.Unsynced[source] = s.Unsynced[source].Join(u)
}
