package recorder

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// recovered tells what the log had lost when it was opened, and returns it for the books; nil:
// nothing. missing is what no sheet has named before.
func recovered(found seglog.Recovery, missing []ledger.MissingRecords, log *slog.Logger) *ledger.Recovered {
	if len(missing) == 0 && len(found.Torn) == 0 && len(found.Damaged) == 0 && found.CutAt == "" {
		return nil
	}
	r := &ledger.Recovered{
		Missing: append([]ledger.MissingRecords{}, missing...), CutBytes: found.CutBytes, CutAt: found.CutAt,
		SetAside: append([]string{}, found.Torn...),
	}
	for _, m := range missing {
		log.Error("durable records are gone from the log: somebody removed or cut a segment, or the disk lost it; "+
			"bring the file back from a copy, with the recorder stopped, or accept the gap; "+
			"where `log export` ends at it, `log repair` gives it up, with the recorder stopped",
			"lost", seglog.Missing{From: m.From, To: m.To, AtMost: m.AtMost, What: m.What}.String())
	}
	for _, name := range found.Damaged {
		log.Warn("a segment was cut off within its header: nothing of it can be read, and it was set aside",
			"kept as", name)
		r.SetAside = append(r.SetAside, name)
	}
	if found.CutAt != "" {
		log.Warn("a torn tail was cut: those bytes had not been durable; nothing is to be done", "at", found.CutAt,
			"bytes", found.CutBytes)
	}
	for _, name := range found.Torn {
		log.Warn("a segment was set aside, for the one before it is torn: it had not been durable; "+
			"`log cat` of a copy of the folder may read it", "kept as", name)
	}
	return r
}

// takeOver closes the books of the start before this one, if it could not do so itself, and learns
// where its sources go on. nil: there was none.
func (r *Recorder) takeOver(e *archive.StartSheet) {
	if e == nil {
		return
	}
	var there []ledger.Port // who was there before the start that e is of
	if closed, next := e.Follower(r.log.Position().Stored); next != nil {
		r.slog.Warn("a start since the last sheet has left none that can be read: the books go on from what the log has of it; " +
			"what else it lost is not known, as the verdict says until the next ack")
		r.lastEnd, r.open = EndUnknown, openOf(&archive.StartSheet{Troubles: e.Troubles, Sheet: closed.Sheet})
		r.end(closed, closed.Sheet.At)
		there, e = slices.Concat(closed.Sheet.Leaving, closed.Sheet.Ports), next
	}
	why := outageNotRunning
	if n := r.takeBack(e); n > 0 {
		why += fmt.Sprintf("; the log lost its last %d records, which had not been synced", n)
	}
	if e.Lacks(r.log.Position().First) && !e.HasNone() {
		r.slog.Warn("the log has removed records that no sheet knew of yet: whether frames were missing among them is not known, as the verdict says until the next ack")
		r.owed = append(r.owed, e.RecordsGone())
	}
	losses := lossesLeft(e)
	gone := r.giveUp(e, losses)
	last, err := e.Replay(r.log, r.streams, r.ackedBehind(e))
	if err != nil {
		r.slog.Warn("the end of the log cannot be read: frames that are there may be called missing", "error", err)
		why += fmt.Sprintf("; the end of the log could not be read: %v", err)
	}
	if e.Sheet.At == 0 { // of a start without a sheet the log knows best
		e.Sheet.At = ledger.Time(last)
	}
	if e.Sheet.Since == 0 { // it stands for a start on this log
		e.Identity = hexIdentity(r.log)
	}
	if e.End == "" || e.Uncertain { // what it had lost behind its sheet is in it now
		losses.look(e.Sheet)
		losses.leave(e)
		r.closeEvicted(e)
		e.LogStored = r.log.Position().Stored // up to where it knows of the log now
	}
	if e.HasNoEnd() || e.HasNone() { // else it has said itself when it ended, by the clock as that was then
		last = max(int64(e.Sheet.At), last)
	} else {
		last = int64(e.Sheet.At)
	}
	r.end(e, ledger.Time(last))
	isSet := r.clock.between(r.since, last, r.slog)
	r.leaveOff(e, slices.Concat(there, gone, e.Sheet.Leaving, e.Sheet.Ports),
		place{at: last, why: why, isSet: isSet})
}

// takeUnsaved sees to it that the books say so where the last sheet could not be renewed, whether
// the start was stopped then or killed: what it counted behind that sheet is not known.
func (r *Recorder) takeUnsaved(left *archive.StartSheet) {
	since := archive.Unsaved(r.cfg.Log.Dir)
	if since == 0 {
		return
	}
	r.unkept = true // until the history says so
	of := archive.StartSheet{Identity: hexIdentity(r.log)}
	if left != nil {
		of.Identity = left.Identity
	}
	of.Sheet.At = since
	r.owed = append(r.owed, of.RecordsGone())
	r.lastEnd = EndUnknown
	r.slog.Warn("the start before this one could not write its last sheets, as on a full disk: what it counted since is not known, as the verdict says until the next ack",
		"since", since)
}

