package recorder

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// A recorder that was killed, of `isolate: process`, goes on with its start: the next one has the
// same beginning, the same books of the sources whose spools have outlived it, and the same list
// of losses. So no account is there twice, and nothing is closed that goes on. Sources that it read
// itself have died with it: their accounts go to the history as a part of the start, as those of
// sources that leave do, and they begin anew behind an outage.

// goesOn reports whether the sheet on disk is that of the start that this process is to go on
// with, on this log. last is the sheet that was found in the folder, whatever log it is of; nil:
// there was none.
func (r *Recorder) goesOn(e, last *archive.StartSheet) bool {
	if r.iso == nil || r.iso.start.Since == 0 {
		return false
	}
	if e != nil && e.HasNoEnd() && int64(e.Sheet.Since) == r.iso.start.Since && e.Identity == r.iso.start.Identity &&
		hexIdentity(r.log) == e.Identity {
		return true
	}
	was := r.iso.start
	r.iso.start = isolate.Start{} // this one begins another
	defer r.iso.closed.forget(r.iso)
	if len(r.iso.left) == 0 && r.iso.closed.isEmpty() {
		return false
	}
	r.slog.Error("the recorder was restarted, and its last sheet is not there, or is not of this log: it begins a new start, " +
		"and what waited in memory for the log is missing, as the sheet of the start before says")
	r.closeMemory(was, last)
	for _, id := range r.iso.sources() {
		r.iso.giveUp(id)
	}
	return false
}

// sources lists those of the spools that are left.
func (i *isolation) sources() (all []string) {
	for id := range i.left {
		all = append(all, id)
	}
	slices.Sort(all)
	return all
}

// goOn goes on with the start that has left that sheet.
func (r *Recorder) goOn(e *archive.StartSheet) {
	r.since, r.lastEnd, r.open = int64(e.Sheet.Since), LastEnd(r.iso.start.LastEnd), e.Troubles
	r.found = e.Sheet.Recovered.And(r.found)
	r.clock.goOn(e.Sheet.Clock)
	r.takeEvicted(e)
	e.End, e.Left, e.Uncertain = "", "", false
	e.Waiting, e.WaitingFrom = nil, nil
	lost := lossesLeft(e)
	gone := r.giveUp(e, lost)
	r.parts = e.Parts
	for _, p := range gone {
		lanesMade.Store(max(lanesMade.Load(), p.Book, p.Hub))
		if l := r.iso.left[p.ID]; l != nil && l.book == p.Book && p.Book != 0 { // the log has all of it
			r.iso.drop(p.ID)
		}
	}
	for _, p := range slices.Concat(e.Sheet.Ports, e.Sheet.Leaving) {
		lanesMade.Store(max(lanesMade.Load(), p.Book, p.Hub))
		if l := r.iso.left[p.ID]; l != nil && l.lane.Book == 0 {
			l.book = p.Book // of two of one name, one has left
		}
	}
	for _, id := range r.iso.sources() {
		l := r.iso.left[id]
		lanesMade.Store(max(lanesMade.Load(), l.book))
		if l.book == 0 { // its spool was made, and no sheet has it: it is new
			l.book = lanesMade.Add(1)
		}
	}
	r.dropDismissed(e.Dismissed)
	r.iso.last = e
	if r.iso.stops { // nobody reads any more
		r.iso.readTo = e.ReadTo
	}
	died := r.without(e)
	r.iso.died = r.parts > 0 || len(e.Dismissed) > 0
	for _, p := range slices.Concat(died.Sheet.Ports, died.Sheet.Leaving) {
		r.iso.died = r.iso.died || p.Frames.Stored > 0 || p.Bytes.Quarantined > 0
	}
	r.losses.list, r.losses.forgotten, r.losses.late = lost.list, lost.forgotten, lost.late
	r.losses.known, r.losses.hubs, r.losses.last = lost.known, lost.hubs, lost.last
	r.closeDied(died, gone, r.iso.sources())
	if r.lostEnd() {
		r.slog.Warn("recorder restarted, and the log has lost its end: what memory has of that is stored again",
			"sources", r.iso.sources(), "began", time.Unix(0, r.since))
		return
	}
	if r.iso.lost {
		r.slog.Warn("recorder restarted, and what waited in memory of a source is missing", "sources", r.iso.sources(),
			"began", time.Unix(0, r.since))
		return
	}
	r.slog.Info("recorder restarted, 0 bytes lost", "sources", r.iso.sources(), "began", time.Unix(0, r.since))
}

