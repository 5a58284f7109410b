package server

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

// response is the http.ResponseWriter of a session. The header is put into bytes when WriteHeader is called, but for what depends on the
// length of the body; the head goes out with the first body that does not fit its buffer, or at the end.
type response struct {
	s  *session
	x  *exchange
	mu sync.Mutex // between the head and a 100-continue that reading the body asks for

	header http.Header
	status int    // 0: not written
	head   []byte // status line and fields, from WriteHeader until it goes out
	out    bool   // it has gone out
	body   []byte // written and held back until the head goes out

	length     int64 // declared; -1: not
	lengthText string
	unknown    bool   // the handler declared what is no length: we do not know better
	coding     string // Transfer-Encoding that the handler set
	connection []string
	hasDate    bool
	hasType    bool
	encoded    bool
	trailers   []string // declared
	prefixed   bool     // there are trailers with http.TrailerPrefix

	written    int64 // body bytes
	chunking   bool
	closeAfter bool
	fullDuplex bool
	hijacked   bool
	refused    bool // the body was no body: the answer is ours
}

// response is a new one. A coroutine's is used again for its next request, since nobody can have it any more when the handler has returned;
// a handler on a goroutine may have left another goroutine behind that still writes, which must not reach somebody else's answer.
func (s *session) response(x *exchange) *response {
	w, header := &s.block.w, s.block.w.header
	if !s.coroutine {
		w, header = &response{}, nil
	}
	if len(header) > maxHeaderKept {
		header = nil
	}
	clear(header)
	*w = response{s: s, x: x, length: -1, header: header}
	return w
}

const maxHeaderKept = 8 // fields: the memory of a map does not shrink

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(status int) {
	if w.hijacked || w.status != 0 {
		w.s.srv.log.Warn("superfluous WriteHeader", "status", status, "hijacked", w.hijacked, "path", w.x.req.URL.Path)
		return
	}
	if status < 100 || status > 999 {
		panic("server: WriteHeader: status " + strconv.Itoa(status) + " is not one")
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		w.inform(status)
		return
	}
	w.status = status
	w.head = w.statusLine(w.headBuffer(), status)
	w.fields()
}

// headBuffer is where the head is written: behind the output of earlier answers where there is room.
func (w *response) headBuffer() []byte {
	s := w.s
	if free := cap(s.out) - len(s.out); free >= 512 {
		return s.out[len(s.out):len(s.out):cap(s.out)]
	}
	return make([]byte, 0, 512)
}

func (w *response) statusLine(b []byte, status int) []byte {
	if w.x.req.ProtoMinor == 0 {
		b = append(b, "HTTP/1.0 "...)
	} else {
		b = append(b, "HTTP/1.1 "...)
	}
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	if text := http.StatusText(status); text != "" {
		b = append(b, text...)
	} else {
		b = append(b, "status code "...)
		b = strconv.AppendInt(b, int64(status), 10)
	}
	return append(b, "\r\n"...)
}

// inform sends an informational answer.
func (w *response) inform(status int) {
	if w.x.req.ProtoMinor == 0 {
		return
	}
	if status == http.StatusContinue {
		w.x.body.encouraged()
	}
	b := w.statusLine(nil, status)
	w.eachField(func(key, value string) {
		if key != "Content-Length" && key != "Transfer-Encoding" {
			b = appendField(b, key, value)
		}
	})
	_ = w.s.put(append(b, "\r\n"...)) // an error shows again at the end
	_ = w.s.flush()
}

// sendContinue tells the client to send the body.
func (w *response) sendContinue() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.out {
		return nil
	}
	if w.status != 0 { // the head is in the buffer behind which this would go
		w.head = append([]byte(nil), w.head...)
	}
	if err := w.s.put([]byte("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
		return err
	}
	return w.s.flush()
}

// eachField calls each with the fields of the header in order.
func (w *response) eachField(each func(key, value string)) {
	if len(w.header) == 1 {
		for key, values := range w.header {
			for _, v := range values {
				each(key, v)
			}
		}
		return
	}
	var room [16]string
	keys := room[:0]
	for key := range w.header {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		for _, v := range w.header[key] {
			each(key, v)
		}
	}
}

