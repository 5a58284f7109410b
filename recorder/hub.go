package recorder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
)

// Causes of connections that were refused.
const (
	refusedPeers       = "max_peers"   // as many addresses are connected as may have books
	refusedAddresses   = "addresses"   // the log knows so many addresses of the source that it takes no new one
	refusedCrowd       = "crowd"       // its address keeps the connections of others out: see relieve
	refusedStopped     = "stopped"     // the source stopped, and there could be no books for it any more
	refusedDescriptors = "descriptors" // the source stopped, and there were no descriptors to take it
)

// maxAddresses is how many addresses of one source a log knows, at most: each takes a line of its
// table of streams for ever.
var maxAddresses = 4096

// lookAround is how often the hub looks whether those that wait may be read.
const lookAround = 50 * time.Millisecond

// hub is the other half of a port whose source reads every connection. It listens, and gives each
// connection a port of its own, with its own lane: one for the address it comes from, and further
// ones for connections that are open beside it. Such a peer is a port like any other, whose opener
// (a seat) waits for the next connection of its address. The lane of the source itself has what is
// in no peer's books: connections refused, and the counts of peers that are gone and made room for
// others.
//
// A connection waits for the end of older ones from its address, so that the books see what a
// device sends in order: as long as it takes while they are ending, else until all is read that had
// come before it, then takeover, and until the log has that. Then it is read beside them.
type hub struct {
	r       *Recorder
	p       *port // of the source
	l       door
	max     int
	freed   chan struct{} // has a signal when a seat has become free
	making  sync.Mutex    // held while a peer is made, or all are reconfigured
	full    bool          // a connection waits for a place; of the goroutine of run
	leaving *port         // the peer that has begun to make room, and could not leave at once; nil: none does
	// peers whose counts the source has, and whose spools are kept until a sheet with them is on
	// disk: as many as wait for a place, and maxArrivals and one at most
	absorbed  []*port
	unsaved   error      // why that sheet could not be written last; nil: it was not tried
	saveAgain time.Time  // when it is tried again
	waiting   []*arrival // in the order in which they came; the rest belongs to the goroutine of run, too
	trouble   trouble
	shut      error     // why an address that is new gets no books; nil: it does
	again     time.Time // … and when that is tried again

	// when it was acknowledged that peers are gone, which make room for that; nil: it is done
	acked atomic.Pointer[time.Time]
}

// door is where the connections of a hub come in: a listener, or a gate.
type door interface {
	opener
	listen(ctx context.Context) error
	take() (device, error) // a connection that waits; nil: there is none
	waits() bool
	signal() <-chan struct{} // has one while a connection waits
	counts() *entrance
}

// arrival is a connection that nobody reads yet.
type arrival struct {
	guest  *guest
	id     string // of the first peer of its address
	came   time.Time
	since  time.Time        // when it came, or had to begin to wait anew
	behind map[*port]uint64 // so much is in the books of a peer of that address once all is read that had come before
	// … and so many frames when that was so: the log is to have them, or nobody knows their numbers
	frames map[*port]uint64
	taught *port // the peer that was taught for it; nil: none
}

// newHub makes the other half of a port.
func (r *Recorder) newHub(p *port) *hub {
	p.hub = &hub{r: r, p: p, l: p.opener.(door), max: p.lane.cfg.TCP.MaxPeers, freed: make(chan struct{}, 1)}
	return p.hub
}

// takes has connections read that another port has left open. run has not begun.
func (h *hub) takes(devices []device) {
	for _, d := range devices {
		h.arrived(d)
	}
	h.seatAll(time.Now())
}

