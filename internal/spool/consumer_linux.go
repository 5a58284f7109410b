package spool

import (
	"fmt"
	"sync/atomic"

	"github.com/tallywheel/tallywheel/ring"
)

// Consumer is the end that classifies bytes. One goroutine at a time may use it.
type Consumer struct {
	spool     *Spool
	ring      *ring.Consumer
	at        Point
	silent    int64  // what a mark of a silence says, if it was shown last
	published uint64 // marks, as last seen: at least so many are there
	released  uint64 // marks that were given back; the shared word only tells it
	restored  Checkpoint
	isBehind  bool // the log does not have what the checkpoint says is stored

	kept     Point // of the newest checkpoint: the next takes the other slot
	sequence uint64
	number   uint64 // 0: there is none
	slot     int    // that it lies in

	working bool // as the shared word says
	deaths  int
	suspect uint64 // the number of the mark and 1; 0: none

	look                        *atomic.Uint64
	ends                        *atomic.Uint64 // see Relay.tell
	tell, work, suspects, dying *atomic.Uint64

	step func() // between two steps that another process can see; tests end a consumer there
}

// Consumer takes the end that empties. It goes on at the newest checkpoint whose sequence is at
// most upTo, the end of the log: [Consumer.Restored] is that one. Without a checkpoint it begins
// with the first byte. An error may be [ErrBehind].
func (s *Spool) Consumer(upTo uint64) (*Consumer, error) { return s.consume(upTo, func() {}) }

// ConsumerOf is Consumer for a log that may have lost its end, or a part: it goes on at the newest
// checkpoint whose sequence is there. Where that of neither is, it goes on at the older one, of
// which more is left in memory: then [Consumer.IsBehind].
func (s *Spool) ConsumerOf(isThere func(sequence uint64) bool) (*Consumer, error) {
	return s.consumeOf(isThere, true, func() {})
}

func (s *Spool) consume(upTo uint64, step func()) (*Consumer, error) {
	return s.consumeOf(func(sequence uint64) bool { return sequence <= upTo }, false, step)
}

// Sequence is the highest that a checkpoint of the spool has; 0: there is none.
func (s *Spool) Sequence() (last uint64) {
	for i := range 2 {
		if cp, _, ok := checkpointOf(s.checkpoint(i)); ok {
			last = max(last, cp.Sequence)
		}
	}
	return last
}

func (s *Spool) consumeOf(isThere func(uint64) bool, anyway bool, step func()) (*Consumer, error) {
	published, passed, err := s.marks()
	if err != nil {
		return nil, err
	}
	r, err := s.ring.Consumer()
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	c := &Consumer{
		spool: s, ring: r, published: published, released: passed, slot: 1, step: step,
		look: ring.Uint64(s.owner, publishedAt), ends: ring.Uint64(s.owner, endAt),
		tell: ring.Uint64(s.owner, passedAt), work: ring.Uint64(s.owner, workAt),
		suspects: ring.Uint64(s.owner, suspectAt), dying: ring.Uint64(s.owner, deathsAt),
	}
	if err := c.restore(isThere, anyway); err != nil {
		return nil, err
	}
	c.inherit()
	return c, nil
}

// restore finds the checkpoint to go on from. anyway: it goes on also where the log has lost what
// is behind both.
func (c *Consumer) restore(isThere func(uint64) bool, anyway bool) error {
	type behind struct {
		cp     Checkpoint
		number uint64
		slot   int
	}
	var older behind
	for i := range 2 {
		cp, number, ok := checkpointOf(c.spool.checkpoint(i))
		switch {
		case !ok || number <= c.number:
		case !c.possible(cp.Point):
			return fmt.Errorf("spool: checkpoint %d at %+v, where %d bytes and %d marks are released: %w",
				number, cp.Point, c.ring.Position(), c.released, ErrCorrupt)
		case !isThere(cp.Sequence):
			if older.number == 0 || number < older.number {
				older = behind{cp, number, i}
			}
		default:
			c.restored, c.number, c.slot = cp, number, i
		}
	}
	c.sequence = c.restored.Sequence
	if c.number == 0 && anyway && older.number > 0 {
		c.restored, c.number, c.slot, c.isBehind = older.cp, older.number, older.slot, true
	}
	c.kept, c.at = c.restored.Point, c.restored.Point
	if c.number > 0 || c.ring.Position() == 0 && c.released == 0 {
		return nil
	}
	if older.number > 0 {
		return fmt.Errorf("spool: sequence %d: %w", older.cp.Sequence, ErrBehind)
	}
	return fmt.Errorf("spool: no checkpoint, and %d bytes are released: %w", c.ring.Position(), ErrCorrupt)
}

