package loop

import (
	"os"
	"sync/atomic"

	"github.com/tallywheel/tallywheel/internal/sys"
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
	p := filePart{from: from, off: off, left: n, share: fileShare}
	for p.left > 0 {
		if err := g.writeError(); err != nil {
			return n - p.left, opError("sendfile", err)
		}
		rooms := g.rooms
		m, err := g.sendPart(&p)
		g.c.loop.tally.Out += uint64(m)
		switch {
		case err == ErrWait && g.rooms != rooms: // it has been told of room already, and is not again
		case err == ErrWait:
			g.c.AwaitRoom()
			_ = g.wait(toWrite)
			p.newTurn()
		case err != nil:
			return n - p.left, opError("sendfile", err)
		case m == 0:
			return n - p.left, nil
		case p.share <= 0 && p.left > 0:
			g.giveWay()
			p.newTurn()
		}
	}
	return n, nil
}

// filePart is what is still to be sent of a file.
type filePart struct {
	from      *os.File
	off, left int64
	share     int64 // of it, that the loop may still send in this turn
	found     int64 // … that was found in the page cache in this turn …
	how       sys.Presence
}

// sent notes what was sent, and reports it on.
func (p *filePart) sent(m int, err error) (int, error) {
	n := int64(m)
	p.off, p.left, p.share, p.found = p.off+n, p.left-n, p.share-n, p.found-n
	return m, err
}

// newTurn forgets what was found before others had their turn: pages may have gone since.
func (p *filePart) newTurn() { p.share, p.found = fileShare, 0 }

// sendPart sends of a file what the socket takes: its share of the turn at most, if the loop does
// it. ErrWait may come with what it has taken before it was full; 0 without an error is the end of
// the file.
func (g *CoConn) sendPart(p *filePart) (int, error) {
	if p.found <= 0 { // else a socket took less than there was: most likely it is full
		p.found = min(p.left, p.share)
		p.how = g.c.sock.InCache(p.from, p.off, int(p.found))
	}
	switch {
	case p.how == sys.Prompt && g.c.loop.serving == 0:
		// The runtime's monitor would take the P away after 20 µs, for nobody: the loop's
		// connections have no goroutines now.
		return p.sent(g.c.sock.SendPrompt(p.from, p.off, int(p.found)))
	case p.how >= sys.Counted || p.how == sys.Unknown && p.found < asideFrom:
		return p.sent(g.c.sock.SendFile(p.from, p.off, int(p.found)))
	}
	m, err := p.sent(g.sendAside(p.from, p.off, min(p.left, maxAside)))
	p.newTurn() // the others had theirs meanwhile
	return m, err
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
