package server

import (
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// conn is the loop's side of a connection: its output, its deadlines and its end. What the bytes mean is the business of its app.
type conn struct {
	l   *loop
	fd  int
	app app

	prev, next *conn // of the loop's list
	slot       any   // the driver's
	id         uint32

	head, tail *chunk // output, oldest first
	queued     int    // bytes of it
	sending    bool   // the kernel has the first chunk
	dirty      bool   // in the loop's list
	eof        bool   // the peer has ended its side
	held       bool   // input is not asked for
	state      state

	timerAt         atomic.Int64 // of the entry in the loop's heap; 0: none. The loop alone stores it
	readBy, writeBy int64        // ns since Server.base; 0: for ever
}

type state uint8

const (
	open      state = iota
	flushing        // the app has done: the output is still to be sent
	lingering       // … and has been: what the peer still sends is thrown away until it ends its side
	dead            // the driver is closing the descriptor
)

// app is what is on a connection. The loop calls it, one call at a time.
type app interface {
	begin()
	input(b []byte)  // b is the caller's again afterwards
	ended(err error) // there will be no more input
	sent()           // output was sent: there may be room
	writable()       // after driver.room
	refresh()        // bring the deadlines up to date
	expired()        // one of them has passed
	posted()         // somebody wanted the loop's attention for it
	drain()          // the server is going to end
	mayClose() bool  // the descriptor is not in use; from now on it must not be
	closed()         // the descriptor is closed
}

// How long the end of a connection may take.
const (
	lingerFor = 500 * time.Millisecond // for the client to read an answer to a request that was not read to its end
	flushFor  = 30 * time.Second       // for a client to take the rest of an answer, where no WriteTimeout says otherwise
)

// soil puts the connection on the list of those that have something to send.
func (c *conn) soil() {
	if !c.dirty {
		c.dirty = true
		c.l.dirty = append(c.l.dirty, c)
	}
}

// write takes all of b as output. Who writes much must look at queued.
func (c *conn) write(b []byte) {
	if c.state >= lingering {
		return
	}
	for len(b) > 0 {
		n := copy(c.space(len(b)), b)
		c.wrote(n)
		b = b[n:]
	}
}

// space is where the next bytes of output can be put: at least one byte. wrote says how many were.
func (c *conn) space(want int) []byte {
	t := c.tail
	if t == nil || c.sending && t == c.head || t.hi == len(t.mem) {
		n := c.l.d.chunk(want > smallChunk || t != nil)
		if t == nil {
			c.head = n
		} else {
			t.next = n
		}
		c.tail, t = n, n
	}
	return t.mem[t.hi:]
}

func (c *conn) wrote(n int) {
	c.tail.hi += n
	c.queued += n
	c.soil()
}

// take forgets n bytes of output that were sent.
func (c *conn) take(n int) {
	h := c.head
	if h == nil {
		return
	}
	h.lo += n
	c.queued -= n
	if h.lo == h.hi {
		c.head = h.next
		if c.head == nil {
			c.tail = nil
		}
		c.l.d.recycle(h)
	}
}

// drop forgets all output.
func (c *conn) drop() {
	for h := c.head; h != nil; {
		next := h.next
		c.l.d.recycle(h)
		h = next
	}
	c.head, c.tail, c.queued = nil, nil, 0
}

// finish ends the connection once its output is sent. linger gives the peer time to read that although it may still be sending.
func (c *conn) finish(linger bool) {
	if c.state != open {
		return
	}
	c.state = flushing
	c.readBy = 0
	if linger {
		c.readBy = -1 // flushed looks at it
	}
	if c.head == nil {
		c.flushed()
		return
	}
	patience := flushFor
	if w := c.l.srv.cfg.WriteTimeout; w > 0 {
		patience = w
	}
	c.writeBy = c.l.now + int64(patience)
	c.watch()
}

func (c *conn) flushed() {
	if c.readBy != -1 || c.eof || sys.EndSending(c.fd) != nil {
		c.kill(nil)
		return
	}
	c.state = lingering
	c.readBy, c.writeBy = c.l.now+int64(lingerFor), 0
	if c.held {
		c.resume()
	}
	c.watch()
}

// kill ends the connection now.
func (c *conn) kill(err error) {
	if c.state == dead {
		return
	}
	if c.state == open && err != nil {
		c.app.ended(err)
		if c.state == dead {
			return
		}
	}
	c.state = dead
	c.l.d.close(c)
}

func (c *conn) hold() {
	if !c.held {
		c.held = true
		c.l.d.hold(c)
	}
}

func (c *conn) resume() {
	if c.held {
		c.held = false
		if !c.eof && c.state != dead {
			c.l.d.resume(c)
		}
	}
}

// deadline is the first one after now.
func (c *conn) deadline(now int64) int64 {
	at := int64(never)
	for _, by := range [2]int64{c.readBy, c.writeBy} {
		if by > now {
			at = min(at, by)
		}
	}
	return at
}

// passed reports whether a deadline is over.
func (c *conn) passed(now int64) bool {
	return c.readBy > 0 && c.readBy <= now || c.writeBy > 0 && c.writeBy <= now
}

// watch makes the loop look at the connection by its next deadline, if it would not before.
func (c *conn) watch() {
	at := c.deadline(0)
	if look := c.timerAt.Load(); at != never && (look == 0 || at < look) {
		c.timerAt.Store(at)
		c.l.due.push(at, c)
	}
}