// noteOldest notes what is the oldest record as a start begins, and what a full disk had taken by
// then.
func (r *Recorder) noteOldest() {
	at := r.log.Position()
	if keepsAll(r.cfg.Log) {
		r.oldest = at.First - at.Evicted
	}
	ever := at.EverGone - at.Evicted
	r.ever = &ever
}

// takeEvicted takes over how many records were removed for want of room since the start began.
func (r *Recorder) takeEvicted(e *archive.StartSheet) {
	r.evicted, r.ever = r.evictedIn(e), e.LogEvicted
	if e.LogOldest == 0 || !keepsAll(r.cfg.Log) {
		return
	}
	at := r.log.Position()
	r.oldest = e.LogOldest
	if r.cfg.Log.OnFull == "drop-oldest" && at.First > r.oldest+at.Evicted {
		r.evicted = max(r.evicted, at.First-r.oldest-at.Evicted)
	}
}

// evictedIn is how many records were removed for want of room in the start of that sheet, before
// the log was opened again. The sheet does not know of those that were behind it, of which a disk
// that is full makes many; the log does, unless somebody took its word away.
func (r *Recorder) evictedIn(e *archive.StartSheet) (n uint64) {
	if e.Sheet.Log != nil {
		n = e.Sheet.Log.Evicted
	}
	at := r.log.Position()
	if e.LogEvicted != nil && at.EverGone > *e.LogEvicted+at.Evicted {
		n = max(n, at.EverGone-*e.LogEvicted-at.Evicted)
	}
	return n
}

// closeEvicted brings into the sheet of a start that was killed what was removed behind it.
func (r *Recorder) closeEvicted(e *archive.StartSheet) {
	n := r.evictedIn(e)
	if n == 0 {
		return
	}
	var log ledger.LogState
	if e.Sheet.Log != nil {
		log = *e.Sheet.Log
	}
	log.Evicted = n
	e.Sheet.Log = &log
}

// dropDismissed lets the spools go of peers that had made room, whose counts the sheet has in those
// of their source, and of sources whose books are closed. Books that are made from now on have
// other numbers.
func (r *Recorder) dropDismissed(books []uint64) {
	for _, book := range books {
		lanesMade.Store(max(lanesMade.Load(), book))
	}
	for _, id := range r.iso.sources() {
		if book := r.iso.left[id].lane.Book; slices.Contains(books, book) {
			r.dismissed = append(r.dismissed, book) // until the keeper has forgotten it
			r.iso.drop(id)
			r.iso.forgets(book)
		}
	}
}

// without is the sheet without the accounts that go on.
func (r *Recorder) without(e *archive.StartSheet) *archive.StartSheet {
	died := *e
	goesOn := func(p ledger.Port) bool {
		l := r.iso.left[p.ID]
		return l != nil && l.book == p.Book
	}
	died.Sheet.Ports = slices.DeleteFunc(slices.Clone(e.Sheet.Ports), goesOn)
	died.Sheet.Leaving = slices.DeleteFunc(slices.Clone(e.Sheet.Leaving), goesOn)
	died.Positions = map[string][]ledger.Position{}
	for source, ps := range e.Positions {
		if r.iso.left[source] == nil {
			died.Positions[source] = ps
		}
	}
	return &died
}

