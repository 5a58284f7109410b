package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/tallywheel/tallywheel/server/internal/h1"
	"github.com/tallywheel/tallywheel/server/internal/loop"
)

// goStream is a connection on a goroutine as a session sees it.
type goStream struct {
	*loop.GoConn
	s *Server
}

// WaitInput implements h1.Stream.
func (g goStream) WaitInput() (bool, error) { return true, g.GoConn.WaitInput() }

// Count implements h1.Stream.
func (g goStream) Count(came int64, n int, timed bool) { g.s.count(g.Loop(), came, n, timed) }

// Hijack implements h1.Stream.
func (g goStream) Hijack() (net.Conn, []byte, error) { return g.Detach() }

// count counts requests that a goroutine has answered.
func (s *Server) count(l *loop.Loop, came int64, n int, timed bool) {
	c := &s.counts[l.Index()]
	if timed {
		c.latency.record(time.Duration(s.group.Clock()-came), int64(n))
	}
	c.answered.Add(uint64(n))
}

// coStream is a connection on a coroutine as a session sees it.
type coStream struct {
	*loop.CoConn
	s *Server
}

// Count implements h1.Stream.
func (g coStream) Count(_ int64, n int, timed bool) {
	l := g.Conn().Loop()
	l.Tally().Requests += uint64(n)
	if timed {
		l.Data.(*turnCount).answers += int64(n)
	}
}

// SetDeadline implements h1.Stream, and so do its like: the coroutine alone sets deadlines by it.
func (g coStream) SetDeadline(t time.Time) error { return g.SetDeadlines(t, true, true) }

// SetReadDeadline implements h1.Stream.
func (g coStream) SetReadDeadline(t time.Time) error { return g.SetDeadlines(t, true, false) }

// SetWriteDeadline implements h1.Stream.
func (g coStream) SetWriteDeadline(t time.Time) error { return g.SetDeadlines(t, false, true) }

// BodyRead implements h1.Stream: the loop receives at all times.
func (coStream) BodyRead() {}

// Hijack implements h1.Stream.
func (coStream) Hijack() (net.Conn, []byte, error) { return nil, nil, errors.ErrUnsupported }

// serveConn is the life of a connection on a goroutine.
func (s *Server) serveConn(g *loop.GoConn) {
	switch {
	case s.cfg.TLS != nil:
		s.serveTLS(g)
	case s.cfg.Conn != nil:
		s.serveTCP(g)
	default:
		sess := h1.NewSession(&s.http, goStream{g, s})
		if at := g.Began(); at != 0 {
			sess.Began = s.group.Time(at)
		}
		s.attend(sess, g, g.Origin())
		s.tell(g, http.StateNew)
		s.serveSession(sess)
	}
}

// attend gives a session what the configuration wants for its connection.
func (s *Server) attend(sess *h1.Session, c net.Conn, origin any) {
	sess.Context = s.connContext(c, origin)
	if hook := s.cfg.ConnState; hook != nil {
		sess.State = func(state http.ConnState) { hook(c, state) }
	}
}

// tell tells ConnState of a connection.
func (s *Server) tell(c net.Conn, state http.ConnState) {
	if hook := s.cfg.ConnState; hook != nil {
		hook(c, state)
	}
}

// connContext is the context of a connection's requests; origin is that of its listener.
func (s *Server) connContext(c net.Conn, origin any) context.Context {
	ctx := origin.(context.Context)
	if f := s.cfg.ConnContext; f != nil {
		ctx = context.WithValue(ctx, http.ServerContextKey, s.std)
		if ctx = f(ctx, c); ctx == nil {
			panic("server: ConnContext returned nil")
		}
	}
	return ctx
}

// serveSession runs a session on a goroutine. It has ended the connection and said what there is to
// say when it returns, unless the handler has ended its goroutine.
func (s *Server) serveSession(sess *h1.Session) {
	defer func() {
		if sess.State != nil && !sess.Hijacked() {
			sess.State(http.StateClosed)
		}
	}()
	_ = sess.Serve() // how it ended
}

// onCoroutine serves a connection on a coroutine.
type onCoroutine struct {
	s    *Server
	c    *loop.CoConn
	sess *h1.Session // nil for a ConnHandler
}

func (s *Server) newCoroutine(c *loop.Conn) loop.App {
	g := loop.NewCoConn(c)
	o := &onCoroutine{s: s, c: g}
	if s.cfg.Conn == nil {
		o.sess = h1.NewSession(&s.http, coStream{g, s})
		o.sess.Coroutine = true
	}
	g.Serve(o)
	return g
}

// Begin implements loop.Service.
func (o *onCoroutine) Begin() {
	if o.sess == nil {
		return
	}
	if c := &o.s.cfg; c.ConnState == nil && c.ConnContext == nil {
		o.s.attend(o.sess, o.c, o.c.Origin())
	} else if !o.s.hooked(func() {
		o.s.attend(o.sess, o.c, o.c.Origin())
		o.s.tell(o.c, http.StateNew)
	}) {
		_ = o.c.Close()
	}
}

// hooked calls a hook of the configuration on a loop's thread, and reports whether it has returned.
// A panic in it is logged.
func (s *Server) hooked(f func()) (returned bool) {
	loop.Guard(func() {
		defer func() {
			if !returned {
				if p := recover(); p != nil {
					s.log.Error("a hook panicked", "panic", p, "stack", string(debug.Stack()))
				} else {
					s.log.Error("a hook has called runtime.Goexit")
				}
			}
		}()
		f()
		returned = true
	})
	return returned
}

// Serve implements loop.Service.
func (o *onCoroutine) Serve() (verdict loop.Verdict) {
	if o.sess == nil {
		o.s.serveTCP(o.c)
		return loop.Over
	}
	if o.sess.State != nil { // a hook, whose panics are nobody else's
		defer func() {
			if p := recover(); p != nil {
				o.s.log.Error("a hook panicked", "panic", p, "stack", string(debug.Stack()))
				_ = o.c.End(true)
				verdict = loop.Over
			}
		}()
	}
	switch o.sess.Serve() {
	case h1.ErrIdle:
		return loop.Idle
	case h1.ErrPromote:
		return loop.Promote
	}
	return loop.Over
}

// Promoted implements loop.Service.
func (o *onCoroutine) Promoted(g *loop.GoConn) {
	o.sess.Move(goStream{g, o.s})
	o.s.serveSession(o.sess)
}

// Closed implements loop.Service.
func (o *onCoroutine) Closed() {
	if o.sess != nil && o.sess.State != nil {
		o.s.hooked(func() { o.sess.State(http.StateClosed) })
	}
}
