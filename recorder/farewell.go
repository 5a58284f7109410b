package recorder

import (
	"slices"
	"time"

	"github.com/tallywheel/tallywheel/archive"
)

// farewells is how many sources leave by one write of the history, at most.
const farewells = 64

// farewell closes the books of sources that leave, once the log has settled all of their frames; at
// the end of the recording in any case. One whose sheet cannot be kept goes on leaving, and so do
// all once the log has failed: what they have dropped for that may be in it. Behind it a sheet has
// also what those have learned that come after them.
func (r *Recorder) farewell(atEnd bool) {
	if !atEnd && r.log.Position().Err != nil {
		return
	}
	defer r.heed()
	over := r.over(atEnd)
	for some := range slices.Chunk(over, farewells) {
		err := r.part(some)
		if err == nil {
			r.tried = nil
			continue
		}
		for _, q := range over { // who comes after it need not wait for the history
			q.depart()
		}
		if r.tried == nil {
			r.slog.Warn("the sheet of a source that is gone cannot be kept, and is tried again",
				"source", some[0].lane.cfg.ID, "error", err)
		}
		r.tried = some
		return // the next ones would take their numbers
	}
}

// over lists the sources that leave and of which nothing more comes: those first that were tried
// before, for the history may have them by their numbers.
func (r *Recorder) over(atEnd bool) []*port {
	isOver := func(p *port) bool { // until then a kill leaves the spool, which goes on with all of its books
		return atEnd || !slices.ContainsFunc(p.family(),
			func(q *port) bool { return !q.remote.isSpent() || !q.lane.isSettled() })
	}
	others := slices.DeleteFunc(r.departing(), func(p *port) bool { return slices.Contains(r.tried, p) || !isOver(p) })
	return append(slices.Clip(r.tried), others...)
}

// part closes the books of sources of which nothing more comes. After an error none are closed, and
// the same ones come first the next time.
func (r *Recorder) part(ports []*port) error {
	ends := make([]*archive.StartSheet, len(ports))
	for i, p := range ports {
		r.teach(p.family())
		ends[i] = r.lastOf(p)
		ends[i].Parts = r.parts + 1 + uint64(i)
	}
	if err := r.keep(ends...); err != nil {
		return err
	}
	r.mu.Lock()
	dismissed := r.dismissed
	r.mu.Unlock()
	for i, p := range ports {
		r.iso.hasClosed(ends[i], dismissed...)
		// a kill between the two leaves a spool whose books are closed: see goOn. Where the keeper
		// is killed, too, its store has that, and the next sheet names the books
		r.mu.Lock()
		r.dismiss(p.family()...)
		r.mu.Unlock()
		p.depart()
		r.iso.forgetsAll(p.family())
		r.left(p, ends[i])
	}
	return nil
}

// left takes a source whose books are closed out of those that leave.
func (r *Recorder) left(p *port, end *archive.StartSheet) {
	r.parts = end.Parts
	r.losses.close(end.Sheet)
	r.herald.close(end.Sheet.Ports, time.Since(r.began))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acks.close(end.Sheet)
	r.leaving = slices.DeleteFunc(r.leaving, func(q *port) bool { return q == p })
	for _, q := range p.family() {
		r.parted[q.lane.cfg.ID] = r.parted[q.lane.cfg.ID].Join(q.lane.unsynced())
		if at, ok := r.places[q.lane.cfg.ID]; ok {
			at.stored = q.lane.positions()
			r.places[q.lane.cfg.ID] = at
		}
		for _, now := range families(r.ports) {
			if now.lane.cfg.ID == q.lane.cfg.ID {
				now.lane.reach(q.lane.positions())
			}
		}
	}
}

// teach notes the numbers that were seen of sources that have left: the last of them came behind
// that, where the log stood still. Who comes after them goes on there.
func (r *Recorder) teach(family []*port) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range family {
		if at, ok := r.places[q.lane.cfg.ID]; ok && q.remote != nil {
			at.seen = q.lane.seen()
			r.places[q.lane.cfg.ID] = at
		}
	}
}

// lastOf is the sheet of a source that has left, which the history gets.
func (r *Recorder) lastOf(p *port) *archive.StartSheet {
	end := &archive.StartSheet{
		End: "taken out of the configuration, or changed", Part: true, Identity: hexIdentity(r.log),
	}
	r.absorbing.RLock()
	defer r.absorbing.RUnlock()
	for _, q := range p.family() {
		end.Reach(q.lane.cfg.ID, q.lane.positions(), nil)
	}
	end.Sheet = r.lastSheet(p)
	end.NumberAccounts()
	return end
}
