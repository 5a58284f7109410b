// Package http1 reads the framing of HTTP/1.1 requests as RFC 9112 asks, and nothing else: what is
// not exactly right is an error, since every doubt about where a request ends lets somebody smuggle
// a second one past a proxy.
package http1

import (
	"bytes"
	"fmt"
	"math"
)

// Error is a request that cannot be answered, with the status that says so. The connection must be
// closed after it.
type Error struct {
	Status int
	Reason string // for the client: one short line
}

// Error is one line.
func (e *Error) Error() string { return fmt.Sprintf("%d: %s", e.Status, e.Reason) }

func bad(reason string) *Error { return &Error{400, reason} }

// Errors of heads. They are made once: hostile clients shall not cost memory.
var (
	errTooLarge     = &Error{431, "header too large"}
	errTooMany      = &Error{431, "too many header fields"}
	errBareLF       = bad("line ended without CR")
	errBareCR       = bad("CR without LF")
	errRequestLine  = bad("malformed request line")
	errTarget       = bad("malformed request target")
	errMethod       = bad("invalid method")
	errVersion      = bad("malformed HTTP version")
	errUnsupported  = &Error{505, "unsupported protocol version"}
	errFold         = bad("folded header line")
	errNoColon      = bad("header line without a colon")
	errName         = bad("invalid header name")
	errValue        = bad("invalid header value")
	errNoHost       = bad("missing required Host header")
	errHosts        = bad("too many Host headers")
	errHost         = bad("malformed Host header")
	errLength       = bad("invalid Content-Length")
	errLengths      = bad("more than one Content-Length")
	errBoth         = bad("Content-Length with Transfer-Encoding")
	errOldChunked   = bad("Transfer-Encoding in an HTTP/1.0 request")
	errCoding       = &Error{501, "unsupported transfer encoding"}
	errExpect       = &Error{417, "unknown expectation"}
	errChunk        = bad("malformed chunk")
	errTrailer      = bad("malformed trailer")
	errTrailerLarge = &Error{431, "trailer too large"}
)

// MaxFields is the most header fields of a request, and of its trailer.
const MaxFields = 256

// Span is a part of the head: offsets from its first byte.
type Span struct{ Lo, Hi uint32 }

// Of is the part of head that the span means.
func (s Span) Of(head []byte) []byte { return head[s.Lo:s.Hi] }

// Field is a header field. The value is without the white space around it.
type Field struct{ Name, Value Span }

// Head is the request line and the header fields of a request. The zero value is ready; Reset makes
// it ready again.
type Head struct {
	Method, Target Span
	Minor          int // of HTTP/1.Minor
	Fields         []Field

	Host     Span  // empty if there is none
	Length   int64 // of the body; 0 without one, -1 if it is chunked
	Chunked  bool
	Close    bool // the client asked to close the connection after this
	Ends     bool // … or the word is there at least, as net/http looks for it: the connection is closed as well
	Keep     bool // … or, in HTTP/1.0, to keep it
	Keeps    bool // the option keep-alive is there, in any field
	Continue bool // it waits for a 100 before it sends the body
	Upgrade  bool // it asks for another protocol, or for a tunnel
	Trailer  bool // it announces trailer fields

	at          uint32 // first byte not looked at
	line        int    // lines seen
	hosts       int
	lengths     int
	codings     int
	connections int
	expected    bool // the field Expect was there
	expect      bool // … first with something else than 100-continue
	upgrade     bool // the field Upgrade was there
}

// Reset forgets the request and keeps the memory.
func (h *Head) Reset() { *h = Head{Fields: h.Fields[:0]} }

// Parse looks at what has arrived of a head, from its first byte on, and returns its length once it
// is whole, and 0 before. Bytes that were looked at before are not looked at again, so that a
// client which sends them one by one costs no more. max bounds the head.
func (h *Head) Parse(b []byte, max int) (int, error) {
	for {
		rest := b[h.at:]
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			if len(b) > max {
				return 0, errTooLarge
			}
			if n := len(rest); n > 1 && bytes.IndexByte(rest[:n-1], '\r') >= 0 { // the last may be half of a line's end
				return 0, errBareCR
			}
			return 0, nil
		}
		end := int(h.at) + i + 1
		if end > max {
			return 0, errTooLarge
		}
		if i == 0 || rest[i-1] != '\r' {
			return 0, errBareLF
		}
		line := Span{h.at, uint32(end - 2)}
		h.at = uint32(end)
		h.line++
		switch {
		case h.line == 1:
			if err := h.requestLine(b, line); err != nil {
				return 0, err
			}
		case i == 1:
			if err := h.finish(b); err != nil {
				return 0, err
			}
			return end, nil
		default:
			if err := h.field(b, line); err != nil {
				return 0, err
			}
		}
	}
}

