package loadgen

import (
	"bytes"
	"strconv"

	"github.com/tallywheel/tallywheel/internal/http1"
)

// maxHead bounds the head of an answer.
const maxHead = 64 << 10

// answer reads as much of an answer as b has. whole is its status once it is over.
func (c *conn) answer(b []byte) (used, whole int, bad string) {
	if c.skip > 0 || c.chunked || c.toEnd {
		return c.body(b, 0)
	}
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		if len(b) > maxHead {
			return 0, 0, "head too large"
		}
		return 0, 0, ""
	}
	head := b[:end+2]
	if len(head) < 14 || string(head[:7]) != "HTTP/1." {
		return 0, 0, "no HTTP"
	}
	status, err := strconv.Atoi(string(head[9:12]))
	if err != nil {
		return 0, 0, "no HTTP"
	}
	if status < 200 {
		return end + 4, 0, ""
	}
	c.skip, c.chunked, c.status, c.got = 0, false, status, 0
	goesOn := field(head, "connection")
	c.last = bytes.EqualFold(goesOn, []byte("close")) || head[7] == '0' && !bytes.EqualFold(goesOn, []byte("keep-alive"))
	if status != 204 && status != 304 && !c.bare {
		if v := field(head, "transfer-encoding"); bytes.EqualFold(v, []byte("chunked")) {
			c.chunked, c.chunks = true, http1.Chunks{}
		} else if v := field(head, "content-length"); v == nil {
			c.toEnd = true
		} else if c.skip, err = strconv.ParseInt(string(v), 10, 64); err != nil || c.skip < 0 {
			return 0, 0, "no HTTP"
		}
	}
	return c.body(b, end+4)
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

// field is the value of a header field whose name is given in lower case.
func field(head []byte, name string) []byte {
	for len(head) > 0 {
		i := bytes.IndexByte(head, '\n')
		if i < 0 {
			return nil
		}
		line := head[:i]
		head = head[i+1:]
		if len(line) > len(name) && line[len(name)] == ':' && bytes.EqualFold(line[:len(name)], []byte(name)) {
			return bytes.TrimSpace(line[len(name)+1:])
		}
	}
	return nil
}