// run is the goroutine of the hub. A connection, a free seat, or time passing wakes it.
func (h *hub) run(ctx context.Context) {
	defer close(h.p.done)
	for ctx.Err() == nil {
		err := h.accept(ctx)
		if err != nil && ctx.Err() != nil {
			break
		}
		h.acceptMore(ctx)
		h.seatAll(time.Now())
		h.letGo()
		if err == nil && h.shut == nil { // else an outage goes on
			h.trouble = trouble{}
			h.p.lane.listens(time.Now().UnixNano())
		}
		var newer <-chan struct{}
		var look <-chan time.Time
		switch {
		case err != nil:
			look = time.After(h.p.trouble(&h.trouble, err))
		case len(h.waiting) > 0, h.acked.Load() != nil, h.leaving != nil, len(h.absorbed) > 0:
			look = time.After(lookAround)
		case h.full: // a peer of another source may leave
			look = time.After(takeover)
		}
		if err == nil && !h.full && len(h.waiting) < maxArrivals {
			newer = h.l.signal()
		}
		select {
		case <-ctx.Done():
		case <-newer:
		case <-h.freed:
		case <-look:
		}
	}
	switch g, ok := h.l.(*gate); {
	case h.p.handOn == closeAll:
		h.end()
	case ok: // another process goes on with what is on the keeper's shelf
		g.accepting.Leave()
		return
	default:
		h.handOn()
	}
	h.p.lane.stopped()
}

// accept takes the connection that waits, if there is one and room for it.
func (h *hub) accept(ctx context.Context) error {
	if err := h.l.listen(ctx); err != nil {
		return err
	}
	h.full = false
	h.relieve(time.Now())
	if len(h.waiting) >= maxArrivals {
		return nil
	}
	giveBack := h.r.allotted.place(&h.l.counts().first)
	if giveBack == nil {
		h.full = h.l.waits()
		h.l.counts().short.share.Store(h.full)
		return nil
	}
	h.l.counts().short.share.Store(false)
	d, err := h.l.take()
	if d == nil {
		giveBack()
		return err
	}
	h.arrived(&guest{connection: d.(connection), giveBack: giveBack})
	return nil
}

// arrived notes a connection that is open.
func (h *hub) arrived(d device) {
	g, ok := d.(*guest)
	if !ok { // it waited when the source stopped
		g = &guest{connection: d.(connection), giveBack: func() {}}
	}
	if g.came == 0 { // else it came to this source before a reload
		g.came = guestsCame.Add(1)
	}
	now := time.Now()
	a := &arrival{
		guest: g, id: peerOf(h.p.lane.cfg.ID, g), came: now, since: now,
		behind: map[*port]uint64{}, frames: map[*port]uint64{},
	}
	for _, p := range h.of(a.id) {
		if older, _ := p.opener.(*seat).taken(); older != nil {
			a.behind[p] = p.onceRead(older)
		}
	}
	h.waiting = append(h.waiting, a)
}

// precede has those of an address that wait stay behind a connection which gets a peer now, and
// which came before them. Nobody reads it yet.
func (h *hub) precede(g *guest, p *port, id string) {
	n := p.onceRead(g)
	for _, a := range h.waiting {
		if a.id == id && a.guest != g {
			a.behind[p] = n
		}
	}
}

// isBehind reports whether something is still to be read of older connections, and classified: what
// had come before this one, or what waits because the log takes nothing.
func (h *hub) isBehind(a *arrival) bool { return slices.ContainsFunc(h.of(a.id), a.isBehind) }

// isBehind is hub.isBehind for one peer.
func (a *arrival) isBehind(p *port) bool {
	older, _ := p.opener.(*seat).taken()
	return older != nil && (p.lane.bytesPosted() < a.behind[p] || p.lane.isBlocked())
}

// isBehindOpen reports whether one of them may bring more: only behind that the wait begins anew.
func (h *hub) isBehindOpen(a *arrival) bool {
	return slices.ContainsFunc(h.of(a.id), func(p *port) bool {
		older, _ := p.opener.(*seat).taken()
		return older != nil && !older.ending() && a.isBehind(p)
	})
}

