package recorder

import (
	"slices"
	"time"

	"github.com/tallywheel/tallywheel/config"
)

// A source that is new to the log needs a number in it, durably, before its first frame. On a full
// disk it waits for that. Its device is not opened, so nothing is read that could not be kept; it
// is not there in the sheet, with an outage, which goes on in its books once it has some.

// postpone has a source wait for room. Recorder.changing is held, or nobody else is there yet.
func (r *Recorder) postpone(s config.Source) error {
	l, err := newLane(s, nil, 0, 0)
	if err != nil {
		return err
	}
	now := time.Now().UnixNano()
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.places[s.ID]
	if ok { // the log has it under another framing
		l.resume(at)
		at.why += outageThen + outageNoRoom
	} else {
		at = place{at: now, why: outageNoRoom}
	}
	l.outage(now, outageNoRoom)
	r.places[s.ID], r.postponedLanes = at, append(r.postponedLanes, l)
	r.waiting.Add(1)
	return nil
}

// postponed is the lanes of sources that wait for room. They read nothing, and have no number.
func (r *Recorder) postponed() []*lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.postponedLanes)
}

// addPostponed adds the sources that wait for room, once there is some.
func (r *Recorder) addPostponed() {
	if r.waiting.Load() == 0 || !r.changing.TryLock() { // a reload adds them, or says why not
		return
	}
	defer r.changing.Unlock()
	for _, waits := range r.postponed() {
		l, err := r.lane(waits.cfg)
		if err != nil {
			return
		}
		r.mu.Lock()
		r.postponedLanes = r.postponedLanes[1:]
		r.waiting.Add(-1)
		r.mu.Unlock()
		r.add(l, nil)
		r.slog.Info("there is room: the source is recorded", "source", l.cfg.ID)
	}
}
