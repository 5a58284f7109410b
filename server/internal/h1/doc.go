// Package h1 speaks HTTP/1.1 on connections. It knows requests, answers and how they are framed; it
// knows neither sockets nor loops' turns.
//
// There are two kinds of session. A [Session] runs an http.Handler on a [Stream], which is a
// net.Conn with a little more: on a goroutine, or on a coroutine. An [Inline] answers requests
// where they arrive, in a loop, by a [LeanHandler]. Both read requests by package http1, and both
// ask the same function how an answer is framed and what becomes of the connection: decide, in
// plan.go.
//
// The way of a request through a Session:
//
//	readHead → request (the http.Request of a head) → call (the handler) ⇄ body, writer → finish → readHead
package h1

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/tallywheel/tallywheel/internal/http1"
)

// Config is what sessions need to know of their server.
type Config struct {
	Handler     http.Handler
	PlainSlash  bool // OPTIONS * goes to the handler, too
	ReadTimeout time.Duration

	ReadHeaderTimeout, WriteTimeout, IdleTimeout time.Duration

	MaxHeaderBytes int
	MaxBodyBytes   int64 // 0: any number

	Log    *slog.Logger
	Server *http.Server            // the value of http.ServerContextKey
	Date   func(came int64) []byte // the value of the field Date, for a request that came then
	Closes func() bool             // no connection is kept any more
}

// Stream is a connection with what a session asks of it beyond net.Conn.
type Stream interface {
	net.Conn
	// waits for input, its end or a deadline; or reports that one must not wait here
	WaitInput() (ready bool, err error)
	OnGone(func()) // asks for a call when the peer has left
	// Read, where at least left bytes are to come, b's among them
	ReadPart(b []byte, left int64) (int, error)
	// the rest of a head is waited for, or is there: a server that ends bounds the wait
	AwaitHead(on bool)
	BodyRead()             // a request was read to its end
	Draining() bool        // the server is going to end
	Came() int64           // when the newest input came
	End(linger bool) error // closes; linger lets the peer read what was written
	// n requests were answered that came at that time; timed: they say how quick we are
	Count(came int64, n int, timed bool)
	WriteLast(b []byte) (int, error) // Write, which End(false) follows
	// Write, which SendFile follows: the end of b may wait for that
	WriteMore(b []byte) (int, error)
	WriteAll(net.Buffers) error                                   // writes all, and uses the argument up
	SendFile(from *os.File, off, n int64) (sent int64, err error) // errors.ErrUnsupported: it cannot
	// gives the connection to a handler, with input that was not read
	Hijack() (c net.Conn, rest []byte, err error)
}

// What ends a session.
var (
	ErrIdle     = errors.New("there is nothing to do until more input comes")
	ErrPromote  = errors.New("the request needs a goroutine")
	errHijacked = errors.New("the handler has taken the connection over")
	errLeave    = errors.New("the connection is over")
	errUnread   = errors.New("the request was not read to its end")
	errAborted  = errors.New("the handler panicked")
	errSlow     = &http1.Error{Status: http.StatusRequestTimeout, Reason: "the request did not come in time"}
	errCut      = &http1.Error{Status: http.StatusBadRequest, Reason: "the request ended in its middle"}
)

// Limits of net/http that are its handlers' expectations.
const (
	maxPostHandlerRead = 256 << 10 // of a body that the handler did not read
	heldBody           = 2 << 10   // written body that waits for more, or for the end: then its length is known
	leastRequest       = 4         // bytes behind an answer: fewer are not looked at, and end without a word
)

// errorAnswer is the answer to a request that cannot be understood, in the words of net/http.
func errorAnswer(e *http1.Error) []byte {
	line := fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status))
	if e.Status == http.StatusNotImplemented {
		return fmt.Appendf(nil, errorHead+"Unsupported transfer encoding", line)
	}
	return fmt.Appendf(nil, errorHead+"%s: %s", line, line, e.Reason)
}

const errorHead = "HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

// lead is what may lie between two requests: one empty line (RFC 9112, section 2.2), or after a
// POST up to two, whatever their ends, from old clients that end a body with them.
type lead struct {
	skipped   int
	over      bool // a request has begun
	afterPost bool
}

// skip says how many bytes at the start of b are none of a request, and whether more is needed to
// tell.
func (l *lead) skip(b []byte) (n int, wait bool) {
	if l.over {
		return 0, false
	}
	for n < len(b) && (b[n] == '\r' || b[n] == '\n') && l.skipped < 4 {
		if !l.afterPost {
			if l.skipped == 2 || b[n] != '\r' {
				break
			}
			if n+1 == len(b) {
				return n, true
			}
			if b[n+1] != '\n' {
				break
			}
			n++
			l.skipped++
		}
		n++
		l.skipped++
	}
	l.over = n < len(b)
	return n, !l.over
}
