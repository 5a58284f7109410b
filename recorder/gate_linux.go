package recorder

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/sockets"
	"github.com/tallywheel/tallywheel/internal/sys"
)

// Where another process reads (`isolate: process`), the connections of a source that reads all of
// them (`peers: all`) come in by a gate. The hub stays in the recorder, as it decides by the books
// who is read, and who is refused. A connection is on the keeper's shelf from the moment on at
// which it is accepted:
//
//	gate/SOURCE      how the source is recorded that listens
//	guest/SOURCE@N   nobody reads it yet: it waits in the hub
//	next/PEER        the hub has given it to the reader, one of a peer at a time …
//	port/PEER        … which reads it into the spool of that peer
//
// Each step puts the new entry before it drops the old one, so whoever comes after a kill may find
// a connection twice, and takes it for what is further on.

// gate is the door of a hub.
type gate struct {
	addr      string
	ends      bool // the source is played to its end: nobody is to connect
	accepting isolate.Acceptor
	after     []*port       // of the same name: what they have on the shelf goes first
	newer     chan struct{} // has a signal while a connection waits
	lack      error         // why the connection that is next could not be taken, once the gate closes
	// bytes of a name that wait, as the keeper finds: isolation.waits
	count func(name string) (n uint64, known bool)
	entrance

	mu      sync.Mutex
	waiting []*socket
	left    int // … of which so many, the first, were on the shelf when this process began
	next    int // number of the next guest
}

// newGate makes the gate of a source, with what a recorder before this one has left. leaving are
// ports that leave.
func (i *isolation) newGate(s config.Source, leaving []*port) *gate {
	g := &gate{addr: s.TCP.Listen, newer: make(chan struct{}, 1), count: i.waits}
	for _, p := range leaving {
		if p.remote.isTold() && p.lane.cfg.ID == s.ID {
			g.after = append(g.after, p)
		}
	}
	g.accepting = isolate.Acceptor{
		Link: i.link, Log: i.log.With("source", s.ID), Source: s.ID,
		Name: func() string {
			g.mu.Lock()
			defer g.mu.Unlock()
			return isolate.GuestOf(s.ID, g.next)
		},
		Offer: func(a isolate.Arrival) { g.offer(g.guest(a)) },
	}
	listener, guests, last := i.connections.of(s)
	if listener >= 0 { // a source of that name may have had another since, for what waited was to be recorded first
		if err := i.link.Put(isolate.ListenerOf(s.ID), s.TCP.Listen, listener); err != nil {
			tellUntaken(i.log, err)
		}
	}
	for _, left := range guests {
		g.offer(g.guest(isolate.Arrival{Name: "guest/" + left.source, FD: left.fd, Peer: left.addr}))
		g.left++
	}
	g.next = last + 1
	i.told.Lock()
	i.gates[s.ID] = g
	g.ends = i.ends[s.ID] && listener < 0
	delete(i.ends, s.ID) // the next one of that name is of the file
	i.told.Unlock()
	if g.ends {
		return g
	}
	g.accepting.Begin(listener, false)
	if err := i.link.Put(isolate.GateOf(s.ID), s); err != nil {
		tellUntaken(i.log, err)
	}
	if len(g.after) == 0 {
		_ = g.listen(context.Background()) // the hub says what is wrong
	}
	return g
}

// guest is a connection on the shelf.
func (g *gate) guest(a isolate.Arrival) *socket {
	sys.Unseal(a.FD) // it may have the filter of a listener that ends
	if a.Peer == "" {
		a.Peer = sys.PeerName(a.FD, netip.AddrPort{})
	}
	return &socket{descriptor: a.FD, peer: a.Peer, unshelve: func() {
		_ = g.accepting.Link.Drop(a.Name) // an error: the keeper has ended
	}}
}

// offer lets a connection wait.
func (g *gate) offer(s *socket) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, s)
	g.next++
	g.tell()
}

// tell signals that a connection waits. mu is held.
func (g *gate) tell() {
	select {
	case g.newer <- struct{}{}:
	default: // it is there
	}
}

