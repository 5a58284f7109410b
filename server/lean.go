package server

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/tallywheel/tallywheel/internal/http1"
)

// LeanHandler answers a request whose body is whole, without waiting for anything. Both arguments are valid until it returns.
type LeanHandler func(w *LeanResponse, r *LeanRequest)

// LeanRequest is a request in the memory where it arrived. What its methods return must not be changed, and not be used after the handler
// has returned.
type LeanRequest struct {
	head []byte
	h    *http1.Head
	body []byte
}

// Method is the method, like GET.
func (r *LeanRequest) Method() []byte { return r.h.Method.Of(r.head) }

// Target is the request target as it came, with the query. Nobody has looked whether it is a good one.
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

// Host is the value of the header field Host.
func (r *LeanRequest) Host() []byte { return r.h.Host.Of(r.head) }

// Header is the value of the first field of that name, which is given in lower case; nil if there is none.
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
type LeanResponse struct {
	status int
	ctype  string
	fields []byte // "Name: value\r\n", any number
	body   []byte
	close  bool
}

// Status sets the status; 200 if it is not called. It panics on what is not a final status.
func (w *LeanResponse) Status(code int) {
	if code < 200 || code > 999 {
		panic("server: " + strconv.Itoa(code) + " is not a final status")
	}
	w.status = code
}

// ContentType sets the field Content-Type; without it there is none.
func (w *LeanResponse) ContentType(v string) { w.ctype = v }

// Header adds a field. Names and values that could end the field are left out. Content-Length, Transfer-Encoding, Connection and Date are
// the server's.
func (w *LeanResponse) Header(name, value string) {
	switch http.CanonicalHeaderKey(name) {
	case "Content-Length", "Transfer-Encoding", "Connection", "Date":
		return
	}
	w.fields = appendField(w.fields, name, value)
}

// Close ends the connection after this answer.
func (w *LeanResponse) Close() { w.close = true }

// Write adds to the body. It never fails; the body is kept in memory until it is sent.
func (w *LeanResponse) Write(b []byte) (int, error) {
	w.body = append(w.body, b...)
	return len(b), nil
}

// WriteString is Write.
func (w *LeanResponse) WriteString(s string) (int, error) {
	w.body = append(w.body, s...)
	return len(s), nil
}

// Buffer is the body so far: append to it and give it back by SetBuffer, which spares a copy.
func (w *LeanResponse) Buffer() []byte { return w.body }

// SetBuffer sets the body.
func (w *LeanResponse) SetBuffer(b []byte) { w.body = b }

const maxKept = 64 << 10 // of a body's memory from one answer to the next

func (w *LeanResponse) reset() {
	body := w.body
	if cap(body) > maxKept {
		body = nil
	}
	*w = LeanResponse{status: http.StatusOK, fields: w.fields[:0], body: body[:0]}
}

// appendTo appends the answer to b.
func (w *LeanResponse) appendTo(b, date []byte, minor int, head, keep, asked bool) []byte {
	if w.status == http.StatusOK && minor > 0 {
		b = append(b, "HTTP/1.1 200 OK\r\nDate: "...)
	} else {
		b = append(b, "HTTP/1."...)
		b = append(b, byte('0'+min(minor, 1)), ' ')
		b = strconv.AppendInt(b, int64(w.status), 10)
		b = append(b, ' ')
		b = append(b, http.StatusText(w.status)...)
		b = append(b, "\r\nDate: "...)
	}
	b = append(b, date...)
	allowed := bodyAllowed(w.status)
	if w.ctype != "" && allowed {
		b = append(b, "\r\nContent-Type: "...)
		b = append(b, headerText(w.ctype)...)
	}
	b = append(b, "\r\n"...)
	b = append(b, w.fields...)
	if allowed {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(len(w.body)), 10)
		b = append(b, "\r\n"...)
	}
	switch {
	case !keep && minor > 0:
		b = append(b, "Connection: close\r\n"...)
	case keep && minor == 0 && asked:
		b = append(b, "Connection: keep-alive\r\n"...)
	}
	b = append(b, "\r\n"...)
	if allowed && !head {
		b = append(b, w.body...)
	}
	return b
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
	var a LeanResponse
	a.reset()
	l.handler(&a, &LeanRequest{head: head, h: &h, body: body})
	out := w.Header()
	if a.ctype != "" {
		out.Set("Content-Type", a.ctype)
	} else {
		out["Content-Type"] = nil // none, and no guess
	}
	eachLine(a.fields, func(name, value string) { out.Add(name, value) })
	if a.close {
		out.Set("Connection", "close")
	}
	if bodyAllowed(a.status) {
		out.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
	if bodyAllowed(a.status) {
		_, _ = w.Write(a.body) // an error is the client's leaving
	}
}

// eachLine takes header fields apart that appendField has put together.
func eachLine(b []byte, each func(name, value string)) {
	for len(b) > 0 {
		i, j := 0, 0
		for b[i] != ':' {
			i++
		}
		for b[j] != '\n' {
			j++
		}
		each(string(b[:i]), string(b[i+2:j-1]))
		b = b[j+1:]
	}
}
