package archive

import (
	"errors"
	"io"
	"strings"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// replayTries is how often a record of the log is tried again that could not be read.
const replayTries = 3

// Replay brings the positions of an earlier start up to the end of the log: what it stored after
// its last sheet. It returns the time of the last record. After an error the positions are as good
// as what could be read.
func (s *StartSheet) Replay(log *seglog.Log, streams *Streams) (last int64, err error) {
	if s.Positions == nil {
		s.Positions = map[string][]ledger.Position{}
	}
	found := map[string]stored{} // what the sheet does not know to be stored, by source
	highest, late := reached{}, latecomers{from: s, books: map[string]*ledger.Book{}, counted: reached{}}
	defer func() {
		s.find(found)
		late.post()
		raiseAll(s.Positions, highest)
	}()
	r := log.NewReader(s.LogStored + 1)
	defer r.Close()
	for failed := 0; ; {
		rec, err := r.Next()
		var gap *seglog.GapError
		var damage *seglog.CorruptError
		switch {
		case errors.As(err, &gap):
			continue
		case err == io.EOF:
			return last, nil
		case err != nil && failed < replayTries && !errors.As(err, &damage):
			failed++ // the reader goes on where it was
			continue
		case err != nil:
			return last, err
		}
		failed, last = 0, rec.Time
		e, ok := streams.By(rec.Stream)
		if !ok {
			continue
		}
		found[e.Source] = found[e.Source].with(e, rec.Data)
		if e.Quarantine {
			continue
		}
		if f := describe(e, rec.Data); f.Sequenced {
			highest.raise(e.Source, ledger.Position{Device: f.Device, Epoch: f.Epoch, Last: f.Seq})
			late.frame(addressOf(e.Source), f, rec.Time)
		}
	}
}

// latecomers is what a start stored after its last sheet. What was missing between those frames is
// in no other account. The lanes of one address share a book: a device comes in whichever is free,
// and the lane that it comes in is told how far the others are, which is in no record of the log.
type latecomers struct {
	from    *StartSheet
	books   map[string]*ledger.Book // by address
	counted reached                 // by the sheet, by address
}

// frame posts one, unless the sheet has counted it.
func (l *latecomers) frame(address string, f frame.Frame, at int64) {
	b := l.books[address]
	if b == nil {
		b = l.open(address)
		l.books[address] = b
	}
	id := ledger.Stream{Device: f.Device, Epoch: f.Epoch}
	if last, ok := l.counted[address][id]; ok && ledger.Later(f.Seq, last) == last {
		return // it was in the log's hands then: to the book it would be a device that counts anew
	}
	b.At(at)
	b.Numbered(len(f.Data), id, f.Seq)
}

// open makes the book of an address. It goes on behind the numbers of all its lanes, and of the
// source itself, which may have read it before.
func (l *latecomers) open(address string) *ledger.Book {
	source, _, _ := strings.Cut(address, "/")
	for _, known := range []map[string][]ledger.Position{l.from.Positions, l.from.Seen} {
		for name, ps := range known {
			if name != source && !Within(name, address) {
				continue
			}
			for _, p := range ps {
				l.counted.raise(address, p)
			}
		}
	}
	b := ledger.NewBook(0)
	for id, last := range l.counted[address] {
		b.Resume(ledger.Position{Device: id.Device, Epoch: id.Epoch, Last: last})
	}
	return b
}

func (l *latecomers) post() {
	for address, b := range l.books {
		if p := l.account(address); p != nil {
			n := b.Frames().Missing
			p.Frames.Missing, p.Frames.MissingUnseen = p.Frames.Missing+n, p.Frames.MissingUnseen+n
			p.LastLoss = max(p.LastLoss, ledger.Time(b.LastLoss()))
		}
	}
}

// account is that of an address; of one that came after the sheet, that of its source.
func (l *latecomers) account(address string) (p *ledger.Port) {
	for i := range l.from.Sheet.Ports {
		at := &l.from.Sheet.Ports[i]
		if Within(address, at.ID) && (p == nil || len(at.ID) > len(p.ID)) {
			p = at
		}
	}
	return p
}

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
	for i := range s.Sheet.Ports {
		is := found[s.Sheet.Ports[i].ID]
		f, y := &s.Sheet.Ports[i].Frames, &s.Sheet.Ports[i].Bytes
		y.Quarantined += min(is.waste, y.Resync-min(y.Resync, y.Quarantined))
		n := min(is.frames, f.Dropped[CauseLogFailed])
		if n == 0 {
			continue
		}
		f.Stored, f.Durable = f.Stored+n, f.Durable+n
		if f.Dropped[CauseLogFailed] -= n; f.Dropped[CauseLogFailed] == 0 {
			delete(f.Dropped, CauseLogFailed)
		}
		// What was in the log's hands was dropped first, so those that were acknowledged go first.
		if known := s.Sheet.Ports[i].Known; known != nil && known.Dropped[CauseLogFailed] > 0 {
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
		both.raise(source, p)
	}
	raiseAll(positions, both)
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
