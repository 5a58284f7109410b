package recorder

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// stopPatience is how long a stop waits for the log to take what is held. Tests have less.
var stopPatience = 10 * time.Second

// lastPatience is how long a stop tries again to end the log and to write the last sheet while no
// descriptors are to be had.
const lastPatience = 2 * time.Second

// empty waits until the log has taken and stored what stopped ports still hold, each of them for so
// long at most, and twice as long for all. A log that cannot write, as on a full disk, may go on at
// any moment: all of them wait for that together.
func (r *Recorder) empty(ports []*port, patience time.Duration) {
	stalled := time.Now().Add(patience)
	last := stalled.Add(patience) // whoever waits for a stop may kill: however many wait for a slow log
	for _, p := range ports {
		deadline := time.Now().Add(patience)
		if deadline.After(last) {
			deadline = last
		}
		for time.Now().Before(deadline) {
			r.settleOne(p.lane)
			at := r.log.Position()
			if p.lane.isSettled() || at.Err != nil {
				break
			}
			if at.Stalled == nil {
				r.syncUntil(deadline)
				if p.lane.awaitsFile() {
					time.Sleep(spillLook)
				}
			} else if deadline = stalled; time.Now().Before(deadline) {
				time.Sleep(stallLook)
			}
		}
	}
}

// settleOne brings the newest commit to one lane, which may come before the others are told.
func (r *Recorder) settleOne(l *lane) {
	r.settling.Lock() // not in the middle of a sheet
	defer r.settling.Unlock()
	l.settle(r.commits.get(), time.Now().UnixNano())
}

// spillLook is how often a stop looks whether frames are back that had run over into a file.
const spillLook = time.Millisecond

// stallLook is how often a stop looks whether a log that is stalled goes on.
const stallLook = 20 * time.Millisecond

// syncUntil syncs the log. It waits until the deadline at most: a log that stalls now syncs when it
// goes on, or is closed. The error shows in Position.
func (r *Recorder) syncUntil(deadline time.Time) {
	synced := make(chan struct{})
	go func() {
		defer close(synced)
		_ = r.log.Sync()
	}()
	patience := time.NewTimer(time.Until(deadline))
	defer patience.Stop()
	select {
	case <-synced:
	case <-patience.C:
	}
}

// Stop ends the recording: it stops the sources, brings what is held into the log, syncs it, has
// the forwarder finish, closes the log, and returns the last sheet. end says why, for the record.
func (r *Recorder) Stop(end string) (ledger.Sheet, error) {
	r.iso.stop()      // a reload that waits for the log waits no longer than this
	r.changing.Lock() // no source is added from now on
	r.waiting.Store(0)
	r.changing.Unlock()
	for _, p := range r.snapshot() { // the verdict is on what held until now
		p.lane.ends()
	}
	var all sync.WaitGroup
	for _, p := range r.sources() {
		all.Go(func() { p.stop(closeAll) })
	}
	all.Wait()
	for _, p := range r.all() {
		if p.remote != nil {
			<-p.remote.spent
		}
	}
	err := r.reader.Close()
	r.empty(r.all(), stopPatience)
	close(r.quit)
	if r.iso != nil {
		r.iso.bell.Ring()
	}
	r.done.Wait()
	r.finishForward()
	r.files.waitFor(lastPatience)
	err = errors.Join(err, r.closeLog())
	if r.cfg.Log.Linked {
		r.slog.Info("the log's linked batches", "outcome", r.chains.Counts())
	}
	lost, left, untaken := causeFailed, uint64(0), uint64(0)
	switch {
	case err == nil:
		lost = causeStopped
	case errors.Is(err, seglog.ErrDiskFull):
		lost = causeDiskFull
	case errors.Is(err, seglog.ErrStalled):
		lost = causeStalled
	}
	for _, p := range r.all() {
		r.settleOne(p.lane)
		left += p.lane.lose(lost)
		untaken += p.lane.notTaken()
	}
	if left+untaken > 0 && err == nil {
		err = fmt.Errorf("the log did not take all that waited for it in time: %d frames are dropped, and %d bytes that had arrived are left unread", left, untaken)
	}
	err = errors.Join(err, unended(r.all()))
	r.saving.Lock()
	defer r.saving.Unlock()
	if !errors.Is(err, seglog.ErrFailed) { // else sources go on leaving: the next start knows what the log has of them
		r.farewell(true)
	}
	for _, p := range append(r.departing(), r.sources()...) {
		p.depart()
	}
	if r.iso != nil { // whoever came after a kill from here on would find a start that has ended
		_ = r.iso.link.Put(isolate.EndEntry, true) // an error: the keeper has ended itself
	}
	s := r.startSheet(end)
	r.proclaim(&s, true)
	err = errors.Join(err, r.leave(&s, err))
	r.teller.Close() // may take its time: a kill meanwhile finds the sheet written
	if unsent := r.teller.Unsent(); !reflect.DeepEqual(unsent, s.Unsent) {
		s.Unsent = unsent
		err = errors.Join(err, r.write(&s, true))
	}
	return s.Sheet, err
}

// leave keeps the last sheet, in the history, too. logErr is how the log has ended.
func (r *Recorder) leave(s *archive.StartSheet, logErr error) error {
	endOutages(&s.Sheet, s.ReadTo, s.Sheet.At)
	if errors.Is(logErr, seglog.ErrFailed) {
		s.End = fmt.Sprintf("%s; %v", s.End, logErr)
		s.Uncertain = true // the next start knows what the log has, and keeps the sheet
		return r.write(s, true)
	}
	keepErr := r.settleOwed()
	if keepErr == nil {
		kept := *s
		// A line of the history has none. The rest says where the sources go on, for the next start
		// may find this line alone: a kill comes before the sheet is written.
		kept.Troubles, kept.Unsent = nil, nil
		// first: the next start keeps what says nothing of its end
		keepErr = r.keep(&kept)
	}
	r.inHistory = keepErr == nil
	return errors.Join(keepErr, r.write(s, true))
}
