package recorder

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/ledger"
)

// Bounds of the list of losses.
const (
	maxLosses  = 512              // entries kept; the oldest go first
	burstPause = 5 * time.Second  // what comes within that of the last one, under the same cause, is the same loss
	burstMost  = 60 * time.Second // … but a loss lasts no longer: it is to be found among the records
)

// lossWatch makes a list of losses out of what the sheet of each second says was lost so far.
// Together the entries are what the sheet says, but for those that are forgotten.
type lossWatch struct {
	mu        sync.Mutex
	known     map[lossKey]uint64
	hubs      map[bookKey]bookKey     // of peers, the books of their sources
	last      map[bookKey]ledger.Time // when each book had lost something last, at the last look
	list      []archive.Loss          // the newest last
	forgotten uint64                  // entries
	grown     map[Grown]uint64

	late map[string]uint64 // frames that came late and are in no entry, by source: earlier starts had lost them
}

// Grown names a count of what was lost since the start: it only grows, for what comes late takes
// nothing out of it.
type Grown struct{ Source, Where, Unit string }

// whereLate is that of frames that came late: they are followed like losses, and take losses back.
const whereLate = "late"

// bookKey names a book: a source that is started anew has another. What no source has is in none.
type bookKey struct {
	source string
	book   uint64
}

// lossKey is a loss without its amount, by the book that counts it.
type lossKey struct {
	loss ledger.Loss
	book uint64 // as in ledger.Port
}

func (k lossKey) in() bookKey { return bookKey{k.loss.Source, k.book} }

func withoutAmount(l ledger.Loss) ledger.Loss {
	l.N = 0
	return l
}

// keysOf lists the losses of sheets in their order, with their amounts. First come frames that came
// late: what they were missing in was before.
func keysOf(sheets ...*ledger.Sheet) (keys []lossKey, n map[lossKey]uint64) {
	n = map[lossKey]uint64{}
	for _, s := range sheets {
		for i := range s.Ports {
			p := &s.Ports[i]
			k := lossKey{ledger.Loss{Source: p.ID, Where: whereLate}, p.Book}
			if p.Frames.Late > 0 {
				keys = append(keys, k)
				n[k] += p.Frames.Late
			}
		}
	}
	for _, s := range sheets {
		books := map[string]lossKey{}
		for i := range s.Ports {
			p := &s.Ports[i]
			books[p.ID] = lossKey{book: p.Book}
		}
		for _, l := range s.Losses() {
			k := books[l.Source]
			k.loss = withoutAmount(l)
			if n[k] == 0 {
				keys = append(keys, k)
			}
			n[k] += l.N
		}
	}
	return keys, n
}

// look takes in a sheet, with what is leaving.
func (w *lossWatch) look(s ledger.Sheet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	there := map[bookKey]ledger.Time{{}: s.Since} // what no source has was found at the start
	w.known, w.last = w.compare(there, &s, &ledger.Sheet{At: s.At, Ports: s.Leaving}), there
	w.hubs = hubsOf(slices.Concat(s.Ports, s.Leaving))
	sources := map[string]bool{"": true}
	for k := range there {
		sources[k.source] = true
	}
	maps.DeleteFunc(w.grown, func(g Grown, _ uint64) bool { return !sources[g.Source] })
}

// close takes in the last account of a source that has left, and of its peers.
func (w *lossWatch) close(s ledger.Sheet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	there := map[bookKey]ledger.Time{}
	w.compare(there, &s)
	maps.DeleteFunc(w.known, func(k lossKey, _ uint64) bool { _, closed := there[k.in()]; return closed })
	maps.DeleteFunc(w.last, func(k bookKey, _ ledger.Time) bool { _, closed := there[k]; return closed })
}

