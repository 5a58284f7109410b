package server

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/tallywheel/tallywheel/internal/http1"
	"github.com/tallywheel/tallywheel/server/internal/h1"
)

// LeanHandler answers a request whose body is whole, without waiting for anything. Both arguments
// are valid until it returns.
type LeanHandler func(w *LeanResponse, r *LeanRequest)

// LeanRequest is a request in the memory where it arrived. What its methods return must not be
// changed, and not be used after the handler has returned.
type LeanRequest struct {
	head []byte
	h    *http1.Head
	body []byte
}

// Method is the method, like GET.
func (r *LeanRequest) Method() []byte { return r.h.Method.Of(r.head) }

// Target is the request target as it came, with the query. Nobody has looked whether it is a good
// one.
func (r *LeanRequest) Target() []byte { return r.h.Target.Of(r.head) }

// Path is the target to the first question mark, not unescaped.
func (r *LeanRequest) Path() []byte {
	t := r.Target()
	for i, c := range t {
		if c == '?' {
			return t[:i]
		}
	}
	return t
}

// Host is the host that is asked: that of a target in absolute form (RFC 9112, 3.2.2), else the
// value of the header field Host.
func (r *LeanRequest) Host() []byte {
	_, rest, absolute := bytes.Cut(r.Target(), []byte("://"))
	if t := r.Target(); !absolute || t[0] == '/' || bytes.ContainsAny(t[:len(t)-len(rest)], "?") {
		return r.h.Host.Of(r.head)
	}
	if end := bytes.IndexAny(rest, "/?"); end >= 0 {
		rest = rest[:end]
	}
	return rest[bytes.LastIndexByte(rest, '@')+1:]
}

// Header is the value of the first field of that name, which is given in lower case; nil if there
// is none.
func (r *LeanRequest) Header(name string) []byte {
	for i := range r.h.Fields {
		if f := &r.h.Fields[i]; http1.Is(f.Name.Of(r.head), name) {
			return f.Value.Of(r.head)
		}
	}
	return nil
}

// EachHeader calls each with all header fields, in the order in which they came.
func (r *LeanRequest) EachHeader(each func(name, value []byte)) {
	for i := range r.h.Fields {
		f := &r.h.Fields[i]
		each(f.Name.Of(r.head), f.Value.Of(r.head))
	}
}

// Body is the body; empty if there is none.
func (r *LeanRequest) Body() []byte { return r.body }

// LeanResponse is the answer. Set status and header first, then the body, in one piece or several.
type LeanResponse struct{ a *h1.Answer }

// Status sets the status; 200 if it is not called. It panics on what is not a final status.
func (w *LeanResponse) Status(code int) {
	if code < 200 || code > 999 {
		panic("server: " + strconv.Itoa(code) + " is not a final status")
	}
	w.a.Status = code
}

// ContentType sets the field Content-Type; without it there is none.
func (w *LeanResponse) ContentType(v string) { w.a.Type = v }

// Header adds a field. Names and values that could end the field are left out. Content-Length,
// Transfer-Encoding, Connection and Date are the server's.
func (w *LeanResponse) Header(name, value string) {
	switch http.CanonicalHeaderKey(name) {
	case "Content-Length", "Transfer-Encoding", "Connection", "Date":
		return
	}
	w.a.AddField(name, value)
}

// Close ends the connection after this answer.
func (w *LeanResponse) Close() { w.a.Close = true }

// Write adds to the body. It never fails; the body is kept in memory until it is sent.
func (w *LeanResponse) Write(b []byte) (int, error) {
	w.a.Append(b)
	return len(b), nil
}

// WriteString is Write.
func (w *LeanResponse) WriteString(s string) (int, error) {
	w.a.AppendString(s)
	return len(s), nil
}

// Reserve makes room for n more bytes of body, which spares the body from growing piece by piece.
func (w *LeanResponse) Reserve(n int) { w.a.Reserve(n) }

// Buffer is the body so far: append to it and give it back by SetBuffer, which spares a copy.
// Reserve makes room in it.
func (w *LeanResponse) Buffer() []byte { return w.a.Body }

// SetBuffer sets the body. What is not in the memory of Buffer is copied, so b stays the caller's:
// the server keeps only memory that it made.
func (w *LeanResponse) SetBuffer(b []byte) {
	own := w.a.Body[:cap(w.a.Body)]
	if len(b) > 0 && len(own) > 0 && &b[0] == &own[0] {
		w.a.Body, w.a.Static = own[:len(b)], nil
		return
	}
	w.a.Body = w.a.Body[:0]
	w.a.Append(b)
}

// SetStatic sets the body to memory that never changes, like a page that is kept for all clients.
// It is sent from where it is, after the handler has returned: who changes it later changes what
// clients get.
func (w *LeanResponse) SetStatic(b []byte) {
	w.a.Body = w.a.Body[:0]
	w.a.Static = b
}

// leanOnLoop runs a lean handler for one loop.
type leanOnLoop struct {
	handler LeanHandler
	w       LeanResponse
	r       LeanRequest
}

// Answer implements h1.LeanHandler.
func (l *leanOnLoop) Answer(head []byte, h *http1.Head, body []byte, a *h1.Answer) {
	l.w.a = a
	l.r = LeanRequest{head, h, body}
	l.handler(&l.w, &l.r)
	l.w.a, l.r = nil, LeanRequest{} // a large body shall not wait for the next request to be forgotten
}

// leanOnStd runs a lean handler where requests are those of net/http.
type leanOnStd struct {
	handler LeanHandler
	max     int64
}

func (l leanOnStd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	max := l.max
	if max == 0 {
		max = defaultMaxBody
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, max))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		http.Error(w, "413 Request Entity Too Large: body too large", http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		w.Header().Set("Connection", "close")
		http.Error(w, "400 Bad Request: the body is not whole", http.StatusBadRequest)
		return
	}
	var head []byte
	head = append(head, r.Method+" "+r.RequestURI+" HTTP/1.1\r\nHost: "+r.Host+"\r\n"...)
	for k, vs := range r.Header {
		switch k {
		case "Content-Length", "Connection", "Expect":
			continue // they were net/http's
		}
		for _, v := range vs {
			head = append(head, k+": "+v+"\r\n"...)
		}
	}
	head = append(head, "\r\n"...)
	var h http1.Head
	if _, err := h.Parse(head, len(head)); err != nil {
		http.Error(w, "400 Bad Request: "+err.Error(), http.StatusBadRequest)
		return
	}
	a := h1.NewAnswer()
	l.handler(&LeanResponse{a}, &LeanRequest{head: head, h: &h, body: body})
	out := w.Header()
	if a.Type != "" {
		out.Set("Content-Type", a.Type)
	} else {
		out["Content-Type"] = nil // none, and no guess
	}
	h1.EachField(a.Fields, func(name, value string) { out.Add(name, value) })
	if a.Close {
		out.Set("Connection", "close")
	}
	if h1.BodyAllowed(a.Status) {
		out.Set("Content-Length", strconv.Itoa(len(a.Bytes())))
	}
	w.WriteHeader(a.Status)
	if h1.BodyAllowed(a.Status) {
		_, _ = w.Write(a.Bytes()) // an error is the client's leaving
	}
}
