package recorder

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tallywheel/tallywheel/archive"
)

// A peer that is gone makes room for another one: its books go into those of its source, and its
// spool is given back, if it has one. The order is that of what a kill may take:
//
//  1. nobody is connected, its lane was shown all of its spool, and the log has all of that;
//  2. its counts go to the source, and from then on each sheet has them there, and names its book;
//  3. such a sheet is on disk, and then the shelf has how many frames of the source are in it;
//  4. its spool is taken off the shelf.
//
// One sheet is for all that make room at a time, as many as wait for a place: it names each source,
// and takes longer than all the rest. While no sheet can be written the fourth step waits for the
// third, and so does whoever needs the place: there are never more spools than places.
//
// The shelf says of a spool that its peer has begun to make room. Behind a kill before the third
// step the next recorder finds that spool, goes on with its books, and has the peer leave. Behind
// one between the third and the fourth it finds the spool of a book that the sheet names, and lets
// it go.

// room reports whether there may be one more peer, once the one that has been gone for longest has
// made room.
func (h *hub) room() bool {
	if !h.release() {
		return false
	}
	if len(h.p.peers) < h.max {
		return true
	}
	gone, since := h.longestGone()
	return gone != nil && h.dismiss(gone, since) && h.release()
}

// makeRoom has as many peers make room as addresses wait that have none, by one sheet, and gives
// those their numbers.
func (h *hub) makeRoom() {
	if h.r.iso == nil || len(h.waiting) < 2 || !h.p.lane.isSettled() || !h.release() {
		return
	}
	waits, needed := map[string]bool{}, 0
	for _, a := range h.waiting {
		if !waits[a.id] && len(h.of(a.id)) == 0 {
			needed++
		}
		waits[a.id] = true
	}
	for len(h.p.peers)+needed > h.max {
		gone, since := h.longestGoneBut(func(p *port) bool { return waits[archive.AddressOf(p.lane.cfg.ID)] })
		if gone == nil || !h.dismiss(gone, since) {
			break
		}
	}
	places := h.max - len(h.p.peers)
	if h.release() && places > 0 && h.shut == nil { // else the disk has no room for their names
		h.register(places)
	}
}

// acceptMore takes what waits beside the connection that was taken, so that one sheet, and one
// write of names, is for all of them. It waits for the next as long as the kernel has one, and for
// lookAround at most.
func (h *hub) acceptMore(ctx context.Context) {
	g, ok := h.l.(*gate)
	if !ok || len(h.waiting) == 0 {
		return
	}
	late := time.NewTimer(lookAround)
	defer late.Stop()
	for len(h.waiting) < maxArrivals && !h.full && g.hasMore() {
		select {
		case <-ctx.Done():
			return
		case <-late.C:
			return
		case <-g.signal():
		}
		if h.accept(ctx) != nil {
			return
		}
	}
}

// isAnyGone reports whether a place is free, or will be, once the log has what a peer had sent that
// is gone.
func (h *hub) isAnyGone() bool {
	return slices.ContainsFunc(h.p.peers, func(p *port) bool {
		g, _ := p.opener.(*seat).taken()
		return g == nil
	})
}

// roomBy is room at a stop, which waits for the log until the deadline. Behind it nobody makes
// room: that may take a sheet on disk for each, and thousands may wait.
func (h *hub) roomBy(deadline time.Time) bool {
	for !h.release() {
		if !time.Now().Before(deadline) {
			return false
		}
		time.Sleep(drainRest)
	}
	if len(h.p.peers) >= h.max && !time.Now().Before(deadline) {
		return false
	}
	if h.room() {
		return true
	}
	if !h.isAnyGone() {
		return false
	}
	h.r.iso.gather()
	h.r.empty(h.p.peers, max(0, time.Until(deadline)))
	if h.leaving != nil {
		h.isRead(h.leaving, time.Until(deadline))
	}
	return h.room()
}

// longestGone is the peer that has been gone for longest, of those whose frames are all in the log,
// and since when; nil: there is none.
func (h *hub) longestGone() (gone *port, since time.Time) {
	return h.longestGoneBut(func(*port) bool { return false })
}

// longestGoneBut is longestGone without those that are needed.
func (h *hub) longestGoneBut(needs func(*port) bool) (gone *port, since time.Time) {
	for _, p := range h.p.peers {
		g, left := p.opener.(*seat).taken()
		if g == nil && !needs(p) && p.hasSettled() && (gone == nil || left.Before(since)) {
			gone, since = p, left
		}
	}
	return gone, since
}

// hasSettled reports whether the lane of a port was shown all that was read for it, and the log has
// all of that. Who asks this of a peer has seen first that nobody is connected: else more may come.
func (p *port) hasSettled() bool { return p.remote.isShown() && p.lane.isSettled() }

// dismiss makes a peer that is gone one that is not missed any more. Should it come again, it goes
// on. false: not now; where it has begun to leave, nobody gets its seat, and seatAll tries again.
// Whoever reads it ends that soon, in most cases, or takes its time, while the hub goes on with
// others.
func (h *hub) dismiss(gone *port, since time.Time) bool {
	if h.r.log.Position().Err != nil { // after an error the next start looks for each peer's frames
		return false
	}
	if isFull := len(h.absorbed) >= maxArrivals; (isFull || h.unsaved != nil) && !h.release() {
		return false
	}
	if h.leaving != nil && h.leaving != gone && !h.goesOnLeaving() {
		return false
	}
	if gone.remote != nil {
		select {
		case <-h.r.iso.yields: // the next recorder has its spool, and dismisses it
			return false
		default:
		}
	}
	patience := time.Duration(0)
	if h.leaving != gone { // else it was waited for
		patience = lookAround
	}
	h.leaving = gone
	if gone.remote != nil {
		gone.remote.room.Store(true)
	}
	gone.cancel()
	if !h.isRead(gone, patience) || !gone.lane.isSettled() { // as where its reader was late
		return false
	}
	h.leaving = nil
	h.r.absorb(h.p, gone, since)
	h.absorbed = append(h.absorbed, gone)
	return true
}

