package recorder

import (
	"time"

	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/sys"
)

// Who shows spools to their lanes: pump, which the reader wakes; the log, before it takes a batch;
// the hub, before it seats a connection or makes room; and whoever draws up a sheet. So pump need
// not be woken for each read: what comes while a batch is open is in that batch all the same, and
// no record is later on the disk than it was without spools.

// pump shows spools to their lanes until the recorder stops. The reader rings the bell for what it
// has written, and settle for what the log has stored. While it is rung again and again, it sleeps
// in raw calls, and keeps its P, as the thread of package reader does. It is not locked to its
// thread, for the reason that [reader.Alone] has.
//
// While bells come fast and a batch of the log is open, it dozes: see [isolate.Bell].
func (r *Recorder) pump() {
	sys.AddProcs(1)
	defer sys.AddProcs(-1)
	i := r.iso
	isClosed := func() bool { return !r.log.IsOpen() }
	look := func() bool {
		shown, _ := i.round()
		return shown > 0
	}
	var rung, dozed bool
	often := false // bells come faster than one in a doze
	for {
		shown, flood := i.showAll()
		select {
		case <-r.quit:
			return
		default:
		}
		if dozed {
			often = shown > 1
		}
		if dozed = often && !flood && !isClosed(); dozed {
			i.bell.Doze(isClosed)
			continue
		}
		began := time.Now()
		rung = i.bell.Sleep(rung, look)
		often = rung && time.Since(began) < isolate.DozeTime
	}
}

// gather shows what waits in spools, so that it is in the batch that the log is about to take, or
// on the sheet that is about to be drawn up.
func (i *isolation) gather() {
	if i != nil {
		i.showAll()
	}
}

// remember brings into checkpoints what a sheet that is drawn up, and is not on disk yet, may have
// of sources that no spool brings again, as what was thrown away unread: whoever comes after a kill
// takes the books of a source from its checkpoint, whatever the sheet says. It does not wait for
// the log: where that has not stored what a source has given it, the checkpoint comes later.
func (i *isolation) remember() {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, rm := range i.remotes {
		if rm.play.due != nil || rm.lane.isTouched() {
			_ = rm.play.saveBoth() // an error shows again
		}
	}
}

// unshown is the bytes that were read and that no lane was shown yet, for the log takes no more, by
// source: a kill of all processes loses them. from is where on the wire the first of them stands; a
// source that has left some on its last wire is not there.
func (i *isolation) unshown() (all, from map[string]uint64) {
	if i == nil {
		return nil, nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, rm := range i.remotes {
		unshown, inFront := rm.play.waits()
		n := unshown + inFront
		if n == 0 || rm.isOver() {
			continue
		}
		if all == nil {
			all, from = map[string]uint64{}, map[string]uint64{}
		}
		source := rm.lane.cfg.ID
		if all[source] == 0 {
			from[source] = rm.play.from.Point().Shown
		} else {
			delete(from, source)
		}
		all[source] += n
	}
	return all, from
}

// maxRounds bounds what is shown in a row: where the reader is faster, it has to wait in the end.
// It is as many as come in a doze at 50,000 marks a second.
const maxRounds = 40

// showAll shows what waits in spools: so many marks. flood: it took more than one round.
func (i *isolation) showAll() (shown int, flood bool) {
	for range maxRounds {
		n, more := i.round()
		if shown += n; !more {
			break
		}
		flood = true
	}
	return shown, flood
}

// round shows all spools some marks, and reports whether there may be more at once.
func (i *isolation) round() (shown int, more bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, rm := range i.remotes {
		if i.holds || rm.isOver() {
			_ = rm.play.save()
			continue
		}
		before := rm.play.from.Point().Marks
		m, err := rm.play.step()
		shown += int(rm.play.from.Point().Marks - before)
		if more = more || m; err != nil || rm.play.ended {
			rm.err = err
			close(rm.ended)
		}
	}
	return shown, more
}
