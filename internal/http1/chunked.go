package http1

import (
	"bytes"
	"math"
)

// Chunks reads the framing of a chunked body (RFC 9112, section 7.1). The zero value is ready.
type Chunks struct {
	left    int64 // bytes of the chunk under way that are still to come
	state   chunkState
	excess  int64 // of framing over what the data may have of it
	seen    int   // bytes of the trailer
	trailer []byte
	fields  []Field
}

type chunkState uint8

const (
	wantSize chunkState = iota
	wantData
	wantEnd // of a chunk: CR LF
	wantTrailer
	ended
)

const (
	maxSizeLine = 4 << 10 // of a chunk, with its extensions
	maxTrailer  = 16 << 10
	maxExcess   = 16 << 10 // of framing

	framingOfChunk = 16
)

// Next takes b apart: the first skip bytes are framing, the data bytes after them are of the body.
// It consumes nothing if it needs more than b to tell. At the end of the body Done is true.
func (c *Chunks) Next(b []byte) (skip, data int, err error) {
	for {
		rest := b[skip:]
		switch c.state {
		case wantData:
			if len(rest) == 0 {
				return skip, 0, nil
			}
			return skip, int(min(c.left, int64(len(rest)))), nil
		case ended:
			return skip, 0, nil
		case wantEnd:
			if len(rest) < 2 {
				if len(rest) == 1 && rest[0] != '\r' {
					return skip, 0, errChunk
				}
				return skip, 0, nil
			}
			if rest[0] != '\r' || rest[1] != '\n' {
				return skip, 0, errChunk
			}
			skip += 2
			c.state = wantSize
		case wantSize:
			n, size, err := sizeLine(rest)
			if n == 0 || err != nil {
				return skip, 0, err
			}
			skip += n
			// As in net/http: 16 bytes for each chunk and two for each byte of it are fair;
			// somebody who sends much more wants us busy.
			if c.excess = max(0, c.excess+int64(n)-framingOfChunk-2*min(size, maxExcess)); c.excess > maxExcess {
				return skip, 0, errChunk
			}
			c.left, c.state = size, wantData
			if size == 0 {
				c.state = wantTrailer
			}
		case wantTrailer:
			n, err := c.trailerLine(rest)
			if n == 0 || err != nil {
				return skip, 0, err
			}
			skip += n
		}
	}
}

// Took says that n bytes of the data that Next named were used.
func (c *Chunks) Took(n int) {
	if c.left -= int64(n); c.left == 0 && c.state == wantData {
		c.state = wantEnd
	}
}

// Done reports whether the body and its trailer have been read.
func (c *Chunks) Done() bool { return c.state == ended }

// Trailer calls each with every trailer field.
func (c *Chunks) Trailer(each func(name, value []byte)) {
	for _, f := range c.fields {
		each(f.Name.Of(c.trailer), f.Value.Of(c.trailer))
	}
}

// sizeLine reads the line before a chunk: its length in hexadecimal digits, and extensions that
// mean nothing to us.
func sizeLine(b []byte) (n int, size int64, err error) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		if len(b) > maxSizeLine {
			return 0, 0, errChunk
		}
		if k := len(b); k > 1 && bytes.IndexByte(b[:k-1], '\r') >= 0 {
			return 0, 0, errChunk
		}
		return 0, 0, nil
	}
	if i > maxSizeLine || i == 0 || b[i-1] != '\r' {
		return 0, 0, errChunk
	}
	line := b[:i-1]
	digits := 0
	for digits < len(line) {
		d := hexValue(line[digits])
		if d < 0 {
			break
		}
		if size > math.MaxInt64>>4 {
			return 0, 0, errChunk
		}
		size = size<<4 | int64(d)
		digits++
	}
	if digits == 0 || digits > 16 {
		return 0, 0, errChunk
	}
	if !validExtensions(line[digits:]) {
		return 0, 0, errChunk
	}
	return i + 1, size, nil
}

// validExtensions reports whether b is what may follow the size of a chunk (RFC 9112, section
// 7.1.1): any number of ; name, with or without = and a value, which is a token or a quoted string.
func validExtensions(b []byte) bool {
	space := func() { b = bytes.TrimLeft(b, " \t") }
	token := func() bool {
		n := 0
		for n < len(b) && tokenChar[b[n]] {
			n++
		}
		b = b[n:]
		return n > 0
	}
	for len(b) > 0 {
		if space(); len(b) == 0 || b[0] != ';' {
			return false
		}
		b = b[1:]
		if space(); !token() {
			return false
		}
		rest := bytes.TrimLeft(b, " \t")
		if len(rest) == 0 || rest[0] != '=' {
			continue
		}
		b = rest[1:]
		if space(); len(b) > 0 && b[0] == '"' {
			n := quotedString(b)
			if n == 0 {
				return false
			}
			b = b[n:]
		} else if !token() {
			return false
		}
	}
	return true
}

// quotedString is the length of the quoted string at the start of b (RFC 9110, section 5.6.4); 0 if
// there is none.
func quotedString(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			if i++; i == len(b) || b[i] < ' ' && b[i] != '\t' || b[i] == 0x7f {
				return 0
			}
		case c < ' ' && c != '\t', c == 0x7f:
			return 0
		}
	}
	return 0
}

func (c *Chunks) trailerLine(b []byte) (int, error) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		if c.seen+len(b) > maxTrailer {
			return 0, errTrailerLarge
		}
		if k := len(b); k > 1 && bytes.IndexByte(b[:k-1], '\r') >= 0 {
			return 0, errTrailer
		}
		return 0, nil
	}
	if i == 0 || b[i-1] != '\r' {
		return 0, errTrailer
	}
	if c.seen += i + 1; c.seen > maxTrailer || len(c.fields) == MaxFields {
		return 0, errTrailerLarge
	}
	if i == 1 {
		c.state = ended
		return 2, nil
	}
	lo := uint32(len(c.trailer))
	c.trailer = append(c.trailer, b[:i-1]...)
	f, err := parseField(c.trailer, Span{lo, uint32(len(c.trailer))})
	if err != nil {
		return 0, errTrailer
	}
	c.fields = append(c.fields, f)
	return i + 1, nil
}

func hexValue(c byte) int {
	switch {
	case isDigit(c):
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// Left is the number of bytes of the chunk under way that are still to come.
func (c *Chunks) Left() int64 {
	if c.state != wantData {
		return 0
	}
	return c.left
}
