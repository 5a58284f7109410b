package recorder

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// openLog opens the log and closes the books of the start before this one. When it returns, what
// the log has lost is in the sheet of that start on disk, and no record has been added. With dir
// nil the log is in the folder that is configured.
func (r *Recorder) openLog(dir seglog.FS) error {
	c := r.cfg.Log
	var by seglog.Proving
	var err error
	if by.Sign, err = c.Signer(); err != nil {
		return fmt.Errorf("log.sign: %w", err)
	}
	if dir == nil {
		if dir, err = openFiles(c, &r.chains, r.slog); err != nil {
			return err
		}
	}
	left, noSheet := r.loadLast()
	r.lastEnd, r.open = endOf(left), openOf(left)
	r.clock.look(r.slog)
	r.files = newReserve(dir)
	known, err := r.openAs(left)
	if errors.Is(err, seglog.ErrOther) {
		r.slog.Error("the log in the folder is not the one that was recorded last: the books begin anew, and nothing is compared with the last sheet; "+
			"stop the recorder and bring the right log back, if this is a mistake", "error", err)
		noSheet = err
		r.end(left, left.Sheet.At)
		if gone := left.FollowerGone(); gone != nil {
			r.owed = append(r.owed, gone)
		}
		known, err = r.openAs(nil)
	}
	if err != nil {
		r.files.close()
		if errors.Is(err, seglog.ErrLocked) { // what else it says is the same again
			err = seglog.ErrLocked
		}
		return fmt.Errorf("log %s: %w", c.Dir, err)
	}
	if aside, err := archive.SetTornAside(c.Dir); err != nil {
		r.slog.Warn("the last sheet, which cannot be read, stays where it is", "error", err)
	} else if aside != "" {
		r.slog.Warn("the last sheet, which cannot be read, was set aside", "kept as", aside)
	}
	if r.streams, err = r.loadStreams(); err == nil {
		if r.unnamed.begin(r.log, r.streams, known) {
			r.slog.Error("the table of streams is older than the log: records have numbers in place of names, as stream-1; " +
				"to name them, stop the recorder and bring the newest streams.json back from a copy")
		}
		if at := r.log.Position(); noSheet != nil && !r.isNew(noSheet) {
			r.slog.Warn("no sheet can be read; the books go on from what the log says", "error", noSheet)
			if known == nil {
				known = archive.Rebuilt(at.First, at.Stored)
			}
		}
		if r.goesOn(known, left) {
			r.restarted = true
			r.goOn(known)
		} else {
			r.takeOver(known)
			r.takeUnsaved(left)
			r.noteOldest()
		}
	}
	if err != nil {
		return errors.Join(err, r.closeLog())
	}
	r.past.owed = slices.Clone(r.owed)
	r.unnamed.look(r.log, r.streams)
	r.loadAck() // after the start before this one is in the history
	r.commitStored()
	r.prove(by)
	return nil
}

// isNew reports whether the log has nothing to tell to who has no sheet of it: it is empty, and of
// another identity, or of none before. Where the history is of another log than this one, which has
// records, it tells that somebody has put this one there.
func (r *Recorder) isNew(noSheet error) bool {
	isAnother := errors.Is(noSheet, seglog.ErrOther) // that is told
	if r.log.Position().Stored == 0 {
		return isAnother || errors.Is(noSheet, archive.ErrNoSheet)
	}
	was, now := archive.LogOfHistory(r.cfg.Log.Dir), hexIdentity(r.log)
	if !isAnother && was != "" && was != now {
		r.slog.Error("the log in the folder is not the one that the last line of sheets.ndjson is of, and no sheet is of it: the books begin anew; "+
			"stop the recorder and bring the right log back, if this is a mistake", "log", now, "sheets.ndjson", was)
	}
	return false
}

// loadLast loads what the start before has left; nil: nothing that can be read, and why.
func (r *Recorder) loadLast() (*archive.StartSheet, error) {
	left, err := archive.LoadStart(r.cfg.Log.Dir, r.slog)
	// this process has nothing to go on with
	if r.iso == nil || left != nil && r.iso.start.Since != int64(left.Sheet.Since) {
		left.Settle()
	}
	if left = left.Ended(r.cfg.Log.Dir); left != nil {
		r.clock.carry(left.ClockWrong)
		r.unsent = left.Unsent
	}
	return left, err
}

// commitStored takes what the log had when it was opened for the first commit: frames that come
// again behind a kill may be in it, and with a full disk no other commit says so.
func (r *Recorder) commitStored() {
	at := r.log.Position()
	r.commits.put(seglog.Commit{Stored: at.Stored, Durable: at.Durable})
}

