package h1

import (
	"errors"
	"io"
	"math"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/internal/http1"
	"github.com/tallywheel/tallywheel/server/internal/loop"
)

// LeanHandler answers a request whose body is whole, by filling a. All arguments are valid until it
// returns.
type LeanHandler interface {
	Answer(head []byte, h *http1.Head, body []byte, a *Answer)
}

// Tools are what the inline sessions of one loop share.
type Tools struct {
	Config  *Config
	Handler LeanHandler
	Budget  *Budget
	Answers int64 // since somebody took them away: their latency is that of the turn

	head   http1.Head
	answer Answer
	second int64 // of today
	today  []byte
}

// Budget bounds the memory for bodies of requests that are not whole, of all loops together.
type Budget struct {
	Limit int64
	used  atomic.Int64
}

// take takes n bytes, and reports whether there are as many.
func (b *Budget) take(n int) bool {
	if b.used.Add(int64(n)) <= b.Limit {
		return true
	}
	b.used.Add(-int64(n))
	return false
}

func (b *Budget) give(n int) { b.used.Add(-int64(n)) }

// Inline answers requests where they arrive: in the loop, in the memory of the driver. Only what is
// not whole is copied: the head stays in the input until it is whole; then it moves to text, and
// the body grows in memory of the loop.
type Inline struct {
	c *loop.Conn
	t *Tools

	in       loop.Input
	head     *http1.Head // of the request that is not whole
	text     []byte      // its head, once that is whole
	body     []byte      // what has come of its body
	paid     int         // of the budget
	chunks   *http1.Chunks
	began    int64 // what the deadline counts from; see deadline
	stage    stage
	wrote    bool  // 100 Continue
	lead     lead  // what came between two requests
	answered bool  // a request
	due      bool  // an answer, or its rest, is still to be sent
	drained  int64 // when Drain was called; 0: it was not
}

// stage is how much of a request has come.
type stage uint8

const (
	idle stage = iota
	inHead
	inBody
)

// NewInline makes the App of a connection.
func NewInline(c *loop.Conn, t *Tools) *Inline { return &Inline{c: c, t: t} }

// Begin implements loop.App.
func (a *Inline) Begin() {
	a.began = a.c.Loop().Now() // of the first request as well
	a.deadline()
}

// Input implements loop.App.
func (a *Inline) Input(b loop.Lent) {
	a.in.Lend(b)
	a.serve()
	a.in.Settle()
	if a.c.Alive() {
		a.deadline()
	} else {
		a.drop()
	}
}

// deadline sets the time by which the client must have sent more:
//
//	what there is                        the deadline              it counts from
//	answers are due                      none: WriteTimeout acts
//	nothing yet of the first request     ReadHeaderTimeout         the connection's beginning
//	a part of the first head             ReadHeaderTimeout         the connection's beginning
//	behind an answer less than 4 bytes   IdleTimeout               the answer's end
//	nothing or that, and Drain came      DuckFor                   that, or Drain if it came later
//	4 bytes of a later head              ReadHeaderTimeout         the 4th byte
//	a part of a head, and Drain came     HeadFor, if less          as before; DuckFor from Drain at least
//	a head, and not all of the body      ReadTimeout               as the head's
//
// An answer has its end when the kernel has all of it, and of those before it. What came earlier
// counts from there: a client that takes its time over answers has as much for the next request as
// others. Input is held back only while answers are due.
func (a *Inline) deadline() {
	cfg := a.t.Config
	before := a.stage
	switch {
	case a.text != nil:
		a.stage = inBody
	case a.in.Len() >= leastRequest || a.in.Len() > 0 && !a.answered:
		a.stage = inHead
	default: // less than that is still the wait for a request
		a.stage = idle
	}
	if before == idle && a.stage != idle && a.answered {
		a.began = a.c.Loop().Now()
	}
	var d time.Duration
	from := a.began
	switch {
	case a.due:
	case a.stage == idle && a.drained > 0:
		d, from = loop.DuckFor, max(from, a.drained)
	case a.stage == idle && a.answered:
		d = cfg.IdleTimeout
	case a.stage != inBody:
		d = cfg.ReadHeaderTimeout
	default:
		d = cfg.ReadTimeout
	}
	by := int64(0)
	if d > 0 {
		by = loop.Later(from, d)
	}
	if a.stage == inHead && a.drained > 0 && !a.due {
		if last := max(a.began+int64(loop.HeadFor), a.drained+int64(loop.DuckFor)); by == 0 || last < by {
			by = last
		}
	}
	if by != a.c.ReadBy() {
		a.c.SetReadBy(by)
	}
}

