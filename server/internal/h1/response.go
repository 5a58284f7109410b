package h1

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/tallywheel/tallywheel/internal/http1"
)

// response makes the answer to one request. The header is put into bytes when WriteHeader is
// called, but for what depends on the length of the body; the head goes out with the first body
// that does not fit its buffer, or at the end.
//
// A body's bytes wait in body, up to heldBody: small writes become one piece, and the length of a
// short body is known when the head goes out.
type response struct {
	s      *Session
	x      *exchange
	asked  *body      // of the request; nil: there is none
	headMu sync.Mutex // between WriteHeader and a 100-continue that reading the body asks for

	header http.Header
	status int    // 0: not written
	head   []byte // status line and fields, from WriteHeader until it goes out
	out    bool   // it has gone out
	body   []byte // written and held back

	facts    facts  // as far as the header says
	text     string // of Content-Length
	hasDate  bool
	hasType  bool
	encoded  bool
	trailers []string // declared
	prefixed bool     // there are trailers with http.TrailerPrefix

	plan       plan  // once the head has gone out
	written    int64 // body bytes
	closeAfter bool
	fullDuplex bool
	hijacked   bool
	timed      bool // the handler has set deadlines
	events     bool // an event stream: how long it is open is the client's affair
	refused    bool // the body was no body: the answer is ours
}

// response is a new one, in the memory of the last. The header is no part of that: a handler may
// keep it, as a cache does, or leave a goroutine behind that reads it.
func (s *Session) response(x *exchange) *response {
	w := &s.block.w
	*w = response{s: s, x: x, facts: facts{length: -1, known: -1}, body: s.block.body[:0]}
	return w
}

func itoa(n int) string { return strconv.Itoa(n) }

// Header is the header of the answer.
func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

// WriteHeader settles status and header.
func (w *response) WriteHeader(status int) {
	if w.hijacked || w.status != 0 {
		w.s.cfg.Log.Warn("superfluous WriteHeader", "status", status, "hijacked", w.hijacked, "path", w.x.req.URL.Path,
			"caller", caller())
		return
	}
	if status < 100 || status > 999 {
		panic("invalid WriteHeader code " + strconv.Itoa(status))
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		w.inform(status)
		return
	}
	w.headMu.Lock() // a reader of the body may want to send a 100-continue
	w.status = status
	w.headMu.Unlock()
	b := w.s.out.room(512)
	if b == nil {
		b = make([]byte, 0, 512)
	}
	w.head = w.statusLine(b, status)
	w.fields()
}

func (w *response) statusLine(b []byte, status int) []byte {
	return statusLine(b, w.x.req.ProtoMinor, status)
}

func statusLine(b []byte, minor, status int) []byte {
	if minor == 0 {
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
		w.asked.encouraged()
	}
	b := w.statusLine(nil, status)
	w.eachField(func(key string, values []string) {
		if key != "Content-Length" && key != "Transfer-Encoding" {
			b = appendFields(b, key, values)
		}
	})
	_ = w.s.out.put(w.s.c, append(b, "\r\n"...)) // an error shows again at the end
	_ = w.s.out.flush(w.s.c)
}

