package recorder

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/internal/pack"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/reader"
	"github.com/tallywheel/tallywheel/seglog"
)

// spooled records a spool: it plays it to a lane, and saves how far that is. It may be killed at
// any instruction. The next on the same spool and log goes on at the newest checkpoint:
//
//  1. the lane knows what it knew there, books included (lane.inherit);
//  2. bytes and marks behind it come again, with the times at which they were read;
//  3. frames of them that the log has already are not appended again (replay).
//
// So each frame is in the log once, and the books are those of a recorder that was never killed.
//
// One goroutine at a time may use it: once it is listed, who holds isolation.mu. The lane has its
// own lock.
type spooled struct {
	lane   *lane
	log    wireLog
	spool  *spool.Spool
	from   *spool.Consumer
	player *spool.Player
	room   int           // bytes of a checkpoint
	size   int           // bytes that the spool holds
	slots  int           // … and marks
	most   int           // marks that are shown before a checkpoint is looked at
	rest   time.Duration // between two checkpoints, as long as the spool has room; 0: none
	now    func() time.Duration
	at     atomic.Int64 // the time of what is shown, by the clock of now; isLive: nothing is left to be shown

	// how many bytes may wait in front of the spool, which runs over into a file; 0: it does not
	inFront uint64

	unread uint64     // times without room that are over, and posted
	lasts  spool.Time // … and the one that was told of last, while it lasted; zero: none does

	why   func() string // the words for a device that cannot be opened; nil, "": the error's number has to do
	ended bool          // the reader has given the wire up
	// nothing is shown before a checkpoint is behind that many marks: what was skipped would come
	// again
	past uint64

	founded uint64            // the log had no more when the spool was made
	gone    given             // what the log had lost of what it was given
	rested  time.Time         // when the next checkpoint is due
	due     *spool.Checkpoint // taken, and to be saved once the log has stored its sequence; nil: none
	kept    spool.Checkpoint  // saved last, without its data
	twice   bool              // … and the one before has the same point, so all room before it is given back
}

const isLive = math.MinInt64

// deadly is how many recorders in a row may die at work on one mark before it is skipped.
const deadly = 3

// unreadCrashed is the cause of bytes that were read, and that nobody has classified: again and
// again a recorder has died of them.
const unreadCrashed = "recorder_crashed"

// wireLog is what a spooled lane needs of the log.
type wireLog interface {
	appender
	// stored is up to which sequence records are read back, also after a kill.
	stored() uint64
	// newest is the newest record that is there, at most upTo: that itself where the log has
	// removed it in order.
	newest(upTo uint64) (uint64, error)
	// hasFailed reports whether the log takes nothing more until it is opened again.
	hasFailed() bool
	// since shows the records behind a sequence, in order, and passes over those that are gone, or
	// cannot be read: lost is told the first of them, before it shows what stands behind.
	since(seq uint64, each func(seglog.Record), lost func(first uint64)) error
}

// newSpooled makes a new lane record a spool, from where the recorder before left it. now is the
// steady clock by which its marks are written.
func newSpooled(l *lane, s *spool.Spool, log wireLog, now func() time.Duration) (*spooled, error) {
	var newestErr error
	c, err := s.ConsumerOf(func(seq uint64) bool {
		newest, err := log.newest(seq)
		newestErr = errors.Join(newestErr, err)
		return newest == seq
	})
	if err = errors.Join(err, newestErr); err != nil {
		return nil, err
	}
	p := &spooled{
		lane: l, log: log, spool: s, from: c, room: s.Room(), size: s.Size(), slots: s.Marks(), most: 64, now: now,
	}
	l.out.log = log
	l.in.spooled, l.in.steady = true, p.steady
	if l.out.backlog.over != nil { // the reader has the file
		l.out.backlog.over, l.out.spools = nil, true
		p.inFront = uint64(l.cfg.Spill.Max) + uint64(s.Size())
	}
	if cp, ok := c.Restored(); ok {
		var behind uint64
		behind, p.ended, err = l.inherit(cp)
		if err != nil {
			return nil, err
		}
		p.kept, p.founded = cp, l.out.marks[0].sequence
		if c.IsBehind() {
			if p.kept.Sequence, err = p.lose(cp.Sequence); err != nil {
				return nil, err
			}
		}
		if l.out.log, err = newReplay(log, behind, l.out.stream, l.in.wasteStream); err != nil {
			return nil, err
		}
	} else { // nothing of this spool is in the log
		if err := p.found(); err != nil {
			return nil, err
		}
	}
	p.player, err = c.Play(p)
	return p, err
}

