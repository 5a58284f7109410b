package archive

import (
	"errors"
	"io"
	"slices"

	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// replayTries is how often a record of the log is tried again that could not be read.
const replayTries = 3

// Replay brings the positions of an earlier start up to the end of the log: what it stored after
// its last sheet. It returns the time of the last record. After an error the positions are as good
// as what could be read. Damage is passed over, and the last of it is the error, too. Where the log
// has removed records behind the sheet ([StartSheet.Lacks]), or some are gone or cannot be read,
// nothing is called missing that those may have had, and of devices that are in none of the records
// behind them nobody knows where they are. acked is a word that the sheet does not know of; nil:
// there is none.
//
// What a start that was killed had read, and the log has not, is dropped then, of sources without
// numbers: [CauseByKill].
//
// goOn names lanes whose books go on. Those books have what the records of these lanes say, or will
// have it, so that nothing of it is posted here; nor is anything of another lane of their address.
func (s *StartSheet) Replay(log *seglog.Log, streams *Streams, acked *LateAck, goOn ...string) (last int64,
	err error,
) {
	if s.Positions == nil {
		s.Positions = map[string][]ledger.Position{}
	}
	found := map[string]stored{} // what the sheet does not know to be stored, by source
	highest, late := reached{}, newLatecomers(s, acked)
	shared := make([]string, len(goOn))
	for i, lane := range goOn {
		shared[i] = AddressOf(lane)
	}
	first := log.Position().First
	late.removed = s.Lacks(first)
	hands, gone := s.inHands(goOn), s.lacking(first)
	defer func() {
		s.find(found)
		raiseAll(s.Positions, highest)
		late.post()
		s.giveUpInHand(hands, gone)
	}()
	r := log.NewReader(s.LogStored + 1)
	defer r.Close()
	var damaged error
	for failed := 0; ; {
		rec, err := r.Next()
		var gap *seglog.GapError
		var damage *seglog.CorruptError
		if errors.As(err, &damage) {
			damaged = err
			if gap, err = r.Skip(); err == nil {
				err = gap
			}
		}
		switch {
		case errors.As(err, &gap) && gap.Cause == seglog.GapUnsynced:
			gone += gap.To - gap.From + 1
			continue // the end of the log was there: the devices' next numbers tell what they had in it
		case errors.As(err, &gap):
			gone += gap.To - gap.From + 1
			late.gone(gap.To - gap.From + 1)
			continue
		case err == io.EOF:
			return last, damaged
		case err != nil && failed < replayTries && !errors.As(err, &damage):
			failed++ // the reader goes on where it was
			continue
		case err != nil:
			gone = unread
			return last, err
		}
		failed, last = 0, rec.Time
		e, ok := streams.By(rec.Stream)
		if !ok || slices.Contains(goOn, e.Source) {
			continue
		}
		found[e.Source] = found[e.Source].with(e, rec.Data)
		hands[e.Source].lands(e, rec)
		if e.Quarantine {
			continue
		}
		if f := Frame(&e, rec.Data); f.Sequenced {
			highest.raise(e.Source, ledger.Position{Device: f.Device, Epoch: f.Epoch, Last: f.Seq})
			if !slices.Contains(shared, AddressOf(e.Source)) {
				late.frame(e.Source, f, rec)
			}
		}
	}
}

// Lacks reports whether a log that begins with the record first has removed some behind the sheet:
// it fills so fast, or the sheet is older than it should be.
func (s *StartSheet) Lacks(first uint64) bool { return first > s.LogStored+1 }

// Reach notes how far the numbers of one lane of a source are accounted for, and the highest that
// its account has seen. A source that was changed has two lanes until the old one has left: then
// the higher number of each device counts.
func (s *StartSheet) Reach(source string, accounted, seen []ledger.Position) {
	if s.Positions == nil {
		s.Positions = map[string][]ledger.Position{}
	}
	if s.Seen == nil {
		s.Seen = map[string][]ledger.Position{}
	}
	raise(s.Positions, source, accounted)
	raise(s.Seen, source, seen)
}

// stored is what the log has of a source.
type stored struct {
	frames uint64
	waste  uint64 // bytes that were in no frame
}

func (n stored) with(e Stream, data []byte) stored {
	if !e.Quarantine {
		n.frames++
	} else if len(data) > quarantineHeader {
		n.waste += uint64(len(data) - quarantineHeader)
	}
	return n
}

// find moves frames that were given up when the log failed to those that are stored, for they are
// in it; likewise bytes that were in no frame.
func (s *StartSheet) find(found map[string]stored) {
	for _, p := range s.accounts() {
		is := found[p.ID]
		f, y := &p.Frames, &p.Bytes
		waste := min(is.waste, y.Resync-min(y.Resync, y.Quarantined))
		y.Quarantined += waste
		n := min(is.frames, f.Dropped[CauseLogFailed])
		found[p.ID] = stored{is.frames - n, is.waste - waste}
		if n == 0 {
			continue
		}
		f.Stored, f.Durable = f.Stored+n, f.Durable+n
		if f.Dropped[CauseLogFailed] -= n; f.Dropped[CauseLogFailed] == 0 {
			delete(f.Dropped, CauseLogFailed)
		}
		// What was in the log's hands was dropped first, so those that were acknowledged go first.
		if known := p.Known; known != nil && known.Dropped[CauseLogFailed] > 0 {
			known.Dropped[CauseLogFailed] -= min(n, known.Dropped[CauseLogFailed])
		}
	}
}

// reached is the highest stored numbers of all sources, to be raised record by record.
type reached map[string]map[ledger.Stream]uint64

func (r reached) raise(source string, p ledger.Position) {
	of := r[source]
	if of == nil {
		of = map[ledger.Stream]uint64{}
		r[source] = of
	}
	id := ledger.Stream{Device: p.Device, Epoch: p.Epoch}
	if last, ok := of[id]; ok {
		p.Last = ledger.Later(p.Last, last)
	}
	of[id] = p.Last
}

// raise brings the positions of a source up to ps.
func raise(positions map[string][]ledger.Position, source string, ps []ledger.Position) {
	if len(positions[source]) == 0 {
		if len(ps) > 0 {
			positions[source] = ps
		}
		return
	}
	both := reached{}
	for _, p := range ps {
		if at := find(positions[source], idOf(p)); at == nil {
			positions[source] = append(positions[source], p)
		} else {
			at.Gaps = withDropped(at.Gaps, p.Gaps)
			at.Filled = slices.Concat(at.Filled, p.Filled)
		}
		both.raise(source, p)
	}
	raiseAll(positions, both)
}

// withDropped is gaps, and what is dropped of others and in none of them.
func withDropped(gaps, others []ledger.Gap) []ledger.Gap {
	for _, g := range others {
		if g.Dropped {
			gaps = append(gaps, g.Without(gaps)...)
		}
	}
	return gaps
}

func idOf(p ledger.Position) ledger.Stream { return ledger.Stream{Device: p.Device, Epoch: p.Epoch} }

// find is the position of a stream; nil: it is not among them.
func find(ps []ledger.Position, id ledger.Stream) *ledger.Position {
	for i := range ps {
		if idOf(ps[i]) == id {
			return &ps[i]
		}
	}
	return nil
}

// raiseAll brings positions up to what r has.
func raiseAll(positions map[string][]ledger.Position, r reached) {
	for source, of := range r {
		ps := positions[source]
		for i, p := range ps {
			id := ledger.Stream{Device: p.Device, Epoch: p.Epoch}
			if last, ok := of[id]; ok {
				ps[i].Last = ledger.Later(last, p.Last)
				delete(of, id)
			}
		}
		for id, last := range of {
			ps = append(ps, ledger.Position{Device: id.Device, Epoch: id.Epoch, Last: last})
		}
		positions[source] = ps
	}
}