// leaveOff notes where the sources go on that a start has left, by its sheet, and by the accounts
// of those that were there, the newest of each last.
func (r *Recorder) leaveOff(e *archive.StartSheet, there []ledger.Port, from place) {
	of := func(source string) place {
		own := from.after(e.Away[source])
		own.succeeds = e.Succeeds[source]
		if at, ok := e.ReadTo[source]; ok {
			own.at = min(own.at, int64(at))
		}
		return own
	}
	acked := r.ackedBehind(e) != nil
	r.missed.told(e.Missed, acked)
	r.missed.of(there, e.Sheet.At, acked)
	for _, p := range there { // those without numbers, too
		r.places[p.ID] = of(p.ID)
	}
	if e.HasNone() && from.at > 0 { // no sheet names them, but the table of streams does
		for _, source := range r.streams.Sources() {
			r.places[source] = from
		}
	}
	noEnd := e.KnowsNoEnd(r.log.Position().Stored)
	for source, ps := range e.Positions {
		at := of(source)
		if !noEnd {
			at.seen, at.stored = ps, ps
		}
		r.places[source] = at
	}
}

// giveUp takes out of the sheet of a start that was killed the accounts that had left since, each
// with a sheet of its own in the history. It returns those.
func (r *Recorder) giveUp(e *archive.StartSheet, losses *lossWatch) (gone []ledger.Port) {
	if e.End != "" && !e.Uncertain {
		return nil
	}
	parts, err := e.PartsBehind(r.cfg.Log.Dir)
	if err != nil {
		r.slog.Warn("the history cannot be read: what sources had lost that left just before the end may count twice",
			"error", err)
	}
	for _, part := range parts {
		losses.close(part.Sheet)
		e.GiveUp(part)
		r.iso.hasClosed(part)
		gone = append(gone, part.Sheet.Ports...)
	}
	return gone
}

// ackedBehind is a word that a sheet does not know of; nil: there is none.
func (r *Recorder) ackedBehind(e *archive.StartSheet) *archive.LateAck {
	a, err := archive.LoadAck(r.cfg.Log.Dir)
	if err != nil { // it is told by loadAck
		return nil
	}
	return a.Behind(e, hexIdentity(r.log))
}

// end has the last sheet of the start before this one kept, unless that start has done so. last is
// up to when it is known to have recorded, in ns since 1970.
func (r *Recorder) end(e *archive.StartSheet, last ledger.Time) {
	if e.End == "" {
		e.End = archive.CauseKilled
		r.slog.Warn("the start before this one left no end: it was killed, the power was cut, or the disk took no more; its last sheet is kept", "at", e.Sheet.At)
		e.Uncertain = true
	}
	if gone := e.HistoryGone(r.cfg.Log.Dir); gone != nil {
		r.tellHistoryGone()
		r.owed = append(r.owed, gone)
	}
	endOutages(&e.Sheet, e.ReadTo, last)
	if !e.Uncertain { // it has kept its sheet itself; should that be gone, it is kept again
		if e.Sheet.Since != 0 {
			kept := *e
			kept.Troubles, kept.Unsent, kept.History, kept.Dismissed = nil, nil, nil, nil
			kept.ReadTo, kept.Succeeds, kept.Away, kept.Missed = nil, nil, nil, nil
			r.owed = append(r.owed, &kept)
		}
		return
	}
	v := r.judge(e) // of what the log's end has put right
	e.Sheet.Verdict = &v
	kept := *e
	kept.Uncertain, kept.Unsynced, kept.LogMissing, kept.Found, kept.History = false, nil, nil, nil, nil
	kept.Troubles, kept.Unsent, kept.Dismissed = nil, nil, nil
	kept.ReadTo, kept.Succeeds, kept.Away, kept.Missed = nil, nil, nil, nil
	r.owed = append(r.owed, &kept)
}

// judge is the verdict on the last sheet of a start. It counts from the word that was given in that
// start, where the word is there. Else all of it counts.
func (r *Recorder) judge(e *archive.StartSheet) ledger.Verdict {
	if e.Sheet.Ack == nil {
		return e.Sheet.Judge()
	}
	a, err := archive.LoadAck(r.cfg.Log.Dir) // its error is told by loadAck
	switch {
	case err != nil || a == nil || a.Ack != *e.Sheet.Ack:
		all := e.Sheet
		all.Ack = nil
		return all.Judge()
	case a.Sheet != nil && a.Sheet.Since == e.Sheet.Since:
		e.Sheet.Acknowledge(a.Ack, a.Sheet)
	}
	return e.Sheet.Judge()
}

// takeBack sees to frames that the start before had stored, and that a power cut took before they
// were durable: they are counted here, and in no other book.
func (r *Recorder) takeBack(e *archive.StartSheet) (lost uint64) {
	end, unsynced := r.log.Position().Stored, r.log.Recovered().Unsynced
	if unsynced.To > 0 {
		end = unsynced.From - 1
	}
	lost, err := e.TakeBack(r.log, r.streams, end)
	if err != nil {
		r.slog.Warn("the end of the log cannot be read: frames that are there may be called lost", "error", err)
	}
	if behind := max(end, e.LogStored); unsynced.To > behind { // the sheet does not know of those
		lost += unsynced.To - behind
	}
	if lost == 0 {
		return 0
	}
	r.slog.Warn("the power was cut, or somebody has cut the log, which has lost frames that were stored and not synced: the sheet counts them; "+
		"`sync: batch` loses at most 50 ms", "frames", lost, "behind", end)
	if r.found == nil {
		r.found = &ledger.Recovered{Missing: []ledger.MissingRecords{}, SetAside: []string{}}
	}
	r.found.Unsynced = lost
	return lost
}
