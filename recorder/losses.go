package recorder

import (
	"cmp"
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
	read      map[string]uint64 // bytes, by source
	at        ledger.Time       // of the last look
	list      []archive.Loss    // the newest last
	forgotten uint64            // entries
}

// lossKey is a loss without its amount.
type lossKey ledger.Loss

func keyOf(l ledger.Loss) lossKey {
	l.N = 0
	return lossKey(l)
}

func (w *lossWatch) look(s ledger.Sheet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, read := map[lossKey]uint64{}, map[string]uint64{}
	lastLoss := map[string]ledger.Time{"": s.Since} // what no source has was found at the start
	for _, p := range s.Ports {
		read[p.ID], lastLoss[p.ID] = p.Bytes.Read, p.LastLoss
	}
	w.carry(read)
	for _, l := range s.Losses() {
		k, at := keyOf(l), s.At
		now[k] = l.N
		if last := lastLoss[l.Source]; l.Source == "" || last > w.at && last < s.At {
			at = last
		}
		if before := w.known[k]; l.N > before {
			w.post(k, l.N-before, at)
		} else {
			w.takeBack(k, before-l.N)
		}
	}
	for k, before := range w.known {
		_, still := now[k]
		if _, there := read[k.Source]; there && !still { // else the source is gone, and what it lost stays lost
			w.takeBack(k, before)
		}
	}
	w.known, w.read, w.at = now, read, s.At
}

// carry sees to books that are not those of the last look. A source that was started anew has
// others. What a peer that is gone had lost is in the book of its source now.
func (w *lossWatch) carry(read map[string]uint64) {
	gone := map[lossKey]uint64{}
	for k, n := range w.known {
		bytes, there := read[k.Source]
		switch source, _, peer := strings.Cut(k.Source, "/"); {
		case there && bytes < w.read[k.Source]:
			delete(w.known, k)
		case !there && peer:
			delete(w.known, k)
			k.Source = source
			gone[k] += n
		}
	}
	for k, n := range gone {
		w.known[k] += n
	}
}

// post adds a loss to the list.
func (w *lossWatch) post(k lossKey, n uint64, at ledger.Time) {
	if i := w.newest(k, len(w.list)); i >= 0 {
		e := &w.list[i]
		if at >= e.To && time.Duration(at-e.To) <= burstPause && time.Duration(at-e.From) <= burstMost {
			e.N, e.To = e.N+n, at
			return
		}
	}
	if len(w.list) == maxLosses {
		w.list = slices.Delete(w.list, 0, 1)
		w.forgotten++
	}
	l := archive.Loss{Loss: ledger.Loss(k), From: at, To: at}
	l.N = n
	w.list = append(w.list, l)
}

// takeBack takes so many from the newest entries: they came late, and were none.
func (w *lossWatch) takeBack(k lossKey, n uint64) {
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
func (w *lossWatch) newest(k lossKey, end int) int {
	for i := end - 1; i >= 0; i-- {
		if keyOf(w.list[i].Loss) == k {
			return i
		}
	}
	return -1
}

// kept is what goes with the sheet: the newest entries, and how many there are before them.
func (w *lossWatch) kept() (newest []archive.Loss, before uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := max(0, len(w.list)-archive.KeptLosses)
	return slices.Clone(w.list[n:]), w.forgotten + uint64(n)
}

// noteLosses takes what the sheet says was lost into the list, and the newest of that to the sheet.
func (r *Recorder) noteLosses(s *archive.StartSheet) {
	r.losses.look(s.Sheet)
	s.Losses, s.LossesBefore = r.losses.kept()
}

// lossesLeft is the watch of a start that has left that sheet: what its end adds is to be listed,
// too.
func lossesLeft(e *archive.StartSheet) *lossWatch {
	w := &lossWatch{list: slices.Clone(e.Losses), forgotten: e.LossesBefore}
	if len(e.Losses) > 0 || e.LossesBefore > 0 { // else it has left no list, and all is to be listed
		w.at, w.known = e.Sheet.At, map[lossKey]uint64{}
		for _, l := range e.Sheet.Losses() {
			w.known[keyOf(l)] = l.N
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
	slices.SortStableFunc(p.list, func(a, b archive.Loss) int { return cmp.Compare(a.To, b.To) })
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
	all = []archive.Loss{}
	for _, l := range slices.Concat(past, w.list) {
		if of == "" || archive.Within(l.Source, of) {
			all = append(all, l)
		}
	}
	slices.SortStableFunc(all, func(a, b archive.Loss) int { return cmp.Compare(b.To, a.To) })
	return all, w.forgotten + more, err
}
