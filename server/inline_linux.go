package server

import (
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/tallywheel/tallywheel/internal/http1"
)

// inline answers requests where they arrive: in the loop, in the memory of the driver. Only what is not whole is copied.
type inline struct {
	c        *conn
	held     []byte // a request that is not whole
	head     *http1.Head
	n        int           // length of the head of held, once it is whole
	body     *http1.Chunks // of a chunked body …
	whole    []byte        // … its bytes so far …
	seen     int           // … and what of held they took
	duck     bool
	wrote    bool // 100 Continue
	post     bool // the last request was a POST
	answered bool // a request
}

// inlineTools are what requests need while they are looked at: one set for each loop.
type inlineTools struct {
	head http1.Head
	resp LeanResponse
	req  LeanRequest
}

func newInline(c *conn) *inline { return &inline{c: c} }

func (a *inline) begin() { a.deadline(true) }

// deadline sets the time for the next request to come, or for one that has begun to be whole.
func (a *inline) deadline(idle bool) {
	cfg := &a.c.l.srv.cfg
	d := cfg.IdleTimeout
	if !idle {
		d = cfg.ReadTimeout
		if a.n == 0 {
			d = cfg.ReadHeaderTimeout
		}
	}
	a.c.readBy = 0
	if d > 0 {
		a.c.readBy = a.c.l.now + int64(d)
		a.c.watch()
	}
}

func (a *inline) input(b []byte) {
	began := len(a.held) == 0
	if !began {
		a.held = append(a.held, b...)
		b = a.held
	}
	rest := a.serve(b)
	switch {
	case a.c.state != open:
		a.drop()
	case len(rest) == 0:
		if !began || a.c.readBy > 0 || a.c.l.srv.cfg.IdleTimeout > 0 {
			a.deadline(true)
		}
		a.drop()
	case began || len(rest) < len(b):
		a.held = append(a.held[:0], rest...)
		a.deadline(false)
	}
	if a.seen > 0 { // what was taken out of a chunked body needs no second place
		a.held = append(a.held[:a.n], a.held[a.n+a.seen:]...)
		a.seen = 0
	}
}

func (a *inline) drop() {
	a.held, a.head, a.n, a.body, a.whole, a.seen = nil, nil, 0, nil, nil, 0
}

// serve answers the requests that are whole and returns what is left.
func (a *inline) serve(b []byte) []byte {
	l := a.c.l
	for len(b) > 0 {
		if a.c.queued > maxQueued { // the client does not take its answers: it gets no more until it does
			a.c.hold()
			return b
		}
		head := a.head
		if head == nil {
			for i := 0; a.post && i < 4 && len(b) > 0 && (b[0] == '\r' || b[0] == '\n'); i++ { // as net/http for old clients
				b = b[1:]
			}
			head = &l.tools.head
			head.Reset()
		}
		n, err := a.n, error(nil)
		if n == 0 && (len(b) >= leastRequest || !a.answered) {
			n, err = head.Parse(b, l.srv.cfg.MaxHeaderBytes)
		}
		if err != nil {
			a.refuse(err)
			return nil
		}
		if n == 0 {
			if a.head == nil { // it has to outlive this turn
				a.head = &http1.Head{}
				*a.head, l.tools.head = *head, http1.Head{}
			}
			return b
		}
		body, size, err := a.bodyOf(head, b[n:])
		if err != nil {
			a.refuse(err)
			return nil
		}
		if size < 0 { // the body is not whole
			if a.head == nil {
				a.head = &http1.Head{}
				*a.head, l.tools.head = *head, http1.Head{}
			}
			a.n = n
			return b
		}
		keep := a.answer(head, b[:n], body)
		b = b[n+size:]
		a.head, a.n, a.body, a.whole, a.seen, a.wrote = nil, 0, nil, nil, 0, false
		if !keep {
			a.c.finish(true)
			return nil
		}
	}
	return nil
}

var errBodyTooLarge = &http1.Error{Status: http.StatusRequestEntityTooLarge, Reason: "body too large"}

