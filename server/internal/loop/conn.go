package loop

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// App is what is on a connection. The loop calls it, one call at a time.
type App interface {
	Begin()
	Input(b Lent)     // something was received
	Ended(err error)  // there will be no more input: io.EOF, or the failure of the connection
	Sent()            // output was sent: there may be room
	Writable()        // the socket takes output again, after Conn.AwaitRoom
	Expired()         // a deadline has passed
	Posted()          // somebody wanted the loop's attention for it
	Drain()           // the server is going to end
	EndIdle()         // a connection that waits for a request is not wanted any more
	HeadSince() int64 // since when the rest of a request's head is waited for, as Now; 0: it is not
	Died()            // a call of the App ended by runtime.Goexit: whatever it was doing will not go on
	MayClose() bool   // the descriptor is not in use; from now on it must not be
	Closed()          // the descriptor is closed
}

// State is where a connection is in its life; the package comment has the table.
type State uint8

// The states, in the order in which a connection goes through them; it may leave some out.
const (
	Open      State = iota
	Flushing        // the App has done; the output is still to be sent
	Lingering       // … and has been: what the peer still sends is thrown away until it ends its side
	Dead            // the driver is closing the descriptor
)

func (s State) String() string { return [...]string{"open", "flushing", "lingering", "dead"}[s] }

// How long the end of a connection may take.
const (
	// Lingering ends when for so long the peer has sent nothing, and has nothing to take any more.
	LingerFor  = 500 * time.Millisecond
	lingerMost = 30 * time.Second // … and then at the latest
	// … or, in the same steps, when it has sent more than that. net/http reads as much of a body
	// that nobody wants.
	lingerBytes = 256 << 10
	// for a client to take the rest of an answer, where Config.FlushFor does not say otherwise
	flushFor = 30 * time.Second
)

// ErrTooSlow ends connections whose peer did not take its output in time.
var ErrTooSlow = errors.New("the client took too long")

// Conn is the loop's side of a connection: its output, its deadlines and its end.
type Conn struct {
	Slot any    // the driver's
	ID   uint32 // the driver's

	loop   *Loop
	sock   Socket
	app    App
	origin any // of the listener
	short  bool
	spoke  bool  // something has been received; while it lingers, since the last look
	bulky  uint8 // how many receives of the driver it still takes for one that brings large input
	thrown int32 // bytes thrown away while it lingers; more than lingerBytes are not counted
	share  int   // bytes that Receive may still bring this turn; 0 while the driver has handed nothing over
	failed error // what Receive has found: io.EOF or a failure
	began  int64 // ns of Loop.Now

	prev, next *Conn // of the loop's list

	head, tail *Chunk // output, oldest first
	flying     *Chunk // the last chunk that the driver may be sending
	queued     int    // bytes of it
	foreign    int    // chunks of it that are somebody else's memory
	dropped    int    // bytes of the last DropForeign
	sending    bool   // the driver is sending
	dirty      bool   // in the loop's list
	ended      bool   // the peer has ended its side
	held       bool   // input is not asked for
	linger     bool   // Finish was asked to
	dropping   bool   // DropForeign waits for the driver
	corked     bool   // the socket may hold output back until its end
	state      State

	place           int          // in the loop's timers, from 1; 0: none
	lookAt          atomic.Int64 // when the loop looks at it; 0: never. The loop stores it
	readBy, writeBy int64        // deadlines, ns of Loop.Now; 0: none
}

// Loop is the loop that owns the connection.
func (c *Conn) Loop() *Loop { return c.loop }

// Socket is the socket.
func (c *Conn) Socket() Socket { return c.sock }

// ShortReads reports whether a receive may give less than there is: a Unix socket ends it where
// descriptors were passed.
func (c *Conn) ShortReads() bool { return c.short }

// State is where the connection is in its life.
func (c *Conn) State() State { return c.state }

// Alive reports whether the App still has the connection.
func (c *Conn) Alive() bool { return c.state == Open }

// InputEnded reports whether the peer has ended its side.
func (c *Conn) InputEnded() bool { return c.ended }

