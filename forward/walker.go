package forward

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/seglog"
)

// link is a connection to a destination.
type link interface {
	// bytes is how many a message may have at most.
	bytes() int
	// resume sets where a lane goes on, by its resumeAt. A *fault of the lane alone stops that one.
	// It may be called on several goroutines at a time, each with a lane of its own.
	resume(ctx context.Context, l *lane) error
	// send puts a message of a lane on its way; its done gets one result. The body is the link's
	// until then.
	send(l *lane, m *message) error
	// announce puts a checkpoint of the log on its way, likewise.
	announce(subject string, m *message) error
	// broken has the error that ended the connection.
	broken() <-chan error
	close()
}

// Bounds of a walker.
const (
	ackPatience = 20 * time.Second       // how long an acknowledgement may take
	lookAgain   = 30 * time.Second       // how often a lane that has stopped is looked at
	saveEach    = time.Second            // … the mark is saved, and the books are renewed
	showEach    = 100 * time.Millisecond // … the books are, while nothing is on its way
	turn        = 50 * time.Millisecond  // how long records are read before anything else is done
	maxMemory   = 32 << 20               // of all messages that fill or are on their way, in bytes
	resumers    = 16                     // lanes that ask where to go on at a time
	finishTick  = time.Millisecond       // how often it looks for acknowledgements at the end
)

// errLookAgain ends a walk so that lanes that have stopped are asked again.
var errLookAgain = errors.New("look again")

// walker brings the log to a link, on one goroutine.
type walker struct {
	d      *destination
	to     link
	c      *archive.Cursor
	at     uint64 // everything up to it has been looked at
	lanes  map[laneKey]*lane
	near   map[*archive.Stream]*lane // those of streams that were met, for a name is hashed slowly
	parts  []*lane                   // whose message fills
	flying []*lane                   // whose message is on its way
	free   [][]byte                  // bodies for the next messages
	memory int                       // bytes of messages that fill or are on their way
	away   int                       // … of those on their way

	held struct { // a record that was read and is not durable yet
		rec seglog.Record
		of  *archive.Stream
	}
	stopped  int // lanes
	proof    announcer
	flushed  time.Time // when what fills was sent last
	saved    time.Time
	shown    time.Time // when the books were renewed last
	shownAt  uint64    // … and what at was then, with nothing on its way
	lookedAt time.Time
	patience *time.Timer
}

// walk brings records to the link until something ends that.
func (w *walker) walk(ctx context.Context) error {
	defer w.c.Close()
	tick := time.NewTicker(w.d.cfg.Batch.Delay)
	defer tick.Stop()
	w.patience = time.NewTimer(time.Hour)
	defer w.patience.Stop()
	w.saved, w.lookedAt = time.Now(), time.Now()
	defer w.report()
	last := w.d.last
	for {
		finishes := w.d.finishes() // before it is asked what there is
		more, err := w.read(ctx)
		if err == nil && (!more || time.Since(w.flushed) >= w.d.cfg.Batch.Delay) {
			err = w.flush(ctx)
		}
		if err == nil {
			err = w.reap()
		}
		if err != nil {
			return err
		}
		switch {
		case time.Since(w.saved) >= saveEach:
			w.report()
			w.saved, w.shown = time.Now(), time.Now()
		case w.at != w.shownAt && len(w.flying)+len(w.parts) == 0 && time.Since(w.shown) >= showEach:
			w.d.publish(w)
			w.shown, w.shownAt = time.Now(), w.at
		}
		switch {
		case finishes && !more && len(w.flying)+len(w.parts) == 0:
			return errSent
		case w.stopped > 0 && time.Since(w.lookedAt) > lookAgain:
			return errLookAgain
		case more:
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-w.to.broken():
			return err
		case <-last:
			last = nil
			tick.Reset(finishTick)
		case <-tick.C:
		}
	}
}