// found makes the first checkpoint of a spool of which nothing is in the log: all its records come
// behind what is stored now. Those of the wire before it must be stored by then: the offsets of
// each wire begin at 0, so that a replay would take the ones for the others.
func (p *spooled) found() error {
	p.kept.Sequence, p.due = p.log.stored(), nil
	p.take()
	return p.save()
}

// steady is the time by which the lane measures: that of what it is shown, and that of now once
// nothing is left.
func (p *spooled) steady() time.Duration {
	if at := p.at.Load(); at != isLive {
		return time.Duration(at)
	}
	return p.now()
}

// step shows the lane what is there, up to a bound, and saves what can be. more says that there may
// be more at once; else something has to come first: a mark, room in the lane, or a commit.
func (p *spooled) step() (more bool, err error) {
	if err := p.player.Resume(); err != nil {
		return false, err
	}
	for range p.most {
		if p.kept.Marks < p.past {
			more = false
			break
		}
		if n, mark := p.from.Deaths(); n >= deadly && p.from.Point().Marks == mark && !p.player.Paused() {
			if err := p.skip(); err != nil {
				return false, err
			}
			continue
		}
		m, ok, err := p.player.Next()
		if err != nil {
			return false, err
		}
		if more = ok; !ok {
			p.at.Store(isLive)
			break
		}
		if err := p.tell(m); err != nil {
			return false, err
		}
	}
	p.from.Close() // who is killed from here on is not killed by what was shown
	_, inFront := p.waits()
	p.lane.inFront.Store(inFront)
	p.missed() // behind the marks: the last of a reader is behind its last time
	held := p.kept.Marks < p.past
	err = p.save()
	return more || held && p.kept.Marks >= p.past, err
}

// waits is how many bytes the lane was not shown yet, in the spool and in front of it.
func (p *spooled) waits() (unshown, inFront uint64) {
	unshown, inFront = p.from.Waits()
	return unshown, min(inFront, p.inFront) // a reader may write anything
}

// skip leaves out a mark of which recorders have died: its bytes, and those that were held before
// it, go to the quarantine. The decoder begins anew. Nothing more is shown before that is in a
// checkpoint.
func (p *spooled) skip() error {
	shown := p.from.Point().Shown
	m, view, ok, err := p.from.Next()
	if err != nil || !ok {
		return err
	}
	if err := p.lane.bypass(view, int(m.At-shown), m.Time); err != nil {
		return err
	}
	p.from.Done(len(view))
	p.past = p.from.Point().Marks
	switch m.Kind {
	case spool.Closed:
		p.Closed(nil, m.Time, io.EOF)
	case spool.Ended:
		p.Closed(nil, m.Time, spool.ErrEnded)
	default:
		return p.tell(m)
	}
	return nil
}

// bypass takes bytes out of the way of a decoder that they crash, the last fresh of which it never
// got.
func (l *lane) bypass(view []byte, fresh int, at int64) error {
	dec, err := l.cfg.Decoder()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	in := &l.in
	in.bury()
	in.dec, in.now = dec, at
	in.listen()
	in.book.At(at)
	held := len(view) - fresh
	in.book.Skip(held)
	in.book.Unread(unreadCrashed, uint64(fresh))
	if in.wasteStream != 0 && len(view) > 0 {
		in.out.quarantine(in.wasteStream, at, in.offset, archive.Quarantined(in.offset, view), held)
	}
	in.offset += uint64(len(view))
	in.held = 0
	return nil
}

// Arrived implements spool.Handler.
func (p *spooled) Arrived(view []byte, fresh int, at int64) (done int, more bool) {
	p.at.Store(p.from.Steady())
	return p.lane.Arrived(view, fresh, at)
}

// Silent implements spool.Handler.
func (p *spooled) Silent(view []byte, at int64) (done int) {
	p.at.Store(p.from.Steady())
	return p.lane.Silent(view, at)
}

