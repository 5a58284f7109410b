package recorder

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
)

// save closes the books of sources that have left, and brings the sheet on disk up to date. If this
// start is killed between the two, the next one takes out of the sheet what has left by then.
func (r *Recorder) save() error { return r.saveAnd(func(*archive.StartSheet) {}) }

// saveAnd is save with somebody who looks at the sheet before it goes to disk.
func (r *Recorder) saveAnd(look func(*archive.StartSheet)) error {
	r.saving.Lock()
	defer r.saving.Unlock()
	r.farewell(false)
	s := r.startSheet("")
	look(&s)
	if !r.saved.isNews(s, time.Now()) {
		return nil
	}
	err := r.write(&s, false)
	if err != nil { // what is not on disk is news the next time
		r.saved = savedSheet{}
	}
	return err
}

// startSheet draws up what the next start is to know. Only one goroutine at a time may call it.
func (r *Recorder) startSheet(end string) archive.StartSheet {
	r.iso.gather()
	s := archive.StartSheet{End: end, Positions: map[string][]ledger.Position{}}
	r.absorbing.RLock()
	r.settling.Lock()
	s.LogStored = r.settleAll().Stored
	r.mu.Lock()
	ports, leaving := families(r.ports), families(r.leaving)
	r.mu.Unlock()
	var accounts []ledger.Port
	for i, p := range slices.Concat(ports, leaving) {
		s.LogStored = p.lane.reaches(s.LogStored) // before the positions, which may know more
		account, accounted, seen, unsynced := p.lane.statement()
		if i < len(ports) {
			accounts = append(accounts, account)
		}
		s.Reach(p.lane.cfg.ID, accounted, seen)
		s.Unsure(p.lane.cfg.ID, unsynced)
		if got := p.lane.succession(); i < len(ports) && len(got.Positions) > 0 {
			if s.Succeeds == nil {
				s.Succeeds = map[string]archive.Succession{}
			}
			s.Succeeds[p.lane.cfg.ID] = got
		}
	}
	r.settling.Unlock()
	for source, u := range r.parted {
		s.Unsure(source, u)
	}
	r.mu.Lock()
	// sources that are not configured now keep their places, those without numbers, too
	for source, at := range r.places {
		_, ok := s.Positions[source]
		if isPeer := strings.Contains(source, "/"); !ok && (len(at.stored) > 0 || !isPeer) {
			s.Positions[source] = at.stored
			r.tellAway(&s, source, at)
		}
	}
	r.hasDismissed()
	s.Troubles, s.Unsent, s.Dismissed = r.open, r.unsent, r.dismissed
	s.Missed = r.missed.tell()
	r.unnamed.tell(&s, r.streams)
	r.mu.Unlock()
	s.Sheet, s.ReadTo = r.draw(ports, accounts), readTo(r.sources())
	r.absorbing.RUnlock()
	if end == "" {
		s.Waiting, s.WaitingFrom = r.iso.unshown() // after the accounts: before them, they might have some of it, too
	}
	r.iso.remember()
	at := r.log.Position() // after the positions, which know no more than this
	s.LogDurable = at.Durable
	if end != "" || !mayRemove(r.cfg.Log) {
		s.LogFirst = at.First
	}
	s.LogBegun = at.Bytes > 0
	s.LogOldest, s.LogEvicted = r.oldest, r.ever
	if at.Err != nil { // closed, or failed: nothing is added any more
		s.LogEnd = at.Next - 1
	}
	maps.DeleteFunc(r.parted, func(_ string, u archive.Span) bool { return u.Last <= at.Durable })
	s.Identity, s.LogMissing = hexIdentity(r.log), r.missing
	s.ClockWrong = r.clock.wrongTimes()
	r.noteLosses(&s) // or the list would be of before what the sheet counts
	s.Parts = r.parts
	s.NumberAccounts()
	return s
}

// mayRemove reports whether a log removes its oldest records by itself, at any moment.
func mayRemove(c config.Log) bool {
	return !keepsAll(c) || c.OnFull == "drop-oldest"
}

// keepsAll reports whether a log removes no record while its disk has room.
func keepsAll(c config.Log) bool { return c.Keep.Size == 0 && c.Keep.Age == 0 }

// idlePeriod is how old the sheet on disk may get while nothing changes: the outage of a start that
// is killed begins then.
const idlePeriod = 10 * time.Second

// savedSheet is the newest one on disk, so that one that says the same is not written, and synced,
// again.
type savedSheet struct {
	sheet archive.StartSheet
	at    time.Time // zero: there is none
}

// isNews reports whether s is to be written, and takes it for written then.
func (w *savedSheet) isNews(s archive.StartSheet, now time.Time) bool {
	s.Sheet.At = 0
	if !w.at.IsZero() && now.Sub(w.at) < idlePeriod && reflect.DeepEqual(w.sheet, s) {
		return false
	}
	w.sheet, w.at = s, now
	return true
}