// read takes what is durable into messages, for a turn at most. more says that there was more.
func (w *walker) read(ctx context.Context) (more bool, err error) {
	limit := w.d.in.Durable()
	if limit <= w.at {
		return false, nil
	}
	if w.held.of != nil {
		if w.held.rec.Seq > limit {
			return false, nil
		}
		rec, of := w.held.rec, w.held.of
		w.held.of = nil
		if err := w.take(ctx, rec, of); err != nil {
			return false, err
		}
	}
	began := time.Now()
	for n := 1; w.at < limit; n++ {
		rec, of, ok, err := w.c.Next()
		switch {
		case errors.Is(err, io.EOF): // what is left up to there are notes
			w.at = max(w.at, limit)
			return false, nil
		case err != nil:
			w.c.Again()
			return false, down(reasonLog, "the log cannot be read on behind record %d: %v", w.at, err)
		case ok && rec.Seq > limit:
			rec.Data = append([]byte(nil), rec.Data...)
			w.held.rec, w.held.of = rec, of
			return false, nil
		}
		if w.at = max(w.at, w.c.Mark().Seq); ok {
			if err := w.take(ctx, rec, of); err != nil {
				return false, err
			}
		}
		if n%1024 == 0 && time.Since(began) > turn {
			return true, nil
		}
	}
	return false, nil
}

// take puts a record into the message of its lane.
func (w *walker) take(ctx context.Context, rec seglog.Record, of *archive.Stream) error {
	w.at = max(w.at, rec.Seq)
	l := w.near[of]
	if l == nil {
		var err error
		if l, err = w.laneOf(ctx, of); err != nil {
			return err
		}
	}
	if l.fault != nil || rec.Seq <= l.from {
		return nil
	}
	data := archive.Payload(of, rec.Data)
	frames, most := w.d.cfg.Batch.Frames, min(int(w.d.cfg.Batch.Bytes), w.to.bytes())
	if !l.room(of, len(data), frames, most) {
		if err := w.send(ctx, l); err != nil {
			return err
		}
	}
	if l.filling == nil {
		if len(data)+batchRoom > w.to.bytes() {
			w.halt(l, stopped(reasonTooLarge,
				"record %d has %d bytes, and a message of the destination takes %d: raise max_payload of the server, "+
					"or max_msg_size of the stream", rec.Seq, len(data), w.to.bytes()))
			return nil
		}
		w.part(l)
	}
	var body []byte
	if n := len(w.free); l.filling == nil && n > 0 {
		body, w.free = w.free[n-1], w.free[:n-1]
	}
	before := l.size()
	l.put(w.d.log, of, rec, data, frames == 1, body)
	w.memory += l.size() - before
	if l.filling.Count >= frames {
		return w.send(ctx, l)
	}
	if w.memory > maxMemory {
		return w.makeRoom(ctx)
	}
	return nil
}

// laneOf is the lane of a stream that is met for the first time.
func (w *walker) laneOf(ctx context.Context, of *archive.Stream) (*lane, error) {
	key := laneKey{of.Source, of.Quarantine}
	l := w.lanes[key]
	if l == nil {
		l = w.d.lane(key)
		w.lanes[key] = l
		if err := w.resumeOne(ctx, l); err != nil {
			return nil, err
		}
	}
	if len(w.near) > 2*len(w.lanes)+16 { // one that the table of streams does not name is another each time
		clear(w.near)
	}
	w.near[of] = l
	return l, nil
}

// batchRoom is what a batch of one record takes beside the record.
const batchRoom = 64

// size is the bytes of the message that fills.
func (l *lane) size() int {
	if l.filling == nil {
		return 0
	}
	return len(l.filling.body)
}

