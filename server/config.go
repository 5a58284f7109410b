package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/tallywheel/tallywheel/server/internal/loop"
)

// Engine is a way to talk to the kernel.
type Engine string

// The engines. Auto is the best for the mode that is allowed here. Std is net/http with its habits:
// see [Server.Shutdown].
const (
	Auto  Engine = "auto"
	Uring Engine = "uring"
	Epoll Engine = "epoll"
	Std   Engine = "std"
)

// Mode is where a handler runs; see the package comment.
type Mode string

// The modes. The zero value is Goroutine.
const (
	Goroutine Mode = "goroutine"
	Coroutine Mode = "coroutine"
	Inline    Mode = "inline"
)

// ConnHandler serves one TCP connection and closes it when it returns. The context ends when the
// server is closed, and when [Server.Shutdown] begins.
type ConnHandler func(ctx context.Context, c net.Conn)

// Errors that callers act on.
var (
	// ErrClosed: the server was shut down or closed.
	ErrClosed = http.ErrServerClosed
	// ErrUnavailable: the engine cannot be had here; the message says why.
	ErrUnavailable = errors.New("engine is not available here")
	// ErrElsewhere: in mode coroutine another goroutine than the handler's own would have to wait
	// for the client, to read the body or to write, as with httputil.ReverseProxy and
	// http.TimeoutHandler. Those want mode goroutine.
	ErrElsewhere = loop.ErrElsewhere
)

// Limits and defaults.
const (
	defaultMaxConns  = 16_384
	defaultMaxHeader = 64 << 10
	defaultMaxBody   = 1 << 20
	defaultBodies    = 256 << 20
	maxLoops         = 256
	mostConns        = 1 << 20
	minHeader        = 256
	mostHeader       = 16 << 20

	defaultHeadroom = 16 << 20
	mostHeadroom    = 1 << 30
)

// Config says what to serve and how. One of Handler, Lean and Conn must be set.
type Config struct {
	Handler http.Handler // HTTP
	Lean    LeanHandler  // HTTP, for inline mode; the other modes and engines run it too
	Conn    ConnHandler  // TCP; not in inline mode

	Engine Engine // "" is Auto
	Mode   Mode   // "" is Goroutine, with Lean alone Inline
	// of epoll and uring; 0: one for each CPU that Go may use, in goroutine mode for every two:
	// handlers need the others
	Loops int

	// Time-outs; 0 is none. ReadTimeout covers a request with its body, ReadHeaderTimeout its head
	// (0: as ReadTimeout), IdleTimeout the wait for the next request (0: as ReadTimeout),
	// WriteTimeout the time from the end of the head to the end of the answer.
	ReadTimeout, ReadHeaderTimeout, WriteTimeout, IdleTimeout time.Duration

	MaxConns       int // open at a time; 0 means 16384, and the most is 1048576 (uring: 61439 for each loop)
	MaxHeaderBytes int // of request line and header fields; 0 means 64 KiB
	// of a request: more is answered by 413 where Content-Length says so, else the read fails; 0
	// means no limit, inline 1 MiB
	MaxBodyBytes int64

	// MaxBodyMemory bounds the memory for bodies that are not whole yet, of all connections
	// together, in mode inline; a request beyond it is answered by 503. 0 means 256 MiB. The other
	// modes hand a body to the handler as it comes.
	MaxBodyMemory int64

	// Headroom is how many bytes of garbage more than Go would allow may gather before a
	// collection, once the process collects more than 25 times a second since its heap is small:
	// fewer collections, for so much more memory at the most. A process that makes less garbage
	// never has it. runtime.MemStats counts it as in use, although nobody touches it. 0 means 16
	// MiB, -1 none, and the most is 1 GiB. Where GOGC or GOMEMLIMIT are set it does nothing, nor
	// with engine std.
	Headroom int64

	// As in http.Server. ConnState and ConnContext are called on the loop's thread in mode
	// coroutine; mode inline has neither of the three.
	ConnState   func(net.Conn, http.ConnState)
	ConnContext func(ctx context.Context, c net.Conn) context.Context
	BaseContext func(net.Listener) context.Context

	TLS *tls.Config // serve by TLS; HTTP/2 too where NextProtos is empty or has "h2"

	// SQPoll lets a kernel thread of each ring look for work, so that the loop need not call to
	// hand it over: fewer system calls, and one more CPU busy for each loop until SQPollIdle has
	// passed without work (0 means 1 ms). It pays only with CPUs to spare: measure with tallywheel
	// lab run sqpoll.
	SQPoll     bool
	SQPollIdle time.Duration

	Log *slog.Logger // nil: slog.Default
}