// fields writes the header into the head, and takes note of what decides about the framing.
func (w *response) fields() {
	if v, ok := w.header["Content-Length"]; ok && len(v) > 0 {
		if n, err := strconv.ParseInt(v[0], 10, 64); err == nil && n >= 0 {
			w.length, w.lengthText = n, v[0]
		} else {
			w.unknown = true
			w.s.srv.log.Warn("a handler set a Content-Length that is none", "value", v[0], "path", w.x.req.URL.Path)
		}
	}
	w.eachField(func(key, value string) {
		switch key {
		case "Content-Length":
			return
		case "Transfer-Encoding":
			w.coding = value
			return
		case "Connection":
			w.connection = append(w.connection, value)
			return
		case "Content-Type":
			if w.status == http.StatusNotModified {
				return
			}
		case "Content-Encoding":
			w.encoded = w.encoded || value != ""
		case "Trailer":
			for _, t := range strings.Split(value, ",") {
				if t = canonical(strings.TrimSpace(t)); httpguts.ValidTrailerHeader(t) {
					w.trailers = append(w.trailers, t)
				}
			}
		}
		if strings.HasPrefix(key, http.TrailerPrefix) {
			w.prefixed = true
			return
		}
		w.head = appendField(w.head, key, value)
	})
	_, w.hasType = w.header["Content-Type"] // even if it has no value: then none is sent
	_, w.hasDate = w.header["Date"]
	if !bodyAllowed(w.status) {
		w.coding = ""
	}
}