// Closed implements spool.Handler.
func (p *spooled) Closed(view []byte, at int64, err error) {
	p.at.Store(p.from.Steady())
	if errors.Is(err, spool.ErrEnded) {
		p.ended, err = true, reader.ErrRemoved
	}
	p.lane.Closed(view, at, err)
	<-p.lane.closed // nobody else waits for it
}

// save saves the checkpoint that is due, if the log has stored what it is behind, and takes the
// next where something has changed. Once the log has failed, nothing is saved any more: what the
// lane drops for that waits in the spool, and the next recorder is shown it again.
func (p *spooled) save() error {
	if p.log.hasFailed() {
		return nil
	}
	if p.due != nil && p.log.stored() >= p.due.Sequence {
		if err := p.from.Save(*p.due); err != nil {
			return err
		}
		p.twice = p.due.Point == p.kept.Point
		p.kept, p.due = *p.due, nil
	}
	if p.due != nil {
		return nil
	}
	if p.lane.isTouched() || (!p.twice || p.kept.Point != p.from.Point()) && p.isRested() {
		p.take()
	}
	return nil
}

// saveBoth saves the checkpoint that was taken before, and one with what has changed since.
func (p *spooled) saveBoth() error {
	if err := p.save(); err != nil {
		return err
	}
	return p.save()
}

// isRested reports whether a checkpoint is to be taken now. Each takes as long as some frames, and
// one for each batch of the log is more than room and a short way back need.
func (p *spooled) isRested() bool {
	at := p.from.Point()
	if p.rest == 0 || p.ended || p.kept.Marks < p.past || at.Done-p.kept.Done > uint64(p.size)/8 ||
		at.Marks-p.kept.Marks > uint64(p.slots)/8 {
		return true
	}
	now := time.Now()
	if now.Before(p.rested) {
		return false
	}
	p.rested = now.Add(p.rest)
	return true
}

// take takes a checkpoint, unless the lane holds what the log has not taken yet.
func (p *spooled) take() {
	if p.player != nil && p.player.Paused() {
		return
	}
	if data, last, ok := p.lane.checkpoint(p.kept.Sequence, p.ended, p.room); ok {
		p.due = &spool.Checkpoint{Point: p.from.Point(), Sequence: last, Data: data}
	}
}

// laneState is what a lane knows beside its settings, once what it has given to the log is stored.
type laneState struct {
	book, decoder []byte
	state, why    string
	heard, ended  bool   // … see spooled
	framed        uint64 // see intake
	since         int64  // see intake
	frames, waste uint64 // … that the log had not stored: frames, and bytes that are in none
	durable       uint64 // frames that become durable with that
	behind        uint64 // the log may have what comes again behind this sequence
	told          [5]uint64
	kernel        *ledger.Kernel
	marks         []given // the last is of the checkpoint itself
	thrown        []thrown
	stop          badEnd // of the recording that stops; zero: it does not
}

const laneStateVersion = 5

func (s *laneState) describe(c *pack.Coder) {
	c.Bytes(&s.book)
	c.Bytes(&s.decoder)
	c.Text(&s.state)
	c.Text(&s.why)
	c.Flags(&s.heard, &s.ended)
	pack.Natural(c, &s.framed, &s.frames, &s.waste, &s.durable, &s.behind)
	pack.Signed(c, &s.since)
	for i := range s.told {
		pack.Natural(c, &s.told[i])
	}
	pack.Optional(c, &s.kernel, func(k *ledger.Kernel) {
		for _, p := range []**uint64{&k.Overrun, &k.BufferOverrun, &k.Framing, &k.Parity, &k.Break} {
			pack.Optional(c, p, func(n *uint64) { pack.Natural(c, n) })
		}
	})
	pack.List(c, &s.marks, func(g *given) { pack.Natural(c, &g.sequence, &g.frames, &g.waste) })
	pack.List(c, &s.thrown, func(t *thrown) { pack.Natural(c, &t.socket, &t.n); c.Flags(&t.behind) })
	c.Text(&s.stop.unended)
	pack.Natural(c, &s.stop.untaken)
}

