package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/internal/http1"
)

// stream is a connection with what a session asks of it beyond net.Conn.
type stream interface {
	net.Conn
	waitInput() error // waits until there is something to read
	onGone(func())    // asks for a call when the peer has left
	draining() bool   // the server is going to end
	came() int64      // when the newest input came, as Server.clock
	takeOver()        // a handler has the connection from now on
	end(linger bool) error
	count(answered int64) // a request was answered that came at that time
}

// session speaks HTTP/1.1 on a connection. It is one goroutine's, or one coroutine's.
type session struct {
	srv     *Server
	c       stream
	handler http.Handler
	secure  func(*http.Request) // fills in what TLS knows; nil without

	head     http1.Head
	buf      []byte // input is buf[lo:hi]
	lo, hi   int
	block    *sessionBlock
	out      []byte // output that was not handed over
	lastPost bool
	remote   string
	began    int64 // when the head was whole, as Server.clock

	current   atomic.Pointer[requestContext]
	peerLeft  atomic.Bool
	left      func() // gone, made once
	answered  bool   // a request
	coroutine bool   // it must not wait but by giving way
	idling    bool   // serve has returned errIdle
	pending   int    // length of a head that was parsed by a coroutine, and is to be answered on a goroutine
}

// sessionBlock is what a session has only while it has something to do.
type sessionBlock struct {
	in   [4 << 10]byte
	out  [4 << 10]byte
	body [2 << 10]byte
	w    response // of coroutines, one after the other

	fields [16]http1.Field // more are on the heap
}

var sessionBlocks = sync.Pool{New: func() any { return new(sessionBlock) }}

// What ends a session.
var (
	errIdle     = errors.New("there is nothing to do until more input comes")
	errPromote  = errors.New("the request needs a goroutine")
	errHijacked = errors.New("the handler has taken the connection over")
	errLeave    = errors.New("the connection is over")
	errCut      = &http1.Error{Status: http.StatusBadRequest, Reason: "the request ended in its middle"}
)

// Limits of net/http that are its handlers' expectations.
const (
	maxPostHandlerRead = 256 << 10 // of a body that the handler did not read
	autoLengthLimit    = 2 << 10   // answers up to that get a Content-Length
	leastRequest       = 4         // bytes behind an answer: fewer are not looked at, and end without a word
)

func newSession(s *Server, c stream) *session {
	sess := &session{srv: s, c: c, handler: s.cfg.Handler}
	sess.left = sess.gone
	return sess
}

// serve answers requests until the connection is over. errPromote asks to be called again on a goroutine.
func (s *session) serve() error {
	s.c.onGone(s.left)
	for {
		n, err := s.readHead()
		switch {
		case err == errPromote, err == errIdle:
			return err
		case err != nil:
			s.giveUp(err)
			return err
		}
		keep, err := s.answer(n)
		var refused *http1.Error
		switch {
		case err == errHijacked:
			s.release()
			return err
		case errors.As(err, &refused):
			s.giveUp(err)
			return err
		case err != nil || !keep:
			return s.leave(err)
		}
	}
}

func (s *session) leave(err error) error {
	if e := s.flush(); err == nil {
		err = e
	}
	_ = s.c.end(err != errAborted) // the client may still be sending: a reset would take the answer from it
	s.release()
	return errLeave
}

var (
	errUnread  = errors.New("the request was not read to its end")
	errAborted = errors.New("the handler panicked")
)

// gone is called, from elsewhere, when the client has left.
func (s *session) gone() {
	s.peerLeft.Store(true)
	if x := s.current.Load(); x != nil {
		x.cancel()
	}
}

// borrow takes memory to work with.
func (s *session) borrow() {
	if s.block == nil {
		s.block = sessionBlocks.Get().(*sessionBlock)
		s.buf, s.out, s.head.Fields = s.block.in[:], s.block.out[:0], s.block.fields[:0]
	}
}

func (s *session) release() {
	if s.block != nil {
		sessionBlocks.Put(s.block)
		s.block, s.buf, s.out, s.lo, s.hi = nil, nil, nil, 0, 0
		s.head = http1.Head{}
	}
}

// readHead reads until a head is whole, and returns its length.
func (s *session) readHead() (int, error) {
	if s.pending > 0 {
		n := s.pending
		s.pending = 0
		return n, nil
	}
	cfg := &s.srv.cfg
	s.head.Reset()
	if s.lo == s.hi {
		if err := s.idle(); err != nil {
			return 0, err
		}
	}
	if cfg.ReadHeaderTimeout > 0 {
		_ = s.c.SetReadDeadline(time.Now().Add(cfg.ReadHeaderTimeout))
	} else if cfg.IdleTimeout > 0 {
		_ = s.c.SetReadDeadline(time.Time{})
	}
	for {
		if s.lastPost && s.lo < s.hi { // tolerance for old clients that end a body with CR LF
			for i := 0; i < 4 && s.lo < s.hi && (s.buf[s.lo] == '\r' || s.buf[s.lo] == '\n'); i++ {
				s.lo++
			}
			s.lastPost = s.lo == s.hi
		}
		n, err := 0, error(nil)
		if s.hi-s.lo >= leastRequest || !s.answered {
			n, err = s.head.Parse(s.buf[s.lo:s.hi], cfg.MaxHeaderBytes)
		}
		if err != nil {
			return 0, err
		}
		if n > 0 {
			s.began = s.c.came()
			if s.head.Upgrade && s.coroutine {
				s.pending = n
				return 0, errPromote
			}
			if cfg.ReadTimeout > 0 || cfg.ReadHeaderTimeout > 0 {
				s.bodyDeadline()
			}
			return n, nil
		}
		if err := s.flush(); err != nil {
			return 0, err
		}
		if err := s.fill(); err != nil {
			if err == io.EOF && s.hi > s.lo && (s.hi-s.lo >= leastRequest || !s.answered) {
				err = errCut
			}
			return 0, err
		}
	}
}

