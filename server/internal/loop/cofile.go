package loop

import (
	"os"
	"sync/atomic"
)

// aside is a part of a file that a goroutine sends for a coroutine, which waits.
type aside struct {
	over atomic.Bool
	n    int
	err  error
}

// SendFile sends n bytes of a file, and returns how many were sent.
func (g *CoConn) SendFile(from *os.File, off int64, n int64) (done int64, err error) {
	if err := g.elsewhere(); err != nil {
		return 0, opError("sendfile", err)
	}
	g.drainOutput()
	for done < n {
		if err := g.writeError(); err != nil {
			return done, opError("sendfile", err)
		}
		m, err := g.sendPart(from, off+done, min(n-done, maxSendFile))
		done += int64(m)
		g.c.loop.tally.Out += uint64(m)
		switch {
		case err == ErrWait:
			g.c.AwaitRoom()
			_ = g.wait(toWrite)
		case err != nil:
			return done, opError("sendfile", err)
		case m == 0:
			return done, nil
		}
	}
	return done, nil
}

const (
	maxSendFile = 4 << 20   // at a time, so that its pieces are counted as they go
	asideFrom   = 256 << 10 // bytes: what takes long, or may have to wait for the disk, does not hold the loop
)

// sendPart sends of a file what the socket takes, of n bytes. ErrWait comes with what it has taken
// before it was full; 0 without an error is the end of the file.
func (g *CoConn) sendPart(from *os.File, off, n int64) (sent int, err error) {
	if n >= asideFrom {
		sent, err = g.sendAside(from, off, n)
		if err != ErrWait && (err != nil || sent == 0 || int64(sent) == n) {
			return sent, err
		}
		if err := g.writeError(); err != nil { // the descriptor may be closed by now
			return sent, err
		}
		// It is full most likely. But there may have been room since, of which the loop was told
		// meanwhile, and not again.
		off, n = off+int64(sent), min(n-int64(sent), asideFrom)
	}
	more, err := g.c.sock.SendFile(from, off, int(n))
	return sent + more, err
}

// sendAside does it on a goroutine.
func (g *CoConn) sendAside(from *os.File, off, n int64) (int, error) {
	a := &aside{}
	g.aside = a
	g.c.loop.serving++
	go func() {
		a.n, a.err = g.c.sock.SendFile(from, off, int(n))
		a.over.Store(true)
		g.c.loop.post(post{what: postConn, c: g.c})
	}()
	for !a.over.Load() {
		_ = g.wait(toWrite)
	}
	g.c.loop.serving--
	g.aside = nil
	return a.n, a.err
}
