// Package frametest holds the law that every framing keeps, as checks that tests and fuzz targets
// share: see [Check].
package frametest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tallywheel/tallywheel/frame"
)

// Record is a [frame.Sink] that writes down what it is told.
type Record struct {
	Frames  [][]byte
	Numbers []uint64 // sequence number of each frame, where the framing has them
	Turns   []Turn   // what each frame says of requests and answers
	Harm    int      // calls of Damaged
	Skipped []byte
	Order   []byte // every byte classified, in order

	gap  gap
	gaps []gap // what was before each frame
}

// Turn is what a frame says of requests and answers.
type Turn struct{ Asks, Answers, Unanswered bool }

// gap is what was between two frames.
type gap struct{ skipped, harm int }

// Frame implements [frame.Sink].
func (r *Record) Frame(f *frame.Frame) {
	r.Frames = append(r.Frames, bytes.Clone(f.Data))
	r.Numbers = append(r.Numbers, f.Seq)
	r.Turns = append(r.Turns, Turn{f.Asks, f.Answers, f.Unanswered})
	r.Order = append(r.Order, f.Data...)
	r.gaps = append(r.gaps, r.gap)
	r.gap = gap{}
}

// Damaged implements [frame.Sink].
func (r *Record) Damaged() {
	r.Harm++
	r.gap.harm++
}

// Skip implements [frame.Sink].
func (r *Record) Skip(b []byte) {
	r.Skipped = append(r.Skipped, b...)
	r.Order = append(r.Order, b...)
	r.gap.skipped += len(b)
}

// differs says where two records of one stream differ.
func (r *Record) differs(o *Record) error {
	for i := range min(len(r.Frames), len(o.Frames)) {
		switch {
		case r.gaps[i] != o.gaps[i]:
			return fmt.Errorf("before frame %d: %+v and %+v", i, r.gaps[i], o.gaps[i])
		case !bytes.Equal(r.Frames[i], o.Frames[i]):
			return fmt.Errorf("frame %d: % X and % X", i, r.Frames[i], o.Frames[i])
		case r.Numbers[i] != o.Numbers[i]:
			return fmt.Errorf("frame %d: numbers %d and %d", i, r.Numbers[i], o.Numbers[i])
		case r.Turns[i] != o.Turns[i]:
			return fmt.Errorf("frame %d: turns %+v and %+v", i, r.Turns[i], o.Turns[i])
		}
	}
	switch {
	case len(r.Frames) != len(o.Frames):
		return fmt.Errorf("%d and %d frames", len(r.Frames), len(o.Frames))
	case r.gap != o.gap:
		return fmt.Errorf("at the end: %+v and %+v", r.gap, o.gap)
	}
	return nil
}

// Feed shows the stream to d cut at random by rng (nil: in one piece) and ends it with Closed. The
// error is the first rule about bytes that d breaks.
func Feed(d frame.Decoder, stream []byte, rng *rand.Rand) (*Record, error) {
	f := feeder{dec: d, stream: stream}
	return &f.r, f.all(pieces(rng), nil)
}

// pieces says how many bytes come next, of so many that are left.
func pieces(rng *rand.Rand) func(left int) int {
	return func(left int) int {
		if rng == nil {
			return left
		}
		return 1 + rng.IntN(min(left, 1+rng.IntN(300)))
	}
}

// Check feeds the stream to new decoders, each time in another way, and reports the first rule
// that is broken:
//
//   - However the stream is cut, and wherever a decoder is saved and restored: the same frames, and
//     between them as many bytes skipped and as much damage.
//   - The same with silences and ends of messages in between, if they come at the same places.
//   - At every moment, the bytes shown are the bytes in frames, those skipped, and those pending;
//     no more than Max are pending, and a state is no longer than MaxState.
//   - Frames and skipped bytes are views of what was shown, in place and in order; what was shown
//     is not written to, and not looked at after the call.
//   - A decoder that is shown nothing new says nothing new.
//   - What the decoder says of its frames is so: Max, FixedSize, Numbered.
func Check(open func() frame.Decoder, stream []byte, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, stops := range [][]stop{nil, randomStops(rng, len(stream))} {
		whole := feeder{dec: open(), stream: stream}
		if err := whole.all(pieces(nil), stops); err != nil {
			return fmt.Errorf("in one piece, %d stops: %w", len(stops), err)
		}
		for _, how := range []struct {
			name    string
			cut     func(left int) int
			restore bool
		}{
			{"in pieces", pieces(rng), false},
			{"in pieces, saved and restored", pieces(rng), true},
			{"byte by byte, saved and restored", func(int) int { return 1 }, true},
		} {
			if how.name[0] == 'b' && len(stream) > 4<<10 {
				continue // it takes long
			}
			f := feeder{dec: open(), stream: stream}
			if how.restore {
				f.open = open
			}
			if err := f.all(how.cut, stops); err != nil {
				return fmt.Errorf("%s, %d stops: %w", how.name, len(stops), err)
			}
			if err := whole.r.differs(&f.r); err != nil {
				return fmt.Errorf("in one piece and %s, %d stops: %w", how.name, len(stops), err)
			}
		}
	}
	return strangeStates(open, stream, rng)
}

