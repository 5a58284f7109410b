package frame

import (
	"bytes"
	"errors"
	"time"
)

// Delimited is what framings share that end each frame with one delimiter byte which occurs nowhere
// else: COBS and SLIP embed it. Delimiters before a frame are part of it, so nothing on the wire is
// lost.
type Delimited struct {
	Delimiter byte
	MaxBytes  int // longest frame on the wire, delimiters included
	// Content appends what stands for content on the wire to dst[:0], and reports whether wire, the
	// bytes between delimiters, is well formed.
	Content func(dst, wire []byte) (content []byte, ok bool)
	Check   Check // of the content

	scratch []byte
	lead    int  // pending delimiters at the front
	scanned int  // pending bytes after them known to hold no delimiter
	over    bool // inside a frame that was too long: skip to its end
	out     Frame
}

var (
	_ Stateful = (*Delimited)(nil)
	_ Checked  = (*Delimited)(nil)
)

// Max is the longest frame in bytes.
func (d *Delimited) Max() int { return d.MaxBytes }

// Silence is 0: a pause within a frame means nothing.
func (d *Delimited) Silence() time.Duration { return 0 }

// CheckBits implements [Checked].
func (d *Delimited) CheckBits() int { return d.Check.Bits() }

// Decode implements [Decoder].
func (d *Delimited) Decode(view []byte, sink Sink) int {
	at := 0
	for {
		rest := view[at:]
		if d.over {
			n, ended := len(rest), false
			if i := bytes.IndexByte(rest, d.Delimiter); i >= 0 {
				n, ended = i+1, true
			}
			if n > 0 {
				sink.Skip(rest[:n])
			}
			at += n
			if !ended {
				return at
			}
			d.over = false
			continue
		}
		for d.scanned == 0 && d.lead < len(rest) && rest[d.lead] == d.Delimiter {
			d.lead++
			if d.lead == d.MaxBytes { // an idle line of delimiters: they are no frame
				sink.Skip(rest[:d.lead])
				at += d.lead
				rest, d.lead = rest[d.lead:], 0
			}
		}
		body := rest[d.lead:]
		i := bytes.IndexByte(body[d.scanned:], d.Delimiter)
		if i < 0 {
			d.scanned = len(body)
			if len(rest) >= d.MaxBytes {
				at += d.drop(rest, sink)
			}
			return at
		}
		n := d.lead + d.scanned + i + 1
		d.frame(rest[:n], rest[d.lead:n-1], sink)
		at += n
	}
}

// Break implements [Decoder]: a frame without its delimiter is truncated, unless a message ends it.
func (d *Delimited) Break(view []byte, why Cause, sink Sink) {
	at := d.Decode(view, sink)
	if rest := view[at:]; len(rest) > 0 {
		if body := rest[d.lead:]; why == Message && len(body) > 0 {
			d.frame(rest, body, sink)
		} else {
			d.drop(rest, sink)
		}
	}
	d.lead, d.scanned, d.over = 0, 0, false
}

func (d *Delimited) frame(wire, content []byte, sink Sink) {
	d.lead, d.scanned = 0, 0
	if len(wire) > d.MaxBytes || !d.valid(content) {
		sink.Damaged()
		sink.Skip(wire)
		return
	}
	d.out.Data = wire
	sink.Frame(&d.out)
	d.out.Data = nil
}

func (d *Delimited) valid(wire []byte) bool {
	content, ok := d.Content(d.scratch, wire)
	d.scratch = content
	return ok && d.Check.OK(content)
}

// drop gives up the bytes of a frame that will not be whole.
func (d *Delimited) drop(b []byte, sink Sink) int {
	if len(b) > d.lead {
		d.over = true
		sink.Damaged()
	}
	d.lead, d.scanned = 0, 0
	sink.Skip(b)
	return len(b)
}

// delimitedState is the version of the state: version u8, over u8.
const delimitedState = 1

// State implements [Stateful].
func (d *Delimited) State() []byte {
	b := []byte{delimitedState, 0}
	if d.over {
		b[1] = 1
	}
	return b
}

// Restore implements [Stateful].
func (d *Delimited) Restore(b []byte) error {
	if len(b) != 2 || b[0] != delimitedState || b[1] > 1 {
		return errors.New("not the state of a decoder of delimited frames")
	}
	d.over, d.lead, d.scanned = b[1] == 1, 0, 0
	return nil
}