// bodyOf finds the body behind a head: its bytes, and how many of b it takes; negative if it is not whole.
func (a *inline) bodyOf(h *http1.Head, b []byte) (body []byte, size int, err error) {
	max := a.c.l.srv.cfg.MaxBodyBytes
	if !h.Chunked {
		if h.Length > max {
			return nil, 0, errBodyTooLarge
		}
		if int64(len(b)) < h.Length {
			a.encourage(h)
			return nil, -1, nil
		}
		return b[:h.Length], int(h.Length), nil
	}
	if a.body == nil {
		a.body = &http1.Chunks{}
	}
	for { // what was looked at before is not looked at again
		skip, data, err := a.body.Next(b[a.seen:])
		a.seen += skip
		switch {
		case err != nil:
			return nil, 0, err
		case data > 0:
			if int64(len(a.whole)+data) > max {
				return nil, 0, errBodyTooLarge
			}
			a.whole = append(a.whole, b[a.seen:a.seen+data]...)
			a.body.Took(data)
			a.seen += data
		case a.body.Done():
			return a.whole, a.seen, nil
		default:
			a.encourage(h)
			return nil, -1, nil
		}
	}
}

// encourage sends a 100-continue to a client that waits for it.
func (a *inline) encourage(h *http1.Head) {
	if h.Continue && !a.wrote {
		a.wrote = true
		a.c.write([]byte("HTTP/1.1 100 Continue\r\n\r\n"))
	}
}

// answer calls the handler and writes what it says.
func (a *inline) answer(h *http1.Head, head, body []byte) (keep bool) {
	l := a.c.l
	w, r := &l.tools.resp, &l.tools.req
	w.reset()
	r.head, r.h, r.body = head, h, body
	keep = h.KeepAlive() && !a.duck
	if !a.call(w, r) {
		a.c.kill(nil)
		return true
	}
	keep = keep && !w.close
	a.post = string(r.Method()) == http.MethodPost
	isHead := string(r.Method()) == http.MethodHead
	room := a.c.space(512 + len(w.fields) + len(w.body))
	out := w.appendTo(room[:0], l.srv.dateFor(l), h.Minor, isHead, keep, h.Keep)
	if len(out) <= len(room) && &out[0] == &room[0] {
		a.c.wrote(len(out))
	} else {
		a.c.write(out)
	}
	a.answered = true
	l.tally.requests++
	l.answers++
	if d := l.srv.cfg.WriteTimeout; d > 0 {
		a.c.writeBy = l.now + int64(d)
		a.c.watch()
	}
	return keep
}

func (a *inline) call(w *LeanResponse, r *LeanRequest) (ok bool) {
	defer func() {
		if ok {
			return
		}
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			a.c.l.srv.log.Error("a handler panicked", "target", string(r.Target()), "panic", p, "stack", string(debug.Stack()))
		}
	}()
	a.c.l.srv.cfg.Lean(w, r)
	return true
}

// refuse answers what is not a request, and ends the connection.
func (a *inline) refuse(err error) {
	var e *http1.Error
	if errors.As(err, &e) {
		a.c.write(errorAnswer(e))
	}
	a.c.finish(true)
}

func (a *inline) ended(err error) {
	switch {
	case err != io.EOF || a.c.state != open || a.c.held: // held: whole requests wait for room
	case len(a.held) >= leastRequest || len(a.held) > 0 && !a.answered:
		a.refuse(errCut)
	default:
		a.c.finish(false)
	}
}

func (a *inline) sent() {
	if a.c.queued == 0 {
		a.c.writeBy = 0
	}
	if a.c.held && a.c.queued < maxQueued/2 && a.c.state == open {
		held := a.held
		a.held = nil
		if len(held) > 0 {
			a.input(held)
		}
		if a.c.state == open && a.c.queued < maxQueued {
			a.c.resume()
			if a.c.eof { // it came while the client was held back
				a.ended(io.EOF)
			}
		}
	}
}

func (a *inline) writable() {}
func (a *inline) refresh()  {}

func (a *inline) expired() {
	if a.c.queued > 0 && a.c.writeBy > 0 && a.c.writeBy <= a.c.l.now {
		a.c.kill(errTooSlow)
		return
	}
	if a.c.readBy > 0 && a.c.readBy <= a.c.l.now {
		a.c.finish(false)
	}
}

func (a *inline) posted() {}

func (a *inline) drain() {
	a.duck = true
	if len(a.held) == 0 {
		a.c.readBy = a.c.l.now + int64(duckFor)
		a.c.watch()
	}
}

func (a *inline) mayClose() bool { return true }
func (a *inline) closed()        { a.drop() }

// dateFor is date for a loop, which looks at the clock once a turn anyway.
func (s *Server) dateFor(l *loop) []byte {
	if second := l.now / int64(time.Second); second != l.second || l.today == nil {
		l.second, l.today = second, s.date(l.now)
	}
	return l.today
}
