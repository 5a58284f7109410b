package recorder

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
)

// Sources of the scenarios that read every connection. Devices at several addresses call, each on
// its own, and each is a feeder with its own truth: the books of an address are held against what
// that one sent, whatever the others do. In a crowded hall there are more addresses than may have
// books: there one makes room for another, or is refused, and the books of all are held together
// against what all of them sent. What is stored is held by address in any case.

// hall is a source that reads every connection.
type hall struct {
	id      string
	e       *endpoint // where they call
	callers []*feeder
	crowded bool
	rooms   rooms // of a crowded one, as they were looked at last
}

// patience is how long it takes at most until those are read that are connected now: so many as may
// wait at a time do for takeover, behind one of their address that stays open.
func (h *hall) patience() time.Duration {
	h.e.k.mu.Lock()
	defer h.e.k.mu.Unlock()
	n := 0
	for _, f := range h.callers {
		for _, w := range f.e.wires {
			if !w.shown && !w.broken {
				n++
			}
		}
	}
	rounds := (n + maxArrivals - 1) / maxArrivals
	return time.Duration(rounds) * (takeover + 2*lookAround)
}

// visits is how the device at an address comes and goes.
type visits struct {
	rng    *rand.Rand
	ends   int           // of a hundred batches, so many are the last of a connection
	away   time.Duration // it stays away for so long at most, then
	beside int           // of a hundred connections, so many stay open for a while beside the next one
	idle   []idleWire
}

// idleWire is a connection that a device has forgotten, and ends later.
type idleWire struct {
	*wire
	until time.Time
}

// openHall makes the source of a feeder read every connection, and returns who calls there: the
// feeder, and others.
func (s *stage) openHall(f *feeder, c *config.Source, rng *rand.Rand) []*feeder {
	h := &hall{id: c.ID, e: s.k.newEndpoint(byListener, f.e.limit, f.e.hold)}
	n := 2 + rng.IntN(3)
	c.TCP = &config.Net{Listen: c.TCP.Listen, Peers: config.PeersAll, MaxPeers: 64}
	if h.crowded = rng.IntN(2) == 0; h.crowded {
		c.TCP.MaxPeers = 1 + rng.IntN(n-1)
	}
	f.pause *= time.Duration(n)
	f.devices = min(f.devices, 100)
	mayLag := f.lag != nil && !h.crowded // a place that is given up knows no gaps any more
	for i := range n {
		g := f
		if i > 0 {
			own := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
			g = &feeder{
				source: f.source, rng: own, devices: f.devices, next: map[uint32]uint64{}, m: f.m, tempo: f.tempo,
				burst: f.burst, pause: f.pause, harm: f.harm, e: s.k.newEndpoint(byListener, f.e.limit, f.e.hold),
			}
			g.m.rng, g.m.id, g.first = own, uint32(i)<<20, uint32(i)*1000
			g.next[g.first+1] = f.next[1]
		}
		at := fmt.Sprintf("10.0.0.%d", i+1)
		g.id = archive.Peer(c.ID, at)
		g.e.by, g.e.addr = h.e, at+":1000"
		g.visits = &visits{
			rng: rand.New(rand.NewPCG(rng.Uint64(), 1)), ends: pick(rng, 1, 5, 20),
			away: pick(rng, 0, 100*time.Millisecond, 800*time.Millisecond), beside: pick(rng, 0, 20, 60),
		}
		if h.crowded { // they come and go
			g.visits.ends = pick(rng, 10, 30, 60)
			g.visits.away = pick(rng, 300*time.Millisecond, time.Second, 3*time.Second)
		}
		// chunks of two connections mix, and of two connections one is silent
		if h.crowded || f.m.kind == "raw" || f.tempo.silence > 0 {
			g.visits.beside = 0
		}
		g.lag = nil
		if mayLag && g.visits.beside == 0 { // a gap is known to one connection
			g.lag = &lag{rng: rand.New(rand.NewPCG(rng.Uint64(), 2))}
		}
		h.callers = append(h.callers, g)
	}
	s.halls = append(s.halls, h)
	return h.callers
}

// keepConnected has a wire to send on, now and then another, and none while the device is away.
func (v *visits) keepConnected(f *feeder, w *wire) *wire {
	v.idle = slices.DeleteFunc(v.idle, func(i idleWire) bool {
		over := time.Now().After(i.until)
		if over {
			i.end()
		}
		return over
	})
	if w != nil && v.rng.IntN(100) < v.ends {
		w = v.leave(w)
		if v.away > 0 && v.rng.IntN(2) == 0 {
			if f.m.kind == "tally128" && v.rng.IntN(3) == 0 { // it makes one that nobody gets
				f.take(f.first + 1)
			}
			f.sleep(time.Duration(v.rng.Int64N(int64(v.away))))
			return nil
		}
	}
	if w == nil {
		w = f.e.connect()
	}
	return w
}