func appendField(b []byte, key, value string) []byte {
	if !httpguts.ValidHeaderFieldName(key) {
		return b
	}
	b = append(b, key...)
	b = append(b, ": "...)
	b = append(b, headerText(value)...)
	return append(b, "\r\n"...)
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// Write implements http.ResponseWriter.
func (w *response) Write(b []byte) (int, error) {
	if w.hijacked {
		return 0, http.ErrHijacked
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if len(b) == 0 {
		return 0, nil
	}
	if !bodyAllowed(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	w.written += int64(len(b))
	if w.length >= 0 && w.written > w.length {
		return 0, http.ErrContentLength
	}
	if !w.out {
		if w.body == nil {
			w.body = w.s.block.body[:0]
		}
		if w.length < 0 && len(w.body)+len(b) <= autoLengthLimit {
			w.body = append(w.body, b...)
			return len(b), nil
		}
		first := b
		if len(w.body) > 0 {
			first = w.body
		}
		if err := w.sendHead(first, false); err != nil {
			return 0, err
		}
	}
	if err := w.sendBody(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// WriteString implements io.StringWriter.
func (w *response) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// ReadFrom implements io.ReaderFrom.
func (w *response) ReadFrom(r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, r, make([]byte, 32<<10))
}

// sendHead puts the head, and the body that was held back, into the output. start is what is known of the body's beginning; whole
// says that it is all.
func (w *response) sendHead(start []byte, whole bool) error {
	s, r := w.s, w.x.req
	head := r.Method == http.MethodHead
	allowed := bodyAllowed(w.status)
	trailers := w.prefixed || len(w.trailers) > 0
	if whole && !trailers && !w.unknown && w.coding == "" && allowed && w.length < 0 && (!head || len(start) > 0) {
		w.length, w.lengthText = int64(len(start)), strconv.Itoa(len(start))
	}
	w.decideClose(head, allowed)
	if !w.fullDuplex && w.x.body.unread() {
		w.x.body.discard()
		if e := w.x.body.malformed(); e != nil { // whatever the handler made of it, this was no request
			w.refused = true
			w.out, w.closeAfter = true, true
			w.head, w.body = nil, nil
			return s.put(errorAnswer(e))
		}
		if w.x.body.unread() {
			w.closeAfter = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out = true
	b := w.head
	b = w.framing(b, start, head, allowed)
	b = append(b, "\r\n"...)
	w.head = nil
	if !sameArray(b, s.out) {
		if err := s.put(b); err != nil {
			return err
		}
	} else {
		s.out = s.out[:len(s.out)+len(b)]
	}
	if held := w.body; len(held) > 0 {
		w.body = nil
		return w.sendBody(held)
	}
	return nil
}

// sameArray reports whether b continues the output in its own memory.
func sameArray(b, out []byte) bool {
	return len(b) > 0 && cap(out)-len(out) >= len(b) && &b[0] == &out[:len(out)+1][len(out)]
}

// decideClose settles what becomes of the connection as far as the header says.
func (w *response) decideClose(head, allowed bool) {
	r, h := w.x.req, &w.s.head
	asked := len(w.connection) > 0
	if r.ProtoMinor == 0 {
		known := head || w.length >= 0 || !allowed
		switch {
		case !h.KeepAlive() || !known:
			w.closeAfter = true
		case !asked:
			w.connection = []string{"keep-alive"}
		}
	} else if !h.KeepAlive() {
		w.closeAfter = true
	}
	if asked && w.connection[0] == "close" || w.s.c.draining() {
		w.closeAfter = true
	}
}

// framing appends the fields that say how the body is framed and what becomes of the connection.
func (w *response) framing(b, start []byte, head, allowed bool) []byte {
	r := w.x.req
	if allowed && !w.hasType && !w.encoded && w.coding == "" && len(start) > 0 {
		b = appendField(b, "Content-Type", http.DetectContentType(start))
	}
	if !w.hasDate {
		b = append(b, "Date: "...)
		b = append(b, w.s.srv.date(w.s.began)...)
		b = append(b, "\r\n"...)
	}
	if w.length >= 0 && w.coding != "" && w.coding != "identity" {
		w.s.srv.log.Warn("a handler set both Content-Length and Transfer-Encoding", "path", r.URL.Path)
		w.length = -1
	}
	switch {
	case head || !allowed:
	case w.length >= 0:
	case r.ProtoMinor == 0:
		w.closeAfter = true
	case w.coding == "identity":
		w.closeAfter = true
	default:
		w.chunking = true
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	if w.length >= 0 && allowed {
		b = append(b, "Content-Length: "...)
		b = append(b, w.lengthText...)
		b = append(b, "\r\n"...)
	}
	if w.closeAfter && w.status != http.StatusSwitchingProtocols && !(len(w.connection) > 0 && httpguts.HeaderValuesContainsToken(w.connection[:1], "close")) {
		w.connection = nil
		if r.ProtoMinor > 0 {
			b = append(b, "Connection: close\r\n"...)
		}
	}
	for _, v := range w.connection {
		b = appendField(b, "Connection", v)
	}
	return b
}

// sendBody puts body bytes into the output, as a chunk where the body is chunked.
func (w *response) sendBody(b []byte) error {
	if w.x.req.Method == http.MethodHead || len(b) == 0 || w.refused {
		return nil
	}
	s := w.s
	if !w.chunking {
		return s.put(b)
	}
	var room [20]byte
	size := append(strconv.AppendInt(room[:0], int64(len(b)), 16), "\r\n"...)
	if err := s.put(size); err != nil {
		return err
	}
	if err := s.put(b); err != nil {
		return err
	}
	return s.put(crlf)
}

var crlf = []byte("\r\n")

// finish ends the answer.
func (w *response) finish() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.out {
		if err := w.sendHead(w.body, true); err != nil {
			return err
		}
	}
	if w.chunking {
		b := []byte("0\r\n")
		for _, key := range w.trailers {
			for _, v := range w.header[key] {
				b = appendField(b, key, v)
			}
		}
		w.eachField(func(key, value string) {
			if name, ok := strings.CutPrefix(key, http.TrailerPrefix); ok {
				b = appendField(b, name, value)
			}
		})
		if err := w.s.put(append(b, "\r\n"...)); err != nil {
			return err
		}
	}
	if w.x.req.Method != http.MethodHead && w.length >= 0 && bodyAllowed(w.status) && w.length != w.written {
		w.closeAfter = true // the client waits for more than there is
	}
	w.x.body.discard() // what came to light since the head
	return nil
}

// Flush implements http.Flusher.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError is Flush for http.ResponseController.
func (w *response) FlushError() error {
	if w.hijacked {
		return http.ErrHijacked
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.out {
		if err := w.sendHead(w.body, false); err != nil {
			return err
		}
	}
	return w.s.flush()
}

// EnableFullDuplex is for http.ResponseController.
func (w *response) EnableFullDuplex() error {
	w.fullDuplex = true
	return nil
}

// SetReadDeadline is for http.ResponseController.
func (w *response) SetReadDeadline(t time.Time) error { return w.s.c.SetReadDeadline(t) }

// SetWriteDeadline is for http.ResponseController.
func (w *response) SetWriteDeadline(t time.Time) error { return w.s.c.SetWriteDeadline(t) }

// Hijack implements http.Hijacker.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	s := w.s
	if w.hijacked {
		return nil, nil, http.ErrHijacked
	}
	if s.coroutine {
		return nil, nil, errNotHere
	}
	if w.status != 0 && !w.out {
		if err := w.sendHead(nil, false); err != nil {
			return nil, nil, err
		}
	}
	if err := s.flush(); err != nil {
		return nil, nil, err
	}
	w.hijacked = true
	s.c.takeOver()
	_ = s.c.SetDeadline(time.Time{})
	rest := append([]byte(nil), s.buf[s.lo:s.hi]...)
	c := &hijackedConn{stream: s.c, rest: rest}
	return c, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(s.c)), nil
}

// hijackedConn is a connection with the input that the session had read already.
type hijackedConn struct {
	stream
	rest []byte
}

// Read implements net.Conn.
func (c *hijackedConn) Read(b []byte) (int, error) {
	if len(c.rest) > 0 {
		n := copy(b, c.rest)
		c.rest = c.rest[n:]
		return n, nil
	}
	return c.stream.Read(b)
}

// CloseWrite ends this side of the connection.
func (c *hijackedConn) CloseWrite() error {
	if w, ok := c.stream.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// dateText is the value of Date for a second since Server.base.
type dateText struct {
	second int64
	text   []byte
}

// date is the value of the header field Date for requests that came at a time of Server.clock.
func (s *Server) date(at int64) []byte {
	second := at / int64(time.Second)
	if d := s.today.Load(); d != nil && d.second == second {
		return d.text
	}
	d := &dateText{second, time.Now().UTC().AppendFormat(nil, http.TimeFormat)}
	s.today.Store(d)
	return d.text
}
