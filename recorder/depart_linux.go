package recorder

import (
	"context"
	"slices"
	"time"

	"github.com/tallywheel/tallywheel/archive"
)

// founds waits until all sources have departed that this one comes after, and lets it begin on
// what the log has then. Until then the shelf has what those have read: whoever comes after a kill
// records that first. false: ctx was done before; a peer's connection has until the port's
// deadline.
func (p *port) founds(ctx context.Context) bool {
	rm := p.remote
	for _, before := range rm.after {
		select {
		case <-before.departed:
			continue
		case <-ctx.Done():
		}
		if _, ok := p.opener.(*seat); !ok {
			return false
		}
		select {
		case <-before.departed:
		case <-time.After(time.Until(p.finishBy())):
			return false
		}
	}
	p.heed()
	if len(rm.after) > 0 {
		if rm.err = rm.play.found(); rm.err != nil {
			close(rm.ended)
		}
		rm.heeding.Lock()
		rm.after = nil
		rm.heeding.Unlock()
	}
	rm.told.Store(true)
	return true
}

// heed has those learn that come after sources which have just departed, before a sheet is drawn
// up: it would have the books of those closed, and not what is learned from them.
func (r *Recorder) heed() {
	for _, p := range r.snapshot() {
		p.heed()
	}
}

// heed has a port that comes after others learn from them, once all of them have departed. Whoever
// calls it first does it: the port itself, before it begins, or who draws up a sheet.
func (p *port) heed() {
	rm := p.remote
	if rm == nil {
		return
	}
	rm.heeding.Lock()
	defer rm.heeding.Unlock()
	waits := slices.ContainsFunc(rm.after, func(q *port) bool { return !q.hasDeparted() })
	if rm.heeded || waits || len(rm.after) == 0 {
		return
	}
	p.learnFrom(rm.after)
	rm.heeded = true
}

// learnFrom tells a port that begins what was shown, while it waited, of those that have departed:
// of its source, whose peers' devices may be its own now, and, where it is a peer, of that peer;
// and of the one that had its device under another name. Other sources may have devices with the
// same numbers.
func (p *port) learnFrom(departed []*port) {
	for _, before := range departed {
		isOwn := archive.Within(p.lane.cfg.ID, before.lane.cfg.ID)
		for _, q := range before.family() {
			if isOwn && (q == before || p.lane.hubNumber == 0 || q.lane.cfg.ID == p.lane.cfg.ID) {
				p.lane.learn(q.lane.seen())
			}
		}
	}
	if former := formerOf(p.lane.cfg, departed); former != nil && p.lane.hubNumber == 0 {
		p.lane.succeeds(former.lane)
	}
}

// depart says that the log has stored all that a port had which has stopped, and its peers, or that
// nobody waits for that any more. Their spools are given back.
func (p *port) depart() {
	if p.hasDeparted() {
		return
	}
	for _, q := range p.peers {
		q.depart()
	}
	if p.hub != nil { // whose counts are in those of the source
		for _, q := range p.hub.absorbed {
			q.depart()
		}
	}
	if p.remote != nil {
		if p.remote.told.Load() {
			_ = p.remote.iso.link.Forget(p.lane.cfg.ID) // an error: the keeper has ended
		}
		_ = p.remote.spool.Close()
	}
	close(p.departed)
}

// isTold reports whether the shelf has a source.
func (rm *remote) isTold() bool { return rm != nil && rm.told.Load() }

// isEnding reports whether the reader was told to end a spool of a port that was left, and not to
// make room: its source needs another.
func (r *Recorder) isEnding(p *port) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(p.family(), func(q *port) bool { return q.remote.isEnding() && !q.remote.makesRoom() })
}

func (p *port) hasDeparted() bool {
	select {
	case <-p.departed:
		return true
	default:
		return false
	}
}
