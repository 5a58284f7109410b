package loadgen

import (
	"bytes"

	"github.com/tallywheel/tallywheel/internal/http1"
)

// framing is what the head of an answer says of its end (RFC 9112, section 6.3).
type framing struct {
	status  int
	length  int64 // Content-Length; -1: there is none
	chunked bool
	coded   bool // it has a Transfer-Encoding; one that is not chunked at its end goes on until the server closes
	close   bool // "Connection: close"
	keep    bool // "Connection: keep-alive"
	old     bool // HTTP/1.0
}

// read takes the head of an answer, up to the CR LF of its last line, apart. It reports whether
// that can be trusted: of a head that says two different things of its length the next answer might
// begin anywhere.
func (f *framing) read(head []byte) (good bool) {
	line, rest, _ := bytes.Cut(head, crlf)
	if *f = (framing{length: -1}); !f.statusLine(line) {
		return false
	}
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, crlf)
		colon := bytes.IndexByte(line, ':')
		if colon < 1 || line[0] == ' ' || line[0] == '\t' || line[colon-1] == ' ' || line[colon-1] == '\t' {
			return false
		}
		name, value := line[:colon], line[colon+1:]
		good := true
		switch {
		case len(name) == 10 && http1.Is(name, "connection"):
			f.connection(value)
		case len(name) == 14 && http1.Is(name, "content-length"):
			good = f.contentLength(value)
		case len(name) == 17 && http1.Is(name, "transfer-encoding"):
			good = f.coding(value)
		}
		if !good {
			return false
		}
	}
	return !f.coded || f.length < 0
}

var crlf = []byte("\r\n")

// statusLine reads "HTTP/1.1 200 OK".
func (f *framing) statusLine(b []byte) bool {
	if len(b) < 12 || string(b[:7]) != "HTTP/1." || b[7] < '0' || b[7] > '9' || b[8] != ' ' ||
		len(b) > 12 && b[12] != ' ' {
		return false
	}
	for _, c := range b[9:12] {
		if c < '0' || c > '9' {
			return false
		}
		f.status = 10*f.status + int(c-'0')
	}
	f.old = b[7] == '0'
	return f.status >= 100
}

func (f *framing) connection(value []byte) {
	for one := range elements(value) {
		f.close = f.close || http1.Is(one, "close")
		f.keep = f.keep || http1.Is(one, "keep-alive")
	}
}

// contentLength takes one length, or the same several times.
func (f *framing) contentLength(value []byte) bool {
	for one := range elements(value) {
		n := int64(0)
		if len(one) == 0 || len(one) > 18 {
			return false
		}
		for _, c := range one {
			if c < '0' || c > '9' {
				return false
			}
			n = 10*n + int64(c-'0')
		}
		if f.length >= 0 && f.length != n {
			return false
		}
		f.length = n
	}
	return true
}

// coding takes the codings in their order: nothing comes behind chunked.
func (f *framing) coding(value []byte) bool {
	for one := range elements(value) {
		if f.chunked {
			return false
		}
		f.coded, f.chunked = true, http1.Is(one, "chunked")
	}
	return f.coded
}

// elements are those of a list with commas.
func elements(value []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for more := true; more; {
			var one []byte
			if one, value, more = bytes.Cut(value, []byte{','}); !yield(bytes.Trim(one, " \t")) {
				return
			}
		}
	}
}