// peerOf is the name of the first peer of the address that a connection comes from.
func peerOf(source string, c connection) string {
	from := c.name()
	if a, err := netip.ParseAddrPort(from); err == nil {
		from = a.Addr().Unmap().WithZone("").String()
	}
	return archive.Peer(source, from)
}

// isBlocked reports whether reading waits for the log.
func (l *lane) isBlocked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == ledger.StateBlocked
}

// posted is how many frames the account has, and how many of them are not stored yet.
func (l *lane) posted() (all, inFlight uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.in.book.Valid(), uint64(l.out.inFlight())
}

// seatAll has those read that need not wait any longer, those of one address in the order in which
// they came.
func (h *hub) seatAll(now time.Time) {
	h.r.iso.gather() // the books know what has come by now
	h.release()
	if h.leaving != nil {
		h.goesOnLeaving()
	}
	h.makeRoom()
	before := map[string]bool{}
	h.waiting = slices.DeleteFunc(h.waiting, func(a *arrival) bool {
		done := !before[a.id] && h.seat(a, now)
		before[a.id] = before[a.id] || !done
		return done
	})
	if len(h.waiting) == 0 {
		h.shut = nil
	}
}

// seat has a connection read, or refuses it; false: it has to wait.
func (h *hub) seat(a *arrival, now time.Time) (done bool) {
	// it read one connection at a time until now, and a kill could take what it knows from then
	if !h.p.lane.isSettled() {
		return false
	}
	patient := now.Sub(a.since) < takeover
	switch {
	case !h.isBehind(a):
	case patient:
		if h.isBehindOpen(a) {
			a.since = now
		}
	default: // it waited for so long behind one that is read only now
		return false
	}
	var free *port
	for _, p := range h.of(a.id) {
		switch g, _ := p.opener.(*seat).taken(); {
		case p == h.leaving: // nobody would read what it is given
			return false
		case p.remote.isEnding(): // … nor here
			if !p.remote.isOver() || !p.lane.isSettled() {
				return false
			}
		case g == nil && free == nil:
			free = p
		case g == nil && !p.hasSettled(): // numbers that free would learn, and that a kill could take
			return false
		case g != nil && (patient || g.ending() || !a.knows(p)):
			return false
		}
	}
	if free != nil {
		return h.give(a, free)
	}
	if !h.room() {
		switch {
		case len(h.absorbed) > 0: // the sheet is tried again
			a.since = now
			if h.unsaved != nil && !now.Before(h.again) {
				h.shut = h.unsaved
				h.again = now.Add(h.p.trouble(&h.trouble, h.shut))
			}
			return false
		case h.isAnyGone(): // who makes room once the log has its frames
			a.since = now
			return false
		case patient:
			return false
		}
		h.refuse(a, refusedPeers)
		return true
	}
	if h.shut != nil && now.Before(h.again) {
		return false
	}
	err := h.invite(a)
	if errors.Is(err, errAddresses) {
		h.refuse(a, refusedAddresses)
		return true
	}
	if h.shut = err; err != nil { // of the disk: it may have room again
		h.again = now.Add(h.p.trouble(&h.trouble, err))
	}
	return err == nil
}

// stays is a peer of an address that reads what it is given, rather one that is reading: what comes
// next goes on where that ends. nil: there is none. It waits, until the deadline, for those that a
// recorder before has told to end: what comes behind goes on where they have ended.
func (h *hub) stays(id string, deadline time.Time) *port {
	all := h.of(id)
	stays := slices.DeleteFunc(slices.Clone(all), func(p *port) bool { return p.remote.isEnding() || p == h.leaving })
	if len(stays) > 0 {
		return h.inOrder(id, stays, deadline)
	}
	for _, p := range all {
		select {
		case <-p.remote.ended:
		case <-p.remote.iso.over:
		case <-time.After(time.Until(deadline)):
		}
	}
	h.r.empty(all, max(0, time.Until(deadline)))
	return nil
}

