package h1

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/internal/http1"
)

// Session speaks HTTP/1.1 on a connection. It is one goroutine's, or one coroutine's.
type Session struct {
	Secure    func(*http.Request)    // fills in what TLS knows; nil without
	Context   context.Context        // of the connection
	State     func(s http.ConnState) // told of the connection's state; may be nil
	Began     time.Time              // when the connection came; zero: when Serve is called
	Coroutine bool                   // it must not wait but by giving way

	cfg *Config
	c   Stream

	head    http1.Head
	buf     []byte // input is buf[lo:hi]
	lo, hi  int
	from    *origin // of requests that come now
	block   *sessionBlock
	out     output
	between lead // what came between two requests
	remote  string
	began   int64     // when the head was whole, as Stream.Came
	asked   time.Time // when the request under way began; zero if no time-out needs it

	peerLeft  atomic.Bool
	left      func() // gone, made once
	answered  bool   // a request
	uncounted int    // answers that Stream.Count does not know of yet
	hijacked  bool   // a handler has taken the connection over
	active    bool   // State was told so
	idling    bool   // Serve has returned ErrIdle
	pending   int    // length of a head that was parsed by a coroutine, and is to be answered on a goroutine
}

// sessionBlock is what a session has only while it has something to do.
type sessionBlock struct {
	w response // of one request after the other; first, since the collector looks no further than the last pointer

	fields [16]http1.Field // more are on the heap
	in     [4 << 10]byte
	out    [4 << 10]byte
	body   [heldBody]byte
}

var sessionBlocks = sync.Pool{New: func() any { return new(sessionBlock) }}

// NewSession makes a session on a stream.
func NewSession(cfg *Config, c Stream) *Session {
	s := &Session{cfg: cfg, c: c, Context: context.Background()}
	s.left, s.from = s.gone, &origin{s, c}
	return s
}

// Move gives the session another stream of the same connection, on a goroutine.
func (s *Session) Move(c Stream) { s.c, s.from, s.Coroutine = c, &origin{s, c}, false }

// Serve answers requests until the connection is over, whose end it has seen to. ErrPromote asks to
// be called again on a goroutine, ErrIdle when there is input, both only of a coroutine.
func (s *Session) Serve() error {
	s.c.OnGone(s.left)
	defer s.count()
	for {
		n, err := s.readHead()
		switch {
		case err == ErrPromote, err == ErrIdle:
			return err
		case err != nil:
			if s.lo < s.hi {
				s.tell(http.StateActive)
			}
			s.giveUp(err)
			return err
		}
		s.tell(http.StateActive)
		keep, err := s.answer(n)
		switch {
		case err == errHijacked:
			s.release()
			return err
		case err != nil && refused(err):
			s.giveUp(err)
			return err
		case err != nil || !keep || s.cfg.Closes():
			return s.leave(err)
		}
		s.tell(http.StateIdle)
	}
}

// refused reports whether err is a request that cannot be answered.
func refused(err error) bool {
	var e *http1.Error
	return errors.As(err, &e)
}

// tell tells of the connection's state where somebody wants to know.
func (s *Session) tell(state http.ConnState) {
	if s.State != nil && (state != http.StateActive || !s.active) {
		s.active = state == http.StateActive
		s.State(state)
	}
}

func (s *Session) leave(err error) error {
	polite := err == nil && !s.head.KeepAlive() && s.lo == s.hi // the client expects the end, and has sent nothing more
	if polite {
		_ = s.out.flushLast(s.c)
	} else {
		_ = s.out.flush(s.c)
	}
	_ = s.c.End(!polite) // the client may still be sending: a reset would take the answer from it
	s.release()
	return errLeave
}

// Hijacked reports whether a handler has taken the connection over.
func (s *Session) Hijacked() bool { return s.hijacked }

// counts takes note of an answer.
func (s *Session) counts(w *response) {
	s.answered = true
	if w.events {
		s.c.Count(s.began, 1, false)
	} else if s.uncounted++; s.lo == s.hi || w.closeAfter || s.Coroutine {
		s.count()
	}
}

// count counts what was answered: pipelined requests, whose answers go out together, together.
func (s *Session) count() {
	if n := s.uncounted; n > 0 {
		s.uncounted = 0
		s.c.Count(s.began, n, true)
	}
}

// gone is called, from elsewhere, when the client has left.
func (s *Session) gone() {
	s.peerLeft.Store(true)
	s.out.cancel()
}

// borrow takes memory to work with.
func (s *Session) borrow() {
	if s.block == nil {
		s.block = sessionBlocks.Get().(*sessionBlock)
		s.buf, s.head.Fields = s.block.in[:], s.block.fields[:0]
		s.out.take(s.block.out[:0])
	}
}

func (s *Session) release() {
	if s.block != nil {
		s.out.take(nil)
		sessionBlocks.Put(s.block)
		s.block, s.buf, s.lo, s.hi = nil, nil, 0, 0
		s.head = http1.Head{}
	}
}

