package h1

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// output is what a session has written and not handed over. Its session uses it, and the timer of
// later, which may come at any time: mu guards all of it, and is held while something is sent, so
// that nothing overtakes.
type output struct {
	mu   sync.Mutex
	buf  []byte // changed by the session alone
	sent int    // of buf, by the timer
	mark int    // where complete answers end in buf
	// of the first send that failed: nothing may follow it, since the client could not tell where
	// that belongs
	failed error
	broken atomic.Bool // failed is set
	// of the request under way, which the first send that fails ends: nobody can be told of what
	// its handler still does. The session stores it; the loop and the timer read it, too
	current atomic.Pointer[requestContext]
	timer   *time.Timer
	armed   bool
}

// flushWithin is how long a complete answer waits for those to the pipelined requests behind it.
const flushWithin = time.Millisecond

// take changes the memory.
func (o *output) take(b []byte) {
	o.mu.Lock()
	o.reset()
	o.buf = b
	o.mu.Unlock()
}

// room is free memory behind what was written, of at least n bytes or none. What is put there is
// not output before claim says so. The session calls it, so that nobody changes buf meanwhile.
func (o *output) room(n int) []byte {
	if free := cap(o.buf) - len(o.buf); free >= n {
		return o.buf[len(o.buf):len(o.buf):cap(o.buf)]
	}
	return nil
}

// claim adds b, which may lie in room.
func (o *output) claim(c Stream, b []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.buf); len(b) > 0 && cap(o.buf)-n >= len(b) && &b[0] == &o.buf[:n+1][n] {
		o.buf = o.buf[:n+len(b)]
		return o.failed
	}
	return o.putLocked(c, b)
}

// put adds b.
func (o *output) put(c Stream, b []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.putLocked(c, b)
}

// putAll adds several pieces.
func (o *output) putAll(c Stream, pieces ...[]byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range pieces {
		if err := o.putLocked(c, b); err != nil {
			return err
		}
	}
	return o.failed
}

func (o *output) putLocked(c Stream, b []byte) error {
	if o.failed != nil {
		return o.failed
	}
	if len(o.buf)+len(b) <= cap(o.buf) {
		o.buf = append(o.buf, b...)
		return nil
	}
	if len(b) < cap(o.buf) {
		if err := o.flushLocked(c); err != nil {
			return err
		}
		o.buf = append(o.buf, b...)
		return nil
	}
	if waiting := o.buf[o.sent:]; len(waiting) > 0 {
		o.fail(c.WriteAll(net.Buffers{waiting, b}))
	} else {
		_, err := c.Write(b)
		o.fail(err)
	}
	o.reset()
	return o.failed
}

// flush hands all over.
func (o *output) flush(c Stream) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.flushLocked(c)
}

func (o *output) flushLocked(c Stream) error { return o.handOver(c.Write) }

// handOver gives all to write, or nothing if there is none.
func (o *output) handOver(write func([]byte) (int, error)) error {
	if waiting := o.buf[o.sent:]; len(waiting) > 0 && o.failed == nil {
		_, err := write(waiting)
		o.fail(err)
	}
	o.reset()
	return o.failed
}

// flushLast is flush before Stream.End(false).
func (o *output) flushLast(c Stream) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.handOver(c.WriteLast)
}

func (o *output) reset() {
	o.buf, o.sent, o.mark = o.buf[:0], 0, 0
	if o.armed {
		o.armed = false
		o.timer.Stop()
	}
}

// later marks what was written as complete, and hands it over after flushWithin at the latest.
func (o *output) later(c Stream) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mark = len(o.buf)
	if o.armed || o.failed != nil {
		return o.failed
	}
	o.armed = true
	if o.timer == nil {
		o.timer = time.AfterFunc(flushWithin, func() { o.flushMarked(c) })
	} else {
		o.timer.Reset(flushWithin)
	}
	return nil
}

// flushMarked hands complete answers over. It runs on the timer's goroutine; what lies behind them
// stays where it is.
func (o *output) flushMarked(c Stream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.armed { // too late
		return
	}
	o.armed = false
	if o.mark > o.sent && o.failed == nil {
		_, err := c.Write(o.buf[o.sent:o.mark])
		o.fail(err)
		o.sent = o.mark
	}
}

// sendFile hands all over, and then a part of a file.
func (o *output) sendFile(c Stream, f *os.File, off, n int64) (int64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.handOver(c.WriteMore); err != nil {
		return 0, err
	}
	sent, err := c.SendFile(f, off, n)
	if !unsupported(err) {
		o.fail(err)
	}
	return sent, err
}

// fail takes note of what a send has come to, and ends the context of the request under way if it
// has failed. mu is held.
func (o *output) fail(err error) {
	if err == nil {
		return
	}
	o.failed = err
	o.broken.Store(true) // before the look at current: begin stores that, and then looks at broken
	o.cancel()
}

// begin says which request is under way, and ends its context at once if nothing can be sent.
func (o *output) begin(x *requestContext) {
	o.current.Store(x)
	if o.broken.Load() {
		x.cancel()
	}
}

// cancel ends the context of the request under way. Any goroutine may call it.
func (o *output) cancel() {
	if x := o.current.Load(); x != nil {
		x.cancel()
	}
}

// failure is the error of the first send that failed.
func (o *output) failure() error {
	if !o.broken.Load() {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}