// compare lists what was lost since the last look, by the books of the sheets, and returns what was
// lost so far. It notes in there when each book lost something last.
func (w *lossWatch) compare(there map[bookKey]ledger.Time, sheets ...*ledger.Sheet) map[lossKey]uint64 {
	for _, s := range sheets {
		for i := range s.Ports {
			p := &s.Ports[i]
			there[bookKey{p.ID, p.Book}] = p.LastLoss
		}
	}
	w.carry(there)
	keys, now := keysOf(sheets...)
	for _, k := range keys {
		at := sheets[0].At
		if last := there[k.in()]; k.loss.Source == "" || last > w.last[k.in()] {
			// the book knows the moment; it may lie before the last sheet, whose accounts are older
			// than its time
			at = last
		}
		if before := w.known[k]; k.loss.Where == whereLate {
			w.came(k.loss.Source, now[k]-min(before, now[k]))
		} else if now[k] > before {
			w.post(k.loss, now[k]-before, at)
			w.grow(k.loss, now[k]-before)
		} else {
			w.takeBack(k.loss, before-now[k])
		}
	}
	for k, before := range w.known {
		_, open := there[k.in()]
		// else the book is closed, and what it had lost stays lost
		if open && now[k] == 0 && k.loss.Where != whereLate {
			w.takeBack(k.loss, before)
		}
	}
	return now
}

// carry sees to peers that are gone: what they had lost is in the book of their source now, where
// that is there.
func (w *lossWatch) carry(there map[bookKey]ledger.Time) {
	gone := map[lossKey]uint64{}
	for k, n := range w.known {
		source, _, isPeer := strings.Cut(k.loss.Source, "/")
		hub, ok := w.hubs[k.in()]
		if !ok { // accounts without numbers
			hub = bookKey{source: source}
		}
		_, itself := there[k.in()]
		_, hasHub := there[hub]
		if isPeer && !itself && hasHub {
			delete(w.known, k)
			k.loss.Source, k.book = hub.source, hub.book
			gone[k] += n
		}
	}
	for k, n := range gone {
		w.known[k] += n
	}
}

func (w *lossWatch) grow(l ledger.Loss, n uint64) {
	if w.grown == nil {
		w.grown = map[Grown]uint64{}
	}
	w.grown[Grown{l.Source, l.Where, l.Unit}] += n
}

// Grown is what was lost since the start, of the sources that are there, as of the last second.
func (r *Recorder) Grown() map[Grown]uint64 {
	r.losses.mu.Lock()
	defer r.losses.mu.Unlock()
	return maps.Clone(r.losses.grown)
}

// post adds a loss to the list.
func (w *lossWatch) post(k ledger.Loss, n uint64, at ledger.Time) {
	if i := w.newest(k, len(w.list)); i >= 0 {
		e := &w.list[i]
		if at >= e.To && time.Duration(at-e.To) <= burstPause && time.Duration(at-e.From) <= burstMost {
			grown := *e
			grown.N, grown.To = e.N+n, at
			w.list = append(slices.Delete(w.list, i, i+1), grown) // the list is in the order in which things were lost
			return
		}
	}
	if len(w.list) == maxLosses {
		w.list = slices.Delete(w.list, 0, 1)
		w.forgotten++
	}
	l := archive.Loss{Loss: k, From: at, To: at}
	l.N = n
	w.list = append(w.list, l)
}

// came takes back frames that came late and that another book had called missing.
func (w *lossWatch) came(source string, n uint64) {
	w.list, n = archive.TakeLate(w.list, source, n)
	if root, _, _ := strings.Cut(source, "/"); n > 0 {
		if w.late == nil {
			w.late = map[string]uint64{}
		}
		w.late[root] += n
	}
}

// takeBack takes so many from the newest entries: they came late, and were none.
func (w *lossWatch) takeBack(k ledger.Loss, n uint64) {
	for i := w.newest(k, len(w.list)); i >= 0 && n > 0; i = w.newest(k, i) {
		e := &w.list[i]
		back := min(n, e.N)
		e.N -= back
		n -= back
		if e.N == 0 {
			w.list = slices.Delete(w.list, i, i+1)
		}
	}
}

