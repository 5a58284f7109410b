package recorder

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/ledger"
)

// yieldPatience is how long a recorder that yields waits for the log to take what is held: what it
// does not take, is shown to the next recorder again.
const yieldPatience = 3 * time.Second

// Yields is closed once the keeper wants another recorder to go on in place of this one; nil:
// nobody will.
func (r *Recorder) Yields() <-chan struct{} {
	if r.iso == nil {
		return nil
	}
	return r.iso.yields
}

// Yield ends this process's part in a start with which another process goes on. It leaves what a
// kill would leave, with as little as can be that the next has to be shown again. Sources that this
// process reads itself are read to their ends, as in a stop.
func (r *Recorder) Yield() error {
	_, err := r.yield("")
	return err
}

// Leaves says, once Yields is closed, whether the start goes on with another keeper, if at all:
// then Leave ends this process's part.
func (r *Recorder) Leaves() bool { return r.iso.link.Leaves() }

// Leave is Yield where the reader has ended, and where it may be that nobody goes on: all that the
// reader has written is recorded first. The last sheet says why this process ends, and is the last
// one of the start, should the next not find what this one leaves.
func (r *Recorder) Leave(why string) (ledger.Sheet, error) { return r.yield(why) }

func (r *Recorder) yield(why string) (ledger.Sheet, error) {
	r.changing.Lock() // no source is changed from now on
	r.waiting.Store(0)
	r.changing.Unlock()
	var all sync.WaitGroup
	for _, p := range r.sources() {
		switch {
		case p.isGated():
			all.Go(func() { p.stop(leaveOpen) })
		case p.remote == nil:
			all.Go(func() { p.stop(closeAll) })
		}
	}
	all.Wait()
	err := r.reader.Close()
	patience, leaves := yieldPatience, why != ""
	if leaves { // as long as the reader and the log may take together
		patience = max(patience, stopPatience-r.iso.link.Left().Waited)
		if !r.iso.showRest(patience) {
			why = "" // where it is lost, nobody knows how much it was
		}
	}
	r.iso.hold()
	r.empty(r.all(), patience)
	close(r.quit)
	r.iso.bell.Ring()
	r.done.Wait()
	for _, p := range r.all() {
		r.settleOne(p.lane)
		if !p.lane.isSettled() {
			why = ""
		}
	}
	err = errors.Join(err, r.iso.saveAll())
	r.files.waitFor(lastPatience)
	r.saving.Lock()
	defer r.saving.Unlock()
	r.farewell(false)
	s := r.startSheet("") // it has no end: it goes on
	if s.Left = why; why != "" {
		s.Waiting, s.WaitingFrom = r.iso.overWaits(), nil
	}
	if leaves {
		s.Waiting = together(s.Waiting, r.unreadNow())
	}
	r.proclaim(&s, false)
	return s.Sheet, errors.Join(err, r.write(&s, true), r.closeLog())
}

// hasLeft reports whether nobody reads for this process any more, and another three are to go on
// with what is on the shelf.
func (i *isolation) hasLeft() bool {
	if i == nil {
		return false
	}
	select {
	case <-i.leaves:
		return true
	default:
		return false
	}
}

// unreadNow is the bytes that the kernel holds of connections and nobody has read, by source. The
// reader has ended: whoever goes on reads them, and a stop of the service loses them.
func (r *Recorder) unreadNow() map[string]uint64 {
	all := map[string]uint64{}
	left := r.iso.link.Left().Unread
	for _, p := range r.sources() {
		id := p.lane.cfg.ID
		if n := left[id]; n > 0 && p.remote != nil && !p.isGated() {
			all[id] = n
			p.log.Info("bytes of a connection wait for whoever goes on: a stop of the service loses them", "bytes", n)
		}
	}
	return together(all, r.guestsWait())
}

// together adds some to all, by source.
func together(all, some map[string]uint64) map[string]uint64 {
	for source, n := range some {
		if all == nil {
			all = map[string]uint64{}
		}
		all[source] += n
	}
	return all
}

// overWaits is the bytes of spools that have run over, by source: nobody brings them back, for the
// reader has ended.
func (i *isolation) overWaits() (waiting map[string]uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, rm := range i.remotes {
		if rm.isOver() {
			continue
		}
		id := rm.lane.cfg.ID
		_, n := rm.play.waits()
		if n == 0 {
			continue
		}
		if waiting == nil {
			waiting = map[string]uint64{}
		}
		waiting[id] += n
		i.log.Warn("what has run over into a file waits for whoever goes on: a stop of the service loses it",
			"source", id, "bytes", n)
	}
	return waiting
}

// showRest shows all that is in the spools, which nobody fills any more; false: the log has not
// taken it in time.
func (i *isolation) showRest(patience time.Duration) bool {
	for end := time.Now().Add(patience); ; time.Sleep(stallLook) {
		i.showAll()
		if i.isShown() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

func (i *isolation) isShown() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !slices.ContainsFunc(i.remotes, func(rm *remote) bool { return !rm.isOver() && !rm.play.from.IsAtEnd() })
}