func (h *Head) requestLine(b []byte, s Span) error {
	line := s.Of(b)
	if bytes.IndexByte(line, '\r') >= 0 {
		return errBareCR
	}
	i := bytes.IndexByte(line, ' ')
	j := bytes.LastIndexByte(line, ' ')
	if i < 0 || i == j {
		return errRequestLine
	}
	h.Method = Span{s.Lo, s.Lo + uint32(i)}
	h.Target = Span{s.Lo + uint32(i) + 1, s.Lo + uint32(j)}
	if !isToken(line[:i]) {
		return errMethod
	}
	target := line[i+1 : j]
	if len(target) == 0 {
		return errRequestLine
	}
	for _, c := range target {
		if c <= ' ' || c == 0x7f {
			return errRequestLine
		}
	}
	if target[0] != '/' && emptyAuthority(target) {
		return errTarget
	}
	v := line[j+1:]
	if len(v) != 8 || string(v[:5]) != "HTTP/" || v[6] != '.' || !isDigit(v[5]) || !isDigit(v[7]) {
		return errVersion
	}
	if v[5] != '1' {
		return errUnsupported
	}
	h.Minor = int(v[7] - '0')
	return nil
}

// emptyAuthority reports whether a target in absolute form names no host.
func emptyAuthority(target []byte) bool {
	_, rest, ok := bytes.Cut(target, []byte("://"))
	return ok && (len(rest) == 0 || rest[0] == '/' || rest[0] == '?' || rest[0] == '#')
}

func (h *Head) field(b []byte, s Span) error {
	f, err := parseField(b, s)
	if err != nil {
		return err
	}
	if len(h.Fields) == MaxFields {
		return errTooMany
	}
	h.Fields = append(h.Fields, f)
	return h.known(b, f)
}

// parseField takes a header or trailer line apart.
func parseField(b []byte, s Span) (Field, error) {
	line := s.Of(b)
	if len(line) > 0 && (line[0] == ' ' || line[0] == '\t') {
		return Field{}, errFold
	}
	i := 0
	for i < len(line) && tokenChar[line[i]] {
		i++
	}
	if i == len(line) {
		return Field{}, errNoColon
	}
	if i == 0 || line[i] != ':' {
		return Field{}, errName
	}
	lo, hi := i+1, len(line)
	for lo < hi && (line[lo] == ' ' || line[lo] == '\t') {
		lo++
	}
	for hi > lo && (line[hi-1] == ' ' || line[hi-1] == '\t') {
		hi--
	}
	for _, c := range line[lo:hi] {
		if c < ' ' && c != '\t' || c == 0x7f {
			if c == '\r' {
				return Field{}, errBareCR
			}
			return Field{}, errValue
		}
	}
	return Field{Span{s.Lo, s.Lo + uint32(i)}, Span{s.Lo + uint32(lo), s.Lo + uint32(hi)}}, nil
}

// known takes note of the fields that say how the message is framed and what becomes of the
// connection.
func (h *Head) known(b []byte, f Field) error {
	name, value := f.Name.Of(b), f.Value.Of(b)
	switch len(name) {
	case 4:
		if Is(name, "host") {
			h.hosts++
			h.Host = f.Value
			if h.hosts > 1 {
				return errHosts
			}
			if !validHost(value) {
				return errHost
			}
		}
	case 6:
		if Is(name, "expect") {
			h.expectation(value)
		}
	case 7:
		switch {
		case Is(name, "upgrade"):
			h.upgrade = true
		case Is(name, "trailer"):
			h.Trailer = true
		}
	case 10:
		if Is(name, "connection") {
			h.connection(value)
		}
	case 14:
		if Is(name, "content-length") {
			return h.length(value)
		}
	case 17:
		if Is(name, "transfer-encoding") {
			h.codings++
			h.Chunked = Is(value, "chunked")
			if h.codings > 1 || !h.Chunked {
				h.codings = 2
			}
		}
	}
	return nil
}