func (g *gate) listen(ctx context.Context) error {
	for _, p := range g.after {
		select {
		case <-p.departed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	g.after = nil
	if g.ends {
		return errEnds
	}
	return g.accepting.Listen(ctx, g.addr, false)
}

// errEnds is why nobody listens for a source that another has taken the place of.
var errEnds = errors.New("what waited in memory is recorded, and then what the configuration says")

func (g *gate) signal() <-chan struct{}   { return g.newer }
func (g *gate) replaced() <-chan struct{} { return nil }

// open is not called: a hub takes what there is.
func (g *gate) open(ctx context.Context) (device, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (g *gate) waits() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting) > 0
}

// hasMore reports whether a connection waits, here or in the kernel.
func (g *gate) hasMore() bool { return g.waits() || g.accepting.Waits() }

func (g *gate) take() (device, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		return nil, nil
	}
	s := g.waiting[0]
	g.waiting = g.waiting[1:]
	if g.left > 0 {
		g.left--
	} else {
		g.accepting.Taken()
	}
	if len(g.waiting) > 0 {
		g.tell()
	}
	return s, nil
}

// close takes what waits here and in the kernel, a batch at a time, before it gives up the address.
// It is to be called again as that of a listener is. Once the keeper has ended, nobody waits for
// it.
func (g *gate) close(giveUp bool) (rest []device, more bool, err error) {
	g.accepting.Seal()
	if !giveUp || g.lack == nil { // else it was tried until now
		rest, g.lack = g.takeSome()
	}
	err = g.lack
	switch lacks := err != nil && !isolate.HasEnded(err); {
	case lacks && !giveUp, len(rest) > 0 && err == nil:
		return rest, true, nil
	case lacks:
		err = g.abandon(err)
	}
	g.accepting.Close()
	_ = g.accepting.Link.Drop(isolate.GateOf(g.accepting.Source)) // an error: the keeper has ended
	return rest, false, err
}

// takeSome takes up to a batch of those that wait. An error says why it takes no more now.
func (g *gate) takeSome() (rest []device, err error) {
	for len(rest) < drainBatch {
		if d, _ := g.take(); d != nil {
			rest = append(rest, d)
			continue
		}
		a, err := g.accepting.Rest(context.Background(), true)
		if err != nil || a.FD < 0 {
			return rest, err
		}
		g.offer(g.guest(a))
	}
	return rest, nil
}

// abandon counts what waits, which nobody will take for that reason: the keeper looks at it, which
// may have descriptors where this process has none.
func (g *gate) abandon(why error) *untaken {
	left := &untaken{err: why}
	var shelved string
	left.connections, shelved = g.accepting.Abandoned()
	if shelved != "" {
		_, guest := isolate.SourceOf(shelved)
		left.bytes, _ = g.count(guest)
		_ = g.accepting.Link.Drop(shelved) // an error: the keeper has ended
	}
	n, _ := g.count(g.accepting.Source)
	left.bytes += n
	return left
}

// apart makes the spool of a lane that another process is to read; nil: this one is.
func (r *Recorder) apart(l *lane) *remote {
	if r.iso == nil {
		return nil
	}
	rm, err := r.newSpool(l)
	if err != nil {
		r.slog.Error("the source is read in this process, and not isolated", "source", l.cfg.ID, "error", err)
		return nil
	}
	return rm
}

// seats has the peer's connections given to the process that reads it. from has the seat, and the
// first connection.
func (rm *remote) seats(from *handover) {
	i, id, s := rm.iso, rm.lane.cfg.ID, from.opener.(*seat)
	s.hand = func(g *guest) bool {
		if err := i.link.Put(isolate.NextOf(id), nil, g.fd()); err != nil {
			tellUntaken(i.log, err)
			return false
		}
		g.leaveShelf()
		return true
	}
	for _, d := range from.devices {
		s.next <- d // has room: there is one at most
	}
	i.told.Lock()
	i.seating[id] = s
	i.told.Unlock()
}

