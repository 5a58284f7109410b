package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/internal/http1"
)

// exchange is a request with its answer. Handlers may keep the request, and what belongs to it.
type exchange struct {
	req  *http.Request // apart: only package http can give one a context
	ctx  requestContext
	w    *response
	body *body // nil: there is none
	url  url.URL
}

// request makes the request of a head that was parsed.
func (s *session) request(head []byte) (*exchange, error) {
	h := &s.head
	x := &exchange{}
	x.ctx.s = s
	x.req = emptyRequest.WithContext(&x.ctx)
	r := x.req
	text := string(head) // one copy, and everything is a part of it
	part := func(p http1.Span) string { return text[p.Lo:p.Hi] }
	r.Method, r.RequestURI = commonMethod(part(h.Method)), part(h.Target)
	r.ProtoMajor, r.ProtoMinor = 1, h.Minor
	if r.Proto = "HTTP/1.1"; h.Minor != 1 {
		r.Proto = "HTTP/1." + string(rune('0'+h.Minor))
	}
	if err := x.setURL(); err != nil {
		return nil, err
	}
	r.Host = part(h.Host)
	if r.URL.Host != "" {
		r.Host = r.URL.Host
	}
	r.Header = make(http.Header, len(h.Fields))
	values := make([]string, len(h.Fields))
	for i, f := range h.Fields {
		key := canonical(part(f.Name))
		switch key {
		case "Host", "Transfer-Encoding":
			continue
		}
		if old, ok := r.Header[key]; ok {
			r.Header[key] = append(old, part(f.Value))
			continue
		}
		values[i] = part(f.Value)
		r.Header[key] = values[i : i+1 : i+1]
	}
	if r.Header["Pragma"] != nil && r.Header["Pragma"][0] == "no-cache" && r.Header["Cache-Control"] == nil { // as net/http
		r.Header["Cache-Control"] = []string{"no-cache"}
	}
	r.ContentLength = h.Length
	r.Close = h.Close || h.Minor == 0 && !h.Keeps
	if s.remote == "" {
		s.remote = s.c.RemoteAddr().String()
	}
	r.RemoteAddr = s.remote
	if s.secure != nil {
		s.secure(r)
	}
	x.w = s.response(x)
	return x, x.setBody()
}

var emptyRequest = &http.Request{}

// setURL parses the target. The plain ones, which nothing in them needs unescaping or escaping, are not worth a parser.
func (x *exchange) setURL() error {
	r := x.req
	target := r.RequestURI
	if target[0] == '/' {
		i := 0
		for i < len(target) && plainPath[target[i]] {
			i++
		}
		if i == len(target) {
			x.url.Path = target
			r.URL = &x.url
			return nil
		}
	}
	authority := r.Method == http.MethodConnect && !strings.HasPrefix(target, "/")
	if authority {
		target = "http://" + target
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return &http1.Error{Status: 400, Reason: "malformed request target"}
	}
	if authority {
		u.Scheme = ""
	}
	r.URL = u
	return nil
}

// plainPath are the bytes that url.URL's encoding of a path leaves alone.
var plainPath = func() (t [256]bool) {
	for c := range 256 {
		t[c] = '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || strings.IndexByte("-_.~$&+,/:;=@", byte(c)) >= 0
	}
	return t
}()

func commonMethod(m string) string {
	if m == http.MethodGet {
		return http.MethodGet
	}
	return m
}

// canonical is the canonical form of a header name; the usual ones cost nothing.
func canonical(name string) string { return textproto.CanonicalMIMEHeaderKey(name) }

// body is the body of a request.
type body struct {
	s      *session
	x      *exchange
	mu     sync.Mutex
	left   int64 // of a body of known length
	chunks http1.Chunks
	chunk  bool
	limit  int64 // bytes that may still come; negative: any number
	asks   bool  // the client waits for 100-continue
	done   bool  // read to its end
	shut   bool
	err    error
}

func (x *exchange) setBody() error {
	s, r := x.w.s, x.req
	h := &s.head
	max := s.srv.cfg.MaxBodyBytes
	if h.Length == 0 {
		r.Body = http.NoBody
		return nil
	}
	if max > 0 && h.Length > max {
		return &http1.Error{Status: http.StatusRequestEntityTooLarge, Reason: "body too large"}
	}
	x.body = &body{s: s, x: x, left: h.Length, chunk: h.Chunked, asks: h.Continue, limit: -1}
	if max > 0 {
		x.body.limit = max
	}
	if h.Chunked {
		r.TransferEncoding = []string{"chunked"}
		x.announceTrailer()
	}
	r.Body = x.body
	return nil
}

// announceTrailer fills in the names of the trailer fields that the head promises.
func (x *exchange) announceTrailer() {
	announced, ok := x.req.Header["Trailer"]
	if !ok {
		return
	}
	delete(x.req.Header, "Trailer")
	t := http.Header{}
	for _, v := range announced {
		for _, key := range strings.Split(v, ",") {
			if key = canonical(textproto.TrimString(key)); key != "" {
				t[key] = nil
			}
		}
	}
	if len(t) > 0 {
		x.req.Trailer = t
	}
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.shut:
		return 0, http.ErrBodyReadAfterClose
	case b.err != nil:
		return 0, b.err
	case len(p) == 0:
		return 0, nil
	}
	return b.read(p)
}