// stop is a place in the stream behind which nothing follows directly.
type stop struct {
	at    int
	why   frame.Cause
	pause bool // a silence that a Patient decoder may sit through
	long  bool // … of an hour, for one that is Holding; else it begins behind an hour of waiting
}

func randomStops(rng *rand.Rand, n int) (all []stop) {
	for at := 0; at < n; at += 1 + rng.IntN(1+rng.IntN(2000)) {
		all = append(all, stop{at: at, why: frame.Cause(rng.IntN(3)), pause: rng.IntN(2) == 0, long: rng.IntN(2) == 0})
	}
	return all
}

// feeder shows a stream to a decoder, and watches it.
type feeder struct {
	dec         frame.Decoder
	open        func() frame.Decoder // set: the decoder is saved and restored after each call
	stream      []byte
	done, shown int
	r           Record
	view        []byte // what is shown at the moment
	old         []byte // what was shown before
	at          int    // of view: classified
	asked       bool   // a frame has come that asks, and neither its answer nor damage
	err         error  // of the sink
}

func (f *feeder) all(cut func(left int) int, stops []stop) error {
	stops = append(stops, stop{at: len(f.stream), why: frame.Closed})
	for _, s := range stops {
		for f.shown < s.at {
			f.shown += min(cut(s.at-f.shown), s.at-f.shown)
			if err := f.call(func(view []byte) int { return f.dec.Decode(view, f) }); err != nil {
				return err
			}
			done, harm := f.done, f.r.Harm
			if err := f.call(func(view []byte) int { return f.dec.Decode(view, f) }); err != nil {
				return err
			}
			if f.done != done || f.r.Harm != harm {
				return fmt.Errorf("at byte %d: the decoder was shown nothing new, and said something new", f.shown)
			}
		}
		if h, ok := f.dec.(frame.Holding); ok && s.pause {
			silent := f.dec.Silence()
			if s.long {
				silent = time.Hour
			}
			if err := f.call(func(view []byte) int { return h.Wait(view, silent, time.Hour, f) }); err != nil {
				return err
			}
			continue
		}
		if p, ok := f.dec.(frame.Patient); ok && s.pause {
			if err := f.call(func(view []byte) int { return p.Pause(view, f) }); err != nil {
				return err
			}
			continue
		}
		if err := f.call(func(view []byte) int { f.dec.Break(view, s.why, f); return len(view) }); err != nil {
			return err
		}
	}
	if !bytes.Equal(f.r.Order, f.stream) {
		return fmt.Errorf("classified %d bytes of %d, or others", len(f.r.Order), len(f.stream))
	}
	return nil
}

// call shows what is pending and new in memory that is worthless afterwards.
func (f *feeder) call(do func(view []byte) int) error {
	truth := f.stream[f.done:f.shown]
	f.view, f.old, f.at = append(f.old[:0], truth...), f.view, 0
	n := do(f.view[:len(truth):len(truth)])
	switch {
	case f.err != nil:
		return f.err
	case n != f.at:
		return fmt.Errorf("at byte %d: %d bytes said to be classified, %d are", f.shown, n, f.at)
	case !bytes.Equal(f.view, truth):
		return fmt.Errorf("at byte %d: the decoder writes to what it is shown", f.shown)
	case len(truth)-n > f.dec.Max():
		return fmt.Errorf("at byte %d: %d bytes pending, more than the longest frame (%d)",
			f.shown, len(truth)-n, f.dec.Max())
	}
	f.done += n
	for i := range f.view {
		f.view[i] ^= 0x5A
	}
	if f.open != nil {
		return f.restart()
	}
	return nil
}