// newest is the index of the newest entry of that kind below end; -1: there is none.
func (w *lossWatch) newest(k ledger.Loss, end int) int {
	for i := end - 1; i >= 0; i-- {
		if withoutAmount(w.list[i].Loss) == k {
			return i
		}
	}
	return -1
}

// leave gives a sheet what goes with it: the newest entries, how many there are before them, and
// what came late of earlier starts.
func (w *lossWatch) leave(s *archive.StartSheet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := max(0, len(w.list)-archive.KeptLosses)
	s.Losses, s.LossesBefore = slices.Clone(w.list[n:]), w.forgotten+uint64(n)
	s.Late = maps.Clone(w.late)
}

// noteLosses takes what the sheet says was lost into the list, and the newest of that to the sheet.
func (r *Recorder) noteLosses(s *archive.StartSheet) {
	r.losses.look(s.Sheet)
	r.losses.leave(s)
}

// lossesLeft is the watch of a start that has left that sheet: what its end adds is to be listed,
// too.
func lossesLeft(e *archive.StartSheet) *lossWatch {
	w := &lossWatch{list: slices.Clone(e.Losses), forgotten: e.LossesBefore}
	if e.HasList() { // else all is to be listed
		w.late, w.last = maps.Clone(e.Late), map[bookKey]ledger.Time{}
		_, w.known = keysOf(&e.Sheet, &ledger.Sheet{Ports: e.Sheet.Leaving})
		// a recorder that goes on has other books of those
		w.hubs = hubsOf(slices.Concat(e.Sheet.Ports, e.Sheet.Leaving))
		for _, p := range slices.Concat(e.Sheet.Ports, e.Sheet.Leaving) {
			w.last[bookKey{p.ID, p.Book}] = p.LastLoss
		}
	}
	return w
}

// pastLosses is what earlier starts have lost. It is read when it is first asked for, and no more:
// a start need not wait for it, and it does not change.
type pastLosses struct {
	mu   sync.Mutex
	owed []*archive.StartSheet // may not be in the history yet
	read bool
	list []archive.Loss
	more uint64
	err  error
}

func (p *pastLosses) get(dir, identity string, now ledger.Time) ([]archive.Loss, uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.read {
		p.list, p.more, p.err = archive.PastLosses(dir, identity, p.owed, now)
		p.newest()
		p.read = p.err == nil || len(p.list) > 0 // else the disk did not answer
		if p.read {
			p.owed = nil
		}
	}
	return p.list, p.more, p.err
}

// newest forgets what is beyond the bound, the oldest first.
func (p *pastLosses) newest() {
	n := max(0, len(p.list)-maxLosses)
	p.list, p.more = slices.Clone(p.list[n:]), p.more+uint64(n)
}

// Losses lists what was lost since the start, and in the earlier ones that the history has, the
// newest first: of a source and its peers, or of all (""). forgotten is how many older entries were
// not kept, of all sources. An error tells of a line of the history that cannot be read.
func (r *Recorder) Losses(of string) (all []archive.Loss, forgotten uint64, err error) {
	past, more, err := r.past.get(r.cfg.Log.Dir, hexIdentity(r.log), ledger.Time(r.since))
	w := &r.losses
	w.mu.Lock()
	defer w.mu.Unlock()
	past = slices.Clone(past)
	for _, source := range slices.Sorted(maps.Keys(w.late)) {
		past, _ = archive.TakeLate(past, source, w.late[source])
	}
	all = []archive.Loss{}
	for _, l := range slices.Concat(past, w.list) {
		if of == "" || archive.Selects(of, l.Source) {
			all = append(all, l)
		}
	}
	slices.Reverse(all) // no clock has a say: it may have been set
	return all, w.forgotten + more, err
}
