package main

import (
	"net"
	"net/http"
	"sync"
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
}

// lastAnswers is how long a desk that closes waits for who has connected: to send a request, and to
// hear the answer.
const lastAnswers = 5 * time.Second

func openDesk(ln net.Listener, h http.Handler) *desk {
	d := &desk{ln: ln, ended: make(chan error, 1)}
	d.srv.Handler, d.srv.ReadHeaderTimeout = h, 10*time.Second
	d.srv.SetKeepAlivesEnabled(false)
	d.srv.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew: // Serve calls this itself, before it accepts another
			d.open.Add(1)
		case http.StateClosed:
			d.open.Done()
		}
	}
	go func() { d.ended <- d.srv.Serve(ln) }()
	return d
}

// close accepts no more, and returns when all who were accepted have their answers, or when
// lastAnswers is over. Who connects from now on waits at the socket, if somebody else has it open.
func (d *desk) close() {
	_ = d.ln.Close()
	<-d.ended // open grows no more
	answered := make(chan struct{})
	go func() {
		d.open.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(lastAnswers):
	}
	_ = d.srv.Close()
}
