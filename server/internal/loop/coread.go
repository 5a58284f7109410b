package loop

import (
	"net"
	"os"
)

// await waits until there is input, its end or a deadline.
func (g *CoConn) await() error {
	for g.in.Len() == 0 {
		switch {
		case g.shut:
			return net.ErrClosed
		case g.err != nil:
			return g.err
		case g.passed(g.c.readBy):
			return os.ErrDeadlineExceeded
		}
		if err := g.wait(toRead); err != nil {
			return err
		}
	}
	return nil
}

// WaitInput does not wait: it reports whether there is something to do, input, its end or a
// deadline. If not, the Service returns Idle.
func (g *CoConn) WaitInput() (ready bool, err error) {
	g.idle = true
	if g.in.Len() == 0 && g.err == nil && !g.shut && !g.passed(g.c.readBy) {
		g.in.Drop()
		if g.duck && !g.leaving {
			g.leaveSoon()
		}
		g.waitForClient()
		return false, nil
	}
	g.tick()
	err = g.await()
	g.idle, g.grace = false, err == nil
	return true, err
}

// Read implements net.Conn.
func (g *CoConn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if !g.wants.is(nothing) {
		return 0, opError("read", ErrElsewhere)
	}
	if g.shut {
		return 0, opError("read", net.ErrClosed)
	}
	if g.passed(g.c.readBy) && !g.grace {
		return 0, opError("read", os.ErrDeadlineExceeded)
	}
	g.grace = false
	if err := g.await(); err != nil {
		return 0, opError("read", err)
	}
	n := g.in.Read(b)
	if g.c.held && g.in.Len() <= MaxHeld/2 {
		g.c.Resume()
	}
	return n, nil
}

// ReadPart is Read where at least left more bytes are to come, b's among them: what the socket has
// of them by now goes straight to b if that is large, and to where further reads find it otherwise.
func (g *CoConn) ReadPart(b []byte, left int64) (int, error) {
	large := left >= LargeInput && g.wants.is(nothing) && g.in.Len() == 0
	if !large || g.shut || g.err != nil || g.passed(g.c.readBy) || g.elsewhere() != nil || !g.c.ExpectLarge() {
		return g.Read(b)
	}
	if int64(len(b)) >= min(left, smallRead) {
		if n := g.c.Receive(b[:min(int64(len(b)), left)]); n > 0 {
			return n, nil
		}
	} else {
		n := int(min(left, readAhead))
		block := newBlock(n)
		g.in.add(block, g.c.Receive((*block)[:n]))
	}
	return g.Read(b)
}
