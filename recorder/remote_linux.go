package recorder

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/reader"
)

// remote is a source that the reader's process reads.
type remote struct {
	iso   *isolation
	lane  *lane
	spool *spool.Spool
	play  *spooled
	after []*port       // had the source, or its device, before: it begins once those have departed
	ends  *time.Time    // of a spool that was left: the reader was told to end it by then; nil: it was not
	told  atomic.Bool   // it is on the shelf
	ended chan struct{} // closed once the spool has been shown to its end, or err says why not
	err   error
}

// adopt gives a lane the spool that the recorder before has left of its source: its books go on. It
// is nil where there is none, and where it cannot be gone on with: then the account of the source
// is closed as that of one that has died, and it begins anew.
func (r *Recorder) adopt(l *lane) *remote {
	if r.iso == nil || r.iso.left[l.cfg.ID] == nil {
		return nil
	}
	i, id, own := r.iso, l.cfg.ID, l.number
	old := i.left[id]
	l.number = old.book
	rm, err := r.attach(l, old.spool)
	if err == nil {
		rm.ends = old.lane.GiveUp
		delete(i.left, id)
		return rm
	}
	l.number = own
	i.log.Error("what waited in memory of a source cannot be gone on with: its books begin anew, and what the log does not have is missing",
		"source", id, "error", err)
	i.giveUp(id)
	died := *i.last
	died.Sheet.Leaving, died.Positions = nil, map[string][]ledger.Position{id: i.last.Positions[id]}
	died.Sheet.Ports = slices.DeleteFunc(slices.Clone(i.last.Sheet.Ports), func(p ledger.Port) bool { return p.Book != old.book })
	others := slices.DeleteFunc(r.streams.Sources(), func(source string) bool { // which go on, or were closed before
		return archive.AddressOf(source) == archive.AddressOf(id) && (source == id || i.left[source] == nil)
	})
	r.closeDied(&died, nil, others)
	return nil
}

// newSpool gives a lane a spool of its own.
func (r *Recorder) newSpool(l *lane) (*remote, error) {
	s, err := spool.Create(spool.Config{Size: SpoolBytes(l.cfg, r.cfg.KeepsTime()), Room: spool.MaxRoom})
	if err != nil {
		return nil, err
	}
	rm, err := r.attach(l, s)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	rm.after = slices.DeleteFunc(r.departing(), func(p *port) bool { // a peer opens no device
		return l.hubNumber != 0 && !archive.Within(l.cfg.ID, p.lane.cfg.ID)
	})
	return rm, nil
}

// attach has a lane record a spool, from where it is, and shows it what waits.
func (r *Recorder) attach(l *lane, s *spool.Spool) (*remote, error) {
	i := r.iso
	play, err := newSpooled(l, s, liveLog{r.log}, spool.Steady)
	if err != nil {
		return nil, err
	}
	play.why = func() string { return i.port(l.cfg.ID).Why }
	play.rest = checkpointRest
	l.describe(i.port(l.cfg.ID))
	for until := time.Now().Add(caughtUp); time.Now().Before(until); {
		if more, err := play.step(); err != nil || !more {
			break // an error shows again
		}
	}
	return &remote{iso: i, lane: l, spool: s, play: play, ended: make(chan struct{})}, nil
}

// put tells the reader, and whoever comes next, of the source.
func (rm *remote) put(giveUp *time.Time) error {
	l := rm.lane
	cfg := l.config()
	source, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	silence, most := l.waits()
	lane := isolate.Lane{Source: source, Book: l.number, Silence: silence, Patience: most, GiveUp: giveUp}
	lane.Kind, lane.Port = deviceOf(cfg)
	if cfg.Serial != nil {
		lane.Line = cfg.Serial.Line()
	}
	return put(rm.iso.link, isolate.LaneOf(cfg.ID), lane, rm.spool)
}

// begin has the spool shown by pump from now on.
func (rm *remote) begin() {
	rm.iso.mu.Lock()
	rm.iso.remotes = append(rm.iso.remotes, rm)
	rm.iso.mu.Unlock()
	rm.iso.bell.Ring()
}

// cease has it shown no more.
func (rm *remote) cease() {
	rm.iso.mu.Lock()
	defer rm.iso.mu.Unlock()
	rm.iso.remotes = slices.DeleteFunc(rm.iso.remotes, func(o *remote) bool { return o == rm })
}

// unshown is how many bytes the reader has read that no lane was shown yet.
func (rm *remote) unshown() uint64 {
	if rm == nil {
		return 0
	}
	rm.iso.mu.Lock()
	defer rm.iso.mu.Unlock()
	return rm.play.from.Unshown()
}

// isEnding reports whether the reader was told to end the spool, by a recorder before this one.
func (rm *remote) isEnding() bool { return rm != nil && rm.ends != nil }

func (rm *remote) isOver() bool {
	select {
	case <-rm.ended:
		return true
	default:
		return false
	}
}