// drop forgets everything that was received.
func (a *Inline) drop() {
	a.in.Drop()
	a.forget()
}

// forget forgets the request under way.
func (a *Inline) forget() {
	if a.body != nil {
		a.c.Loop().Memory.Put(a.body)
		a.t.Budget.give(a.paid)
	}
	a.head, a.text, a.body, a.paid, a.chunks, a.wrote, a.stage = nil, nil, nil, 0, nil, false, idle
}

// serve answers the requests that are whole.
func (a *Inline) serve() {
	for a.c.Alive() && (a.in.Len() > 0 || a.text != nil) {
		if a.c.Queued() > loop.MaxQueued { // the client does not take its answers: it gets no more until it does
			a.c.Hold()
			return
		}
		more, err := a.next()
		if err != nil {
			a.refuse(err)
			return
		}
		if !more {
			return
		}
	}
}

// next looks for one request and answers it. It reports whether there may be another one.
func (a *Inline) next() (more bool, err error) {
	if a.text != nil {
		return a.goOn()
	}
	b := a.in.Bytes()
	head := a.head
	if head == nil {
		skip, wait := a.lead.skip(b)
		if skip > 0 {
			a.in.Consume(skip)
		}
		if wait {
			return false, nil
		}
		b = a.in.Bytes()
		head = &a.t.head
		head.Reset()
	}
	n := 0
	if len(b) >= leastRequest || !a.answered {
		n, err = head.Parse(b, a.t.Config.MaxHeaderBytes)
	}
	if err != nil {
		return false, err
	}
	if n == 0 {
		a.keepHead(head)
		return false, nil
	}
	if head.Length > a.t.Config.MaxBodyBytes {
		return false, errBodyTooLarge
	}
	if !head.Chunked && int64(len(b)-n) >= head.Length { // the usual case: all is there
		size := n + int(head.Length)
		more = a.answer(head, b[:n], b[n:size], len(b)-size)
		a.head, a.stage = nil, idle
		if a.in.Len() > 0 { // else the answer was the last, and the connection is closed by now
			a.in.Consume(size)
		}
		return more, nil
	}
	a.keepHead(head)
	head = a.head
	a.text = append([]byte(nil), b[:n]...)
	a.in.Consume(n)
	if head.Chunked {
		a.chunks = &http1.Chunks{}
	}
	return a.goOn()
}

// keepHead makes the head outlive this turn.
func (a *Inline) keepHead(head *http1.Head) {
	if a.head == nil {
		a.head = &http1.Head{}
		*a.head, a.t.head = *head, http1.Head{}
	}
}

var (
	errBodyTooLarge = &http1.Error{Status: http.StatusRequestEntityTooLarge, Reason: "body too large"}
	errNoRoom       = &http1.Error{
		Status: http.StatusServiceUnavailable,
		Reason: "too many bodies are on their way: try again",
	}
)

// goOn takes more of the body of a request whose head is whole, and answers it once it is.
func (a *Inline) goOn() (more bool, err error) {
	whole := false
	if a.chunks == nil {
		err = a.takeLength()
		whole = int64(len(a.body)) == a.head.Length
	} else {
		whole, err = a.takeChunks()
	}
	if err != nil {
		return false, err
	}
	if !whole {
		a.encourage()
		return false, nil
	}
	more = a.answer(a.head, a.text, a.body, a.in.Len())
	a.forget()
	return more, nil
}

// takeLength moves input to a body of known length. What the socket has of a large one it receives
// to its place.
func (a *Inline) takeLength() error {
	whole := int(min(a.head.Length, math.MaxInt)) // on 32 bits more can be said than be held
	n := min(whole-len(a.body), a.in.Len())
	straight := whole-len(a.body)-n >= loop.LargeInput && a.c.ExpectLarge()
	if straight && a.body == nil {
		a.grow(min(whole, receiveMost))
	}
	if err := a.take(n, whole); err != nil {
		return err
	}
	if straight {
		a.receive(whole)
	}
	return nil
}

const (
	// firstBody is the memory that a body gets before anything of it has come: a client must send
	// to make us hold more.
	firstBody = 16 << 10
	// receiveMost is how much is lent to a body while the socket is asked what it has.
	receiveMost = 1 << 20
)

