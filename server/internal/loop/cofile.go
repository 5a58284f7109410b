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

const (
	fileShare = 512 << 10 // of a file: then the other connections have their turn
	maxAside  = 4 << 20   // at a time, so that its pieces are counted as they go
	asideFrom = 256 << 10 // bytes that may have to wait for the disk, where nobody knows
)

// SendFile sends n bytes of a file, and returns how many were sent: fewer, without an error, if the
// file ends. What is in the page cache the loop sends. What is not, a goroutine sends, and the loop
// goes on meanwhile: it does not wait for a disk.
func (g *CoConn) SendFile(from *os.File, off int64, n int64) (done int64, err error) {
	if err := g.elsewhere(); err != nil {
		return 0, opError("sendfile", err)
	}
	g.drainOutput()
	for share := int64(fileShare); done < n; {
		if err := g.writeError(); err != nil {
			return done, opError("sendfile", err)
		}
		rooms := g.rooms
		m, err := g.sendPart(from, off+done, n-done, share)
		done += int64(m)
		share -= int64(m)
		g.c.loop.tally.Out += uint64(m)
		switch {
		case err == ErrWait && g.rooms != rooms: // it has been told of room already, and is not again
		case err == ErrWait:
			g.c.AwaitRoom()
			_ = g.wait(toWrite)
			share = fileShare
		case err != nil:
			return done, opError("sendfile", err)
		case m == 0:
			return done, nil
		case share <= 0 && done < n:
			g.giveWay()
			share = fileShare
		}
	}
	return done, nil
}

// sendPart sends of n bytes of a file what the socket takes: share at most, if the loop does it.
// ErrWait may come with what it has taken before it was full; 0 without an error is the end of the
// file.
func (g *CoConn) sendPart(from *os.File, off, n, share int64) (int, error) {
	share = min(n, share)
	cached, known := g.c.sock.InCache(from, off, int(share))
	if cached || !known && share < asideFrom {
		return g.c.sock.SendFile(from, off, int(share))
	}
	return g.sendAside(from, off, min(n, maxAside))
}

// sendAside sends a part of a file on a goroutine.
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

// giveWay lets the loop do a turn for its other connections.
func (g *CoConn) giveWay() {
	g.c.loop.post(post{what: postConn, c: g.c})
	_ = g.wait(toWrite)
}

// WriteMore is Write of what SendFile follows: the end of it may wait for that.
func (g *CoConn) WriteMore(b []byte) (int, error) {
	n := 0
	if g.elsewhere() == nil && g.c.queued == 0 && g.writeError() == nil {
		n, _ = g.c.sock.SendMore(b) // an error shows again
		g.c.loop.tally.Out += uint64(n)
	}
	m, err := g.Write(b[n:])
	return n + m, err
}
