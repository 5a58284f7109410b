package archive

import (
	"slices"
	"strings"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// latecomers is what a start stored after its last sheet. What was missing between those frames is
// in no other account, nor is which of them came late. The lanes of one address share a book: a
// device comes in whichever is free, and the lane that it comes in is told how far the others are,
// which is in no record of the log.
type latecomers struct {
	from    *StartSheet
	acked   *LateAck                             // nil: there is none, or its place in the log was passed
	books   map[string]*ledger.Book              // by address
	counted reached                              // by the sheet, by address
	came    map[string]map[ledger.Stream]string  // the lane in which a device was last, by address
	afloat  map[string]map[ledger.Stream]*afloat // by lane
	removed bool                                 // the log has removed records behind the sheet
	// records that are gone, or cannot be read, and of which nobody knows what they had
	doubt uint64
	heard map[string]map[ledger.Stream]bool // devices that came behind the last of those, by address
	last  reached                           // the highest number that came, by address
}

func newLatecomers(from *StartSheet, acked *LateAck) *latecomers {
	return &latecomers{
		from: from, acked: acked, books: map[string]*ledger.Book{}, counted: reached{},
		came: map[string]map[ledger.Stream]string{}, afloat: from.afloat(), heard: map[string]map[ledger.Stream]bool{},
		last: reached{},
	}
}

// gone says that so many records are not there, or cannot be read, between those that came and
// those that come. What is missing there is called missing only as far as they cannot have had it.
func (l *latecomers) gone(n uint64) {
	l.doubt += n
	clear(l.heard)
}

// trust has the book of an address expect a number, if records before it are not there that may
// have had what lies between.
func (l *latecomers) trust(b *ledger.Book, address string, f frame.Frame) {
	id := ledger.Stream{Device: f.Device, Epoch: f.Epoch}
	defer l.last.raise(address, ledger.Position{Device: f.Device, Epoch: f.Epoch, Last: f.Seq})
	if l.heard[address][id] {
		return
	}
	if l.heard[address] == nil {
		l.heard[address] = map[ledger.Stream]bool{}
	}
	l.heard[address][id] = true
	last, known := l.last[address][id]
	if !known {
		last, known = l.counted[address][id]
	}
	switch {
	case l.removed:
		last = f.Seq - 1
	case !known || ledger.Later(f.Seq, last) == last:
		return
	default:
		n := min(l.doubt, f.Seq-last-1)
		l.doubt -= n
		last += n
	}
	b.Advance(ledger.Position{Device: f.Device, Epoch: f.Epoch, Last: last})
}

// frame posts one, that of a record of the log, unless the sheet has counted it.
func (l *latecomers) frame(source string, f frame.Frame, rec seglog.Record) {
	if l.acked != nil && rec.Seq >= l.acked.Next {
		l.know()
	}
	id := ledger.Stream{Device: f.Device, Epoch: f.Epoch}
	if a := l.afloat[source][id]; a != nil && a.lands(f.Seq) {
		return
	}
	address := AddressOf(source)
	b := l.books[address]
	if b == nil {
		b = l.open(address)
		l.books[address] = b
	}
	if last, ok := l.counted[address][id]; ok && ledger.Later(f.Seq, last) == last && !b.MayCome(id, f.Seq) {
		return // it was in the log's hands then: to the book it would be a device that counts anew
	}
	l.trust(b, address, f)
	b.At(rec.Time)
	b.Numbered(len(f.Data), id, f.Seq)
	l.came[address][id] = source
}

// open makes the book of an address. It goes on behind the numbers of all its lanes, and of the
// source itself, which may have read it before; of the gaps it has those of its lanes.
func (l *latecomers) open(address string) *ledger.Book {
	source, _, _ := strings.Cut(address, "/")
	gaps, first := map[ledger.Stream][]ledger.Gap{}, map[ledger.Stream]*uint64{}
	l.came[address] = map[ledger.Stream]string{}
	for _, known := range []map[string][]ledger.Position{l.from.Positions, l.from.Seen} {
		for name, ps := range known {
			if name != source && !Within(name, address) {
				continue
			}
			for _, p := range ps {
				l.counted.raise(address, p)
				if Within(name, address) {
					gaps[idOf(p)] = append(gaps[idOf(p)], p.Gaps...)
					if at := first[idOf(p)]; p.First != nil && (at == nil || ledger.Later(*at, *p.First) == *at) {
						first[idOf(p)] = p.First
					}
				}
			}
		}
	}
	b := ledger.NewBook(0)
	for id, last := range l.counted[address] {
		b.GoOn(ledger.Position{Device: id.Device, Epoch: id.Epoch, First: first[id], Last: last, Gaps: gaps[id]})
	}
	return b
}

// know says that what was lost by now is acknowledged: in the books, and in the sheet's positions,
// from which others begin.
func (l *latecomers) know() {
	l.acked = nil
	for _, b := range l.books {
		b.BeginAck(nil)
		b.EndAck(true)
	}
	for source, ps := range l.from.Positions {
		l.from.Positions[source] = Acknowledged(ps)
	}
}

// Acknowledged is positions all of whose gaps are acknowledged.
func Acknowledged(ps []ledger.Position) []ledger.Position {
	ps = slices.Clone(ps)
	for i := range ps {
		ps[i] = ps[i].Known()
	}
	return ps
}

// post adds what the books have found to the accounts of the sheet, and hands their gaps on: what
// is in no account may not be taken out of one.
func (l *latecomers) post() {
	if l.acked != nil {
		if word := l.acked.Ack; !l.acked.isIn {
			l.from.Acked = &word // also of what is posted here
		}
		l.know()
	}
	for address, b := range l.books {
		f := b.Frames()
		p := l.account(address)
		if p == nil && f.Missing+f.Late > 0 && l.from.Sheet.Since != 0 {
			p = l.newAccount(address)
		}
		if p == nil {
			continue
		}
		p.Frames.Missing, p.Frames.MissingUnseen = p.Frames.Missing+f.Missing, p.Frames.MissingUnseen+f.Missing
		p.Frames.Late, p.Frames.LateKnown = p.Frames.Late+f.Late, p.Frames.LateKnown+f.LateKnown
		p.LastLoss = max(p.LastLoss, ledger.Time(b.LastLoss()))
		for _, at := range b.Positions() {
			if lane, ok := l.came[address][idOf(at)]; ok {
				l.hand(address, lane, at)
			}
		}
	}
	if l.removed || l.doubt > 0 {
		l.forget()
	}
	if !l.removed {
		l.sink()
	}
}

// forget takes out the positions of devices that are in none of the records behind those that are
// not there: how far they had come is not known.
func (l *latecomers) forget() {
	for lane, ps := range l.from.Positions {
		heard := l.heard[AddressOf(lane)]
		l.from.Positions[lane] = slices.DeleteFunc(slices.Clone(ps),
			func(p ledger.Position) bool { return !heard[idOf(p)] })
	}
}

// sink posts what is afloat, and has not come to the log: it is missing after all.
func (l *latecomers) sink() {
	for lane, streams := range l.afloat {
		for id, a := range streams {
			lost, n := a.sunk()
			if could := min(n, l.doubt); could > 0 { // be in the records that are not there
				l.doubt, n, lost = l.doubt-could, n-could, nil
			}
			if n == 0 {
				continue
			}
			if of := l.account(AddressOf(lane)); of != nil {
				of.Frames.Missing, of.Frames.MissingUnseen = of.Frames.Missing+n, of.Frames.MissingUnseen+n
				of.LastLoss = max(of.LastLoss, l.from.Sheet.At)
			}
			if at := find(l.from.Positions[lane], id); at != nil {
				at.Gaps = slices.Concat(at.Gaps, lost)
			}
		}
	}
}

// hand gives the gaps of a stream to the lane in which its device was last, and to no other.
func (l *latecomers) hand(address, lane string, at ledger.Position) {
	for name, ps := range l.from.Positions {
		if p := find(ps, idOf(at)); p != nil && Within(name, address) {
			if p.Gaps = nil; name == lane {
				p.Gaps = at.Gaps
			}
		}
	}
}

// newAccount makes one for a source that came after the sheet: nothing but the log's records says
// what was missing between them.
func (l *latecomers) newAccount(address string) *ledger.Port {
	source, _, _ := strings.Cut(address, "/")
	all := &l.from.Sheet.Ports
	*all = append(*all, ledger.Port{
		ID: source, State: ledger.StateStopped, Heard: true, Proof: ledger.ProofNumbers, Unread: map[string]uint64{},
		Outages: []ledger.Outage{}, Frames: ledger.Frames{Dropped: map[string]uint64{}},
	})
	return &(*all)[len(*all)-1]
}

// account is that of an address; of one that came after the sheet, that of its source; of one that
// was leaving, what left.
func (l *latecomers) account(address string) (p *ledger.Port) {
	for _, at := range l.from.accounts() {
		if Within(address, at.ID) && (p == nil || len(at.ID) > len(p.ID)) {
			p = at
		}
	}
	return p
}
