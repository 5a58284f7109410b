package loop

import (
	"net"
	"sync"
	"time"
)

// outside is what others than the coroutine want of its connection: goroutines, and coroutines of
// other connections. They leave it here and post; the loop does it, in Posted, and wakes the
// coroutine. They touch nothing else of the connection, which is the loop's.
type outside struct {
	mu              sync.Mutex // guards what follows; the loop is posted to under it, and nothing else called
	closed          bool
	read, write     bool // the deadlines have been set
	readBy, writeBy int64
	moved           *GoConn // what the connection has become: all is its business from then on
}

// ofOthers makes it if need be.
func (g *CoConn) ofOthers() *outside {
	if g.out.Load() == nil {
		g.out.CompareAndSwap(nil, new(outside))
	}
	return g.out.Load()
}

// onLoop reports whether the caller has the loop's thread.
func (g *CoConn) onLoop() bool {
	t := g.c.loop.thread
	return t == 0 || t == threadID()
}

// own reports whether the caller may change the connection at once: it is the coroutine, or a hook
// while there is none.
func (g *CoConn) own() bool { return g.onLoop() && g.wants.is(nothing) }

// leave has the loop do what ask leaves for it, or lets what the connection has become do it.
func (g *CoConn) leave(ask func(o *outside) error, become func(*GoConn) error) error {
	o := g.ofOthers()
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.moved != nil:
		return become(o.moved)
	case o.closed:
		return net.ErrClosed
	}
	if err := ask(o); err != nil {
		return err
	}
	if !g.c.loop.post(post{what: postConn, c: g.c}) { // the loop has ended, and the connection with it
		return net.ErrClosed
	}
	return nil
}

func (o *outside) close() error {
	o.closed = true
	return nil
}

// moved says that the connection has become n, and has n do what was left and not done yet. It runs
// on the loop.
func (g *CoConn) moved(n *GoConn) {
	o := g.ofOthers()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.moved = n
	if o.read || o.write {
		n.setUntil(o.readBy, o.writeBy, o.read, o.write)
	}
	if o.closed {
		_ = n.Close()
	}
}

// doOf does on the loop what others have left.
func (g *CoConn) doOf(o *outside) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.read && g.c.state == Open {
		g.c.SetReadBy(o.readBy)
	}
	if o.write && g.c.state == Open {
		g.c.SetWriteBy(o.writeBy)
	}
	o.read, o.write = false, false
	if o.closed {
		_ = g.End(false)
	}
}

// setDeadlines sets deadlines for whoever asks.
func (g *CoConn) setDeadlines(t time.Time, read, write bool) error {
	if g.onLoop() && g.c.app == App(g) {
		return g.SetDeadlines(t, read, write)
	}
	at := g.c.loop.group.At(t)
	err := g.leave(func(o *outside) error {
		if read {
			o.read, o.readBy = true, at
		}
		if write {
			o.write, o.writeBy = true, at
		}
		return nil
	}, func(n *GoConn) error { return n.setUntil(at, at, read, write) })
	if err == net.ErrClosed {
		err = opError("set", err)
	}
	return err
}
