package frame

import (
	"bytes"
	"time"
)

// Delimited is what framings share that end each frame with one delimiter byte which occurs nowhere else: COBS
// and SLIP embed it. Delimiters before a frame are part of it, so nothing on the wire is lost.
type Delimited struct {
	Delimiter byte
	MaxBytes  int // longest frame on the wire, delimiters included
	// Valid reports whether content, the bytes between delimiters, is a frame.
	Valid func(content []byte) bool

	lead    int  // pending delimiters at the front
	scanned int  // pending bytes after them known to hold no delimiter
	over    bool // inside a frame that was too long: skip to its end
	out     Frame
}

// Max is the longest frame in bytes.
func (d *Delimited) Max() int { return d.MaxBytes }

// Silence is 0: a pause within a frame means nothing.
func (d *Delimited) Silence() time.Duration { return 0 }

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
	if len(wire) > d.MaxBytes || !d.Valid(content) {
		sink.Damaged()
		sink.Skip(wire)
		return
	}
	d.out.Data = wire
	sink.Frame(&d.out)
	d.out.Data = nil
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