// restart goes on with a new decoder.
func (f *feeder) restart() error {
	next := f.open()
	if old, ok := f.dec.(frame.Stateful); ok {
		state := old.State()
		if len(state) > frame.MaxState {
			return fmt.Errorf("at byte %d: a state of %d bytes", f.shown, len(state))
		}
		given := bytes.Clone(state)
		if err := next.(frame.Stateful).Restore(given); err != nil {
			return fmt.Errorf("at byte %d: %w", f.shown, err)
		}
		clear(given)
		if again := next.(frame.Stateful).State(); !bytes.Equal(again, state) {
			return fmt.Errorf("at byte %d: state % X comes back as % X", f.shown, state, again)
		}
	}
	f.dec = next
	return nil
}

// in checks that b is what comes next of the view.
func (f *feeder) in(b []byte, what string) {
	if len(b) == 0 || f.at+len(b) > len(f.view) || &b[0] != &f.view[f.at] {
		f.err = errors.Join(f.err,
			fmt.Errorf("at byte %d: %s is not the next %d bytes of what was shown", f.shown, what, len(b)))
	}
	f.at += len(b)
}

// Frame implements [frame.Sink].
func (f *feeder) Frame(got *frame.Frame) {
	f.in(got.Data, "a frame")
	if len(got.Data) > f.dec.Max() {
		f.err = errors.Join(f.err, fmt.Errorf("a frame of %d bytes, more than %d", len(got.Data), f.dec.Max()))
	}
	if fixed, ok := f.dec.(frame.FixedSize); ok && len(got.Data) != fixed.FixedSize() {
		f.err = errors.Join(f.err, fmt.Errorf("a frame of %d bytes, not %d", len(got.Data), fixed.FixedSize()))
	}
	numbered, ok := f.dec.(frame.Numbered)
	if ok != got.Sequenced {
		f.err = errors.Join(f.err, fmt.Errorf("sequenced is %v of a frame of %T", got.Sequenced, f.dec))
	}
	if ok {
		n, good := numbered.Number(got.Data)
		n.Data = got.Data
		if !good || n.Device != got.Device || n.Epoch != got.Epoch || n.Seq != got.Seq ||
			n.DeviceTime != got.DeviceTime {
			f.err = errors.Join(f.err, fmt.Errorf("frame %+v has the numbers %+v, %v by itself", *got, n, good))
		}
	}
	if _, ok := f.dec.(frame.Asking); !ok && (got.Asks || got.Answers || got.Unanswered) {
		f.err = errors.Join(f.err, fmt.Errorf("a frame of %T speaks of requests and answers: %+v", f.dec, *got))
	}
	if got.Answers || got.Unanswered {
		if got.Answers && got.Unanswered || !f.asked {
			f.err = errors.Join(f.err, fmt.Errorf("a frame answers what was not asked, or not: %+v", *got))
		}
	}
	f.asked = got.Asks || f.asked && !got.Answers && !got.Unanswered
	f.r.Frame(got)
}

// Damaged implements [frame.Sink].
func (f *feeder) Damaged() {
	f.asked = false
	f.r.Damaged()
}

// Skip implements [frame.Sink].
func (f *feeder) Skip(b []byte) {
	f.in(b, "what is skipped")
	f.r.Skip(b)
}

// strangeStates restores states that no decoder has given: each is refused, and changes nothing,
// or taken; every byte is classified in either case.
func strangeStates(open func() frame.Decoder, stream []byte, rng *rand.Rand) error {
	stream = stream[:min(len(stream), 1<<10)]
	for range 8 {
		d, ok := open().(frame.Stateful)
		if !ok {
			return nil
		}
		before := d.State()
		state := bytes.Clone(before)
		switch rng.IntN(3) {
		case 0:
			state = state[:rng.IntN(len(state)+1)]
		case 1:
			state = append(state, make([]byte, rng.IntN(frame.MaxState))...)
		}
		for range rng.IntN(4) {
			if len(state) > 0 {
				state[rng.IntN(len(state))] = byte(rng.Uint32())
			}
		}
		if d.Restore(state) != nil && !bytes.Equal(d.State(), before) {
			return fmt.Errorf("state % X is refused, and changes the decoder", state)
		}
		f := feeder{dec: d.(frame.Decoder), stream: stream, asked: true}
		if err := f.all(pieces(rng), nil); err != nil {
			return fmt.Errorf("behind state % X: %w", state, err)
		}
	}
	return nil
}