// prove has the log prove to others what it holds, if that is configured.
func (r *Recorder) prove(by seglog.Proving) {
	if r.cfg.Log.Prove == "off" {
		return
	}
	by.Named = r.streams.Named
	by.OnTrouble = func(err error) {
		r.slog.Warn("what the log holds is not proven, or not all of it; recording goes on", "error", err)
	}
	r.log.Prove(by)
}

// loadStreams reads the table of streams. A damaged one of a log without a record is set aside: it
// names nothing.
func (r *Recorder) loadStreams() (*archive.Streams, error) {
	dir := r.cfg.Log.Dir
	streams, err := archive.LoadStreams(dir)
	if err == nil {
		if r.log.Position().Stored > 0 && streams.BeginAnew(time.Now()) {
			r.slog.Error("the table of streams is gone, and its copy: the records so far have numbers in place of names, as stream-1; " +
				"to name them, stop the recorder and bring streams.json back from a copy")
		}
		if harm := streams.Harm(); harm != nil {
			r.slog.Warn("the table of streams cannot be read; its copy serves, and no name is lost", "error", harm)
		}
		if err := streams.Mend(); err != nil { // it is written with the next new stream, too
			r.slog.Warn("the table of streams cannot be written twice: make room, or see to the disk", "error", err)
		}
		r.tellAside(streams)
		return streams, nil
	}
	if !errors.Is(err, archive.ErrStreams) || r.log.Position().Stored > 0 {
		return streams, err
	}
	streams, aside, asideErr := archive.NewStreams(dir)
	if asideErr != nil {
		return nil, errors.Join(err, asideErr)
	}
	r.slog.Warn("the table of streams is damaged and was set aside; the log has no record, so no name is lost",
		"kept as", aside)
	return streams, nil
}

// tellAside tells what was set aside for the table of streams.
func (r *Recorder) tellAside(streams *archive.Streams) {
	for _, name := range streams.TakeAside() {
		r.slog.Warn("something that is no file stood in the place of the table of streams, or of its copy; it was set aside, and no name is lost", "kept as", name)
	}
}

// openAs opens the log, of which a sheet knows what it should hold; nil: there is none. It returns
// that sheet with what is missing, or a new one where there was none and something is.
func (r *Recorder) openAs(left *archive.StartSheet) (*archive.StartSheet, error) {
	c := r.cfg.Log
	full := seglog.StopWhenFull
	if c.OnFull == "drop-oldest" {
		full = seglog.DropOldest
	}
	var damage *ledger.LogDamage
	if left != nil {
		damage = left.Sheet.LogDamage
	}
	expect := left.Expect()
	expect.Stored = r.storedBefore(left)
	var err error
	r.log, err = seglog.Open(seglog.Config{
		FS: r.files, SegmentBytes: int64(c.Segment), Sync: c.Policy(),
		BatchRecords: c.Records, BatchDelay: c.Delay, SyncInterval: c.Interval,
		KeepBytes: int64(c.Keep.Size), KeepAge: c.Keep.Age, OnFull: full, MinFree: int64(c.Reserve), Chain: c.Linked,
		Expect: expect, Identity: left.Log(),
		Hold: r.forward.hold, Proves: c.Prove != "off", Beside: beside(r.cfg),
		Scrub: c.ScrubPeriod(), Suspect: r.damage.carry(damage), OnChecked: r.damage.checked,
		OnRecovered: func(found seglog.Recovery) error {
			left = r.hold(left, found)
			return nil
		},
		OnLeft: func(err error) {
			r.slog.Warn("something stands in the place of a file of the log, or keeps it from being written: it is left as it is, unless it has another name now, and the log goes on; move it away", "error", err)
		},
		Age: func(at int64) time.Duration {
			r.clock.look(r.slog) // or a step since the last look would count
			return r.clock.age(at)
		},
		Gather: r.iso.gather,
		OnCommit: func(c seglog.Commit) {
			if c.Synced {
				r.syncs.Record(c.Took, 1)
			}
			r.commits.put(c)
		},
	})
	if err == nil && left != nil {
		r.found = recovered(r.log.Recovered(), left.Found, r.slog)
	} else if err == nil {
		r.found = recovered(r.log.Recovered(), nil, r.slog)
	}
	if err == nil {
		r.tellRoom()
		r.tellShared()
	}
	return left, err
}

