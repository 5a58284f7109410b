package recorder

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
)

// missed is the peers that were there when their source was left, by a stop, a kill or a reload,
// and since when each is gone. A source that begins again gives each of them a port, so that it is
// missed until it comes.
type missed map[string]absence

// absence is how a peer is gone.
type absence struct {
	since time.Time
	known bool // it was gone before its source was left, as the verdict said
}

// of takes in the peers of the start before, by the accounts that it left at a time, the newest of
// a peer last. Those that were gone when somebody acknowledged it behind that sheet are not missed.
func (m missed) of(ports []ledger.Port, at ledger.Time, acked bool) {
	for i := range ports {
		p := &ports[i]
		if !isPeer(p.ID) {
			continue
		}
		left, isGone := at, p.State == ledger.StateWaiting
		if isGone {
			if acked {
				delete(m, p.ID) // it was there in an account before
				continue
			}
			if n := len(p.Outages); n > 0 {
				left = p.Outages[n-1].From
			}
		}
		m[p.ID] = absence{time.Unix(0, int64(left)), isGone}
	}
}

// tell is the peers for a sheet: the next start misses them, too.
func (m missed) tell() (all map[string]archive.MissedPeer) {
	for name, a := range m {
		if all == nil {
			all = map[string]archive.MissedPeer{}
		}
		all[name] = archive.MissedPeer{Since: ledger.Time(a.since.UnixNano()), Known: a.known}
	}
	return all
}

// told takes in the peers that tell has told. Those that were gone when somebody acknowledged it
// behind that sheet are not missed.
func (m missed) told(all map[string]archive.MissedPeer, acked bool) {
	for name, p := range all {
		if !acked || !p.Known {
			m[name] = absence{time.Unix(0, int64(p.Since)), p.Known}
		}
	}
}

// leave takes in the peers of a source that has stopped, but those whose connections are handed on.
// Recorder.mu is held.
func (m missed) leave(p *port, handed *handover, at int64) {
	for _, q := range p.peers {
		if !isPeer(q.lane.cfg.ID) {
			continue
		}
		g, left := q.opener.(*seat).taken()
		out := q.lane.openOutage()
		switch {
		case g != nil && out != nil: // the books say before the seat does that it is gone
			left = time.Unix(0, int64(out.From))
		case g != nil:
			left = time.Unix(0, at)
		}
		m[q.lane.cfg.ID] = absence{left, g == nil || out != nil}
	}
	if handed == nil {
		return
	}
	for _, d := range handed.devices {
		if g, ok := d.(*guest); ok {
			delete(m, peerOf(p.lane.cfg.ID, g))
		}
	}
}

// acknowledged takes out those whose absence is known by a word. Recorder.mu is held.
func (m missed) acknowledged() {
	maps.DeleteFunc(m, func(_ string, a absence) bool { return a.known })
}

// isPeer reports whether a name is that of an address, as which a peer is missed. A further
// connection beside another from its address has a number, too, and may never come again.
func isPeer(name string) bool {
	_, address, _ := strings.Cut(name, "/")
	_, err := netip.ParseAddr(address)
	return err == nil
}

// lanesOfMissed makes the lanes of the peers of a source that are missed, of those that were there
// last.
func (r *Recorder) lanesOfMissed(source config.Source) (lanes []*lane) {
	if !source.TCP.All() {
		return nil
	}
	var names []string
	r.mu.Lock()
	for name := range r.missed {
		if archive.Within(name, source.ID) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if c := r.missed[b].since.Compare(r.missed[a].since); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	r.mu.Unlock()
	for _, name := range names[:min(len(names), source.TCP.MaxPeers)] {
		cfg := source
		cfg.ID = name
		l, err := r.lane(cfg)
		if err != nil {
			r.slog.Warn("a peer that was there before has no books until it comes, and is not missed", "peer", name,
				"error", err)
			continue
		}
		lanes = append(lanes, l)
	}
	return lanes
}

// await makes the ports of peers that are missed, which wait from now on. Recorder.absorbing is
// read-locked.
func (h *hub) await(lanes []*lane) {
	for _, l := range lanes {
		h.r.mu.Lock()
		a, ok := h.r.missed[l.cfg.ID]
		delete(h.r.missed, l.cfg.ID)
		h.r.mu.Unlock()
		left := monotonic(a.since)
		if !ok { // a word came since the lanes were made: the next one is for it, too
			left = time.Now()
		}
		go h.join(l, l.cfg.ID, &handover{newSeat(h.freed, nil, left), nil, h.p.halves})()
	}
}

// monotonic gives a time that an earlier start has noted the monotonic clock, too: it is before
// now, whatever the clock was set to since.
func monotonic(at time.Time) time.Time {
	now := time.Now()
	return now.Add(-max(0, now.Sub(at)))
}