// Deaf reports whether nothing that the peer still sends matters: the connection ends with its
// output.
func (c *Conn) Deaf() bool { return c.state == Flushing && !c.linger || c.state == Dead }

// Held reports whether input is held back.
func (c *Conn) Held() bool { return c.held }

// Sending reports whether the driver is sending.
func (c *Conn) Sending() bool { return c.sending }

// SetSending is for the driver: the kernel has output of the connection, which must stay as it is
// until Loop.Sent.
func (c *Conn) SetSending() { c.sending, c.flying = true, c.tail }

// LastSend reports whether the end of the connection follows its output, and takes note of it: the
// driver then sends by SendMore or its like, so that the end goes with the last bytes.
func (c *Conn) LastSend() bool {
	if c.state == Flushing {
		c.corked = true
	}
	return c.state == Flushing
}

// Corked reports whether the socket may hold output back: its sending must be ended before it is
// closed, or a client that has sent more would not get it.
func (c *Conn) Corked() bool { return c.corked }

// Output is what is to be sent, oldest first; nil if there is nothing.
func (c *Conn) Output() *Chunk { return c.head }

// Queued is the number of bytes of output that the kernel has not taken.
func (c *Conn) Queued() int { return c.queued }

// fresh reports whether the first bytes are most likely on their way, for so long at most: the
// connection is not idle.
func (c *Conn) fresh(most time.Duration) bool {
	if g, ok := c.app.(*GoConn); ok && g.Came() != 0 { // received by a goroutine
		return false
	}
	return !c.spoke && c.loop.now-c.began < int64(most)
}

// endIdle ends a connection that waits for a request: one that has sent nothing, if it is not
// fresh, and, if head is not 0, one that has sent only a part of a head for so long, or was
// answered so long ago and waits for its client to leave. Nothing is said to those: what they hold
// is to be free.
func (c *Conn) endIdle(most, head time.Duration) {
	if c.state == Lingering {
		if head > 0 && c.writeBy-c.loop.now <= int64(lingerMost-head) {
			c.Kill(nil)
		}
		return
	}
	if c.state != Open {
		return
	}
	c.loop.call(c, func() {
		switch since := c.app.HeadSince(); {
		case since > 0 && (head == 0 || c.queued > 0 || c.loop.now-since < int64(head)):
		case since > 0:
			c.Kill(net.ErrClosed)
		case !c.fresh(most):
			c.app.EndIdle()
		}
	})
}

// soil puts the connection on the list of those that have something to send.
func (c *Conn) soil() {
	if !c.dirty {
		c.dirty = true
		c.loop.dirty = append(c.loop.dirty, c)
	}
}

// Write takes all of b as output, by copying it. Who writes much must look at Queued.
func (c *Conn) Write(b []byte) {
	if c.state >= Lingering {
		return
	}
	for len(b) > 0 {
		n := copy(c.Space(len(b)), b)
		c.Wrote(n)
		b = b[n:]
	}
}

// Space is where the next bytes of output can be put: at least one byte. Wrote says how many were.
func (c *Conn) Space(want int) []byte {
	t := c.tail
	if t == nil || t.kind != ofDriver || t == c.flying || t.Hi == len(t.Mem) {
		t = c.loop.driver.Chunk(want > SmallChunk || t != nil && t.kind == ofDriver)
		c.queue(t)
	}
	return t.Mem[t.Hi:]
}

// Wrote says that the first n bytes of Space were filled.
func (c *Conn) Wrote(n int) {
	c.tail.Hi += n
	c.queued += n
	c.soil()
}

func (c *Conn) queue(k *Chunk) {
	if c.tail == nil {
		c.head = k
	} else {
		c.tail.next = k
	}
	c.tail = k
}

// WriteOwn takes memory of the loop's Memory as output, without copying it.
func (c *Conn) WriteOwn(b []byte) {
	if c.state >= Lingering || len(b) == 0 {
		c.loop.Memory.Put(b)
		return
	}
	c.refer(b, ofLoop)
}