// leave ends a connection, or forgets it.
func (v *visits) leave(w *wire) *wire {
	switch {
	case w == nil:
	case v.rng.IntN(100) < v.beside && len(v.idle) < 3:
		v.idle = append(v.idle, idleWire{w, time.Now().Add(time.Duration(v.rng.IntN(3000)) * time.Millisecond)})
	default:
		w.end()
	}
	return nil
}

// endAll ends what was forgotten.
func (v *visits) endAll() {
	if v == nil {
		return
	}
	for _, i := range v.idle {
		i.end()
	}
}

// merge adds the books of another name of the same devices. What the log has lost they say alike.
func (a *books) merge(b *books) {
	for of, n := range map[*uint64]uint64{
		&a.read: b.read, &a.framed: b.framed, &a.resync: b.resync, &a.partial: b.partial, &a.quarantined: b.quarantined,
		&a.unread: b.unread, &a.corrupt: b.corrupt, &a.missing: b.missing, &a.dropped: b.dropped, &a.stored: b.stored,
		&a.forgotten: b.forgotten, &a.late: b.late, &a.valid: b.valid, &a.overrun: b.overrun, &a.byTime: b.byTime,
		&a.silences: b.silences, &a.refused: b.refused,
	} {
		*of += n
	}
	a.reach, a.erased = a.reach+b.reach, max(a.erased, b.erased)
	a.green, a.clean = a.green && b.green, a.clean && b.clean
	if a.levels.kinds == nil {
		a.levels.kinds, a.levels.bad = map[string]int{}, map[string]int{}
	}
	a.levels.good += b.levels.good
	for kind, n := range b.levels.kinds {
		a.levels.kinds[kind] += n
	}
	for kind, n := range b.levels.bad {
		a.levels.bad[kind] += n
	}
}

// judgeHall holds the books of a source and of its peers against what their devices sent.
func (s *stage) judgeHall(h *hall, accounts map[string]*books, records map[string][]record, waste map[string]uint64) {
	own := accounts[h.id]
	if own == nil {
		s.complain("%s: no sheet has it", h.id)
		return
	}
	all := &books{green: true, clean: true}
	every := &feeder{ // all of them as one
		id: h.id, m: h.callers[0].m, e: &endpoint{kind: byListener}, tempo: h.callers[0].tempo, harm: h.callers[0].harm,
	}
	// what a kill took of peers that no sheet has is named in the books of their source
	together := h.crowded || len(s.kills) > 0 && own.missing > 0
	known := map[string]bool{h.id: true}
	for _, f := range h.callers {
		one, stored, wasted := &books{green: true, clean: true}, []record(nil), uint64(0)
		for _, name := range slices.Sorted(maps.Keys(accounts)) {
			if archive.Within(name, f.id) {
				one.merge(accounts[name])
				known[name] = true
			}
		}
		for name, r := range records {
			if archive.Within(name, f.id) {
				known[name] = true
			}
			if name != f.id && archive.Within(name, f.id) && f.m.kind == "raw" {
				s.complain("%s: it had one connection at a time, and there are records of %s", f.id, name)
			}
			if archive.Within(name, f.id) {
				stored = append(stored, r...)
			}
		}
		for name, n := range waste {
			if archive.Within(name, f.id) {
				wasted += n
			}
		}
		// a connection may go on under another name of its address
		slices.SortFunc(stored, func(a, b record) int { return cmp.Compare(a.seq, b.seq) })
		one.erased = max(one.erased, own.erased)
		every.frames = append(every.frames, f.frames...)
		switch {
		case together && f.m.kind == "raw":
		case together:
			s.match(f, stored)
		default:
			s.judgeSource(f, one, stored, wasted)
		}
	}
	for name, a := range accounts {
		if archive.Within(name, h.id) {
			all.merge(a)
		}
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(accounts)), slices.Collect(maps.Keys(records))) {
		if archive.Within(name, h.id) && !known[name] {
			s.complain("%s: nobody has this address", name)
		}
	}
	least, most := s.refusals(h)
	if s.refused += int(most); all.refused < least || all.refused > most {
		s.complain("%s: %d to %d connections were refused, the books name %d", h.id, least, most, all.refused)
	}
	if !h.crowded && own.read+own.dropped+own.unread+own.valid > 0 || !together && own.missing > 0 {
		s.complain("%s: there is room for all, and the source has books of its own: %+v", h.id, *own)
	}
	if !together {
		return
	}
	var chunks []record
	var wasted uint64
	for _, name := range slices.Sorted(maps.Keys(records)) {
		if archive.Within(name, h.id) {
			chunks = append(chunks, records[name]...)
		}
	}
	for name, n := range waste {
		if archive.Within(name, h.id) {
			wasted += n
		}
	}
	s.judgeBooks(every, all, chunks, wasted)
}

// refusals is how many connections a process has ended that nobody had read.
func (s *stage) refusals(h *hall) (least, most uint64) {
	for _, f := range h.callers {
		for _, w := range f.e.wires {
			if w.shown || w.closed.at.IsZero() {
				continue
			}
			if most++; !s.isUncounted(w.closed) {
				least++
			}
		}
	}
	return least, most
}