// forget forgets what is known of a source that is not read any more.
func (i *isolation) forget(id string) {
	i.told.Lock()
	defer i.told.Unlock()
	delete(i.ports, id)
	delete(i.gates, id)
	delete(i.seating, id)
}

// goOn makes the ports of peers that a recorder before this one has left. Recorder.absorbing is
// read-locked.
func (h *hub) goOn() {
	i, root := h.r.iso, h.p.lane.cfg.ID
	if i == nil {
		return
	}
	for _, id := range i.sources() {
		if id == root || !archive.Within(id, root) {
			continue
		}
		cfg := h.p.lane.config()
		cfg.ID = id
		l, err := h.r.lane(cfg)
		if err != nil {
			i.log.Error("what waited in memory of a peer cannot be recorded", "peer", id, "error", err)
			i.giveUp(id)
			continue
		}
		s := newSeat(h.freed, nil, h.r.began)
		s.guest, s.passed = i.connections.reading(id, func(fd int) *guest {
			giveBack := h.r.allotted.place(&h.l.counts().first)
			if giveBack == nil {
				giveBack = func() {}
			}
			return &guest{connection: &socket{descriptor: fd, peer: id}, giveBack: giveBack}
		})
		if g, ok := h.l.(*gate); ok {
			l.takesBack(g.there(s))
		}
		run := h.join(l, id, &handover{s, nil, h.p.halves})
		if p := h.p.peers[len(h.p.peers)-1]; p.remote.makesRoom() { // it had begun to when the recorder was killed
			h.leaving = p
		}
		go run()
	}
}

// isGated reports whether the port is of a source whose connections come in by a gate.
func (p *port) isGated() bool {
	if p.hub == nil {
		return false
	}
	_, ok := p.hub.l.(*gate)
	return ok
}

// guestsWait is the bytes of connections of sources with peers that nobody has read, by source. The
// journal has their number, too, also of those that cannot be looked at: they are too many, or this
// process lacks descriptors. Their hubs and the reader have ended.
func (r *Recorder) guestsWait() (all map[string]uint64) {
	for _, p := range r.sources() {
		if !p.isGated() {
			continue
		}
		waiting, connections := uint64(0), len(p.hub.waiting)
		for _, a := range p.hub.waiting {
			waiting += a.guest.unread()
		}
		g := p.hub.l.(*gate)
		for range maxArrivals { // from the kernel's queue to the shelf, where they can be looked at
			a, err := g.accepting.Rest(context.Background(), false)
			if err != nil || a.FD < 0 {
				break
			}
			g.offer(g.guest(a))
		}
		queued, _ := g.accepting.Abandoned()
		connections += queued
		g.mu.Lock()
		for _, s := range g.waiting {
			waiting += sockets.Waiting(s.fd())
		}
		connections += len(g.waiting)
		g.mu.Unlock()
		r.mu.Lock()
		peers := slices.Clone(p.peers)
		r.mu.Unlock()
		for _, q := range peers {
			for _, g := range q.opener.(*seat).has() {
				if n := g.unread(); n > 0 {
					waiting, connections = waiting+n, connections+1
				}
			}
		}
		if waiting > 0 {
			if all == nil {
				all = map[string]uint64{}
			}
			all[p.lane.cfg.ID] = waiting
		}
		if waiting > 0 || queued > 0 {
			p.log.Warn("connections wait for whoever goes on: a stop of the service loses what they hold",
				"connections", connections, "bytes", waiting, "of_unknown_bytes", queued)
		}
	}
	return all
}

// tellKeeper renews what the keeper has of a source that another process reads, for whoever comes
// after a kill.
func (p *port) tellKeeper(log *slog.Logger) {
	if !p.remote.isTold() { // or it will be, as it is then
		return
	}
	if err := p.remote.put(nil); err != nil {
		tellUntaken(log, err)
	}
}