// readHead reads until a head is whole, and returns its length. What must come by when:
//
//	what there is                        the deadline        it counts from
//	an answer is being written           none: WriteTimeout acts
//	nothing yet of the first request     ReadHeaderTimeout   the connection's beginning
//	a part of the first head             ReadHeaderTimeout   the connection's beginning
//	behind an answer less than 4 bytes   IdleTimeout         the answer's end
//	nothing or that, and a server ends   DuckFor             that, or Drain: WaitInput sees to it
//	4 bytes of a later head              ReadHeaderTimeout   the 4th byte, or the answer's end
//	a part of a head, and a server ends  HeadFor             as before; DuckFor at least: AwaitHead sees to it
//	a head, and not all of the body      ReadTimeout         as the head's
//
// An answer has its end when the stream has taken all of it: deadlines are set behind the flush.
func (s *Session) readHead() (int, error) {
	if s.pending > 0 {
		n := s.pending
		s.pending = 0
		return n, nil
	}
	s.head.Reset()
	waits := s.idling || s.lo == s.hi // a time for the next request to come is set, or is by idle
	if s.lo == s.hi {
		if err := s.idle(); err != nil {
			return 0, err
		}
	}
	for timed := false; ; {
		begun := timed || s.hi-s.lo >= leastRequest || !s.answered
		n, err := s.parse()
		if err != nil {
			return 0, err
		}
		if n > 0 {
			if !timed {
				s.headDeadline()
			} else {
				s.headCame()
			}
			return s.whole(n)
		}
		s.count()
		if err := s.out.flush(s.c); err != nil {
			return 0, err
		}
		switch {
		case !begun: // still the wait for a request
			if err := s.idleOn(waits); err != nil {
				return 0, err
			}
			waits = true
		case !timed:
			timed = true
			s.headDeadline()
			s.c.AwaitHead(true)
		}
		if err := s.fill(); err != nil {
			return 0, s.cut(err)
		}
	}
}

// parse looks for a head at the start of what there is, and returns its length; 0: it is not whole.
func (s *Session) parse() (int, error) {
	skip, wait := s.between.skip(s.buf[s.lo:s.hi])
	s.lo += skip
	if wait || s.hi-s.lo < leastRequest && s.answered {
		return 0, nil
	}
	return s.head.Parse(s.buf[s.lo:s.hi], s.cfg.MaxHeaderBytes)
}

// whole goes on from a whole head of n bytes.
func (s *Session) whole(n int) (int, error) {
	if came := s.c.Came(); came != s.began {
		s.count()
		s.began = came
	}
	if s.head.Upgrade && s.Coroutine {
		s.pending = n
		return 0, ErrPromote
	}
	s.bodyDeadline()
	return n, nil
}

// cut says what the failure to read more of a head means for the client.
func (s *Session) cut(err error) error {
	if s.hi > s.lo && (s.hi-s.lo >= leastRequest || !s.answered) {
		switch {
		case err == io.EOF:
			return errCut
		case errors.Is(err, os.ErrDeadlineExceeded):
			return errSlow
		}
	}
	return err
}

// idle waits for the next request, without memory to work with.
func (s *Session) idle() error {
	if !s.idling {
		if err := s.out.flush(s.c); err != nil {
			return err
		}
		s.release()
		since, wait := time.Now(), s.cfg.IdleTimeout
		if !s.answered { // the first request has begun with the connection
			if !s.Began.IsZero() {
				since = s.Began
			}
			s.asked, wait = since, s.cfg.ReadHeaderTimeout
		}
		if wait > 0 {
			_ = s.c.SetReadDeadline(since.Add(wait))
		}
	}
	err := s.waitInput()
	if err == nil {
		s.borrow()
	}
	return err
}

// idleOn waits for the next request where less than leastRequest bytes are there, which it keeps.
// The stream must know of the wait, or the end of the server would not end it.
func (s *Session) idleOn(timed bool) error {
	if d := s.cfg.IdleTimeout; d > 0 && !timed {
		_ = s.c.SetReadDeadline(time.Now().Add(d))
	}
	return s.waitInput()
}

// waitInput waits between requests. ErrIdle: it must not be here.
func (s *Session) waitInput() error {
	ready, err := s.c.WaitInput()
	if s.idling = !ready; s.idling {
		return ErrIdle
	}
	return err
}

// headDeadline sets the time by which the head must be there.
func (s *Session) headDeadline() {
	cfg := s.cfg
	switch {
	case cfg.ReadHeaderTimeout > 0 || cfg.ReadTimeout > 0:
		if s.answered || s.asked.IsZero() {
			s.asked = time.Now()
		}
		s.setReadDeadline(cfg.ReadHeaderTimeout)
	case cfg.IdleTimeout > 0 || s.c.Draining(): // a server that ends has set a time for the request to come
		_ = s.c.SetReadDeadline(time.Time{})
	}
}

// headCame ends what AwaitHead began: a body may take its time although the server ends.
func (s *Session) headCame() {
	s.c.AwaitHead(false)
	if s.c.Draining() {
		_ = s.c.SetReadDeadline(time.Time{})
	}
}

// bodyDeadline sets the time by which the rest of the request must be there.
func (s *Session) bodyDeadline() {
	if s.cfg.ReadTimeout > 0 || s.cfg.ReadHeaderTimeout > 0 {
		s.setReadDeadline(s.cfg.ReadTimeout)
	}
}