func (h *Head) length(value []byte) error {
	if h.lengths++; h.lengths > 1 {
		return errLengths
	}
	if len(value) == 0 || len(value) > 19 {
		return errLength
	}
	var n uint64
	for _, c := range value {
		if !isDigit(c) {
			return errLength
		}
		n = n*10 + uint64(c-'0')
	}
	if n > math.MaxInt64 {
		return errLength
	}
	h.Length = int64(n)
	return nil
}

// connection reads a field Connection. Of several, keep-alive counts in the first only, as in
// net/http.
func (h *Head) connection(value []byte) {
	h.connections++
	for len(value) > 0 {
		var one []byte
		if i := bytes.IndexByte(value, ','); i >= 0 {
			one, value = value[:i], value[i+1:]
		} else {
			one, value = value, nil
		}
		switch one = bytes.Trim(one, " \t"); {
		case Is(one, "close"):
			h.Close, h.Ends = true, true
		case Is(one, "keep-alive"):
			h.Keeps = true
			h.Keep = h.Keep || h.connections == 1
		case Is(one, "upgrade"):
			h.Upgrade = true
		default:
			for word := range bytes.FieldsSeq(one) {
				h.Ends = h.Ends || h.connections == 1 && Is(word, "close")
				h.Keep = h.Keep || h.connections == 1 && Is(word, "keep-alive")
			}
		}
	}
}

// expectation reads a field Expect; as net/http, which looks for the word among others, and at no
// second field.
func (h *Head) expectation(value []byte) {
	if h.expected {
		return
	}
	h.expected, h.expect = true, len(value) > 0
	for word := range bytes.FieldsFuncSeq(value, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' }) {
		if Is(word, "100-continue") {
			h.Continue, h.expect = true, false
			return
		}
	}
}

// finish checks what can be said only of the whole head.
func (h *Head) finish(b []byte) error {
	method := h.Method.Of(b)
	connect := string(method) == "CONNECT"
	h.Upgrade = h.Upgrade && h.upgrade || connect
	switch {
	case h.hosts == 0 && h.Minor >= 1 && !connect:
		return errNoHost
	case h.codings > 0 && h.lengths > 0:
		return errBoth
	case h.codings > 0 && h.Minor == 0:
		return errOldChunked
	case h.codings > 1:
		return errCoding
	case h.expect:
		return errExpect
	}
	if h.Chunked {
		h.Length = -1
	}
	h.Continue = h.Continue && h.Minor >= 1 && h.Length != 0
	return nil
}

// KeepAlive reports whether the client expects the connection to stay.
func (h *Head) KeepAlive() bool {
	return !h.Ends && (h.Minor > 0 || h.Keep)
}

// Is reports whether b is the word, which is lower case, in any case.
func Is(b []byte, word string) bool {
	if len(b) != len(word) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != word[i] {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isToken(b []byte) bool {
	for _, c := range b {
		if !tokenChar[c] {
			return false
		}
	}
	return len(b) > 0
}

// validHost reports whether b is a host with or without a port (RFC 3986, section 3.2.2): a name,
// an IPv4 address, or an IP literal in brackets. It may be empty.
func validHost(b []byte) bool {
	host, port := b, []byte(nil)
	if len(b) > 0 && b[0] == '[' {
		i := bytes.IndexByte(b, ']')
		if i < 2 {
			return false
		}
		host, port = b[1:i], b[i+1:]
		if len(port) > 0 && port[0] != ':' {
			return false
		}
	} else if i := bytes.IndexByte(b, ':'); i >= 0 {
		host, port = b[:i], b[i:]
	}
	for i := 1; i < len(port); i++ {
		if !isDigit(port[i]) {
			return false
		}
	}
	literal := len(b) > 0 && b[0] == '['
	for i := 0; i < len(host); i++ {
		switch c := host[i]; {
		case c == '%':
			if i+2 >= len(host) || hexValue(host[i+1]) < 0 || hexValue(host[i+2]) < 0 {
				return false
			}
			i += 2
		case c == ':' && literal:
		case !hostChar[c]:
			return false
		}
	}
	return true
}

var tokenChar, hostChar = table("!#$%&'*+-.^_`|~"), table("!$&()*+,-.;='_~")

func table(others string) (t [256]bool) {
	for c := range 256 {
		t[c] = '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	}
	for _, c := range others {
		t[c] = true
	}
	return t
}