// closeDied closes the accounts of sources that have died with the recorder before. gone is those
// that had left. goOn names those whose books go on: what the log has of them behind the sheet is
// in no account that is closed.
func (r *Recorder) closeDied(e *archive.StartSheet, gone []ledger.Port, goOn []string) {
	there := slices.Concat(gone, e.Sheet.Leaving, e.Sheet.Ports)
	last, err := e.Replay(r.log, r.streams, r.ackedBehind(e), goOn...)
	if err != nil {
		r.slog.Warn("the end of the log cannot be read: frames that are there may be called missing", "error", err)
	}
	for source := range e.Positions { // of which the log has records behind the sheet
		root, _, _ := strings.Cut(source, "/")
		if r.iso.left[root] != nil {
			delete(e.Positions, source)
		}
	}
	last = max(int64(e.Sheet.At), last)
	endOutages(&e.Sheet, e.ReadTo, ledger.Time(last))
	if len(e.Sheet.Ports)+len(e.Sheet.Leaving) > 0 {
		accounts := slices.Concat(e.Sheet.Ports, e.Sheet.Leaving)
		part := archive.StartSheet{
			End: outageRestarted, Part: true, Parts: r.parts + 1, Identity: e.Identity,
			Positions: e.Positions, Acked: e.Acked,
		}
		part.Sheet = ledger.NewSheet(int64(e.Sheet.At), r.since, accounts)
		part.NumberAccounts()
		r.parts++
		r.losses.close(part.Sheet)
		r.owed = append(r.owed, &part)
		r.iso.hasClosed(&part)
	}
	r.leaveOff(e, there, place{at: last, why: outageRestarted})
	for id := range r.iso.left { // also where an account of that name has died which was leaving
		delete(r.places, id)
		delete(r.missed, id)
	}
}

// closeLeft forgets spools of which no source is left: the configuration was changed so that they
// cannot be shown to anybody.
func (r *Recorder) closeLeft() {
	if r.iso == nil {
		return
	}
	r.iso.readTo = nil // who comes from now on is read
	for _, id := range r.iso.sources() {
		r.slog.Error("what waited in memory for the log cannot be recorded: its source waits for room on the disk",
			"source", id)
		r.iso.giveUp(id)
	}
	if r.iso.file == nil { // else a listener may be of what the file says
		r.iso.connections.close(r.iso)
	}
}

// beginIsolated tells whoever comes after a kill which start this is.
func (r *Recorder) beginIsolated() error {
	if r.iso == nil || r.iso.start.Since != 0 {
		return nil
	}
	dir, err := filepath.Abs(r.cfg.Log.Dir)
	if err != nil {
		return err
	}
	r.iso.start = isolate.Start{
		Since: r.since, Identity: hexIdentity(r.log), LastEnd: string(r.lastEnd), Dir: dir, Formats: formats(),
	}
	return r.iso.link.Put(isolate.StartEntry, r.iso.start)
}

// formats names what lies in shared memory, and in which form.
func formats() string {
	return fmt.Sprintf("spool %d, lane %d, books %d", spool.Version, laneStateVersion, ledger.StateVersion)
}

// CheckGoOn is an error where a recorder of this program that has a configuration cannot take the
// place of one that records a start. It looks only, while that goes on.
func CheckGoOn(cfg config.Config, s isolate.Start) error {
	dir, err := filepath.Abs(cfg.Log.Dir)
	switch {
	case err != nil:
		return err
	case !cfg.Isolated():
		return errors.New("isolate has changed: that needs a stop and a start")
	case dir != s.Dir:
		return fmt.Errorf("log.dir has changed from %s: that needs a stop and a start, for another log begins there",
			s.Dir)
	case formats() != s.Formats:
		return fmt.Errorf("this program keeps what is under way in another form (%s, not %s): that needs a stop and a start", formats(), s.Formats)
	}
	limit, open := measure()
	if _, err := newAllotment(cfg, limit, open); err != nil {
		return err
	}
	if _, err := archive.LoadStreams(dir); err != nil {
		return err
	}
	fs, err := seglog.Dir(dir)
	if err != nil {
		return err
	}
	r := seglog.NewReader(fs, 0)
	defer r.Close()
	if _, err := r.Next(); errors.Is(err, seglog.ErrVersion) {
		return fmt.Errorf("the log: %w", err)
	}
	return nil
}

// renew has the keeper start another recorder for a change that one which runs cannot take up.
func (i *isolation) renew(why string, a, b config.Config) error {
	err := i.link.Renew(isolate.Renewal{Reader: reading(a) != reading(b), Why: why})
	if err != nil {
		return fmt.Errorf("%s: that needs another recorder, and the keeper has not taken the word: %w", why, err)
	}
	return ErrRenews
}

// ErrRenews is returned by Reload where another recorder takes up the change, if it can: the keeper
// tells. Nothing was changed in this one.
var ErrRenews = errors.New("another recorder takes this up")

// distrusts reports whether frames may have been lost that a recorder had taken which was killed.
func (r *Recorder) distrusts() bool {
	return r.lastEnd == EndUnknown || r.lastEnd == EndFailed || r.restarted
}