// idle waits for the next request, without memory to work with.
func (s *session) idle() error {
	if !s.idling {
		if err := s.flush(); err != nil {
			return err
		}
		s.release()
		if d := s.srv.cfg.IdleTimeout; d > 0 {
			_ = s.c.SetReadDeadline(time.Now().Add(d))
		}
	}
	err := s.c.waitInput()
	if s.idling = err == errIdle; err == nil {
		s.borrow()
	}
	return err
}

// bodyDeadline sets the time by which the rest of the request must be there.
func (s *session) bodyDeadline() {
	var by time.Time
	if d := s.srv.cfg.ReadTimeout; d > 0 {
		by = time.Now().Add(d)
	}
	_ = s.c.SetReadDeadline(by)
}

// fill reads more of a head, whose bytes stay together.
func (s *session) fill() error {
	if s.lo > 0 {
		s.hi = copy(s.buf, s.buf[s.lo:s.hi])
		s.lo = 0
	}
	if s.hi == len(s.buf) {
		larger := make([]byte, min(2*len(s.buf), s.srv.cfg.MaxHeaderBytes+1))
		if len(larger) <= s.hi {
			larger = make([]byte, s.hi+1) // Parse refuses it
		}
		copy(larger, s.buf)
		s.buf = larger
	}
	n, err := s.c.Read(s.buf[s.hi:])
	s.hi += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// read reads input that is not a head: what is buffered first.
func (s *session) read(p []byte) (int, error) {
	if s.lo < s.hi {
		n := copy(p, s.buf[s.lo:s.hi])
		s.lo += n
		return n, nil
	}
	return s.c.Read(p)
}

// more reads into the buffer, keeping what is in it.
func (s *session) more() error {
	if s.lo == s.hi {
		s.lo, s.hi = 0, 0
	}
	return s.fill()
}

// put adds output.
func (s *session) put(b []byte) error {
	if len(s.out)+len(b) <= cap(s.out) {
		s.out = append(s.out, b...)
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	if len(b) >= cap(s.out) {
		_, err := s.c.Write(b)
		return err
	}
	s.out = append(s.out, b...)
	return nil
}

// flush hands the output over.
func (s *session) flush() error {
	if len(s.out) == 0 {
		return nil
	}
	_, err := s.c.Write(s.out)
	s.out = s.out[:0]
	return err
}

// giveUp ends a connection whose input is not a request, and says so to the client if it sent one.
func (s *session) giveUp(err error) {
	var e *http1.Error
	linger := errors.As(err, &e)
	if linger {
		s.borrow()
		_ = s.put(errorAnswer(e))
		_ = s.flush()
	} else if len(s.out) > 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
		_ = s.flush()
	}
	_ = s.c.end(linger)
	s.release()
}

// errorAnswer is the answer to a request that cannot be understood, in the words of net/http.
func errorAnswer(e *http1.Error) []byte {
	line := fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status))
	return fmt.Appendf(nil, "HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n%s: %s", line, line, e.Reason)
}

// answer runs the handler for the request whose head is the next n bytes. It reports whether the connection can be used on.
func (s *session) answer(n int) (keep bool, err error) {
	x, err := s.request(s.buf[s.lo : s.lo+n])
	s.lo += n
	if err != nil {
		return false, err
	}
	s.lastPost = x.req.Method == http.MethodPost
	if d := s.srv.cfg.WriteTimeout; d > 0 {
		_ = s.c.SetWriteDeadline(time.Now().Add(d))
	}
	s.current.Store(&x.ctx)
	if s.peerLeft.Load() {
		x.ctx.cancel()
	}
	if err := s.flush(); err != nil { // what was answered before shall not wait for this handler
		return false, err
	}
	ok := s.call(x)
	if x.w.hijacked {
		s.current.Store(nil)
		return false, errHijacked
	}
	if !ok {
		x.ctx.cancel()
		return false, errAborted
	}
	err = x.w.finish()
	unread := x.body.end()
	x.ctx.cancel()
	s.current.Store(nil)
	if f := x.req.MultipartForm; f != nil {
		_ = f.RemoveAll()
	}
	s.answered = true
	s.c.count(s.began)
	if err != nil {
		return false, err
	}
	if unread {
		return false, errUnread
	}
	return !x.w.closeAfter, nil // what the client was told
}

// call runs the handler. A panic ends the connection and nothing else.
func (s *session) call(x *exchange) (ok bool) {
	defer func() {
		if ok {
			return
		}
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			s.srv.log.Error("a handler panicked", "method", x.req.Method, "path", x.req.URL.Path, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	h := s.handler
	if x.req.Method == http.MethodOptions && x.req.RequestURI == "*" && s.srv.cfg.Lean == nil {
		h = http.HandlerFunc(allOptions)
	}
	h.ServeHTTP(x.w, x.req)
	return true
}

// allOptions answers OPTIONS * as net/http does.
func allOptions(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", "0")
	if r.ContentLength != 0 {
		_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 4<<10))
	}
}
