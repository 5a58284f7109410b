package loadgen

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Exchange is where a request goes, its body, and what must come back.
type Exchange struct {
	Path string // with the query, from "/" on; "": that of the URL
	Body []byte
	Want Content // of an answer whose status is below 400; others are errors as they are
}

// Content is what the body of an answer must be: Pattern, over and over, Bytes long. A piece that
// is lost, doubled or moved shows if the pattern's length is no multiple of a piece's; a prime is
// best. The zero value lets everything pass.
type Content struct {
	Pattern []byte
	Bytes   int64
}

// Exactly is b and nothing else.
func Exactly(b []byte) Content {
	if b == nil {
		b = []byte{} // nothing is a content, too
	}
	return Content{Pattern: b, Bytes: int64(len(b))}
}

func (e *Exchange) check() error {
	if !onWire(e.Path) || e.Path != "" && e.Path[0] != '/' {
		return fmt.Errorf("path %q: want it to begin with /, and as it goes over the wire", e.Path)
	}
	return e.Want.check()
}

// onWire reports whether a path and query can stand in the first line of a request.
func onWire(path string) bool {
	return !strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

func (c *Content) check() error {
	if c.Bytes < 0 || c.Bytes > 0 && len(c.Pattern) == 0 {
		return errors.New("want a pattern for the content of answers, and a length that is not negative")
	}
	return nil
}

// holds reports whether b is what Content has from at on.
func (c *Content) holds(b []byte, at int64) bool {
	for len(b) > 0 {
		p := c.Pattern[at%int64(len(c.Pattern)):]
		n := min(len(b), len(p))
		if !bytes.Equal(b[:n], p[:n]) {
			return false
		}
		b = b[n:]
		at += int64(n)
	}
	return true
}

// Kinds of errors in what comes back.
const (
	wrongLength  = "wrong length"
	wrongContent = "wrong content"
)

// look holds a piece of a body against what it should be, and says what is wrong.
func (c *conn) look(piece []byte) (bad string) {
	if c.want == nil || c.status >= 400 {
		return ""
	}
	switch {
	case c.got+int64(len(piece)) > c.want.Bytes:
		return wrongLength
	case !c.want.holds(piece, c.got):
		return wrongContent
	}
	c.got += int64(len(piece))
	return ""
}

// ended is the end of a body: its status, or what is wrong.
func (c *conn) ended(at int) (used, whole int, bad string) {
	if c.want != nil && c.status < 400 && c.got != c.want.Bytes {
		return 0, 0, wrongLength
	}
	return at, c.status, ""
}