// WriteForeign takes b as output without copying it. It must not change until the loop has let go
// of it: Foreign is 0 then.
func (c *Conn) WriteForeign(b []byte) {
	if c.state >= Lingering || len(b) == 0 {
		return
	}
	c.foreign++
	c.refer(b, ofOther)
}

// Foreign is the number of WriteForeign whose memory the loop or the kernel still uses.
func (c *Conn) Foreign() int { return c.foreign }

func (c *Conn) refer(b []byte, kind chunkKind) {
	c.queue(&Chunk{Mem: b, Hi: len(b), kind: kind})
	c.queued += len(b)
	c.soil()
}

// took forgets n bytes of output that were sent.
func (c *Conn) took(n int) {
	c.queued -= n
	for h := c.head; h != nil; h = c.head {
		m := min(n, h.Hi-h.Lo)
		h.Lo += m
		n -= m
		if h.Lo < h.Hi {
			return
		}
		c.unqueue()
	}
}

// unqueue lets go of the first chunk.
func (c *Conn) unqueue() {
	h := c.head
	c.head = h.next
	if c.head == nil {
		c.tail = nil
	}
	h.next = nil
	switch h.kind {
	case ofDriver:
		c.loop.driver.Recycle(h)
	case ofLoop:
		c.loop.Memory.Put(h.Mem)
	case ofOther:
		c.foreign--
	}
}

// dropOutput forgets all output. The kernel has let go of it.
func (c *Conn) dropOutput() {
	for c.head != nil {
		c.unqueue()
	}
	c.queued = 0
}

// DropForeign forgets what of WriteForeign was not sent, once the kernel has let go of it. What was
// written before goes out.
func (c *Conn) DropForeign() {
	if c.sending {
		if !c.dropping {
			c.dropping = true
			c.loop.driver.CancelSend(c)
		}
		return
	}
	c.dropping, c.dropped = false, 0
	var before *Chunk
	for k := c.head; k != nil; k = k.next {
		switch {
		case k.kind != ofOther:
			before = k
			continue
		case before == nil:
			c.head = k.next
		default:
			before.next = k.next
		}
		c.tail = before // WriteForeign's is the last
		c.foreign--
		c.dropped += k.Hi - k.Lo
		c.queued -= k.Hi - k.Lo
	}
	switch {
	case c.head != nil:
		c.soil()
	case c.state == Flushing: // Finish came while this was under way
		c.flushed()
	}
}

// Finish ends the connection once its output is sent. linger gives the peer time to read that
// although it may still be sending.
func (c *Conn) Finish(linger bool) {
	if c.state != Open {
		return
	}
	c.state = Flushing
	c.linger, c.readBy = linger, 0
	if c.head == nil {
		c.flushed()
		return
	}
	patience := flushFor
	if w := c.loop.group.cfg.FlushFor; w > 0 {
		patience = w
	}
	c.SetWriteBy(Later(c.loop.now, patience))
}

// flushed goes on with the end of a connection whose output is sent.
func (c *Conn) flushed() {
	if !c.linger || c.ended || c.sock.EndSending() != nil {
		c.Kill(nil)
		return
	}
	c.state = Lingering
	c.spoke = false
	c.writeBy = c.loop.now + int64(lingerMost)
	c.SetReadBy(c.loop.now + int64(LingerFor))
	c.Resume()
}

// throwAway takes note of n bytes that came behind the end.
func (c *Conn) throwAway(n int) {
	if c.state == Lingering {
		c.thrown = int32(min(int(c.thrown)+n, lingerBytes+1))
	}
}

// lingerOn goes on with lingering after LingerFor where the peer may still lose something: were the
// socket closed now, the next byte from the peer would reset the connection, and a reset takes away
// all that the peer has not taken.
func (c *Conn) lingerOn() bool {
	if c.state != Lingering || c.thrown > lingerBytes || c.writeBy <= c.loop.now || !c.spoke && c.sock.Unsent() == 0 {
		return false
	}
	c.spoke = false
	c.SetReadBy(c.loop.now + int64(LingerFor))
	return true
}

