package h1

import (
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tallywheel/tallywheel/internal/http1"
)

// exchange is a request with its answer. Handlers may keep the request, and what belongs to it, for
// as long as they like; so it is never used again. What is used again, the response, is theirs only
// until they return: then w is nil, and whoever still writes hears of it.
//
// Each request makes one, and garbage of it, so it is as small as can be: 480 bytes on 64-bit
// machines, of which 448 are net/http's.
type exchange struct {
	req  http.Request
	url  url.URL
	from *origin
	end  atomic.Pointer[ending] // of the request's context; nil: nobody has asked

	mu sync.Mutex // held during each call of the writer
	w  *response
}

// origin is where requests come from.
type origin struct {
	s *Session
	c Stream // of that request: not Session.c, which may change
}

func (x *exchange) ctx() *requestContext { return (*requestContext)(x) }

// detach takes the response away from the handler. A call that is under way elsewhere is waited
// for.
func (x *exchange) detach() {
	x.mu.Lock()
	x.w = nil
	x.mu.Unlock()
}

// request makes the request of a head that was parsed.
func (s *Session) request(head []byte) (*exchange, error) {
	h := &s.head
	x := &exchange{from: s.from}
	x.ctx().follow(s.Context)
	x.req = *emptyRequest.WithContext(x.ctx()) // only package http can give it one
	r := &x.req
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
	var values []string // one memory for the values of all fields
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
		if values == nil {
			values = make([]string, len(h.Fields)-i)
		}
		values[0] = part(f.Value)
		r.Header[key] = values[:1:1]
		values = values[1:]
	}
	// as net/http
	if r.Header["Pragma"] != nil && r.Header["Pragma"][0] == "no-cache" && r.Header["Cache-Control"] == nil {
		r.Header["Cache-Control"] = []string{"no-cache"}
	}
	r.ContentLength = h.Length
	r.Close = h.Close || h.Minor == 0 && !h.Keeps
	if s.remote == "" {
		s.remote = s.c.RemoteAddr().String()
	}
	r.RemoteAddr = s.remote
	if s.Secure != nil {
		s.Secure(r)
	}
	x.w = s.response(x)
	return x, x.w.setBody()
}

var emptyRequest = &http.Request{}

// setURL parses the target. The plain ones, which nothing in them needs unescaping or escaping, are
// not worth a parser.
func (x *exchange) setURL() error {
	r := &x.req
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
		t[c] = '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' ||
			strings.IndexByte("-_.~$&+,/:;=@", byte(c)) >= 0
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

// headerText reports whether a value may stand in a header field, and gives it without what may
// not.
func headerText(v string) string {
	if strings.IndexByte(v, '\n') >= 0 || strings.IndexByte(v, '\r') >= 0 {
		v = strings.NewReplacer("\n", " ", "\r", " ").Replace(v)
	}
	return textproto.TrimString(v)
}