// setReadDeadline sets a time-out that counts from the request's beginning; 0 is none.
func (s *Session) setReadDeadline(d time.Duration) {
	var by time.Time
	if d > 0 {
		by = s.asked.Add(d)
	}
	_ = s.c.SetReadDeadline(by)
}

// fill reads more of a head, whose bytes stay together.
func (s *Session) fill() error {
	if s.lo > 0 {
		s.hi = copy(s.buf, s.buf[s.lo:s.hi])
		s.lo = 0
	}
	if s.hi == len(s.buf) {
		larger := make([]byte, min(2*len(s.buf), s.cfg.MaxHeaderBytes+1))
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

// read reads input that is not a head, of which left bytes are to come: what is buffered first.
func (s *Session) read(p []byte, left int64) (int, error) {
	if s.lo < s.hi {
		n := copy(p, s.buf[s.lo:s.hi])
		s.lo += n
		return n, nil
	}
	return s.c.ReadPart(p, left)
}

// more reads into the buffer, keeping what is in it.
func (s *Session) more() error {
	if s.lo == s.hi {
		s.lo, s.hi = 0, 0
	}
	return s.fill()
}

const errorWithin = 5 * time.Second // for a client to take the answer to what is no request

// giveUp ends a connection whose input is not a request, and says so to the client if it sent one.
func (s *Session) giveUp(err error) {
	var e *http1.Error
	linger := errors.As(err, &e)
	if linger {
		s.borrow()
		_ = s.c.SetWriteDeadline(time.Now().Add(errorWithin))
		_ = s.out.put(s.c, errorAnswer(e))
		_ = s.out.flush(s.c)
	} else if !errors.Is(err, os.ErrDeadlineExceeded) {
		_ = s.out.flush(s.c)
	}
	_ = s.c.End(linger)
	s.release()
}

// answer runs the handler for the request whose head is the next n bytes. It reports whether the
// connection can be used on.
func (s *Session) answer(n int) (keep bool, err error) {
	x, err := s.request(s.buf[s.lo : s.lo+n])
	s.lo += n
	if err != nil {
		return false, err
	}
	s.between = lead{afterPost: x.req.Method == http.MethodPost}
	if d := s.cfg.WriteTimeout; d > 0 {
		_ = s.c.SetWriteDeadline(time.Now().Add(d))
	}
	s.out.begin(x.ctx())
	if s.peerLeft.Load() {
		x.ctx().cancel()
	}
	w := x.w
	ok := false
	defer func() {
		switch {
		case ok:
		case w.hijacked: // the connection is not ours any more
			x.detach()
			x.ctx().cancel()
			w.asked.end()
		default: // a panic, or runtime.Goexit: what was handed over goes out, and what is held back does not
			x.detach()
			x.ctx().cancel()
			_ = s.out.flush(s.c)
			_ = s.c.End(true) // whoever still reads the body comes back …
			w.asked.end()     // … and cannot begin again: the memory is another session's soon
		}
	}()
	if ok = s.call(x); !ok && w.hijacked {
		return false, errHijacked
	} else if !ok {
		return false, errAborted
	}
	x.detach() // from now on the handler's writes are refused
	if w.hijacked {
		w.asked.end()
		x.ctx().cancel()
		s.out.current.Store(nil)
		return false, errHijacked
	}
	w.asked.interrupt(w)
	err = w.finish()
	unread := w.asked.end()
	x.ctx().cancel()
	s.out.current.Store(nil)
	if f := x.req.MultipartForm; f != nil {
		_ = f.RemoveAll()
	}
	s.counts(w)
	if w.timed { // the handler's deadlines were for this request
		_ = s.c.SetDeadline(time.Time{})
	}
	switch {
	case err != nil:
		return false, err
	case unread:
		return false, errUnread
	case w.closeAfter:
		return false, nil // what the client was told
	}
	return true, s.handOver()
}

// handOver lets the answer go: at once on a coroutine, where the loop sends it with the others of
// its turn; on a goroutine when it waits, or after a moment if the next request is there already,
// so that answers to pipelined requests share a call.
func (s *Session) handOver() error {
	if s.Coroutine {
		return s.out.flush(s.c)
	}
	if s.lo < s.hi {
		return s.out.later(s.c)
	}
	return nil
}

// call runs the handler. A panic ends the connection and nothing else.
func (s *Session) call(x *exchange) (ok bool) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			s.cfg.Log.Error("a handler panicked", "method", x.req.Method, "path", x.req.URL.Path, "panic", p, "stack",
				string(debug.Stack()))
		}
	}()
	h := s.cfg.Handler
	if x.req.Method == http.MethodOptions && x.req.RequestURI == "*" && !s.cfg.PlainSlash {
		h = http.HandlerFunc(allOptions)
	}
	h.ServeHTTP((*writer)(x), &x.req)
	returned = true
	return true
}

// allOptions answers OPTIONS * as net/http does.
func allOptions(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", "0")
	if r.ContentLength != 0 {
		_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 4<<10))
	}
}