// receive receives what the socket has of a body that will have whole bytes. Memory that this does
// not need goes back at once.
func (a *Inline) receive(whole int) {
	for more := true; more && len(a.body) < whole; {
		if len(a.body) == cap(a.body) && !a.grow(min(whole, max(4*len(a.body), receiveMost))) {
			return // what comes next is refused, if there is no room then
		}
		free := a.body[len(a.body):min(cap(a.body), whole)]
		n := a.c.Receive(free)
		a.body = a.body[:len(a.body)+n]
		more = n == len(free)
	}
	if size := loop.MemoryFor(bodySize(len(a.body), whole)); size < cap(a.body) {
		a.t.Budget.give(a.paid - size)
		a.move(size)
	}
}

// bodySize is the memory for a body of which need bytes have come: once a quarter is there it grows
// no more.
func bodySize(need, whole int) int { return min(max(4*need, firstBody), whole) }

// grow gives the body memory of size bytes, if there is room for it.
func (a *Inline) grow(size int) bool {
	size = loop.MemoryFor(size)
	if !a.t.Budget.take(size - a.paid) {
		return false
	}
	a.move(size)
	return true
}

// move moves the body to memory of size bytes, as MemoryFor says it, that are paid for.
func (a *Inline) move(size int) {
	m := &a.c.Loop().Memory
	b := append(m.Get(size), a.body...)
	m.Put(a.body)
	a.body, a.paid = b, size
}

// take moves n bytes of input to the body, which will have whole bytes; 0 if nobody knows.
func (a *Inline) take(n, whole int) error {
	if need := len(a.body) + n; need > cap(a.body) || a.body == nil {
		size := max(need, min(4*cap(a.body), 1<<20), 4<<10)
		if whole > 0 {
			size = bodySize(need, whole)
		}
		if !a.grow(size) {
			return errNoRoom
		}
	}
	a.body = append(a.body, a.in.Bytes()[:n]...)
	if n > 0 {
		a.in.Consume(n)
	}
	return nil
}

// takeChunks moves the data of chunks to the body, and reports whether that is whole.
func (a *Inline) takeChunks() (whole bool, err error) {
	for {
		skip, data, err := a.chunks.Next(a.in.Bytes())
		if err != nil {
			return false, err
		}
		if skip > 0 {
			a.in.Consume(skip)
		}
		switch {
		case data > 0:
			if int64(len(a.body)+data) > a.t.Config.MaxBodyBytes {
				return false, errBodyTooLarge
			}
			a.chunks.Took(data)
			if err := a.take(data, 0); err != nil {
				return false, err
			}
		default:
			return a.chunks.Done(), nil
		}
	}
}

// encourage sends a 100-continue to a client that waits for it.
func (a *Inline) encourage() {
	if a.head.Continue && !a.wrote && len(a.body) == 0 {
		a.wrote = true
		a.c.Write([]byte("HTTP/1.1 100 Continue\r\n\r\n"))
	}
}

// answer calls the handler and writes what it says. It reports whether there may be another
// request; behind is how much has come of that.
func (a *Inline) answer(h *http1.Head, head, body []byte, behind int) (keep bool) {
	l := a.c.Loop()
	w := &a.t.answer
	w.reset(&l.Memory)
	if !a.call(h, head, body, w) {
		a.c.Finish(true) // what was answered before goes out
		return false
	}
	method := h.Method.Of(head)
	a.lead = lead{afterPost: string(method) == http.MethodPost}
	f := facts{
		head: string(method) == http.MethodHead, minor: h.Minor, keepAlive: h.KeepAlive(), leaving: l.Draining() ||
			a.t.Config.Closes(),
		status: w.Status, length: int64(w.size()), known: -1,
	}
	if w.Close {
		f.connection = sayClose
	}
	p := decide(f)
	a.write(w, &p, h.Minor)
	a.answered, a.due = true, true
	l.Tally().Requests++
	a.t.Answers++
	if d := a.t.Config.WriteTimeout; d > 0 {
		a.c.SetWriteBy(loop.Later(l.Now(), d))
	}
	if p.close {
		a.c.Finish(h.KeepAlive() || behind > 0) // a client that may still be sending would lose the answer in a reset
	}
	return !p.close
}