// tellShared warns where the newest segment, which is written to, has another name. Only the lock
// on a folder keeps a second recorder out, and LOCK need not have been linked with the segments.
func (r *Recorder) tellShared() {
	files, err := os.ReadDir(r.cfg.Log.Dir)
	if err != nil {
		return
	}
	for _, f := range slices.Backward(files) {
		if !strings.HasSuffix(f.Name(), ".seg") {
			continue
		}
		if st, err := f.Info(); err == nil && st.Mode().IsRegular() && sys.Links(st) > 1 {
			r.slog.Warn("the newest segment has another name, too, as in a copy of the folder made of hard links: "+
				"what is recorded goes into that copy, and a recorder on it would write over this log; "+
				"copy the folder with its bytes", "segment", f.Name())
		}
		return
	}
}

// hold keeps what the log has lost with the sheet of the start before this one, should this one end
// before it has a sheet. From then on retention may go on, and records come, so what that start
// knew of the log's first record and of its end is taken out: what is dropped in order must not be
// missed.
func (r *Recorder) hold(left *archive.StartSheet, found seglog.Recovery) *archive.StartSheet {
	for _, m := range found.Missing {
		r.missing = append(r.missing, ledger.MissingRecords{From: m.From, To: m.To, AtMost: m.AtMost, What: m.What})
	}
	news := left.Untold(r.missing)
	if len(news) == 0 && (left == nil || left.LogFirst == 0 && left.LogEnd == 0) {
		return left
	}
	if left == nil {
		left = archive.Rebuilt(found.First, found.Last)
	}
	with := *left
	with.LogFirst, with.LogEnd, with.Found = 0, 0, append(with.Found, news...)
	if err := writeSheet(r.cfg.Log.Dir, func() error { return with.Save(r.cfg.Log.Dir, true) }); err != nil {
		r.slog.Warn("what the log has lost is not on disk yet; it is lost from sight if the recorder is killed now",
			"error", err)
	}
	return &with
}

// closeLog ends the log.
func (r *Recorder) closeLog() error {
	err := r.log.Close()
	r.files.close()
	return err
}

// saveFirst writes a sheet before anything is recorded on top of it. What is in the way may pass:
// the sheet is tried again each second.
func (r *Recorder) saveFirst() {
	s := r.startSheet("")
	if err := r.write(&s, true); err != nil {
		r.slog.Warn("the sheet cannot be written yet, and is tried again each second: make room, or see to the disk",
			"error", err)
	}
}

// write brings a sheet of this start to disk. The sheet that is there is kept first, as long as
// that has not been done.
func (r *Recorder) write(s *archive.StartSheet, durable bool) error {
	if r.isElsewhere(s) {
		return fmt.Errorf("%s is the folder of another log now: the sheet is not written over the one there",
			r.cfg.Log.Dir)
	}
	err := r.writeHere(s, durable)
	is := err != nil && !r.inHistory
	if is != r.unkept && archive.MarkUnsaved(r.cfg.Log.Dir, is) == nil { // else the next time
		r.unkept = is
	}
	return err
}

// writeHere is write into the folder of this log.
func (r *Recorder) writeHere(s *archive.StartSheet, durable bool) error {
	if err := r.settleOwed(); err != nil {
		return err
	}
	if r.marked == nil {
		r.markHistory()
	}
	s.History = r.marked
	return r.writeSheet(func() error { return s.Save(r.cfg.Log.Dir, durable) })
}

// writeSheet writes into the log's folder, again and again at a stop that finds no descriptors.
func (r *Recorder) writeSheet(f func() error) error {
	return r.files.patiently(func() error { return writeSheet(r.cfg.Log.Dir, f) })
}

// isElsewhere reports whether somebody has put the folder of another log in the place of this
// one's.
func (r *Recorder) isElsewhere(s *archive.StartSheet) bool {
	now, err := os.Stat(r.cfg.Log.Dir)
	if err != nil || r.folder == nil || os.SameFile(now, r.folder) {
		return false // an error shows when the sheet is written
	}
	return s.OnOtherLog(archive.LogOf(r.cfg.Log.Dir))
}

// settleOwed keeps the last sheet of the start before this one.
func (r *Recorder) settleOwed() error {
	for len(r.owed) > 0 {
		owed := r.owed // a look at the history may add to it
		if err := r.keep(owed...); err != nil {
			return fmt.Errorf("keep the last sheet of the start before: %w", err)
		}
		r.owed = r.owed[len(owed):]
	}
	return nil
}

func hexIdentity(log *seglog.Log) string {
	id := log.Identity()
	return hex.EncodeToString(id[:])
}
