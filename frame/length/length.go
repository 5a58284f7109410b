// Package length frames messages that begin with their own length: 1, 2 or 4 bytes, big- or
// little-endian, followed by that many bytes of content.
//
// A length alone cannot tell a frame from noise. With a check (a CRC-16 at the end of the content)
// a wrong frame is found and the search goes on one byte later; without, only a length out of range
// is noticed.
//
// # A length that is too long
//
// A length that was damaged, and is still in range, claims the frames behind it. Without a check
// they are its content. With one, they are found when it has all bytes that it claims, and its
// check value is wrong. Where those come slowly, a pause shows it sooner: a frame whose first byte
// has been pending for [Patience] is given up at a pause of [Silence] if the bytes behind its
// beginning end in two whole frames, up to the last byte before the pause. One is enough where the
// line has been silent for Patience. The frame counts as damaged, and what it held is searched from
// its second byte on.
//
// So a frame is never given up for being slow, nor for pauses: only for frames in its content that
// end where a pause begins, and not before Patience. A sender of such content, whose pauses fall
// there, must send each frame within Patience. A line without any pause holds frames back until so
// many bytes have come; so does one on which something else than frames stands before each pause.
package length

import (
	"errors"
	"fmt"

	"github.com/tallywheel/tallywheel/frame"
)

// DefaultMax is the longest content in bytes when none is set.
const DefaultMax = 4096

// Config describes the prefix. The zero value is a two-byte big-endian length of the content alone.
type Config struct {
	Prefix       int  // bytes of the length field: 1, 2 or 4; 0 means 2
	LittleEndian bool // order of the length field
	Inclusive    bool // the length counts the prefix, too
	Max          int  // longest content in bytes; 0 means [DefaultMax]
	Check        frame.Check
}

// Decoder finds frames by their length.
type Decoder struct {
	cfg       Config
	searching bool // within bytes given up: the damaged frame has been counted
	out       frame.Frame
}

var (
	_ frame.Decoder  = (*Decoder)(nil)
	_ frame.Holding  = (*Decoder)(nil)
	_ frame.Stateful = (*Decoder)(nil)
	_ frame.Checked  = (*Decoder)(nil)
)

// New returns a decoder, or an error that names the field that is wrong.
func New(cfg Config) (*Decoder, error) {
	if cfg.Prefix == 0 {
		cfg.Prefix = 2
	}
	if cfg.Prefix != 1 && cfg.Prefix != 2 && cfg.Prefix != 4 {
		return nil, fmt.Errorf("prefix %d: want 1, 2 or 4 bytes", cfg.Prefix)
	}
	if cfg.Max == 0 {
		cfg.Max = int(min(DefaultMax, uint64(1)<<(8*cfg.Prefix)-1)) // an int may have 32 bits
	}
	return &Decoder{cfg: cfg}, nil
}

// Max is the longest frame in bytes, prefix included.
func (d *Decoder) Max() int { return d.cfg.Prefix + d.cfg.Max }

// CheckBits implements [frame.Checked].
func (d *Decoder) CheckBits() int { return d.cfg.Check.Bits() }

// Decode implements [frame.Decoder].
func (d *Decoder) Decode(view []byte, sink frame.Sink) int {
	at, bad := 0, 0 // view[bad:at] is to be skipped
	for len(view)-at >= d.cfg.Prefix {
		n, ok := d.size(view[at:])
		if ok && n > len(view)-at {
			break // not all here yet
		}
		if ok = ok && d.cfg.Check.OK(view[at+d.cfg.Prefix:at+n]); !ok {
			if !d.searching {
				d.searching = true
				sink.Damaged()
			}
			at++
			continue
		}
		d.skip(view[bad:at], sink)
		d.searching = false
		d.out.Data = view[at : at+n]
		sink.Frame(&d.out)
		d.out.Data = nil
		at += n
		bad = at
	}
	d.skip(view[bad:at], sink)
	return at
}

// Break implements [frame.Decoder]: a frame that is not whole is damaged; a whole one may lie
// behind its prefix.
func (d *Decoder) Break(view []byte, _ frame.Cause, sink frame.Sink) {
	at := d.Decode(view, sink)
	for at < len(view) {
		if !d.searching {
			d.searching = true
			sink.Damaged()
		}
		sink.Skip(view[at : at+1])
		at++
		at += d.Decode(view[at:], sink)
	}
	d.searching = false
}

func (d *Decoder) skip(b []byte, sink frame.Sink) {
	if len(b) > 0 {
		sink.Skip(b)
	}
}

// size reads the length of the whole frame, in bytes, and reports whether it is in range.
func (d *Decoder) size(b []byte) (int, bool) {
	var n uint64
	for i := range d.cfg.Prefix {
		if d.cfg.LittleEndian {
			n |= uint64(b[i]) << (8 * i)
		} else {
			n = n<<8 | uint64(b[i])
		}
	}
	if d.cfg.Inclusive {
		if n < uint64(d.cfg.Prefix) {
			return 0, false
		}
		n -= uint64(d.cfg.Prefix)
	}
	return int(n) + d.cfg.Prefix, n <= uint64(d.cfg.Max)
}

// stateVersion is the version of the state: version u8, searching u8.
const stateVersion = 1

// State implements [frame.Stateful].
func (d *Decoder) State() []byte {
	b := []byte{stateVersion, 0}
	if d.searching {
		b[1] = 1
	}
	return b
}

// Restore implements [frame.Stateful].
func (d *Decoder) Restore(b []byte) error {
	if len(b) != 2 || b[0] != stateVersion || b[1] > 1 {
		return errors.New("not the state of a length decoder")
	}
	d.searching = b[1] == 1
	return nil
}