// release gives back the spools of the peers whose counts have gone to the source, once a sheet
// with them is on disk. false: it cannot be written now, and is tried again each second.
func (h *hub) release() bool {
	if len(h.absorbed) == 0 {
		return true
	}
	var shelved []*lane // the ports have stopped: what the shelf does not have by now it never has
	for _, gone := range h.absorbed {
		if gone.remote.isTold() {
			shelved = append(shelved, gone.lane)
		}
	}
	if len(shelved) > 0 {
		if time.Now().Before(h.saveAgain) {
			return false
		}
		if err := h.r.save(); err != nil {
			if h.unsaved == nil {
				h.p.log.Warn("peers are to make room, and the sheet cannot be written: their memory is kept until it can be, and new peers wait for that",
					"peers", len(shelved), "first", shelved[0].cfg.ID, "error", err)
			}
			h.unsaved, h.saveAgain = fmt.Errorf("the sheet cannot be written: %w", err), time.Now().Add(time.Second)
			return false
		}
		h.r.iso.hasAbsorbed(h.p.lane, shelved...) // before the first is off the shelf
	}
	for _, gone := range h.absorbed {
		gone.depart()
	}
	for _, l := range shelved {
		h.r.iso.forgets(l.number)
	}
	h.absorbed, h.unsaved, h.saveAgain = nil, nil, time.Time{}
	return true
}

// isRead waits for the reading of a peer that leaves to end, so long at most. false: it has not, or
// the next recorder goes on with it.
func (h *hub) isRead(leaving *port, patience time.Duration) bool {
	if leaving.remote == nil { // nothing is open
		<-leaving.done
		return true
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for _, over := range []<-chan struct{}{leaving.done, leaving.remote.spent} {
		select {
		case <-over:
			continue
		default: // before late, which may have come at once
		}
		select {
		case <-over:
		case <-h.r.iso.yields:
			return false
		case <-late.C:
			return false
		}
	}
	return true
}

// goesOnLeaving dismisses the peer that could not leave at once; false: not now either.
func (h *hub) goesOnLeaving() bool {
	_, left := h.leaving.opener.(*seat).taken()
	return h.dismiss(h.leaving, left)
}

// letGo dismisses the peers of which it was acknowledged that they are gone.
func (h *hub) letGo() {
	at := h.acked.Load()
	if at == nil {
		return
	}
	unsettled := false
	for _, p := range slices.Clone(h.p.peers) {
		g, left := p.opener.(*seat).taken()
		isKnown := p.lane.isKnownOut()
		if g != nil { // the books say before the seat does that nobody is there
			unsettled = unsettled || isKnown
			continue
		}
		if !isKnown && !left.Before(*at) {
			continue
		}
		if !p.hasSettled() || !h.dismiss(p, left) {
			unsettled = true
		}
	}
	if h.release() && !unsettled {
		h.acked.CompareAndSwap(at, nil)
	}
}

// acknowledged has the peers that are gone dismissed, by the goroutine of run.
func (h *hub) acknowledged(at time.Time) {
	h.acked.Store(&at)
	select {
	case h.freed <- struct{}{}:
	default:
	}
}

// absorb adds the books of a peer that has been gone since then to those of its source. Should it
// come again, its numbers go on, and so do the gaps of earlier starts: some may lie behind the
// highest number that is stored. The gaps of this start are in a book that is open, and do not.
func (r *Recorder) absorb(into, gone *port, since time.Time) {
	r.absorbing.Lock()
	r.mu.Lock()
	into.lane.absorb(gone.lane)
	into.peers = slices.DeleteFunc(slices.Clone(into.peers), func(p *port) bool { return p == gone })
	at := gone.lane.handed()
	r.places[gone.lane.cfg.ID] = place{seen: at, stored: at, at: since.UnixNano(), why: outageNotConnected}
	r.dismiss(gone)
	r.mu.Unlock()
	r.absorbing.Unlock()
	r.settleOne(into.lane) // a commit may have passed by what was absorbed
}

// dismiss has sheets name the books of ports that are in others, or closed, until the keeper has
// forgotten their spools. mu is held.
func (r *Recorder) dismiss(gone ...*port) {
	for _, p := range gone {
		if p.remote.isTold() {
			r.dismissed = append(r.dismissed, p.lane.number)
		}
	}
	if n := len(r.dismissed) - mostDismissed; n > 0 {
		r.dismissed = slices.Clone(r.dismissed[n:])
	}
}

// mostDismissed is how many books a sheet names whose spools may still be on the keeper's shelf:
// all, but where a keeper of an older program does not say when it has forgotten them.
const mostDismissed = 1024

// hasDismissed takes out those whose spools the keeper has forgotten: sheets need not name their
// books any more. mu is held.
func (r *Recorder) hasDismissed() {
	if r.iso == nil {
		return
	}
	if gone := r.iso.takeForgotten(); len(gone) > 0 {
		isGone := func(book uint64) bool { return slices.Contains(gone, book) }
		r.dismissed = slices.DeleteFunc(slices.Clone(r.dismissed), isGone)
	}
}
