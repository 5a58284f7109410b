package h1

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// requestContext is the context of a request. It costs nothing until somebody asks for its end.
type requestContext exchange

// ending is what a request's context has once somebody asks for its end.
type ending struct {
	mu    sync.Mutex
	stop  func() bool // ends the following of the connection's context
	done  chan struct{}
	over  bool
	calls map[*func()]struct{}
}

// ended is the ending of all contexts whose end nobody has asked for before.
var ended = func() *ending { c := make(chan struct{}); close(c); return &ending{over: true, done: c} }()

// ending makes it if need be.
func (x *requestContext) ending() *ending {
	if x.end.Load() == nil {
		x.end.CompareAndSwap(nil, new(ending))
	}
	return x.end.Load()
}

// follow makes the context end with that of the connection.
func (x *requestContext) follow(base context.Context) {
	if base.Done() != nil {
		e := x.ending()
		e.mu.Lock()
		e.stop = context.AfterFunc(base, x.cancel)
		e.mu.Unlock()
	}
}

// Deadline implements context.Context.
func (x *requestContext) Deadline() (time.Time, bool) { return x.from.s.Context.Deadline() }

// Done implements context.Context.
func (x *requestContext) Done() <-chan struct{} {
	e := x.ending()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done == nil {
		e.done = make(chan struct{})
	}
	return e.done
}

// Err implements context.Context.
func (x *requestContext) Err() error {
	if e := x.end.Load(); e != nil && e.isOver() {
		return context.Canceled
	}
	return nil
}

func (e *ending) isOver() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.over
}

// Value implements context.Context.
func (x *requestContext) Value(key any) any {
	switch key {
	case http.ServerContextKey:
		return x.from.s.cfg.Server
	case http.LocalAddrContextKey:
		return x.from.c.LocalAddr()
	}
	return x.from.s.Context.Value(key)
}

// AfterFunc lets package context follow this one without a goroutine.
func (x *requestContext) AfterFunc(f func()) (stop func() bool) {
	e := x.ending()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		go f()
		return func() bool { return false }
	}
	if e.calls == nil {
		e.calls = map[*func()]struct{}{}
	}
	e.calls[&f] = struct{}{}
	return func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		_, waits := e.calls[&f]
		delete(e.calls, &f)
		return waits
	}
}

func (x *requestContext) cancel() {
	if x.end.CompareAndSwap(nil, ended) {
		return
	}
	e := x.end.Load()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return
	}
	e.over = true
	if e.stop != nil {
		e.stop()
	}
	if e.done == nil {
		e.done = ended.done
	} else {
		close(e.done)
	}
	for f := range e.calls {
		go (*f)()
	}
	e.calls = nil
}
