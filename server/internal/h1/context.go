package h1

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// requestContext is the context of a request. It costs nothing until somebody asks for its end.
type requestContext struct {
	s     *Session
	local net.Conn        // not s.c, which changes
	base  context.Context // of the connection
	stop  func() bool     // ends the following of base
	mu    sync.Mutex
	done  chan struct{}
	over  bool
	calls map[*func()]struct{}
}

// follow makes the context end with that of the connection.
func (x *requestContext) follow(base context.Context) {
	if x.base = base; base.Done() != nil {
		x.stop = context.AfterFunc(base, x.cancel)
	}
}

// Deadline implements context.Context.
func (x *requestContext) Deadline() (time.Time, bool) { return x.base.Deadline() }

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Done implements context.Context.
func (x *requestContext) Done() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.done == nil {
		if x.over {
			x.done = closedChan
		} else {
			x.done = make(chan struct{})
		}
	}
	return x.done
}

// Err implements context.Context.
func (x *requestContext) Err() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return context.Canceled
	}
	return nil
}

// Value implements context.Context.
func (x *requestContext) Value(key any) any {
	switch key {
	case http.ServerContextKey:
		return x.s.cfg.Server
	case http.LocalAddrContextKey:
		return x.local.LocalAddr()
	}
	return x.base.Value(key)
}

// AfterFunc lets package context follow this one without a goroutine.
func (x *requestContext) AfterFunc(f func()) (stop func() bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		go f()
		return func() bool { return false }
	}
	if x.calls == nil {
		x.calls = map[*func()]struct{}{}
	}
	x.calls[&f] = struct{}{}
	return func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		_, waits := x.calls[&f]
		delete(x.calls, &f)
		return waits
	}
}

func (x *requestContext) cancel() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return
	}
	x.over = true
	if x.stop != nil {
		x.stop()
	}
	if x.done != nil {
		close(x.done)
	}
	for f := range x.calls {
		go (*f)()
	}
	x.calls = nil
}
