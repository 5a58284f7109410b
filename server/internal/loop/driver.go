package loop

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// Driver is how a loop talks to the kernel. All methods but Wake belong to the loop's goroutine. A
// driver tells the loop what happens by the loop's methods Tick, Accepted, AcceptFailed, Received,
// Ended, Sent, Writable and Closed, and only from within Wait and Close.
type Driver interface {
	// Wait hands over what was queued, waits for at most d (negative: for ever) until something
	// happens, and tells the loop. If brief, no other goroutine gets the CPU meanwhile.
	Wait(d time.Duration, brief bool) error
	// Wake ends a Wait, from any goroutine.
	Wake()

	// Accept begins to accept, or goes on after Pause. It accepts no more than Loop.Room
	// connections.
	Accept(ln *Listener) error
	// Pause stops accepting. A few connections that the kernel had accepted already may follow.
	Pause(ln *Listener)
	// Unlisten ends accepting: who has connected is accepted if sweep, the socket is closed, and
	// Loop.Unlistened called.
	Unlisten(ln *Listener, sweep bool)

	// Open begins to receive for a connection.
	Open(c *Conn) error
	// Hold stops receiving until Resume. What is on its way may still come.
	Hold(c *Conn)
	// Resume receives again, from what may have come meanwhile on.
	Resume(c *Conn)
	// Untouched reports whether what the socket has is there for Conn.Receive: no receive is under
	// way that could take it first.
	Untouched(c *Conn) bool
	// Send sends from the connection's output, and calls Loop.Sent when the kernel has taken some
	// of it.
	Send(c *Conn)
	// CancelSend makes a Send that is under way end soon.
	CancelSend(c *Conn)
	// AwaitRoom asks for Loop.Writable when the socket takes output again, for those who send by
	// themselves.
	AwaitRoom(c *Conn)
	// Detach ends receiving, so that the descriptor can be used by others, and calls Loop.Detached
	// then.
	Detach(c *Conn)
	// Close lets go of the descriptor: it is closed, and Loop.Closed called, as soon as neither the
	// kernel nor the App uses it. It is called again when the App may have ceased to.
	Close(c *Conn)

	// Chunk is memory for output; Recycle takes it back.
	Chunk(large bool) *Chunk
	Recycle(*Chunk)

	// ReadsAside reports whether goroutines may receive from a socket by themselves: then
	// Loop.MayReceive is asked before each receive.
	ReadsAside() bool
	// Recover brings the driver in order after an App's call ended by panic in the midst of Wait.
	Recover()
	Figures() Figures
	// Shut ends the driver. There are no connections any more.
	Shut() error
}

// Figures are what a driver counts.
type Figures struct {
	Calls     uint64 // system calls to wait, submit, receive and send
	Submitted uint64 // entries of a ring
	Completed uint64
	Starved   uint64 // receives that found no buffer
	Overflows uint64 // times the completion queue was full
	Mapped    uint64 // bytes of buffers outside Go's heap
}

// Socket is a connected socket. Nothing of it ever waits: what would is [ErrWait].
type Socket interface {
	Send(b []byte) (int, error)
	// Send, where EndSending follows at once and takes the rest along
	SendMore(b []byte) (int, error)
	SendAll(bufs net.Buffers) (int, error)                          // as one message
	SendFile(from *os.File, off int64, n int) (sent int, err error) // 0, nil at the end of the file
	// SendPrompt is SendFile of what is sys.Prompt. The scheduler is not told of it: the caller
	// keeps its P, and the garbage collector waits for the end of the call.
	SendPrompt(from *os.File, off int64, n int) (sent int, err error)
	// InCache says whether SendFile would find these bytes of the file without waiting for its
	// disk.
	InCache(from *os.File, off int64, n int) sys.Presence
	Receive(b []byte) (int, error) // 0, nil at the end of the stream
	Peek() error                   // nil: Receive has something to say
	Unsent() int                   // bytes that the peer's kernel has not taken, the end of sending among them
	EndSending() error
	EndReceiving() error
	Hang()        // ends both directions, so that what waits for it comes back
	Close() error // of the descriptor
	Local() (net.Addr, error)
	Peer() (net.Addr, error)
	FD() int // -1: there is none
}

// ErrWait says that a call would have to wait.
var ErrWait = errors.New("it would have to wait")

// A long send is made in two, of which the second is short: see AtOnce.
const (
	longSend = 512 << 10
	lastPart = 4 << 10
)

// AtOnce is how many of n bytes that end a send one call hands to the kernel. The end of a long
// send goes by a call of its own: when 1 MB goes by one call, and its last bytes do not fit the
// congestion window, the kernel waits with them until the client has acknowledged what came before,
// or until it takes them for lost. That doubled the cost of an answer of 1 MB over loopback with
// BBR (docs/design/2026-11-22-the-end-of-a-long-send.md).
func AtOnce(n int) int {
	if n < longSend {
		return n
	}
	return n - lastPart
}

// Sizes of chunks of output.
const (
	SmallChunk = 4 << 10
	LargeChunk = 64 << 10
)

// Chunk is a piece of output: Mem[Lo:Hi] is still to be sent.
type Chunk struct {
	Mem    []byte
	Lo, Hi int
	Large  bool
	Handle any // the driver's

	next *Chunk
	kind chunkKind
}

// chunkKind says whose the memory of a chunk is.
type chunkKind uint8

const (
	ofDriver chunkKind = iota
	ofLoop             // of its Memory
	ofOther            // of somebody who leaves it alone until it is sent
)

// Bytes is what is still to be sent.
func (k *Chunk) Bytes() []byte { return k.Mem[k.Lo:k.Hi] }

// Next is the chunk behind this one.
func (k *Chunk) Next() *Chunk { return k.next }