// tellUntaken tells that the keeper has not taken what it was told. That it has ended is told by
// whoever runs the recorder, which ends, too.
func tellUntaken(log *slog.Logger, err error) {
	if isolate.HasEnded(err) {
		log.Debug("the keeper has ended", "error", err)
		return
	}
	log.Error("the keeper has not taken what it was told: restart Tallywheel, or a source may not be read",
		"error", err)
}

// leftConnections is what the shelf has of connections of sources that read all of them.
type leftConnections struct {
	listeners map[string]leftConnection // by source
	guests    []leftConnection          // nobody reads them yet; their sources have the numbers
	laned     map[string]bool           // sources that the reader knows
	readings  []leftConnection          // the reader has, or gets them; their sources are peers
}

type leftConnection struct {
	source string
	fd     int
	next   bool   // the reader has not taken it as a device yet
	addr   string // of a listener; of a guest, the one that it comes from
}

// take takes in an entry of the shelf; false: it is none of those.
func (c *leftConnections) take(kind, source string, e isolate.Entry) bool {
	if len(e.FDs) == 0 {
		return false
	}
	left := leftConnection{source: source, fd: e.FDs[0]}
	switch ofPeer := strings.Contains(source, "/"); {
	case kind == "listener":
		_ = json.Unmarshal(e.Data, &left.addr) // one that has none is listened at anew
		c.listeners[source] = left
	case kind == "guest":
		left.addr = e.Peer()
		c.guests = append(c.guests, left)
	case ofPeer && (kind == "port" || kind == "next"):
		left.next = kind == "next"
		c.readings = append(c.readings, left)
	default:
		return false
	}
	return true
}

// of is the listener of a source, -1: there is none, the connections that nobody reads yet, in the
// order in which they came, and the highest number that one has.
func (c *leftConnections) of(s config.Source) (listener int, guests []leftConnection, last int) {
	listener = -1
	if l, ok := c.listeners[s.ID]; ok && l.addr == s.TCP.Listen && !c.laned[s.ID] {
		listener = l.fd
		delete(c.listeners, s.ID)
	}
	c.guests = slices.DeleteFunc(c.guests, func(g leftConnection) bool {
		source, n := isolate.GuestIn(g.source)
		if source != s.ID {
			return false
		}
		last = max(last, n)
		if slices.ContainsFunc(c.readings, func(r leftConnection) bool { return sys.SameFile(r.fd, g.fd) }) {
			return false // close drops one that is there twice
		}
		guests = append(guests, g)
		return true
	})
	slices.SortFunc(guests, func(a, b leftConnection) int {
		_, n := isolate.GuestIn(a.source)
		_, m := isolate.GuestIn(b.source)
		return n - m
	})
	return listener, guests, last
}

// reading is the connection of a peer that the reader has, and the one that it was passed and has
// not taken yet, which may be the same; nil: there is none.
func (c *leftConnections) reading(peer string, of func(fd int) *guest) (reads, passed *guest) {
	c.readings = slices.DeleteFunc(c.readings, func(r leftConnection) bool {
		switch {
		case r.source != peer:
			return false
		case r.next:
			passed = of(r.fd)
		default:
			reads = of(r.fd)
		}
		return true
	})
	if reads == nil {
		return passed, passed
	}
	if passed != nil && sys.SameFile(reads.fd(), passed.fd()) {
		_ = passed.close()
		passed = reads
	}
	return reads, passed
}

// close closes what no source has taken, here and on the shelf.
func (c *leftConnections) close(i *isolation) {
	drop := func(name string) { _ = i.link.Drop(name) } // an error: the keeper has ended
	for source, l := range c.listeners {
		_ = sys.CloseFD(l.fd)
		i.told.Lock()
		_, isGated := i.gates[source] // it has another one
		i.told.Unlock()
		if !c.laned[source] && !isGated { // else it is the reader's
			drop(isolate.ListenerOf(source))
		}
	}
	for _, g := range c.guests {
		_ = sys.CloseFD(g.fd)
		drop("guest/" + g.source)
	}
	for _, r := range c.readings {
		_ = sys.CloseFD(r.fd)
	}
	*c = leftConnections{}
}

var _ door = (*gate)(nil)
