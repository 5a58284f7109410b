package recorder

import (
	"slices"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// intake is the first half of a lane: it classifies the bytes of a port by the framing, posts what
// they are into the book, and passes valid frames on to the outlet. It is the decoder's frame.Sink,
// and belongs to whoever holds the lane's lock.
type intake struct {
	dec         frame.Decoder
	messages    bool // what is read at a time is a message: a datagram, which ends its frames
	book        *ledger.Book
	out         *outlet
	wasteStream uint32 // stream of quarantined bytes in the log; 0: not kept

	source  string  // for the watcher
	watcher Watcher // nil: nobody watches
	part    Part    // what stands behind the bytes at hand

	now    int64         // when the bytes at hand were read, ns since 1970
	held   int           // bytes that are not classified yet
	since  int64         // when the first of them was read, ns since 1970
	heard  bool          // a valid frame has come since the port was opened
	paced  bool          // the book has a rhythm
	within time.Duration // an answer comes, where frames are requests and answers
	// overran reports whether the kernel has just lost something: then it may have been an answer.
	overran func() bool
	steady  func() time.Duration // a clock that nobody sets
	came    uint64               // frames, valid or damaged, that the rhythm does not know yet
	longest uint64               // frame of the framing, in bytes
	// of the next byte to be classified, in what this lane has read: 0 again at each start, and
	// where a reload makes the source another lane
	offset  uint64
	framed  uint64 // offset behind the frames that the rhythm knows
	spooled bool   // offset counts on the wire, also over starts
	junk    []byte // the last bytes classified, in no frame, and not in quarantine yet …
	junkAt  uint64 // … and the offset of the first
}

// maxJunk is how many bytes a record of the quarantine has, but where the decoder gives up more at
// once.
const maxJunk = 4 << 10

func newIntake(cfg config.Source, out *outlet, waste uint32) (intake, error) {
	dec, err := cfg.Decoder()
	if err != nil {
		return intake{}, err
	}
	size := 0
	if f, ok := dec.(frame.FixedSize); ok {
		size = f.FixedSize()
	}
	in := intake{
		source: cfg.ID, dec: dec, messages: cfg.UDP != nil, book: ledger.NewBook(size), out: out, wasteStream: waste,
		steady: stopwatch(),
	}
	var r ledger.Rhythm
	r.Interval, r.Tolerance, r.Silence = cfg.Rhythm()
	in.paced = r != ledger.Rhythm{}
	in.book.Expect(r)
	in.listen()
	return in, nil
}

// stopwatch is a clock that begins now.
func stopwatch() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

// classify has the decoder look at what is not classified yet, and returns how much it has done.
func (in *intake) classify(view []byte) (done int) {
	defer in.bury()
	in.part = InFlow
	done = in.dec.Decode(view, in)
	if in.messages { // also where nothing is left: the decoder may be giving up what has no end yet
		in.part = AtMessage
		in.dec.Break(view[done:], frame.Message, in)
		done = len(view)
	}
	in.holds(len(view)-done, done > 0)
	return done
}

// holds notes how many bytes are not classified, and whether others were before them.
func (in *intake) holds(n int, moved bool) {
	if moved || in.held == 0 {
		in.since = in.now
	}
	in.since = min(in.since, in.now) // somebody set the clock
	in.held = n
}

// silent is a pause of the line, which ended at a time. Frames that it ends are of the time when
// their last byte came.
func (in *intake) silent(view []byte, at int64) (done int) {
	if in.dec.Silence() == 0 { // the device was opened for a framing to which silences mean something
		return 0
	}
	defer in.bury()
	in.part = AtSilence
	done = silence(in.dec, view, time.Duration(at-in.now), time.Duration(at-in.since), in)
	in.holds(len(view)-done, done > 0)
	return done
}

// listen learns how long the decoder's frames can be, and what it tells of requests and answers.
func (in *intake) listen() {
	in.longest, in.within = uint64(in.dec.Max()), 0
	if d, ok := in.dec.(frame.Asking); ok {
		in.within = d.AnswerWithin()
	}
}

// overdue posts a request whose answer has not come in time. Nothing is held, and the line is read.
func (in *intake) overdue() {
	if in.within > 0 && in.held == 0 && in.book.IsAnswerDue() && !in.overran() {
		now := time.Now().UnixNano()
		in.book.At(now)
		if in.book.Overdue(in.steady(), in.within) && in.watcher != nil {
			in.watcher.Watch(Event{Kind: NoAnswer, Source: in.source, At: now})
		}
	}
}

// end classifies all that is left: nothing follows.
func (in *intake) end(view []byte, at int64, why Part) {
	defer in.bury()
	in.now, in.part = at, why
	in.dec.Break(view, frame.Closed, in)
	in.held = 0
	in.book.TurnOver()
}

// half is what was read and not classified yet when a port stopped, and what the decoder made of
// it.
type half struct {
	bytes []byte
	state []byte // nil: the decoder has none
	asked bool   // … and waits for an answer
}

// leave gives up what is not classified yet to another intake that goes on with the device.
func (in *intake) leave(view []byte) half {
	h := half{bytes: slices.Clone(view)}
	if d, ok := in.dec.(frame.Stateful); ok {
		h.state, h.asked = d.State(), in.book.IsAnswerDue()
	}
	in.book.TurnOver()
	in.book.Return(len(view))
	in.held = 0
	return h
}

// restore makes the decoder go on where another of its framing was.
func (in *intake) restore(h half) {
	// with other settings it may begin anew
	if d, ok := in.dec.(frame.Stateful); ok && h.state != nil && d.Restore(h.state) == nil && h.asked {
		in.book.AnswerDue(in.steady())
	}
}

// silence tells a decoder that the line has been silent for so long, and that the first byte was
// held for so long.
func silence(dec frame.Decoder, view []byte, d, held time.Duration, sink frame.Sink) (done int) {
	if h, ok := dec.(frame.Holding); ok {
		return h.Wait(view, d, held, sink)
	}
	if p, ok := dec.(frame.Patient); ok && d < p.Patience() {
		return p.Pause(view, sink)
	}
	dec.Break(view, frame.Silence, sink)
	return len(view)
}

// patience is how long a decoder keeps bytes through a silence.
func patience(dec frame.Decoder) time.Duration {
	if p, ok := dec.(frame.Patient); ok {
		return p.Patience()
	}
	return 0
}

// beat tells the book's rhythm what was classified, or read and not classified yet: fresh bytes.
// What a pause has ended came that long ago. Only a source that has a rhythm reads a clock for it.
func (in *intake) beat(fresh int, pause time.Duration) {
	switch {
	case !in.paced:
	case in.came > 0:
		in.book.Arrived(in.came, in.steady()-pause)
		in.framed = in.offset
	case !in.mayFrame():
		in.book.NoPartial()
	case fresh > 0:
		in.book.Partial(in.steady())
	}
	in.came = 0
}

// mayFrame reports whether what is not classified yet may be frames. Noise that never ends is not:
// behind a damaged frame as long as can be, and a false length that is found in it, a frame is seen
// within twice the longest.
func (in *intake) mayFrame() bool {
	return in.held > 0 && in.offset-in.framed+uint64(in.held) <= 2*in.longest
}

// restart makes the time before now count for no frame.
func (in *intake) restart() {
	if in.paced {
		in.book.Restart(in.steady())
	}
	if in.book.IsAnswerDue() {
		in.book.AnswerDue(in.steady())
	}
}

// gone ends a silence with the device that was silent.
func (in *intake) gone() {
	if in.paced {
		in.book.Gone(in.steady())
	}
}

// Frame implements frame.Sink.
func (in *intake) Frame(f *frame.Frame) {
	in.post(f)
	in.out.store(f, in.now, in.onWire(len(f.Data)))
}

// onWire is where on the wire the last n bytes began that were classified.
func (in *intake) onWire(n int) uint64 {
	if !in.spooled {
		return seglog.NoOffset // what a lane has read is no wire that anybody can find again
	}
	return in.offset - uint64(n)
}

// post books a valid frame.
func (in *intake) post(f *frame.Frame) {
	in.bury()
	in.heard = true
	in.came++
	if in.watcher != nil {
		in.postWatched(f)
	} else {
		in.account(f)
	}
	in.offset += uint64(len(f.Data))
}

// account is post for the book alone.
func (in *intake) account(f *frame.Frame) {
	if f.Sequenced {
		reordered := in.book.Reordered()
		in.book.Numbered(len(f.Data), ledger.Stream{Device: f.Device, Epoch: f.Epoch}, f.Seq)
		if in.book.Reordered() > reordered {
			in.out.filled.add(f, in.book, in.out.reached)
		}
	} else {
		in.book.Plain(len(f.Data))
	}
	if in.within > 0 {
		in.turn(f)
	}
}

// turn posts what a frame says of requests and answers.
func (in *intake) turn(f *frame.Frame) {
	switch {
	case f.Answers:
		in.book.Answered()
	case f.Unanswered && !in.overran():
		in.book.Unanswered()
	}
	in.book.TurnOver()
	if f.Asks {
		in.book.Asked(in.steady())
	}
}

// proof is what the frames of a framing prove.
func proof(dec frame.Decoder) ledger.Proof {
	switch e := frame.EvidenceOf(dec); {
	case e.Numbered:
		return ledger.ProofNumbers
	case e.CheckBits > 0:
		return ledger.ProofChecks
	}
	return ledger.ProofNone
}

// Damaged implements frame.Sink.
func (in *intake) Damaged() {
	in.came++
	in.book.Damaged()
	in.saw(SawDamage, nil)
}

// Skip implements frame.Sink. Quarantine is for forensics only: it is never in the way of frames.
func (in *intake) Skip(b []byte) {
	in.book.Skip(len(b))
	in.saw(SawBytes, b)
	if in.wasteStream != 0 {
		in.gather(b)
	}
	in.offset += uint64(len(b))
}

// gather takes in bytes for the quarantine. Some decoders give up one at a time, and each record
// costs as much as a frame: they are gathered, as long as one stands behind the other, within one
// call. So where records begin depends on the calls alone: a replay, which gets the same calls,
// finds its records in the log by that.
func (in *intake) gather(b []byte) {
	if len(in.junk)+len(b) > maxJunk {
		in.bury()
	}
	if len(in.junk) == 0 {
		in.junkAt = in.offset
	}
	in.junk = append(in.junk, b...)
}

// bury brings what was gathered into the quarantine: before a frame that comes behind it, and
// before the lane is left.
func (in *intake) bury() {
	n := len(in.junk)
	if n == 0 {
		return
	}
	in.out.quarantine(in.wasteStream, in.now, in.onWire(int(in.offset-in.junkAt)),
		archive.Quarantined(in.junkAt, in.junk), n)
	if in.junk = in.junk[:0]; cap(in.junk) > 2*maxJunk {
		in.junk = nil
	}
}

var _ frame.Sink = (*intake)(nil)
