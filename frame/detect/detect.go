// Package detect says which framing fits a stream of bytes that nobody has described.
//
// # How it decides
//
// A [Detector] shows the same bytes to a decoder of each framing side by side. A framing can only
// win by what chance does not bring:
//
//   - A checked framing wins by check values that are right. Each frame whose check value is right
//     weighs as many bits as that has, if it differs from those before it: a device that says the
//     same all the time is one coincidence, not many. 32 bits are wanted, three frames, and three
//     quarters of the bytes since the first frame.
//   - A weak framing (plain lines, COBS and SLIP without a check) wins by its form: lines by
//     characters that can be printed, COBS by code bytes that lead to the delimiter, SLIP by
//     escapes and by delimiters in pairs or before a silence. It wants nearly all bytes, and it
//     waits while a checked framing may still win.
//   - raw fits everything, so it never wins. Neither does length without a check.
//
// Of several that fit, the one that explains more of the bytes wins, then the narrower one: a
// tally128 frame is a Modbus frame, too; sentences are ubx only beside binary messages; of lengths
// the longer one is right, for what is between two frames with a right CRC may pass as the end of
// the first.
//
// Bytes before the first frame do not count: a listener comes in the middle.
//
// # Bounds
//
// Each decoder holds its longest frame at most. Frames of length are looked for up to
// [maxLength] bytes of content. Nothing here waits, and nothing is kept of frames but 64 hashes.
package detect

import (
	"fmt"
	"hash/maphash"
	"time"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/framings"
)

const (
	wantBits    = 32   // of evidence
	wantFrames  = 3    // of a checked framing, two of them different
	wantShare   = 0.75 // of the bytes, for a checked framing
	linesShare  = 0.9  // … for lines
	weakShare   = 0.95 // … for COBS and SLIP without a check
	weakFrames  = 8    // different frames of COBS or SLIP without a check
	mayWinShare = 0.5  // a checked framing below it cannot win any more …
	mayWinAfter = 20   // … nor one that has had so many frames
	equalShare  = 0.01 // shares that differ by less are equal, as are those that differ by two frames

	maxLength = 512 // longest content of a length framing
	maxKinds  = 64  // different frames that are remembered
)

// Fit is how a framing fits the bytes so far.
type Fit struct {
	Framing framings.Config
	Checked bool    // its frames have a check value
	Frames  int     // valid ones
	Kinds   int     // … that differ, 64 at most
	Bits    int     // of evidence: by chance, bytes look so once in 2^Bits times
	Share   float64 // of the bytes since the first frame that are in frames, 0 to 1
}

// String is the framing with its settings, and its reasons.
func (f Fit) String() string {
	why := fmt.Sprintf("%d frames", f.Frames)
	if f.Checked {
		why += " with a right check value"
	}
	return fmt.Sprintf("%s: %s, %.0f %% of the bytes, %d bits of evidence", f.Framing, why, 100*f.Share, f.Bits)
}

// Detector looks for the framing of one stream. Make it with [New].
type Detector struct {
	trials []*trial // those that win if all else is equal come first
	seed   maphash.Seed
	bytes  int
	odd    int // bytes as a line at another rate brings them
}

// New makes a detector. baud and charBits are those of the line; 0: not known, or none.
func New(baud, charBits int) *Detector {
	d := &Detector{seed: maphash.MakeSeed()}
	add := func(c framings.Config, weigh weight) *trial {
		dec, err := framings.New(c)
		if err != nil {
			panic("detect: " + err.Error()) // a mistake in the lines below
		}
		bits := frame.EvidenceOf(dec).CheckBits
		t := &trial{
			d: d, cfg: c, dec: dec, weigh: weigh, bitsOf: func([]byte) int { return bits },
			kinds: map[uint64]bool{},
		}
		d.trials = append(d.trials, t)
		return t
	}
	add(framings.Config{Kind: "tally128"}, nil)
	add(framings.Config{Kind: "modbus", Baud: baud, CharBits: charBits}, nil)
	add(framings.Config{Kind: "ubx"}, nil).bitsOf = message
	add(framings.Config{Kind: "line", Check: frame.CheckNMEA}, nil)
	for _, check := range []frame.Check{frame.CheckModbus, frame.CheckCCITT} {
		add(framings.Config{Kind: "cobs", Check: check}, nil)
		add(framings.Config{Kind: "slip", Check: check}, nil)
		for _, inclusive := range []bool{false, true} {
			for _, prefix := range []int{4, 2, 1} {
				for _, little := range []bool{false, true} {
					if prefix == 1 && little {
						continue
					}
					most := int(min(maxLength, int64(1)<<(8*prefix)-1)) // an int of 32 bits has no room for 1<<32
					add(framings.Config{
						Kind: "length", Prefix: prefix, Little: little, Inclusive: inclusive, Check: check, Max: most,
					}, nil)
				}
			}
		}
	}
	add(framings.Config{Kind: "line"}, text).prints = true
	add(framings.Config{Kind: "cobs"}, chain)
	add(framings.Config{Kind: "slip"}, escapes).ends = true
	return d
}

// Bytes shows bytes that follow directly.
func (d *Detector) Bytes(b []byte) {
	d.bytes += len(b)
	for _, c := range b {
		if shifted[c] {
			d.odd++
		}
	}
	for _, t := range d.trials {
		t.show(b)
	}
}

// Silence says that the line was silent for so long behind the last byte.
func (d *Detector) Silence(length time.Duration) {
	for _, t := range d.trials {
		t.silence(length)
	}
}

// Break says that nothing follows directly: a message has ended, or bytes were lost here.
func (d *Detector) Break(why frame.Cause) {
	for _, t := range d.trials {
		t.end(why)
	}
}

// Seen is how many bytes were shown.
func (d *Detector) Seen() int { return d.bytes }

// Decide returns the framing that fits; ok is false while none does for certain.
func (d *Detector) Decide() (best Fit, ok bool) {
	for _, t := range d.trials {
		f := t.fit()
		switch fits := t.fits(f); {
		case fits && t.weigh == nil && (!ok || f.Share > best.Share+t.blur()):
			best, ok = f, true
		case fits && !ok:
			best, ok = f, true
		case !fits && !ok && f.Checked && f.Bits > 0 && f.Frames < mayWinAfter && f.Share >= mayWinShare:
			return Fit{}, false // it may still win, and is narrower than all that follow
		}
	}
	return best, ok
}

// Leader is the framing that has most for it while none fits; ok is false if none has anything.
func (d *Detector) Leader() (best Fit, ok bool) {
	for _, t := range d.trials {
		f := t.fit()
		if f.Bits > 0 && f.Share >= mayWinShare && (!ok || f.Bits > best.Bits) {
			best, ok = f, true
		}
	}
	return best, ok
}

// Bytes that a receiver makes of a line at another rate: much slower or faster, start and stop bits
// become runs of equal bits.
var shifted = func() (all [256]bool) {
	for _, c := range []byte{0x00, 0x80, 0xC0, 0xE0, 0xF0, 0xF8, 0xFC, 0xFE, 0xFF} {
		all[c] = true
	}
	return all
}()

const (
	rateBytes = 64  // before less is known, nothing is said of the rate
	rateShare = 0.6 // of shifted bytes; 0.035 in noise
)

// WrongRate reports whether nothing fits and the bytes look as if the line had another rate.
func (d *Detector) WrongRate() bool {
	if d.bytes < rateBytes || float64(d.odd) < rateShare*float64(d.bytes) {
		return false
	}
	_, ok := d.Leader()
	return !ok
}