// flush sends the messages that fill, of lanes that have none on its way.
func (w *walker) flush(ctx context.Context) error {
	w.flushed = time.Now()
	parts := w.parts
	w.parts = w.parts[len(w.parts):]
	for _, l := range parts {
		if l.filling == nil { // it was full, or stopped
			l.parted = false
			continue
		}
		if l.flying != nil {
			if err := w.look(l); err != nil {
				return err
			}
		}
		if l.parted = false; l.flying != nil {
			w.part(l)
		} else if err := w.send(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// makeRoom sends the largest messages that fill until half of the memory is on its way, and waits
// for what has been so longest. So the server has work while others fill.
func (w *walker) makeRoom(ctx context.Context) error {
	for w.memory > maxMemory {
		if err := w.reap(); err != nil {
			return err
		}
		var next, oldest *lane
		for _, l := range w.parts {
			if l.filling != nil && l.flying == nil && (next == nil || l.size() > next.size()) {
				next = l
			}
		}
		for _, l := range w.flying {
			if oldest == nil || l.flying.sent.Before(oldest.flying.sent) {
				oldest = l
			}
		}
		err := error(nil)
		if next != nil && (oldest == nil || w.away < maxMemory/2) {
			err = w.send(ctx, next)
		} else if oldest != nil {
			err = w.await(ctx, oldest)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// part lists a lane whose message fills.
func (w *walker) part(l *lane) {
	if !l.parted {
		l.parted, w.parts = true, append(w.parts, l)
	}
}

// send puts the message that fills on its way, behind the one that is.
func (w *walker) send(ctx context.Context, l *lane) error {
	if err := w.await(ctx, l); err != nil || l.fault != nil {
		return err
	}
	l.flying, l.filling = l.filling, nil
	l.flying.sent = time.Now()
	w.away += len(l.flying.body)
	if !l.listed {
		l.listed, w.flying = true, append(w.flying, l)
	}
	return w.to.send(l, l.flying)
}

// await waits for the message on its way.
func (w *walker) await(ctx context.Context, l *lane) error {
	if l.flying == nil {
		return nil
	}
	w.patience.Reset(ackPatience - time.Since(l.flying.sent))
	select {
	case r := <-l.flying.done:
		return w.done(l, r)
	case err := <-w.to.broken():
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-w.patience.C:
		return late(l)
	}
}

func late(l *lane) *fault {
	return down(reasonNoAnswer, "a message of source %s was not acknowledged within %s", l.source, ackPatience)
}

// look takes the result of the message on its way, if it is there.
func (w *walker) look(l *lane) error {
	select {
	case r := <-l.flying.done:
		return w.done(l, r)
	default:
		if time.Since(l.flying.sent) > ackPatience {
			return late(l)
		}
		return nil
	}
}

// reap takes what results are there.
func (w *walker) reap() error {
	rest := w.flying[:0]
	for _, l := range w.flying {
		if l.flying != nil {
			if err := w.look(l); err != nil {
				return err
			}
		}
		if l.listed = l.flying != nil; l.listed {
			rest = append(rest, l)
		}
	}
	clear(w.flying[len(rest):])
	w.flying = rest
	return nil
}

// done takes the result of the message on its way.
func (w *walker) done(l *lane, r result) error {
	if r.err != nil {
		l.book.Refused++
		f := faultOf(r.err)
		if f.lane {
			w.halt(l, f)
			return nil
		}
		return f
	}
	m := l.acknowledged(r.seq)
	w.memory -= len(m.body)
	w.away -= len(m.body)
	w.free = append(w.free, m.body)
	return nil
}

// halt stops a lane, and tells.
func (w *walker) halt(l *lane, f *fault) {
	w.memory -= l.size()
	if l.flying != nil {
		w.memory -= len(l.flying.body)
		w.away -= len(l.flying.body)
	}
	l.stop(f)
	w.stopped++
	w.d.tell(l)
	w.d.publish(w)
}

// resumeOne asks where a lane goes on.
func (w *walker) resumeOne(ctx context.Context, l *lane) error {
	err := w.to.resume(ctx, l)
	var f *fault
	if errors.As(err, &f) && f.lane {
		w.halt(l, f)
		return nil
	}
	return err
}

// through is the record up to which everything is acknowledged.
func (w *walker) through() uint64 {
	t := w.at
	if w.held.of != nil {
		t = min(t, w.held.rec.Seq-1)
	}
	for _, l := range w.lanes {
		if first, _ := l.oldest(); first > 0 {
			t = min(t, first-1)
		}
		if l.fault != nil {
			t = min(t, l.from)
		}
	}
	return t
}

// report saves the mark, and publishes the books, and the newest checkpoint.
func (w *walker) report() {
	w.d.save(w)
	w.d.publish(w)
	if w.d.cfg.Proof {
		w.proof.look(w.to, proofSubject(w.d.cfg), w.d.in.Checkpoint())
	}
}