// write writes the answer: head and small bodies are copied, large bodies are not.
func (a *Inline) write(w *Answer, p *plan, minor int) {
	body := w.Bytes()
	if !p.body {
		body = nil
	}
	copied := 0
	if len(body) < loop.SmallChunk {
		copied = len(body)
	}
	room := a.c.Space(512 + len(w.Fields) + copied)
	out := w.appendHead(room[:0], a.t.date(a.c.Loop().Now()), p, minor)
	out = append(out, body[:copied]...)
	if len(out) <= len(room) && &out[0] == &room[0] {
		a.c.Wrote(len(out))
	} else {
		a.c.Write(out)
	}
	switch {
	case copied == len(body):
	case w.Static != nil:
		a.c.WriteForeign(body)
	default:
		a.c.WriteOwn(body)
		w.Body = nil
	}
}

// call runs the handler. A panic ends the connection and nothing else.
func (a *Inline) call(h *http1.Head, head, body []byte, w *Answer) (ok bool) {
	defer func() {
		if ok {
			return
		}
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			a.t.Config.Log.Error("a handler panicked", "target", string(h.Target.Of(head)), "panic", p, "stack",
				string(debug.Stack()))
		}
	}()
	a.t.Handler.Answer(head, h, body, w)
	return true
}

// refuse answers what is not a request, and ends the connection.
func (a *Inline) refuse(err error) {
	var e *http1.Error
	if errors.As(err, &e) {
		a.c.Write(errorAnswer(e))
	}
	a.c.Finish(true)
}

// Ended implements loop.App.
func (a *Inline) Ended(err error) {
	switch n := a.in.Len(); {
	case err != io.EOF || !a.c.Alive() || a.c.Held(): // held: whole requests wait for room
	case a.text != nil || n >= leastRequest || n > 0 && !a.answered:
		a.refuse(errCut)
	default:
		a.c.Finish(false)
	}
}

// Sent implements loop.App.
func (a *Inline) Sent() {
	left := a.c.Queued()
	if left == 0 {
		if a.c.WriteBy() != 0 {
			a.c.SetWriteBy(0)
		}
		if a.due {
			a.due, a.began = false, a.c.Loop().Now()
		}
	}
	switch {
	case !a.c.Held():
		if left == 0 {
			a.deadline()
		}
	case left < loop.MaxQueued/2:
		a.goOnServing()
	}
}

// goOnServing answers the requests that waited for room.
func (a *Inline) goOnServing() {
	a.serve()
	if !a.c.Alive() {
		a.drop()
		return
	}
	if a.c.Queued() <= loop.MaxQueued {
		a.c.Resume()
		if a.c.InputEnded() { // it came while the client was held back
			a.Ended(io.EOF)
			return
		}
	}
	a.deadline()
}

// Writable implements loop.App.
func (a *Inline) Writable() {}

// Expired implements loop.App.
func (a *Inline) Expired() {
	now := a.c.Loop().Now()
	if by := a.c.WriteBy(); a.c.Queued() > 0 && by > 0 && by <= now {
		a.c.Kill(loop.ErrTooSlow)
		return
	}
	if by := a.c.ReadBy(); by > 0 && by <= now {
		if a.stage == inHead {
			a.refuse(errSlow)
			return
		}
		a.c.Finish(a.stage == inBody) // which the client may still be sending
	}
}

// Posted implements loop.App.
func (a *Inline) Posted() {}

// Drain implements loop.App.
func (a *Inline) Drain() {
	a.drained = a.c.Loop().Now()
	a.deadline()
}

// EndIdle implements loop.App.
func (a *Inline) EndIdle() {
	if a.stage == idle && !a.c.Held() {
		a.c.Finish(false)
	}
}

// HeadSince implements loop.App.
func (a *Inline) HeadSince() int64 {
	if a.stage != inHead || a.due {
		return 0
	}
	return a.began
}

// Died implements loop.App: a handler has called runtime.Goexit.
func (a *Inline) Died() {
	a.drop()
	a.c.Finish(true)
}

// MayClose implements loop.App.
func (a *Inline) MayClose() bool { return true }

// Closed implements loop.App.
func (a *Inline) Closed() { a.drop() }

// date is the value of the field Date; the loop looks at the clock once a turn.
func (t *Tools) date(now int64) []byte {
	if second := now / int64(time.Second); second != t.second || t.today == nil {
		t.second, t.today = second, t.Config.Date(now)
	}
	return t.today
}
