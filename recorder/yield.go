package recorder

import (
	"errors"
	"sync"
	"time"
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
	r.iso.hold()
	r.empty(r.all(), yieldPatience)
	close(r.quit)
	r.iso.bell.Ring()
	r.done.Wait()
	for _, p := range r.all() {
		p.lane.settle(r.commits.get(), time.Now().UnixNano())
	}
	err = errors.Join(err, r.iso.saveAll())
	r.saving.Lock()
	defer r.saving.Unlock()
	r.farewell(false)
	s := r.startSheet("") // it has no end: it goes on
	r.proclaim(&s, false)
	return errors.Join(err, r.write(&s, true), r.closeLog())
}