// Kill ends the connection now. The App hears of an err.
func (c *Conn) Kill(err error) {
	if c.state == Dead {
		return
	}
	if c.state == Open && err != nil {
		c.loop.call(c, func() { c.app.Ended(err) })
		if c.state == Dead {
			return
		}
	}
	c.state = Dead
	c.loop.timers.remove(c)
	c.loop.driver.Close(c)
}

// Hold stops asking for input until Resume. Some may still come.
func (c *Conn) Hold() {
	if !c.held {
		c.held = true
		c.loop.driver.Hold(c)
	}
}

// Resume asks for input again.
func (c *Conn) Resume() {
	if c.held {
		c.held = false
		if !c.ended && c.state != Dead {
			c.loop.driver.Resume(c)
		}
	}
}

// Large input goes straight to where it belongs. The driver then receives no more than the head of
// a request before it asks the App, which receives the rest by itself.
const (
	LargeInput = 8 << 10 // from so many bytes on a call of the kernel's costs less than to copy
	bulkyFor   = 8       // receives without large input, and the connection is as others are
	mostShare  = 1 << 20 // bytes a turn: a client that sends without end shall not hold the loop
)

// Bulky reports whether the connection brings large input: then the driver receives SmallBlock
// bytes at most, and asks for more only when the App has seen them.
func (c *Conn) Bulky() bool { return c.bulky > 0 }

// ExpectLarge says that LargeInput or more is to come, and reports whether Receive may find it.
func (c *Conn) ExpectLarge() bool {
	c.bulky = bulkyFor
	return c.share > 0 && c.state == Open && c.failed == nil && c.loop.driver.Untouched(c)
}

// Receive receives what the socket has, straight into b; 0 says that there is nothing for now, or
// that the connection has had its share of the turn. It may be called only where ExpectLarge has
// just said so, by an App that has consumed its input. What ends the connection the App is told by
// Ended, after its Input has returned.
func (c *Conn) Receive(b []byte) int {
	b = b[:min(len(b), c.share)]
	if c.failed != nil || len(b) == 0 {
		return 0
	}
	n, err := c.sock.Receive(b)
	c.share -= n
	c.loop.tally.In += uint64(n)
	switch {
	case err == ErrWait:
	case err != nil:
		c.failed = err
	case n == 0:
		c.failed = io.EOF
	}
	return n
}

// AwaitRoom asks for App.Writable when the socket takes output again.
func (c *Conn) AwaitRoom() { c.loop.driver.AwaitRoom(c) }

// ReadBy and WriteBy are the deadlines: ns of Loop.Now, 0 for none.
func (c *Conn) ReadBy() int64 { return c.readBy }

// WriteBy is the deadline for output.
func (c *Conn) WriteBy() int64 { return c.writeBy }

// SetReadBy sets the deadline for input: ns of Loop.Now, 0 for none, less than 0 for one that has
// passed.
func (c *Conn) SetReadBy(at int64) {
	c.readBy = at
	c.watch(at)
}

// SetWriteBy sets the deadline for output.
func (c *Conn) SetWriteBy(at int64) {
	c.writeBy = at
	c.watch(at)
}

// watch makes the loop look at the connection by a deadline, if it would not before.
func (c *Conn) watch(at int64) {
	if look := c.lookAt.Load(); at != 0 && c.state != Dead && (look == 0 || at < look) {
		c.loop.timers.set(at, c)
	}
}

// Later is the time d after now: at the end of all times at the latest.
func Later(now int64, d time.Duration) int64 {
	if at := now + int64(d); at >= now {
		return at
	}
	return never - 1
}

// passed reports whether a deadline is over.
func (c *Conn) passed(now int64) bool {
	return c.readBy != 0 && c.readBy <= now || c.writeBy != 0 && c.writeBy <= now
}

// nextLook is the first deadline after now; never if there is none.
func (c *Conn) nextLook(now int64) int64 {
	at := int64(never)
	for _, by := range [2]int64{c.readBy, c.writeBy} {
		if by > now {
			at = min(at, by)
		}
	}
	return at
}