// keepRemote is keepOpen for a source that another process reads: it sees that one does, until ctx
// is done.
func (p *port) keepRemote(ctx context.Context) {
	defer close(p.done)
	rm := p.remote
	defer p.lane.stopped()
	defer rm.iso.forget(p.lane.cfg.ID)
	if !p.founds(ctx) {
		p.unbegun()
		return
	}
	rm.begin()
	if err := rm.put(rm.ends); err != nil {
		p.log.Error("the keeper does not listen: it has ended, and so will the recorder", "error", err)
	}
	if s, ok := p.opener.(*seat); ok {
		s.begins()
	}
	select {
	case <-ctx.Done():
	case <-rm.ended:
		if rm.err != nil {
			p.log.Error("the spool of the source makes no sense: it is read no more until the recorder is started anew", "error", rm.err)
			p.lane.outage(time.Now().UnixNano(), "its spool makes no sense, and a restart of Tallywheel is needed: "+rm.err.Error())
		}
		<-ctx.Done()
	}
	deadline := p.finishBy()
	p.lane.finishes(unreadStopped)
	if err := rm.put(&deadline); err != nil {
		p.log.Debug("the keeper has ended, which the reader sees, too", "error", err)
	}
	late := time.NewTimer(time.Until(deadline) + time.Second)
	defer late.Stop()
	select {
	case <-rm.ended:
	case <-rm.iso.over: // as where the keeper was killed before it told the reader of the source, or of its end
		p.playOut(late.C)
	case <-late.C:
		p.awaitsReader()
	}
	rm.cease()
	if n := rm.rest(); n > 0 {
		p.lane.unread(unreadStopped, n)
		p.log.Debug("bytes that had arrived are thrown away unread", "bytes", n, "cause", unreadStopped)
	}
}

// playLook is how often a source whose reader is gone looks whether all was shown that it has read.
const playLook = time.Millisecond

// playOut waits until all is shown that a reader has read which is gone, and did not come to its
// end, or until late.
func (p *port) playOut(late <-chan time.Time) {
	rm := p.remote
	isShown := func() bool {
		rm.iso.mu.Lock()
		defer rm.iso.mu.Unlock()
		return rm.isOver() || !rm.play.player.Paused() && rm.play.from.IsAtEnd()
	}
	for isLate := false; !isLate && !isShown(); {
		rm.iso.bell.Ring()
		select {
		case <-late:
			isLate = true
		case <-time.After(playLook):
		}
	}
	if !rm.isOver() {
		p.unseated()
	}
}

// unseated counts what waits in a connection that a peer was given, and that its reader has not
// read to its end: it was killed, or has never heard of it.
func (p *port) unseated() {
	s, ok := p.opener.(*seat)
	if !ok {
		return
	}
	rest, _, _ := s.close(true)
	seated, _ := s.taken()
	if seated != nil && !slices.Contains(rest, device(seated)) {
		rest = append(rest, seated)
	}
	for _, d := range rest {
		g := d.(*guest)
		g.deafen()
		if n := g.unread(); n > 0 {
			p.lane.unread(unreadStopped, n)
			p.log.Debug("bytes that had arrived are thrown away unread", "bytes", n, "cause", unreadStopped)
		}
		if g != seated {
			_ = g.close()
		}
	}
	s.vacate()
}

// readerStands is for how long a source that has stopped waits for a reader that stands still.
const readerStands = 10 * time.Second

// awaitsReader waits for a reader that should have come to the end of the source, and stands still:
// once it goes on it counts what it was late for.
func (p *port) awaitsReader() {
	rm := p.remote
	p.log.Error("the reader stands still, and the source that has stopped waits for it", "at_most", readerStands)
	late := time.NewTimer(readerStands)
	defer late.Stop()
	select {
	case <-rm.ended:
		return
	case <-rm.iso.over:
		p.playOut(late.C)
		return
	case <-late.C:
	}
	why := "the reader did not come to its end: what it had not read is not counted"
	p.log.Error(why)
	p.lane.outage(time.Now().UnixNano(), why)
}

// unbegun counts what a peer was sent that had no time to begin: nothing of it was read.
func (p *port) unbegun() {
	s, ok := p.opener.(*seat)
	if !ok {
		return
	}
	rest, _, _ := s.close(true)
	for _, d := range rest {
		d.deafen()
		p.lane.unread(unreadStopped, d.discard())
		if err := d.close(); err != nil {
			p.log.Warn("close", "error", err)
		}
	}
}

// rest is what was not shown when the source stopped, in bytes; what is held is classified as it
// is. Nobody shows the spool any more.
func (rm *remote) rest() (n uint64) {
	if rm.play.ended {
		return 0
	}
	if rm.err != nil {
		return 0 // nobody knows
	}
	held, err := rm.play.from.Held()
	if err != nil {
		return 0
	}
	rm.lane.Closed(held, time.Now().UnixNano(), reader.ErrRemoved)
	<-rm.lane.closed
	rm.play.from.Done(len(held))
	for {
		at := rm.play.from.Point().Shown
		m, _, ok, err := rm.play.from.Next()
		if err != nil || !ok {
			return n
		}
		n += m.At - at
	}
}
