package main

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// desk answers requests at a listener, and closes without losing one. Package net/http's own
// Shutdown drops a request whose head it has read since, on a connection that it had accepted
// before. A connection is for one request, so that none waits for a next one that would be lost.
type desk struct {
	srv   http.Server
	ln    net.Listener
	open  sync.WaitGroup // of the connections that were accepted
	ended chan error     // has the error by which the desk has ended unasked

	mu      sync.Mutex
	callers map[*caller]bool // those who are open
}

// caller is a connection that knows whether anything has come by it. Package net/http tells that
// only when it has a whole head.
type caller struct {
	net.Conn
	spoke atomic.Bool
}

// Read is that of the connection.
func (c *caller) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.spoke.Store(true)
	}
	return n, err
}

// callers is a listener of them.
type callers struct{ net.Listener }

// Accept is that of the listener.
func (l callers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &caller{Conn: c}, nil
}

// How long a desk that closes waits for who has connected.
const (
	firstWord   = 500 * time.Millisecond // to say something: a client does so at once, if it gets a CPU
	lastAnswers = 5 * time.Second        // to send the rest of a request, and to hear the answer
)

func openDesk(ln net.Listener, h http.Handler) *desk {
	d := &desk{ln: ln, ended: make(chan error, 1), callers: map[*caller]bool{}}
	d.srv.Handler, d.srv.ReadHeaderTimeout = h, 10*time.Second
	d.srv.SetKeepAlivesEnabled(false)
	d.srv.ConnState = func(c net.Conn, state http.ConnState) {
		d.mu.Lock()
		defer d.mu.Unlock()
		switch state {
		case http.StateNew: // Serve calls this itself, before it accepts another
			d.open.Add(1)
			d.callers[c.(*caller)] = true
		case http.StateClosed:
			delete(d.callers, c.(*caller))
			d.open.Done()
		}
	}
	go func() { d.ended <- d.srv.Serve(callers{ln}) }()
	return d
}

// close accepts no more, and returns when all who were accepted have their answers, or when
// lastAnswers is over. It waits for firstWord only for those who have said nothing by then. Who
// connects from now on waits at the socket, if somebody else has it open.
func (d *desk) close() {
	_ = d.ln.Close()
	<-d.ended // open grows no more
	answered := make(chan struct{})
	go func() {
		d.open.Wait()
		close(answered)
	}()
	hush := time.AfterFunc(firstWord, d.hangUpSilent)
	defer hush.Stop()
	select {
	case <-answered:
	case <-time.After(lastAnswers):
	}
	_ = d.srv.Close()
}

// hangUpSilent ends the connections by which nothing has come.
func (d *desk) hangUpSilent() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.callers {
		if !c.spoke.Load() {
			_ = c.Close()
		}
	}
}
