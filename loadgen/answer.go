package loadgen

import (
	"bytes"
	"net/http"
	"strconv"

	"github.com/tallywheel/tallywheel/internal/http1"
)

// maxHead bounds the head of an answer.
const maxHead = 64 << 10

// noHTTP is the kind of error for a head that no answer has.
const noHTTP = "no HTTP"

func kindOfStatus(status int) string { return "status " + strconv.Itoa(status) }

// answer reads as much of an answer as b has. whole is its status once it is over.
func (c *conn) answer(b []byte) (used, whole int, bad string) {
	if c.skip > 0 || c.chunked || c.toEnd {
		return c.body(b, 0)
	}
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return 0, 0, partOfHead(b)
	}
	var f framing
	switch {
	case !f.read(b[:end]):
		return 0, 0, noHTTP
	case f.status == http.StatusSwitchingProtocols: // what comes now is no HTTP
		return 0, 0, kindOfStatus(f.status)
	case f.status < 200:
		return end + 4, 0, ""
	}
	c.skip, c.status, c.got = 0, f.status, 0
	c.last = f.close || f.old && !f.keep
	if f.status != http.StatusNoContent && f.status != http.StatusNotModified && !c.bare {
		c.skip, c.chunked, c.chunks = max(f.length, 0), f.chunked, http1.Chunks{}
		c.toEnd = !f.chunked && f.length < 0
	}
	return c.body(b, end+4)
}

// partOfHead says what is wrong with a part of a head, of which the rest may come.
func partOfHead(b []byte) (bad string) {
	const begins = "HTTP/1."
	line, _, whole := bytes.Cut(b, []byte{'\n'})
	switch {
	case len(b) > maxHead:
		return "head too large"
	case string(b[:min(len(b), len(begins))]) != begins[:min(len(b), len(begins))],
		whole && !bytes.HasSuffix(line, []byte{'\r'}): // lines end with CR LF
		return noHTTP
	}
	return ""
}

// body goes on with a body. An answer that comes in pieces counts as a good one when its end comes:
// c.status keeps what it was.
func (c *conn) body(b []byte, at int) (used, whole int, bad string) {
	for c.chunked {
		skip, data, err := c.chunks.Next(b[at:])
		at += skip
		switch {
		case err != nil:
			return 0, 0, "malformed chunk"
		case data > 0:
			if bad := c.look(b[at : at+data]); bad != "" {
				return 0, 0, bad
			}
			c.chunks.Took(data)
			at += data
		case c.chunks.Done():
			c.chunked = false
			return c.ended(at)
		default:
			return at, 0, ""
		}
	}
	if c.toEnd {
		return len(b), 0, c.look(b[at:])
	}
	n := min(int64(len(b)-at), c.skip)
	if bad := c.look(b[at : at+int(n)]); bad != "" {
		return 0, 0, bad
	}
	at += int(n)
	if c.skip -= n; c.skip > 0 {
		return at, 0, ""
	}
	return c.ended(at)
}
