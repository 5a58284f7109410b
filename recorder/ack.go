package recorder

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/ledger"
)

// MaxNote is the longest note of an acknowledgement, in bytes.
const MaxNote = 1000

// ErrNote is a note that cannot be kept.
var ErrNote = errors.New("want a note of one line, at most 1000 bytes in UTF-8")

// acks is since when the verdict counts.
type acks struct {
	mu   sync.Mutex   // held for moments
	last *archive.Ack // nil: all counts
	past *ledger.Past // nil: earlier starts have lost nothing since
}

// loadAck takes in what earlier starts have left. What cannot be read makes the verdict count more,
// never less.
func (r *Recorder) loadAck() {
	a, err := archive.LoadAck(r.cfg.Log.Dir)
	if err != nil {
		r.slog.Error("what was acknowledged cannot be read: all counts; acknowledge it again", "error", err)
	}
	log := hexIdentity(r.log)
	past, err := archive.PastOf(r.cfg.Log.Dir, log, a, r.owed)
	if err != nil {
		r.slog.Error("a part of the history cannot be read: what those starts have lost is not in the verdict; acknowledge it once it is known", "error", err)
	}
	if past != nil && past.OtherLog > 0 {
		r.slog.Warn("the history has starts on another log: what they lost counts, too, until it is acknowledged",
			"starts", past.OtherLog)
	}
	if a != nil && !a.SpeaksOf(log) {
		r.slog.Warn("what was acknowledged is of another log, and does not count for this one", "note", a.Note)
		a = nil
	}
	r.acks.mu.Lock()
	defer r.acks.mu.Unlock()
	r.acks.last, r.acks.past = a, past
	r.acks.lostBy(r.since) // where the recorder before this one began the start
}

// mark has the verdict of a sheet of this start count since the last acknowledgement.
func (a *acks) mark(s *ledger.Sheet) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last != nil {
		s.AckedAt(a.last.Ack, a.last.Sheet)
	}
}

// earlier is what earlier starts have lost, and sources that have left this one.
func (a *acks) earlier() *ledger.Past {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.past
}

// with is past and what sources that have left lost by their sheet s.
func with(past *ledger.Past, s ledger.Sheet) *ledger.Past {
	var all ledger.Past
	if past != nil {
		all = *past
	}
	if all.Add(&s); all.IsEmpty() {
		return nil
	}
	return &all
}

// without is past without what has come late by the sheet s.
func without(past *ledger.Past, s *ledger.Sheet) *ledger.Past {
	if past == nil {
		return nil
	}
	left := *past
	if left.TakeBack(s); left.IsEmpty() {
		return nil
	}
	return &left
}

// close takes the closed books of sources that have left into the past.
func (a *acks) close(s ledger.Sheet) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.past = with(a.past, s)
	a.lostBy(int64(s.Since)) // the clock may have been set back since s was drawn up
}

// setBack says that the clock was set back, in the start that began at since.
func (a *acks) setBack(since int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lostBy(since)
}

// lostBy has sources that have left the start that began at since have lost what they lost by now.
// acks.mu is held.
func (a *acks) lostBy(since int64) {
	if a.past == nil {
		return
	}
	past := *a.past
	past.SetBack(ledger.Time(since), ledger.Time(time.Now().UnixNano()))
	a.past = &past
}

// forget says that a part of what earlier starts have lost is not known any more.
func (a *acks) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	var past ledger.Past
	if a.past != nil {
		past = *a.past
	}
	past.Unreadable = true
	a.past = &past
}

// Ack makes the verdict count from now on: what was lost is known. The books do not change. It is
// durable when Ack returns.
func (r *Recorder) Ack(note string) (ledger.Ack, error) {
	if err := CheckNote(note); err != nil {
		return ledger.Ack{}, err
	}
	r.saving.Lock() // no source that is leaving goes meanwhile
	defer r.saving.Unlock()
	_ = r.settleOwed()             // first, for the word speaks of what is in the history
	given := r.log.Position().Next // before the books: what they have not counted yet is behind it
	noted, books, s := r.beginAck()
	now := time.Now()
	at := ledger.Ack{At: ledger.Time(now.UnixNano()), Note: note}
	base := s.Whole().Copy()
	base.Verdict, base.Leaving = nil, nil // what is leaving says itself what is known
	next := &archive.Ack{Ack: at, Sheet: base, Books: books, Next: given}
	err := next.Save(r.cfg.Log.Dir, hexIdentity(r.log))
	r.absorbing.Lock() // for every sheet the word holds in all books, or in none
	defer r.absorbing.Unlock()
	if err == nil { // also of sources that have come since the books were noted
		noted = append(noted, r.all()...)
	}
	for _, p := range noted {
		p.lane.endAck(err == nil)
	}
	if err != nil {
		return ledger.Ack{}, fmt.Errorf("the acknowledgement cannot be kept: %w", err)
	}
	for i, owed := range r.owed { // they could not be kept
		known := *owed // whoever lists what was lost has the sheet, too
		known.Acked = &next.Ack
		r.owed[i] = &known
	}
	r.ackMissed()
	r.ackPlaces() // after the lanes, which leave their gaps in places
	for _, p := range r.sources() {
		if p.hub != nil { // whoever is gone is known to be
			p.hub.acknowledged(now)
		}
	}
	r.acks.mu.Lock()
	r.acks.last, r.acks.past = next, nil
	r.acks.mu.Unlock()
	r.slog.Info("acknowledged", "note", note, "what", s.Verdict.Text)
	return at, nil
}

// ackPlaces acknowledges the gaps of sources that are not read now.
func (r *Recorder) ackPlaces() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for source, at := range r.places {
		at.seen, at.stored = archive.Acknowledged(at.seen), archive.Acknowledged(at.stored)
		r.places[source] = at
	}
}

// ackMissed lets the peers go that were gone when their source was left, which is not read now.
func (r *Recorder) ackMissed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missed.acknowledged()
}

// beginAck has every book note what it has counted, and draws up the sheet of that moment. books is
// the notes of those that outlive this process.
func (r *Recorder) beginAck() (noted []*port, books map[uint64]ledger.Noted, s ledger.Sheet) {
	r.absorbing.Lock()
	defer r.absorbing.Unlock()
	books = map[uint64]ledger.Noted{}
	note := func(p *port) ledger.Port {
		account, of := p.lane.beginAck()
		if noted = append(noted, p); p.remote != nil {
			books[account.Book] = of
		}
		return account
	}
	ports := r.snapshot()
	var accounts []ledger.Port
	for _, p := range ports {
		accounts = append(accounts, note(p))
	}
	for _, p := range r.departing() {
		for _, q := range p.family() {
			note(q)
		}
	}
	s = r.draw(ports, accounts)
	for i := range s.Ports {
		s.Ports[i].Known = s.Ports[i].Counts()
	}
	return noted, books, s
}

// CheckNote says what is wrong with a note; nil: nothing.
func CheckNote(note string) error {
	if len(note) > MaxNote || !utf8.ValidString(note) || strings.ContainsFunc(note, unicode.IsControl) {
		return ErrNote
	}
	return nil
}