// sendContinue tells the client to send the body.
func (w *response) sendContinue() error {
	w.headMu.Lock()
	defer w.headMu.Unlock()
	if w.status != 0 { // the answer has begun: the client need not send what nobody waited for
		return nil
	}
	if err := w.s.out.put(w.s.c, []byte("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
		return err
	}
	return w.s.out.flush(w.s.c)
}

// eachField calls each with the fields of the header, in order of their names.
func (w *response) eachField(each func(key string, values []string)) {
	if w.usual(each) {
		return
	}
	type field struct {
		key    string
		values []string
	}
	var room [8]field
	all := room[:0]
	for key, values := range w.header {
		all = append(all, field{key, values})
	}
	if len(all) > len(room) {
		slices.SortFunc(all, func(a, b field) int { return strings.Compare(a.key, b.key) })
	} else {
		for n := range all { // a few are sorted sooner than a function is called for them
			for i := n; i > 0 && all[i].key < all[i-1].key; i-- {
				all[i], all[i-1] = all[i-1], all[i]
			}
		}
	}
	for _, f := range all {
		each(f.key, f.values)
	}
}

// usual is eachField for a header that has no fields but the two that nearly every answer has, and
// reports whether it is one: to ask a map for two keys takes less than to go through it.
func (w *response) usual(each func(key string, values []string)) bool {
	const length, kind = "Content-Length", "Content-Type" // in order
	lengths, sized := w.header[length]
	kinds, typed := w.header[kind]
	others := len(w.header)
	if sized {
		others--
	}
	if typed {
		others--
	}
	if others > 0 {
		return false
	}
	if sized {
		each(length, lengths)
	}
	if typed {
		each(kind, kinds)
	}
	return true
}

// fields writes the header into the head, and takes note of what decides about the framing.
func (w *response) fields() {
	w.eachField(func(key string, values []string) {
		switch key {
		case "Content-Length":
			w.lengthField(values)
			return
		case "Transfer-Encoding":
			if n := len(values); n > 0 {
				w.facts.coding = values[n-1]
			}
			return
		case "Connection":
			w.facts.connection = append(w.facts.connection, values...)
			return
		case "Content-Type":
			w.hasType = true // even if it has no value: then none is sent
			if w.status == http.StatusNotModified {
				return
			}
			for _, v := range values {
				w.events = IsEventStream(v)
			}
		case "Date":
			w.hasDate = true
		case "Content-Encoding":
			for _, v := range values {
				w.encoded = w.encoded || v != ""
			}
		case "Trailer":
			for _, v := range values {
				w.declare(v)
			}
		}
		if strings.HasPrefix(key, http.TrailerPrefix) {
			w.prefixed = w.prefixed || len(values) > 0
			return
		}
		w.head = appendFields(w.head, key, values)
	})
}

// lengthField takes note of Content-Length.
func (w *response) lengthField(values []string) {
	f := &w.facts
	if f.lengthKey = true; len(values) == 0 {
		return
	}
	if n, err := strconv.ParseInt(values[0], 10, 64); err == nil && n >= 0 {
		f.length, w.text = n, values[0]
	} else {
		w.s.cfg.Log.Warn("a handler set a Content-Length that is none", "value", values[0], "path", w.x.req.URL.Path)
	}
}

// declare takes note of the trailer fields that a field Trailer names.
func (w *response) declare(names string) {
	for _, t := range strings.Split(names, ",") {
		if t = canonical(strings.TrimSpace(t)); httpguts.ValidTrailerHeader(t) {
			w.trailers = append(w.trailers, t)
		}
	}
}

// IsEventStream reports whether a Content-Type is that of server-sent events, whose answers last as
// long as the client likes.
func IsEventStream(contentType string) bool {
	return strings.HasPrefix(contentType, "text/event-stream")
}

func appendField(b []byte, key, value string) []byte {
	return appendFields(b, key, []string{value})
}

// appendFields appends a field for each value.
func appendFields(b []byte, key string, values []string) []byte {
	if !httpguts.ValidHeaderFieldName(key) {
		return b
	}
	for _, v := range values {
		b = append(b, key...)
		b = append(b, ": "...)
		b = append(b, headerText(v)...)
		b = append(b, "\r\n"...)
	}
	return b
}

// Write adds to the body.
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
	if err := w.s.out.failure(); err != nil {
		return 0, err
	}
	w.written += int64(len(b))
	if w.facts.length >= 0 && w.written > w.facts.length {
		return 0, http.ErrContentLength
	}
	if len(w.body)+len(b) <= cap(w.body) {
		w.body = append(w.body, b...)
		return len(b), nil
	}
	if err := w.emit(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// emit lets go of the body that was held back, and of b behind it.
func (w *response) emit(b []byte) error {
	held := w.body
	w.body = held[:0]
	if !w.out {
		start := held
		if len(start) == 0 {
			start = b
		} else if n := sniffed - len(held); n > 0 && !w.hasType { // what is guessed is guessed of both
			start = append(slices.Clip(held), b[:min(n, len(b))]...)
		}
		if err := w.sendHead(start, -1); err != nil {
			return err
		}
	}
	n := len(held) + len(b)
	switch {
	case n == 0 || !w.plan.body || w.refused:
		return w.s.out.failure()
	case !w.plan.chunked:
		return w.s.out.putAll(w.s.c, held, b)
	}
	var room [20]byte
	size := append(strconv.AppendInt(room[:0], int64(n), 16), "\r\n"...)
	return w.s.out.putAll(w.s.c, size, held, b, crlf)
}

var crlf = []byte("\r\n")

const sniffed = 512 // bytes that http.DetectContentType looks at

// sendHead puts the head into the output. start is what is known of the body's beginning; known is
// the length of the body, which goes with the head, or -1 if there may be more.
func (w *response) sendHead(start []byte, known int64) error {
	s, r := w.s, &w.x.req
	f := &w.facts
	f.head, f.minor, f.keepAlive = r.Method == http.MethodHead, r.ProtoMinor, s.head.KeepAlive()
	f.status, f.known = w.status, known
	f.trailers = w.prefixed || len(w.trailers) > 0
	f.leaving = s.c.Draining() || s.cfg.Closes()
	w.plan = decide(*f)
	if w.asked != nil && !w.fullDuplex {
		rest, e := w.settleBody(known >= 0)
		if e != nil { // whatever the handler made of it, this was no request
			w.refused = true
			w.out, w.closeAfter = true, true
			w.head = nil
			return s.out.put(s.c, errorAnswer(e))
		}
		if rest && !w.plan.close {
			f.leaving = true
			w.plan = decide(*f)
		}
	}
	if w.plan.conflict {
		s.cfg.Log.Warn("a handler set both Content-Length and Transfer-Encoding", "path", r.URL.Path)
		f.length = -1
	}
	w.closeAfter = w.plan.close
	w.out = true
	b := append(w.framing(w.head, start), "\r\n"...)
	w.head = nil
	if known >= 0 && w.plan.body && !w.plan.chunked { // the whole answer in one piece
		b, w.body = append(b, w.body...), w.body[:0]
	}
	return s.out.claim(s.c, b)
}

// settleBody reads what is left of the request's body before the answer begins, and reports whether
// there is more. over: the handler has returned. Before that only a body is read behind which
// another request may follow: a client that sends all before it reads would wait for ever. If the
// connection ends with this answer the handler reads on, and so after an Expect, as in net/http.
func (w *response) settleBody(over bool) (rest bool, e *http1.Error) {
	switch b := w.asked; {
	case !over && w.plan.close, !w.s.head.KeepAlive() && b.busy():
		return false, nil
	case !b.unread():
		return false, nil
	case !over && w.s.head.Continue:
		return true, nil
	default:
		e = b.discard()
		return b.unread(), e
	}
}

// framing appends the fields that say how the body is framed and what becomes of the connection.
func (w *response) framing(b, start []byte) []byte {
	f, p := &w.facts, &w.plan
	if bodyAllowed(w.status) && !w.hasType && !w.encoded && f.coding == "" && len(start) > 0 {
		b = appendField(b, "Content-Type", http.DetectContentType(start))
	}
	if !w.hasDate {
		b = append(b, "Date: "...)
		b = append(b, w.s.cfg.Date(w.s.began)...)
		b = append(b, "\r\n"...)
	}
	return appendFraming(b, p, w.text)
}

// appendFraming appends the fields that a plan asks for. text is the value of Content-Length as the
// handler wrote it; empty if we made it.
func appendFraming(b []byte, p *plan, text string) []byte {
	if p.coding != "" {
		b = appendField(b, "Transfer-Encoding", p.coding)
	}
	switch {
	case p.chunked:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case p.length >= 0:
		b = append(b, "Content-Length: "...)
		if text != "" {
			b = append(b, text...)
		} else {
			b = strconv.AppendInt(b, p.length, 10)
		}
		b = append(b, "\r\n"...)
	}
	return appendFields(b, "Connection", p.connection)
}

// finish ends the answer.
func (w *response) finish() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.out {
		if err := w.sendHead(w.body, int64(len(w.body))); err != nil {
			return err
		}
	}
	if err := w.emit(nil); err != nil {
		return err
	}
	if w.plan.chunked {
		b := []byte("0\r\n")
		for _, key := range w.trailers {
			b = appendFields(b, key, w.header[key])
		}
		w.eachField(func(key string, values []string) {
			if name, ok := strings.CutPrefix(key, http.TrailerPrefix); ok {
				b = appendFields(b, name, values)
			}
		})
		if err := w.s.out.put(w.s.c, append(b, "\r\n"...)); err != nil {
			return err
		}
	}
	if w.plan.body && w.facts.length >= 0 && w.facts.length != w.written {
		w.closeAfter = true // the client waits for more than there is
	}
	if w.asked.unread() { // the client may wait for the answer before it sends the rest
		if err := w.s.out.flush(w.s.c); err != nil {
			return err
		}
	}
	w.asked.discard() // what came to light since the head
	return nil
}

// flush sends what was written.
func (w *response) flush() error {
	if w.hijacked {
		return http.ErrHijacked
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.out {
		if err := w.sendHead(w.body, -1); err != nil {
			return err
		}
	}
	if err := w.emit(nil); err != nil {
		return err
	}
	return w.s.out.flush(w.s.c)
}

// sendFile sends n bytes of a file as body.
func (w *response) sendFile(f *os.File, off, n int64) (int64, error) {
	if w.hijacked || w.facts.length < 0 && w.status != 0 || w.x.req.Method == http.MethodHead {
		return 0, errors.ErrUnsupported
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.facts.length < 0 || w.written+n > w.facts.length || !w.hasType && !w.out {
		return 0, errors.ErrUnsupported
	}
	if err := w.emit(nil); err != nil {
		return 0, err
	}
	if !w.plan.body || w.plan.chunked || w.refused {
		return 0, errors.ErrUnsupported
	}
	sent, err := w.s.out.sendFile(w.s.c, f, off, n)
	w.written += sent
	return sent, err
}

// hijack gives the connection to the handler.
func (w *response) hijack() (net.Conn, *bufio.ReadWriter, error) {
	s := w.s
	if w.hijacked {
		return nil, nil, http.ErrHijacked
	}
	if s.Coroutine {
		return nil, nil, errNotHere
	}
	if w.status != 0 && !w.out {
		if err := w.sendHead(nil, -1); err != nil {
			return nil, nil, err
		}
	}
	if err := s.out.flush(s.c); err != nil {
		return nil, nil, err
	}
	_ = s.c.SetDeadline(time.Time{})
	c, rest, err := s.c.Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.hijacked, s.hijacked = true, true
	s.tell(http.StateHijacked)
	rest = append(append([]byte(nil), s.buf[s.lo:s.hi]...), rest...)
	return c, bufio.NewReadWriter(readerOf(c, rest), bufio.NewWriter(c)), nil
}

// readerOf is a buffered reader of c whose buffer holds the input that was read already.
func readerOf(c net.Conn, rest []byte) *bufio.Reader {
	first := &restThen{rest: rest, c: c}
	r := bufio.NewReaderSize(first, max(4<<10, len(rest)))
	if len(rest) > 0 {
		_, _ = r.Peek(len(rest))
	}
	return r
}

// restThen reads what was read already, and then from the connection.
type restThen struct {
	rest []byte
	c    net.Conn
}

// Read implements io.Reader.
func (r *restThen) Read(p []byte) (int, error) {
	if len(r.rest) > 0 {
		n := copy(p, r.rest)
		r.rest = r.rest[n:]
		return n, nil
	}
	return r.c.Read(p)
}

var errNotHere = errors.New("server: Hijack in coroutine mode needs a request with Upgrade or CONNECT; use mode goroutine")