// of lists the peers of an address.
func (h *hub) of(id string) (all []*port) {
	for _, p := range h.p.peers {
		if archive.Within(p.lane.cfg.ID, id) {
			all = append(all, p)
		}
	}
	return all
}

// inOrder is the peer, of those that stay of one address, that reads a connection behind all that
// came before it: the one that reads the newest of it, else the first. It is taught what those have
// that read nothing, and what those had that made room: they may have had a newer one.
func (h *hub) inOrder(id string, stays []*port, deadline time.Time) *port {
	p, newest := stays[0], uint64(0)
	var free []*port
	for _, q := range stays {
		switch g, _ := q.opener.(*seat).taken(); {
		case g == nil:
			free = append(free, q)
		case g.came >= newest:
			p, newest = q, g.came
		}
	}
	if len(stays) > 1 && len(free) > 0 {
		h.r.iso.gather()
		h.r.empty(free, max(0, time.Until(deadline)))
	}
	if h.teach(p.lane, id) {
		p.remote.keeps()
	}
	return p
}

// give seats a connection at a peer that is free. What the peer is taught for it is in a checkpoint
// before: else a kill would take that, and the next recorder would be shown the connection without.
// false: it has to wait.
func (h *hub) give(a *arrival, free *port) bool {
	// what another process has read for it, or the log has not stored, is older than what it is
	// taught
	if free.remote != nil && !free.hasSettled() && free.lane.lacks(h.lessons(free.lane, a.id)) {
		return false
	}
	if a.taught != free && h.teach(free.lane, a.id) {
		a.taught = free
	}
	if a.taught == free && !free.remote.keeps() {
		return false
	}
	h.precede(a.guest, free, a.id)
	free.opener.(*seat).give(a.guest)
	return true
}

// knows reports whether the log has all frames of a peer that had come before the arrival, so that
// their numbers can be taught: all of them are in the books.
func (a *arrival) knows(p *port) bool {
	posted, inFlight := p.lane.posted()
	if _, ok := a.frames[p]; !ok {
		a.frames[p] = posted
	}
	return posted-inFlight >= a.frames[p]
}

var errAddresses = errors.New("too many addresses")

// invite makes a peer for a connection, which it reads.
func (h *hub) invite(a *arrival) error {
	h.making.Lock()
	defer h.making.Unlock()
	cfg := h.p.lane.config()
	source, taken := cfg.ID, h.of(a.id)
	cfg.ID = a.id
	for n := 2; slices.ContainsFunc(taken, func(p *port) bool { return p.lane.cfg.ID == cfg.ID }); n++ {
		cfg.ID = archive.Peer(a.id, strconv.Itoa(n))
	}
	if !h.r.streams.Has(cfg.ID) && h.addresses(source) > maxAddresses {
		return errAddresses
	}
	l, err := h.r.lane(cfg)
	if err != nil {
		return fmt.Errorf("peer %s: %w", cfg.ID, err)
	}
	h.r.absorbing.RLock() // as in Recorder.list
	run := h.join(l, a.id, &handover{newSeat(h.freed, a.guest, time.Time{}), []device{a.guest}, h.p.halves})
	h.r.absorbing.RUnlock()
	go run()
	return nil
}

// join makes the port of a peer's lane, from where it was left, and returns what reads it, for a
// goroutine of its own. Recorder.absorbing is read-locked.
func (h *hub) join(l *lane, id string, from *handover) (run func()) {
	l.hubNumber = h.p.lane.number
	rm := h.r.adopt(l)
	if rm == nil { // else its books go on
		h.r.resume(l)
		h.teach(l, id)
		rm = h.r.apart(l)
	}
	var p *port
	var ctx context.Context
	if rm != nil {
		p, ctx = newRemotePort(l, rm, h.r.slog)
		p.opener = from.opener
		run = func() { p.keepRemote(ctx) }
	} else {
		p, ctx = newPort(l, from, h.r.read, h.r.slog)
		run = func() { p.keepOpen(ctx, from) }
	}
	if g, _ := from.opener.(*seat).taken(); g != nil {
		h.precede(g, p, id)
	}
	if rm != nil {
		rm.seats(from)
	}
	h.r.mu.Lock()
	h.p.peers = append(slices.Clone(h.p.peers), p)
	h.r.mu.Unlock()
	return run
}

