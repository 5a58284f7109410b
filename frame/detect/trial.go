package detect

import (
	"bytes"
	"hash/maphash"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/framings"
	"github.com/tallywheel/tallywheel/frame/ubx"
)

// trial is one framing on the bytes.
type trial struct {
	d      *Detector
	cfg    framings.Config
	dec    frame.Decoder
	weigh  weight // nil: by its check value, of
	bitsOf func(data []byte) int
	ends   bool   // … and by silences behind its delimiter
	prints bool   // … or by characters that a person reads: a line that comes again and again is one, too
	held   []byte // not classified yet

	frames, bits    int
	framed, skipped int             // bytes since the first frame
	longest         int             // frame, in bytes
	kinds           map[uint64]bool // hashes of different frames
	ended           bool            // the last byte ended a frame
	quiet           bool            // the line is silent since
	aligned, amiss  int             // silences behind a frame, and others
}

// alignedShare is how many silences must be behind a frame for each that is not.
const alignedShare = 9

// manyBits is evidence enough for anything.
const manyBits = 1 << 20

// weight says what the form of a frame of a weak framing is worth, in bits; false: the frame speaks
// against it.
type weight func(data []byte) (bits int, ok bool)

func (t *trial) show(b []byte) {
	t.quiet = false
	t.held = append(t.held, b...)
	t.done(t.dec.Decode(t.held, t))
}

// done forgets what is classified.
func (t *trial) done(n int) { t.held = t.held[:copy(t.held, t.held[n:])] }

func (t *trial) silence(length time.Duration) {
	switch {
	case t.quiet: // it goes on
	case t.ended && len(t.held) == 0:
		t.aligned++
	default:
		t.amiss++
	}
	t.quiet = true
	wait := t.dec.Silence()
	if wait == 0 || length < wait {
		return
	}
	if p, ok := t.dec.(frame.Patient); ok && length < p.Patience() {
		t.done(p.Pause(t.held, t))
		return
	}
	t.end(frame.Silence)
}

func (t *trial) end(why frame.Cause) {
	t.dec.Break(t.held, why, t)
	t.held = t.held[:0]
}

// Frame implements [frame.Sink].
func (t *trial) Frame(f *frame.Frame) {
	bits, ok := 0, true
	if t.weigh != nil {
		bits, ok = t.weigh(f.Data)
	} else if varied(f.Data) {
		bits = t.bitsOf(f.Data)
	}
	if !ok {
		t.Skip(f.Data)
		return
	}
	t.frames++
	t.framed += len(f.Data)
	t.longest = max(t.longest, len(f.Data))
	t.ended = true
	if t.prints {
		t.bits = min(t.bits+bits, manyBits)
		return
	}
	if bits == 0 && t.weigh == nil || len(t.kinds) == maxKinds {
		return
	}
	if id := maphash.Bytes(t.d.seed, f.Data); !t.kinds[id] {
		t.kinds[id] = true
		t.bits += bits
	}
}

// Damaged implements [frame.Sink].
func (t *trial) Damaged() {}

// Skip implements [frame.Sink].
func (t *trial) Skip(b []byte) {
	t.ended = false
	if t.frames > 0 {
		t.skipped += len(b)
	}
}

func (t *trial) fit() Fit {
	f := Fit{Framing: t.cfg, Checked: t.weigh == nil, Frames: t.frames, Kinds: len(t.kinds), Bits: t.bits}
	if t.ends && t.aligned > alignedShare*t.amiss {
		f.Bits += 8 * min(t.aligned, len(t.kinds)) // the last byte, one of 256, was the delimiter
	}
	f.Framing.Max = 0 // that was for looking only
	if t.framed > 0 {
		f.Share = float64(t.framed) / float64(t.framed+t.skipped)
	}
	return f
}

// blur is the difference of shares that says nothing.
func (t *trial) blur() float64 {
	return max(equalShare, 2*float64(t.longest)/float64(1+t.framed+t.skipped))
}

// fits reports whether f, which is that of the trial, is more than chance.
func (t *trial) fits(f Fit) bool {
	switch {
	case f.Bits < wantBits || f.Frames < wantFrames:
		return false
	case t.weigh == nil:
		return f.Kinds > 1 && f.Share >= wantShare
	case t.prints:
		return f.Share >= linesShare
	}
	return f.Kinds >= weakFrames && f.Share >= weakShare
}

// varied reports whether a frame has three different bytes: of one that has not, as FF FF 00 00 at
// a wrong rate, the check value is right too easily.
func varied(b []byte) bool {
	if len(b) < 4 {
		return false
	}
	first, second := b[0], -1
	for _, c := range b {
		switch {
		case c == first || int(c) == second:
		case second < 0:
			second = int(c)
		default:
			return true
		}
	}
	return false
}

// message weighs a frame of ubx: sentences alone are lines.
func message(data []byte) int {
	if ubx.KindOf(data) == ubx.NMEA {
		return 0
	}
	return 16
}

// text weighs a line: a byte that can be printed is one of 97 of 256.
func text(data []byte) (bits int, ok bool) {
	line := bytes.TrimRight(data, "\r\n")
	for rest := line; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		if r == utf8.RuneError && n == 1 || !unicode.IsPrint(r) && r != '\t' {
			return 0, false
		}
		rest = rest[n:]
	}
	return len(line) * 7 / 5, true
}

// chain weighs a COBS frame: code bytes that can be anything lead to the delimiter once in about
// 2^7 times, small ones more often.
func chain(data []byte) (bits int, ok bool) {
	if len(bytes.Trim(data, "\x00")) < 3 {
		return 0, true
	}
	return 4, true
}

// escapes weighs a SLIP frame: a byte behind DB is one of two of 256, and a delimiter in front is
// one of 256.
func escapes(data []byte) (bits int, ok bool) {
	if body := bytes.Trim(data, "\xC0"); len(body) < 3 {
		return 0, true
	}
	if data[0] == 0xC0 {
		bits = 8
	}
	return bits + 7*bytes.Count(data, []byte{0xDB}), true
}
