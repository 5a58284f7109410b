// Package raw frames bytes of unknown form by time: a chunk ends when the line has been silent for
// a gap, or when it is full. Every byte is in a frame, none is ever skipped.
package raw

import (
	"time"

	"github.com/tallywheel/tallywheel/frame"
)

// Defaults of [New].
const (
	DefaultMax = 1024
	DefaultGap = 10 * time.Millisecond
)

// Decoder cuts chunks.
type Decoder struct {
	max int
	gap time.Duration
	out frame.Frame
}

var _ frame.Decoder = (*Decoder)(nil)

// New returns a decoder of chunks of at most maxBytes, ended by a silence of gap; zeros mean the
// defaults.
func New(maxBytes int, gap time.Duration) *Decoder {
	if maxBytes == 0 {
		maxBytes = DefaultMax
	}
	if gap == 0 {
		gap = DefaultGap
	}
	return &Decoder{max: maxBytes, gap: gap}
}

// Max is the longest chunk in bytes.
func (d *Decoder) Max() int { return d.max }

// Silence is the gap that ends a chunk.
func (d *Decoder) Silence() time.Duration { return d.gap }

// Decode implements [frame.Decoder].
func (d *Decoder) Decode(view []byte, sink frame.Sink) int {
	at := 0
	for len(view)-at >= d.max {
		d.chunk(view[at:at+d.max], sink)
		at += d.max
	}
	return at
}

// Break implements [frame.Decoder]: what is there is a chunk.
func (d *Decoder) Break(view []byte, _ frame.Cause, sink frame.Sink) {
	at := d.Decode(view, sink)
	if at < len(view) {
		d.chunk(view[at:], sink)
	}
}

func (d *Decoder) chunk(b []byte, sink frame.Sink) {
	d.out.Data = b
	sink.Frame(&d.out)
	d.out.Data = nil
}