// checkpoint is the state of the lane, in so many bytes at most, and the sequence of the last
// record that it gave to the log, at least that of the checkpoint before. ended: the lane was shown
// the end of its spool, and the next recorder is not shown it again. ok is false while it holds
// frames that are not in the log.
func (l *lane) checkpoint(before uint64, ended bool, most int) (state []byte, last uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := &l.out
	if o.backlog.frames+o.between > 0 {
		return nil, 0, false
	}
	s := laneState{
		state: l.state, why: l.why, heard: l.in.heard, ended: ended, framed: l.in.framed, since: l.in.since,
		frames: uint64(o.staged.frames),
		told:   l.counts.told, kernel: l.kernel, thrown: l.thrown, stop: l.before,
	}
	if l.stops {
		s.stop = badEnd{l.unended, l.untaken}
	}
	l.touched = false
	if d, ok := l.in.dec.(frame.Stateful); ok {
		s.decoder = d.State()
	}
	s.durable = o.staged.held().N
	for _, w := range o.waste {
		s.waste += uint64(w.n)
	}
	last = max(before, o.gave.sequence)
	o.gave.sequence = last
	s.behind, s.marks = last, marked(o.marks, o.gave)
	if r, ok := o.log.(*replay); ok {
		if next, ok := r.next(l.in.offset); ok {
			s.behind = next - 1
		} else { // the log has nothing of what comes from now on
			o.log = r.appender
		}
	}
	if s.behind >= last { // else some records before it are not among what was given yet
		o.marks = s.marks
	}
	const length = 4 // of the book's, at most, beyond that of no book
	s.book = l.in.book.State(most - pack.Overhead - length - pack.Size(s.describe))
	return pack.Seal(laneStateVersion, s.describe), last, true
}

// inherit makes a new lane know what the one did that gave the state of a checkpoint. All that it
// had given to the log is stored, and durable: the log was opened since. Behind the sequence that
// inherit returns, the log may have what comes again. ended: nothing comes any more.
func (l *lane) inherit(cp spool.Checkpoint) (behind uint64, ended bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var s laneState
	if err := pack.Open(laneStateVersion, cp.Data, s.describe); err != nil {
		return 0, false, fmt.Errorf("the state of source %s: %w", l.cfg.ID, err)
	}
	if len(s.marks) == 0 {
		return 0, false, fmt.Errorf("the state of source %s does not say what the log had", l.cfg.ID)
	}
	if err := l.in.book.Restore(s.book); err != nil {
		return 0, false, fmt.Errorf("source %s: %w", l.cfg.ID, err)
	}
	if d, ok := l.in.dec.(frame.Stateful); ok {
		if err := d.Restore(s.decoder); err != nil {
			return 0, false, fmt.Errorf("source %s: %w", l.cfg.ID, err)
		}
	}
	l.state, l.why, l.counts.told, l.kernel = s.state, s.why, s.told, s.kernel
	l.thrown, l.before = s.thrown, s.stop
	l.in.heard, l.in.framed, l.in.offset, l.in.now = s.heard, s.framed, cp.Done, cp.Time
	l.readOn(cp.Time)
	l.in.held, l.in.since = int(cp.Shown-cp.Done), s.since
	l.out.marks, l.out.gave = s.marks, s.marks[len(s.marks)-1]
	if n := len(s.marks) - 1; n > 0 && s.behind < l.out.gave.sequence { // see checkpoint
		l.out.marks = s.marks[:n]
	}
	l.in.book.Stored(s.frames)
	l.in.book.Durable(s.durable)
	l.in.book.Quarantine(int(s.waste))
	l.out.reach(withoutGaps(l.in.book.Positions()))
	return s.behind, s.ended, nil
}

// liveLog is a log that is open.
type liveLog struct{ *seglog.Log }

func (l liveLog) stored() uint64 { return l.Stored() }

func (l liveLog) hasFailed() bool { return l.HasFailed() }

func (l liveLog) since(seq uint64, each func(seglog.Record), lost func(first uint64)) error {
	r := l.NewReader(seq + 1)
	defer r.Close()
	for {
		rec, err := r.Next()
		var damage *seglog.CorruptError
		if errors.As(err, &damage) {
			var passed *seglog.GapError
			if passed, err = r.Skip(); err == nil {
				err = passed
			}
		}
		var gap *seglog.GapError
		switch {
		case err == nil:
			each(rec)
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &gap):
			lost(gap.From)
		default:
			return fmt.Errorf("the log behind record %d: %w", seq, err)
		}
	}
}
