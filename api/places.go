package api

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/beat"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/recorder"
)

// Most places there are; fewer where descriptors are few. Whoever reads the log takes a descriptor
// and up to some 5 MiB for its batches.
const (
	maxConns   = 4096
	minConns   = 4
	maxStreams = 32  // event streams of records
	maxWatches = 256 // event streams of the status
	maxPages   = 16  // pages of records that are made at a time
	maxBodies  = 4   // bodies of requests that are read at a time
)

// Memory is what the API may need at a time, in bytes.
const Memory = (maxStreams+maxPages)*(6<<20) + maxConns*(16<<10)

// pageWait is how long a request waits for others that make pages.
const pageWait = 5 * time.Second

// bodyTimeout is how long a client may take to send the body of a request.
const bodyTimeout = 2 * time.Second

// retryAfter is when a client that found no place may come again, in seconds.
const retryAfter = 5

// places bounds how many clients do the same at a time, so that those that stay leave room for the
// others: a quarter of all connections is never taken by streams and pages. Bodies take that only
// where there are four connections, and for a moment.
type places chan struct{}

// enter takes a place, and waits for one until the context ends.
func (p places) enter(ctx context.Context) bool {
	select {
	case p <- struct{}{}:
		return true
	default:
	}
	select {
	case p <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p places) leave() { <-p }

// seats are the places of all kinds.
type seats struct {
	conns                           int
	streams, watches, pages, bodies places
}

func newSeats(conns int) seats {
	of := func(most int) places { return make(places, max(1, min(most, conns/4))) }
	return seats{conns, of(maxStreams), of(maxWatches), of(maxPages), of(maxBodies)}
}

// connections is how many clients may be connected at a time with so many descriptors. A client
// takes one, and one more for the segment that it reads, which half of them do at most.
func connections(descriptors int) int { return max(minConns, min(maxConns, descriptors*2/3)) }

// seatsFor is the seats of an API; tests put fewer in their place.
var seatsFor = func(r *recorder.Recorder) seats { return newSeats(connections(r.Clients())) }

// crowded reports whether so many are connected that nobody keeps a connection without using it.
func (s *Server) crowded() bool { return s.http.Stats().Open > s.seats.conns*3/4 }

// While all places are taken, those who do not use theirs lose it: they are looked for so often,
// and a client that has connected has so long to send a whole head.
const (
	roomLook   = time.Second            // while there is room
	crowdLook  = 100 * time.Millisecond // while there is none
	silentMost = 250 * time.Millisecond
	silentLook = time.Millisecond // at least
)

// silence is how long a client may say nothing, or only a part of what it has to, while so many
// wait for one of the places. Those share silentMost, so that the last of them has waited for some
// seconds at most, however many there are.
func silence(places, waiting int) time.Duration {
	return silentMost * time.Duration(places) / time.Duration(max(places, waiting))
}

// makeRoom ends connections that nobody uses while there is no place for another: whoever asks how
// the recorder does is answered, however many connect, and say nothing, or begin to say something.
func (s *Server) makeRoom(waiting func() int) {
	look := time.NewTimer(beat.Next(roomLook))
	defer look.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-look.C:
		}
		next := beat.Next(roomLook)
		if s.http.Stats().Open >= s.seats.conns {
			next = crowdLook
			if n := waiting(); n > 0 {
				patience := silence(s.seats.conns, n)
				s.http.EndIdle(patience)
				next = min(next, max(patience/2, silentLook))
			}
		}
		look.Reset(next)
	}
}

// waitingAt counts the clients that wait at a listener to be accepted.
func waitingAt(l net.Listener) func() int {
	c, ok := l.(syscall.Conn)
	if !ok {
		return func() int { return 1 }
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return func() int { return 1 }
	}
	return func() (n int) {
		_ = raw.Control(func(fd uintptr) { n = sys.Backlogged(int(fd)) })
		return n
	}
}

// withBody is for requests that have a body, few of which are read at a time, each for bodyTimeout
// at most.
func (s *Server) withBody(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.seats.bodies <- struct{}{}:
			defer s.seats.bodies.leave()
		default:
			leaveBody(w, r)
			busy(w, "too many clients send something at the same time")
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // an error shows when it is read
		next(w, r)
	}
}

// leaveBody has an answer not wait for what is still to come of the body of a request.
func leaveBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // an error: there is no connection
	}
}

// busy refuses a request that found no place, and its connection: a client that stays connected
// would take the place of one that can be served.
func busy(w http.ResponseWriter, what string) {
	w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	w.Header().Set("Connection", "close")
	fail(w, http.StatusServiceUnavailable, what)
}

// patient writes an answer of any length: a client has writeTimeout for each part, and is cut when
// it takes longer.
type patient struct {
	http.ResponseWriter
	c  *http.ResponseController
	at time.Time // when the deadline was set last
}

func patiently(w http.ResponseWriter) *patient {
	return &patient{ResponseWriter: w, c: http.NewResponseController(w)}
}

// Write implements io.Writer.
func (p *patient) Write(b []byte) (int, error) {
	if err := p.extend(); err != nil {
		return 0, err
	}
	return p.ResponseWriter.Write(b)
}

// extend gives the client more time. It is called for each record: the deadline is moved once a
// second.
func (p *patient) extend() error {
	now := time.Now()
	if now.Sub(p.at) < time.Second {
		return nil
	}
	p.at = now
	return p.c.SetWriteDeadline(now.Add(writeTimeout))
}

// flush sends what was written.
func (p *patient) flush() error {
	if err := p.extend(); err != nil {
		return err
	}
	return p.c.Flush()
}
