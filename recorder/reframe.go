package recorder

import (
	"errors"
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame"
)

// Reframe has a source that is recorded as raw, because nobody knew its framing, framed from the
// next border of a frame on: no frame is cut, no byte is left out, the books go on. A watcher hears
// of the turn. A source that has a framing can be made raw again, from the next byte on.
func (r *Recorder) Reframe(source string, f config.Frame) error {
	if r.cfg.Read.Strategy == config.Pipeline {
		return errors.New("the strategy pipeline cannot change a framing")
	}
	var l *lane
	for _, p := range r.sources() {
		if p.lane.cfg.ID == source {
			l = p.lane
		}
	}
	if l == nil || l.cfg.TCP.All() {
		return fmt.Errorf("there is no source %q whose framing can change", source)
	}
	s := l.config()
	s.Frame = f
	if p := s.Validate(); len(p) > 0 {
		return p
	}
	stream, err := r.streams.Number(archive.Stream{Source: s.ID, Frame: f.Kind})
	if err != nil {
		return err
	}
	waste, err := r.wasteStream(s)
	if err != nil {
		return err
	}
	dec, err := s.Decoder()
	if err != nil {
		return err
	}
	if before, err := l.config().Decoder(); err != nil || !takesAll(before) && !takesAll(dec) {
		return errors.Join(err,
			fmt.Errorf("source %s is framed as %s, which ends only with raw", s.ID, l.config().Frame.Kind))
	}
	shadow, err := s.Decoder()
	if err != nil {
		return err
	}
	l.reframe(dec, shadow, func() {
		l.cfg.Frame = f
		l.in.dec, l.in.wasteStream = dec, waste
		l.in.listen()
		l.out.stream = stream
		l.out.numbered, _ = dec.(frame.Numbered)
		size := 0
		if fixed, ok := dec.(frame.FixedSize); ok {
			size = fixed.FixedSize()
		}
		l.in.book.FrameSize(size)
		l.watch(Event{Kind: Turned, At: l.in.now})
	})
	return nil
}

// reframe lets dec take over from the decoder of the lane, and calls turned when it does.
func (l *lane) reframe(dec, shadow frame.Decoder, turned func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if takesAll(dec) {
		turned() // what is pending is shown to it
		return
	}
	raw := l.in.dec
	if t, ok := raw.(*turning); ok { // it was asked for another
		raw = t.raw
	}
	l.in.dec = &turning{raw: raw, next: dec, shadow: shadow, turned: turned}
}

// takesAll reports whether any bytes are frames of a decoder: then each byte may begin one.
func takesAll(d frame.Decoder) bool {
	return frame.EvidenceOf(d) == frame.Evidence{} && d.Silence() > 0
}

// reframedPatience is for how long a silence is told of to a framing that raw turns into while the
// device is open. raw itself holds nothing so long.
const reframedPatience = time.Second

// waits is how long the line must be silent before the decoder hears of it, and at most.
func (l *lane) waits() (silence, most time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	silence, most = l.in.dec.Silence(), patience(l.in.dec)
	if takesAll(l.in.dec) {
		most = max(most, reframedPatience)
	}
	return silence, most
}

var _ frame.Patient = (*turning)(nil)

// turning is a raw decoder that gives way to another at the first border of a frame. Where that is,
// it learns from a third decoder, which is shown the same bytes, and whose frames nobody gets.
type turning struct {
	raw, next, shadow frame.Decoder
	turned            func()

	held  []byte // the shadow's: not classified yet
	shown int    // of what is pending, the shadow was shown so much
	at    int    // in held: classified
	from  int    // in held: what is pending begins here
	end   int    // in held: where the first frame ends that ends in there; -1: none does
}

// Silence implements [frame.Decoder].
func (t *turning) Silence() time.Duration { return t.raw.Silence() }

// Max implements [frame.Decoder].
func (t *turning) Max() int { return t.raw.Max() }

// Decode implements [frame.Decoder].
func (t *turning) Decode(view []byte, sink frame.Sink) int {
	if border := t.border(view, func(held []byte) int { return t.shadow.Decode(held, t) }); border >= 0 {
		t.turn(view[:border], sink)
		return border + t.next.Decode(view[border:], sink)
	}
	n := t.raw.Decode(view, sink)
	t.shown = len(view) - n
	return n
}

// Patience is how long what the next decoder holds already may be held.
func (t *turning) Patience() time.Duration { return max(t.Silence()+1, patience(t.next)) }

// Pause implements [frame.Patient]: a chunk ends, or the next decoder hears of the silence.
func (t *turning) Pause(view []byte, sink frame.Sink) int {
	border := t.border(view, func(held []byte) int {
		n := t.shadow.Decode(held, t)
		if p, ok := t.shadow.(frame.Patient); ok {
			n += p.Pause(held[n:], t)
		}
		return n
	})
	if border < 0 {
		t.raw.Break(view, frame.Silence, sink)
		t.shown = 0
		return len(view)
	}
	t.turn(view[:border], sink)
	n := border + t.next.Decode(view[border:], sink)
	if p, ok := t.next.(frame.Patient); ok {
		n += p.Pause(view[n:], sink)
	}
	return n
}

// Break implements [frame.Decoder].
func (t *turning) Break(view []byte, why frame.Cause, sink frame.Sink) {
	border := t.border(view, func(held []byte) int {
		n := t.shadow.Decode(held, t)
		t.shadow.Break(held[n:], why, t)
		return len(held)
	})
	if border < 0 {
		t.raw.Break(view, why, sink)
		t.shown = 0
		return
	}
	t.turn(view[:border], sink)
	rest := view[border:]
	n := t.next.Decode(rest, sink)
	t.next.Break(rest[n:], why, sink)
}

// border shows the shadow what it has not seen and returns where the first frame ends that it finds
// in view; < 0: it finds none.
func (t *turning) border(view []byte, show func(held []byte) int) int {
	t.held = append(t.held, view[t.shown:]...)
	t.at, t.from, t.end = 0, len(t.held)-len(view), -1
	n := show(t.held)
	t.held = t.held[:copy(t.held, t.held[n:])]
	if t.end < 0 {
		return -1
	}
	return t.end - t.from
}

// turn ends what is raw.
func (t *turning) turn(raw []byte, sink frame.Sink) {
	t.raw.Break(raw, frame.Message, sink)
	t.turned()
}

// Frame implements [frame.Sink] for the shadow.
func (t *turning) Frame(f *frame.Frame) {
	if t.at += len(f.Data); t.end < 0 && t.at >= t.from {
		t.end = t.at
	}
}

// Damaged implements [frame.Sink].
func (t *turning) Damaged() {}

// Skip implements [frame.Sink].
func (t *turning) Skip(b []byte) { t.at += len(b) }