// addresses is how many names the log has for a source and its peers.
func (h *hub) addresses(source string) (n int) {
	for _, name := range h.r.streams.Sources() {
		if archive.Within(name, source) {
			n++
		}
	}
	return n
}

// register gives numbers to the addresses of those that wait, to so many that are new at most, by
// one durable write: one for each takes long where many come at once.
func (h *hub) register(most int) {
	cfg := h.p.lane.config()
	left := min(most, maxAddresses+1-h.addresses(cfg.ID))
	var all []config.Source
	for _, a := range h.waiting {
		if cfg.ID = a.id; left > 0 && !h.r.streams.Has(a.id) {
			all = append(all, cfg)
			left--
		}
	}
	h.r.register(all)
}

// refuse ends a connection that has no books.
func (h *hub) refuse(a *arrival, cause string) {
	a.guest.deafen()
	h.p.lane.refuse(cause, 1, a.guest.discard())
	if err := a.guest.close(); err != nil {
		h.p.log.Warn("close", "error", err)
	}
	h.p.log.Debug("a connection is refused", "peer", a.guest.name(), "cause", cause)
}

// handOn leaves every connection open for the port that goes on with the source.
func (h *hub) handOn() {
	halves := map[device]half{}
	maps.Copy(halves, h.p.halves)
	for _, p := range h.p.peers {
		p.stop(h.p.handOn)
		for _, d := range p.left {
			halves[d] = p.halves[d]
		}
		rest, _, _ := p.opener.close(true)
		h.p.left = append(append(h.p.left, p.left...), rest...)
	}
	for _, a := range h.waiting {
		h.p.left = append(h.p.left, a.guest)
	}
	maps.DeleteFunc(halves, func(d device, _ half) bool { return !slices.Contains(h.p.left, d) })
	h.p.halves = halves
}

// end has everything read that has arrived, and closes it.
func (h *hub) end() {
	h.p.lane.finishes(unreadStopped)
	deadline := time.Now().Add(finishPatience)
	h.p.drain(deadline, func(rest []device) {
		for _, d := range rest {
			h.arrived(d)
		}
		if !h.p.isGated() { // else a peer is read to its end once
			h.readRest(deadline)
		}
	})
	if g, ok := h.l.(*gate); ok {
		if g.lack != nil { // those that were taken did not wait for what was not to be had
			deadline = time.Now().Add(finishPatience)
		}
		h.readRest(deadline)
	}
}

// readRest has those read that wait, and stops all peers. A peer that has stopped before reads what
// is for it all the same.
func (h *hub) readRest(deadline time.Time) {
	h.register(len(h.waiting))
	for _, a := range h.waiting {
		if p := h.stays(a.id, deadline); p != nil {
			p.opener.(*seat).later(a.guest)
		} else if !h.roomBy(deadline) {
			h.refuse(a, refusedStopped)
		} else if err := patiently(deadline, func() error { return h.invite(a) }); noDescriptors(err) {
			h.refuse(a, refusedDescriptors)
		} else if err != nil {
			h.refuse(a, refusedStopped)
		}
	}
	h.waiting = nil
	var all sync.WaitGroup
	for _, p := range h.p.peers {
		all.Go(func() {
			if p == h.leaving { // it is told to end, by a time that comes before this one
				<-p.done
			}
			select {
			case <-p.done:
				if p.remote == nil {
					p.readRest(nil, deadline)
				}
				p.lane.stopped()
			default:
				p.stopUntil(deadline)
			}
		})
	}
	all.Wait()
}
