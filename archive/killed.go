package archive

import (
	"math"
	"slices"

	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// The last sheet of a start that was killed says what was read then and not stored. The log has it
// behind that sheet, or it is gone with the processes. Numbers name what is gone, once the device
// goes on; of a source without numbers nothing else does.

// CauseByKill is the cause under which frames are dropped, and bytes unread, that a recorder had in
// its hands when it was killed.
const CauseByKill = "killed"

// inHand is what of one source was read and not stored.
type inHand struct {
	frames uint64
	bytes  uint64 // behind the frames, and in none yet
	from   uint64 // where on the wire those begin; seglog.NoOffset: not known
	last   uint64 // where on the wire the frame began that the log got last
}

// inHands is what the sheet of a start that was killed calls read and not stored, by source. It has
// nothing of lanes that go on, nor of frames that TakeBack has put back in flight.
func (s *StartSheet) inHands(goOn []string) map[string]*inHand {
	all := map[string]*inHand{}
	if !s.HasNoEnd() || s.Left != "" {
		return all
	}
	for _, p := range s.accounts() {
		if slices.Contains(goOn, p.ID) {
			continue
		}
		if all[p.ID] == nil {
			h := &inHand{bytes: s.Waiting[p.ID], from: seglog.NoOffset}
			if from, ok := s.WaitingFrom[p.ID]; ok {
				h.from = from
			}
			all[p.ID] = h
		}
		all[p.ID].frames += p.Frames.InFlight
	}
	for source, n := range s.takenBack {
		if h := all[source]; h != nil {
			h.frames -= min(n, h.frames)
		}
	}
	return all
}

// lands takes out what a record has that the log got behind the sheet. Frames come in the order in
// which they were read.
func (h *inHand) lands(of Stream, rec seglog.Record) {
	if h == nil {
		return
	}
	if wasInFlight := !of.Quarantine && h.frames > 0; wasInFlight {
		h.frames--
	} else if h.from == seglog.NoOffset || rec.Offset == seglog.NoOffset {
		h.bytes = 0 // nobody knows how many stood before the record, and in none
	}
	if h.bytes > 0 && rec.Offset != seglog.NoOffset {
		h.passes(of, rec)
	}
}

// passes takes out the bytes that waited, up to the end of a record: what stands before that was
// classified, also where it is in no record. Quarantined bytes may come before frames that were
// read before them: then those frames are not missed.
func (h *inHand) passes(of Stream, rec seglog.Record) {
	if !of.Quarantine {
		if rec.Offset < h.last { // of another wire: the one that had those bytes was read to its end
			h.bytes = 0
		}
		h.last = rec.Offset
	}
	if end := rec.Offset + uint64(len(Payload(&of, rec.Data))); end > h.from {
		n := min(end-h.from, h.bytes)
		h.from, h.bytes = h.from+n, h.bytes-n
	}
}

// lacking is how many records behind the sheet a log that begins with the record first has removed.
func (s *StartSheet) lacking(first uint64) uint64 {
	if !s.Lacks(first) {
		return 0
	}
	return first - s.LogStored - 1
}

// unread says that the log cannot be read to its end.
const unread = math.MaxUint64

// giveUpInHand posts what has not come to the log as lost. gone is how many records are not there,
// or cannot be read: they may have had some of it. What numbers tell is left to them.
func (s *StartSheet) giveUpInHand(all map[string]*inHand, gone uint64) {
	for _, p := range s.accounts() { // those that are leaving last: their frames came first
		h := all[p.ID]
		if h == nil {
			continue
		}
		p.Spilled = 0
		n := min(h.frames, p.Frames.InFlight)
		h.frames -= n
		if p.Proof == ledger.ProofNumbers || p.Proof == "" { // "": a program before this has not said it
			continue
		}
		doubt := min(n, gone)
		n, gone = n-doubt, gone-doubt
		if n > 0 {
			p.Frames.InFlight -= n
			if p.Frames.Dropped == nil {
				p.Frames.Dropped = map[string]uint64{}
			}
			p.Frames.Dropped[CauseByKill] += n
		}
		bytes := h.bytes
		if h.bytes = 0; gone > 0 {
			bytes = 0
		}
		if bytes > 0 {
			if p.Unread == nil {
				p.Unread = map[string]uint64{}
			}
			p.Unread[CauseByKill] += bytes
		}
		if n+bytes > 0 {
			p.LastLoss = max(p.LastLoss, s.Sheet.At)
		}
	}
	if len(all) > 0 {
		s.Waiting, s.WaitingFrom = nil, nil
	}
}