// possible checks a point against what is there.
func (c *Consumer) possible(at Point) bool {
	view, err := c.ring.View(0)
	from, there := c.ring.Position(), uint64(len(view))
	return err == nil && at.Done-from <= at.Shown-from && at.Shown-from <= there &&
		at.Marks-c.released <= c.published-c.released
}

// inherit notes where the consumer before this one has died, if it was at work.
func (c *Consumer) inherit() {
	c.suspect = c.suspects.Load()
	if n := c.dying.Load(); n < 1<<20 { // else it makes no sense
		c.deaths = int(n)
	}
	if at := c.work.Load(); at != 0 {
		if c.suspect != at {
			c.suspect, c.deaths = at, 0
		}
		c.deaths++
		c.dying.Store(0) // so that a kill here makes it fewer, not those of another mark
		c.suspects.Store(c.suspect)
		c.dying.Store(uint64(c.deaths))
		c.work.Store(0)
	}
}

// Restored is the checkpoint that the consumer went on from; ok is false where there was none.
func (c *Consumer) Restored() (cp Checkpoint, ok bool) { return c.restored, c.restored.Data != nil }

// IsBehind reports whether the log does not have all that the checkpoint says is stored. The next
// checkpoint may have a lower sequence.
func (c *Consumer) IsBehind() bool { return c.isBehind }

// Deaths is how often in a row consumers died while they worked on the mark with that number, from
// 0: its bytes may be what kills them. It is 0 times once a checkpoint is behind it.
func (c *Consumer) Deaths() (n int, mark uint64) {
	if c.deaths == 0 {
		return 0, 0
	}
	return c.deaths, c.suspect - 1
}

// Point is how far the consumer is.
func (c *Consumer) Point() Point { return c.at }

// Steady is when the mark that was shown last was written, by the clock of [Moment], ns: what is
// measured by it, and not by the consumer's own clock, is the same when it is shown again.
func (c *Consumer) Steady() int64 { return c.at.Steady + c.silent }

// Next is the next mark, and all bytes up to it that are not done with. ok is false where there is
// none yet. The bytes are lent: a wrong or hostile producer can change them at any time.
func (c *Consumer) Next() (m Mark, view []byte, ok bool, err error) {
	if c.at.Marks == c.published {
		if err := c.refresh(); err != nil {
			return m, nil, false, err
		}
	}
	if c.at.Marks == c.published {
		c.rest()
		return m, nil, false, nil
	}
	m = markOf(c.spool.mark(c.at.Marks))
	tail := c.ring.Position()
	if end := m.At - tail; !m.follows(c.at.Shown) || end > uint64(c.spool.Size()) {
		return m, nil, false, fmt.Errorf("spool: mark %d is %+v, behind offset %d of %d and up: %w", c.at.Marks, m,
			c.at.Shown, tail, ErrCorrupt)
	}
	all, err := c.ring.View(int(m.At - tail))
	if err != nil {
		return m, nil, false, fmt.Errorf("spool: %w", err)
	}
	if uint64(len(all)) < m.At-tail { // the bytes are published right behind the mark
		c.rest()
		return m, nil, false, nil
	}
	c.work.Store(c.at.Marks + 1)
	c.working = true
	c.at.Marks++
	c.at.Shown = m.At
	if m.read() {
		c.at.Time = m.Time
	}
	c.silent = 0
	switch {
	case m.read(), m.Kind == Opened, m.Kind == Closed, m.Kind == Ended:
		c.at.Steady = int64(m.B)
	case m.Kind == Silent:
		c.silent = int64(m.B)
	}
	c.step()
	return m, all[c.at.Done-tail : m.At-tail : m.At-tail], true, nil
}