// check fills in what was left open and says what cannot be.
func (c *Config) check() error {
	if err := c.checkWhat(); err != nil {
		return err
	}
	if err := c.checkLimits(); err != nil {
		return err
	}
	if c.ReadHeaderTimeout == 0 {
		c.ReadHeaderTimeout = c.ReadTimeout
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = c.ReadTimeout
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return nil
}

// checkWhat settles handler, engine and mode.
func (c *Config) checkWhat() error {
	set := 0
	for _, is := range []bool{c.Handler != nil, c.Lean != nil, c.Conn != nil} {
		if is {
			set++
		}
	}
	if set != 1 {
		return errors.New("server: set one of Handler, Lean and Conn")
	}
	if c.Engine == "" {
		c.Engine = Auto
	}
	if c.Mode == "" {
		c.Mode = Goroutine
		if c.Lean != nil {
			c.Mode = Inline
		}
	}
	switch c.Engine {
	case Auto, Uring, Epoll, Std:
	default:
		return fmt.Errorf("server: engine %q: want auto, uring, epoll or std", c.Engine)
	}
	switch {
	case c.Mode != Goroutine && c.Mode != Coroutine && c.Mode != Inline:
		return fmt.Errorf("server: mode %q: want goroutine, coroutine or inline", c.Mode)
	case c.Mode == Inline && c.Lean == nil:
		return errors.New("server: mode inline needs a Lean handler")
	case (c.Mode == Inline || c.Conn != nil) && (c.ConnState != nil || c.ConnContext != nil || c.BaseContext != nil):
		return errors.New("server: ConnState, ConnContext and BaseContext are for a Handler; a Conn or Lean handler has none of them")
	case c.SQPoll && c.Engine != Uring:
		return errors.New("server: SQPoll needs engine uring")
	}
	if c.TLS != nil { // crypto/tls waits where it reads
		c.Mode = Goroutine
	}
	return nil
}

// checkLimits settles numbers.
func (c *Config) checkLimits() error {
	loops := min(runtime.GOMAXPROCS(0), maxLoops)
	if c.Mode == Goroutine {
		loops = (loops + 1) / 2
	}
	for _, n := range []struct {
		name     string
		value    *int
		def      int
		min, max int
	}{
		{"Loops", &c.Loops, loops, 1, maxLoops},
		{"MaxConns", &c.MaxConns, defaultMaxConns, 1, mostConns},
		{"MaxHeaderBytes", &c.MaxHeaderBytes, defaultMaxHeader, minHeader, mostHeader},
	} {
		if *n.value == 0 {
			*n.value = n.def
		}
		if *n.value < n.min || *n.value > n.max {
			return fmt.Errorf("server: %s %d: want %d to %d", n.name, *n.value, n.min, n.max)
		}
	}
	for _, d := range []time.Duration{c.ReadTimeout, c.ReadHeaderTimeout, c.WriteTimeout, c.IdleTimeout, c.SQPollIdle} {
		if d < 0 {
			return fmt.Errorf("server: time-out %v is negative", d)
		}
	}
	if c.MaxBodyBytes < 0 || c.MaxBodyMemory < 0 {
		return fmt.Errorf("server: MaxBodyBytes %d, MaxBodyMemory %d: want 0 or more", c.MaxBodyBytes, c.MaxBodyMemory)
	}
	if c.Headroom < -1 || c.Headroom > mostHeadroom {
		return fmt.Errorf("server: Headroom %d: want -1 to %d", c.Headroom, mostHeadroom)
	}
	if c.Headroom == 0 {
		c.Headroom = defaultHeadroom
	}
	if c.MaxBodyMemory == 0 {
		c.MaxBodyMemory = defaultBodies
	}
	if c.Lean != nil && c.MaxBodyBytes == 0 {
		c.MaxBodyBytes = defaultMaxBody
	}
	return nil
}