func (b *body) read(p []byte) (n int, err error) {
	if b.asks {
		b.asks = false
		if err := b.x.w.sendContinue(); err != nil {
			return 0, err
		}
	}
	if b.chunk {
		n, err = b.readChunk(p)
	} else {
		n, err = b.s.read(p[:min(int64(len(p)), b.left)])
		b.left -= int64(n)
		switch {
		case b.left == 0:
			b.done, err = true, io.EOF
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
		}
	}
	if b.limit >= 0 {
		if b.limit -= int64(n); b.limit < 0 {
			err = &http.MaxBytesError{Limit: b.s.srv.cfg.MaxBodyBytes}
		}
	}
	if err != nil {
		b.err = err
	}
	return n, err
}

// encouraged says that the client was told to send the body.
func (b *body) encouraged() {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.asks = false
	b.mu.Unlock()
}

func (b *body) readChunk(p []byte) (int, error) {
	s := b.s
	for {
		skip, data, err := b.chunks.Next(s.buf[s.lo:s.hi])
		s.lo += skip
		switch {
		case err != nil:
			return 0, err
		case data > 0:
			n := copy(p, s.buf[s.lo:s.lo+data])
			s.lo += n
			b.chunks.Took(n)
			return n, nil
		case b.chunks.Done():
			b.done = true
			b.trailer()
			return 0, io.EOF
		}
		if err := s.more(); err == io.EOF {
			return 0, io.ErrUnexpectedEOF
		} else if err != nil {
			return 0, err
		}
	}
}

func (b *body) trailer() {
	r := b.x.req
	b.chunks.Trailer(func(name, value []byte) {
		key := canonical(string(name))
		switch key {
		case "Transfer-Encoding", "Content-Length", "Trailer":
			return
		}
		if r.Trailer == nil {
			r.Trailer = http.Header{}
		}
		r.Trailer[key] = append(r.Trailer[key], string(value))
	})
}

// Close implements io.Closer. The rest of the body is read when the answer is over.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shut = true
	return nil
}

// discard reads what the handler left, if it is not much, so that the connection can be used on.
func (b *body) discard() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done || b.err != nil {
		return
	}
	if b.asks { // the client has not sent it, and may or may not do so
		b.err = errUnread
		return
	}
	if !b.chunk && b.left > maxPostHandlerRead {
		return
	}
	p := make([]byte, 4<<10)
	for n := 0; n <= maxPostHandlerRead && b.err == nil && !b.done; {
		m, err := b.read(p)
		n += m
		if err != nil {
			return
		}
	}
}

// malformed is the error of a body that is not framed as it must be; nil if it is, so far.
func (b *body) malformed() *http1.Error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var e *http1.Error
	errors.As(b.err, &e)
	return e
}

// unread reports whether something of the body is still to come.
func (b *body) unread() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.done
}

// end takes the body away from the handler, which is over, and reports whether something of it is still to come.
func (b *body) end() (unread bool) {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shut = true
	return !b.done
}

// requestContext is the context of a request. It costs nothing until somebody asks for its end.
type requestContext struct {
	s     *session
	mu    sync.Mutex
	done  chan struct{}
	over  bool
	calls map[*func()]struct{}
}

// Deadline implements context.Context.
func (*requestContext) Deadline() (time.Time, bool) { return time.Time{}, false }

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Done implements context.Context.
func (x *requestContext) Done() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.done == nil {
		if x.over {
			x.done = closedChan
		} else {
			x.done = make(chan struct{})
		}
	}
	return x.done
}

// Err implements context.Context.
func (x *requestContext) Err() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return context.Canceled
	}
	return nil
}

// Value implements context.Context.
func (x *requestContext) Value(key any) any {
	switch key {
	case http.ServerContextKey:
		return x.s.srv.std
	case http.LocalAddrContextKey:
		return x.s.c.LocalAddr()
	}
	return nil
}

// AfterFunc lets package context follow this one without a goroutine.
func (x *requestContext) AfterFunc(f func()) (stop func() bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		go f()
		return func() bool { return false }
	}
	if x.calls == nil {
		x.calls = map[*func()]struct{}{}
	}
	x.calls[&f] = struct{}{}
	return func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		_, waits := x.calls[&f]
		delete(x.calls, &f)
		return waits
	}
}

func (x *requestContext) cancel() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return
	}
	x.over = true
	if x.done != nil {
		close(x.done)
	}
	for f := range x.calls {
		go (*f)()
	}
	x.calls = nil
}

// headerText reports whether a value may stand in a header field, and gives it without what may not.
func headerText(v string) string {
	if strings.ContainsAny(v, "\r\n") {
		v = strings.NewReplacer("\n", " ", "\r", " ").Replace(v)
	}
	return textproto.TrimString(v)
}

var errNotHere = errors.New("server: Hijack in coroutine mode needs a request with Upgrade or CONNECT; use mode goroutine")