// Held is what was shown and is not done with. It is lent, as that of Next.
func (c *Consumer) Held() ([]byte, error) {
	tail := c.ring.Position()
	all, err := c.ring.View(int(c.at.Shown - tail))
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	return all[c.at.Done-tail : c.at.Shown-tail : c.at.Shown-tail], nil
}

// refresh looks how many marks there are.
func (c *Consumer) refresh() error {
	published := c.look.Load()
	if published-c.published > c.spool.slots-(c.published-c.released) {
		return fmt.Errorf("spool: the producer says %d marks after %d, of %d: %w", published, c.published,
			c.spool.slots, ErrCorrupt)
	}
	c.published = published
	return nil
}

// IsAtEnd reports whether all marks were shown that there are now.
func (c *Consumer) IsAtEnd() bool { return c.refresh() != nil || c.at.Marks == c.published }

// Unshown is how many bytes of marks Next has still to show.
func (c *Consumer) Unshown() uint64 {
	if c.IsAtEnd() {
		return 0
	}
	at := markOf(c.spool.mark(c.published - 1)).At
	return min(max(at, c.at.Shown)-c.at.Shown, uint64(c.spool.Size())) // a producer may write anything
}

// Waits is how many bytes of marks Next has still to show, and how many wait for room in the spool,
// in a relay before it, as that has told last. Each byte counts once, though the relay is at work.
func (c *Consumer) Waits() (unshown, inFront uint64) {
	end := c.ends.Load() // first: what is passed on from now on is unshown
	unshown = c.Unshown()
	if n := int64(end - (c.at.Shown + unshown)); n > 0 {
		inFront = uint64(n)
	}
	return unshown, inFront
}

// rest says that the consumer is not at work on a mark.
func (c *Consumer) rest() {
	if c.working {
		c.work.Store(0)
		c.working = false
	}
}

// Done says that n more bytes of the last view, from its front, are done with. It panics if the
// view has fewer.
func (c *Consumer) Done(n int) {
	if n < 0 || uint64(n) > c.at.Shown-c.at.Done {
		panic(fmt.Sprintf("spool: Done(%d) of %d bytes", n, c.at.Shown-c.at.Done))
	}
	c.at.Done += uint64(n)
}

// Save keeps a checkpoint: what came before its point is stored, up to its sequence in the log. The
// point is one that the consumer had, not before that of the checkpoint before. What lies before
// that earlier checkpoint is given back to the producer. An error says that the data has no room.
func (c *Consumer) Save(cp Checkpoint) error {
	if len(cp.Data) > c.spool.room {
		return fmt.Errorf("spool: %d bytes in a checkpoint: it has room for %d", len(cp.Data), c.spool.room)
	}
	old := c.kept
	if cp.Done < old.Done || cp.Shown < old.Shown || cp.Marks < old.Marks || cp.Sequence < c.sequence ||
		cp.Done > cp.Shown || cp.Done > c.at.Done || cp.Shown > c.at.Shown || cp.Marks > c.at.Marks {
		panic(fmt.Sprintf("spool: Save at %+v, after %+v, with the consumer at %+v", cp.Point, old, c.at))
	}
	cp.put(c.spool.checkpoint(1-c.slot), c.number+1, c.step)
	c.kept, c.sequence, c.number, c.slot = cp.Point, cp.Sequence, c.number+1, 1-c.slot
	c.released = old.Marks
	c.tell.Store(old.Marks)
	c.step()
	c.ring.Release(int(old.Done - c.ring.Position()))
	c.step()
	if c.deaths > 0 && cp.Marks >= c.suspect {
		c.deaths = 0
		c.dying.Store(0)
	}
	return nil
}

// Close says that the consumer is at work on nothing: what it was shown did not kill it. It may go
// on.
func (c *Consumer) Close() { c.rest() }
