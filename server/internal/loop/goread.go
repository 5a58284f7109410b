package loop

import (
	"io"
	"net"
	"os"
)

// readError is why nothing can be read; nil if it is worth waiting. g.mu is held.
func (g *GoConn) readError() error {
	switch {
	case g.closed:
		return net.ErrClosed
	case g.in.Len() > 0:
		return nil
	case g.err != nil:
		return g.err
	case g.shut:
		return net.ErrClosed
	case g.passed(g.readBy) || g.idle && g.unwanted:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// Read implements net.Conn.
func (g *GoConn) Read(b []byte) (int, error) { return g.ReadPart(b, 0) }

// receiveMore receives on the loop what the socket has behind b of a large body, and returns memory
// that begins with b; nil if nobody waits for such a body, or none may be there.
func (g *GoConn) receiveMore(b Lent) (block *[]byte, n int) {
	if g.aside || !g.large.Swap(false) || !g.c.ExpectLarge() || len(b) < SmallBlock {
		return nil, 0
	}
	block = newBlock(len(b) + MaxHeld)
	if block == nil {
		return nil, 0
	}
	n = copy(*block, b)
	return block, n + g.c.Receive((*block)[n:n+MaxHeld])
}

const (
	smallRead = 32 << 10 // a call of the kernel for less costs more than copying twice
	readAhead = 64 << 10 // what a call fetches then
)

// ReadPart is Read where at least left more bytes are to come, b's among them: more than b takes of
// them may be fetched by one call.
func (g *GoConn) ReadPart(b []byte, left int64) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if left >= LargeInput && !g.aside && !g.large.Load() {
		g.large.Store(true)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.later = nil
	for {
		if !g.closed && !g.grace && g.passed(g.readBy) {
			return 0, opError("read", os.ErrDeadlineExceeded)
		}
		g.grace = false
		if err := g.readError(); err != nil {
			return 0, opError("read", err)
		}
		if g.in.Len() > 0 {
			return g.consume(b), nil
		}
		if g.aside && !g.receiving && g.detach == attached {
			g.mine = true
			if g.ready {
				if len(b) < smallRead && left > int64(len(b)) {
					g.fetch(int(min(left, readAhead)))
				} else if n := g.receive(b); n > 0 {
					return n, nil
				}
				continue
			}
		}
		g.read.Wait()
	}
}

// consume takes what fits b of the input. g.mu is held.
func (g *GoConn) consume(b []byte) int {
	n := g.in.Read(b)
	if g.held && g.in.Len() <= MaxHeld/2 {
		g.held, g.asked.resume = false, true
		g.ask()
	}
	return n
}

// ReadNow is Read behind BodyRead that does not wait. Where there is nothing for now it returns
// os.ErrDeadlineExceeded, as it is, and a goroutine calls later when input has come, unless
// somebody has begun to Read before. Deadlines do not matter to it.
func (g *GoConn) ReadNow(b []byte, later func()) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.later = nil
	switch err := g.readError(); {
	case err != nil && err != os.ErrDeadlineExceeded:
		return 0, opError("read", err)
	case g.in.Len() > 0:
		return g.consume(b), nil
	}
	g.later = later
	if g.aside && g.ready { // the loop has left it to a reader
		g.asked.resume = true
		g.ask()
	}
	return 0, os.ErrDeadlineExceeded
}

// receive reads from the socket. The socket is ours. g.mu is held.
func (g *GoConn) receive(b []byte) (n int) {
	g.ready = false // what comes from now on makes it ready again
	var err error
	g.use(func() { n, err = g.c.sock.Receive(b) })
	switch {
	case err == ErrWait:
		return 0
	case err != nil:
		g.found(err)
		return 0
	case n == 0:
		g.found(io.EOF)
		return 0
	}
	if n == len(b) || g.last { // else there was no more
		g.ready = true
		g.read.Broadcast() // another reader may wait for it
	}
	g.arrived.Store(g.c.loop.group.Clock())
	g.c.loop.shared.Read.Add(uint64(n))
	return n
}

// fetch receives at most n bytes as input, in the loop's place. The socket is ours. g.mu is held,
// but not during the call.
func (g *GoConn) fetch(n int) {
	block := newBlock(n)
	g.receiving = true
	n = g.receive((*block)[:n])
	g.receiving = false
	if !g.closed {
		g.in.add(block, n)
	} else {
		freeBlock(block)
	}
	g.read.Broadcast()
}

// found takes note of the end of the input. g.mu is held.
func (g *GoConn) found(err error) {
	if g.err == nil {
		g.err = err
	}
	g.asked.ended = err
	g.ask()
}

// WaitInput waits until there is something to read, its end or a deadline: between requests no
// memory is held for it, and the loop receives.
func (g *GoConn) WaitInput() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.idle = true
	defer func() { g.idle = false }()
	if g.duck.Load() && g.in.Len() == 0 {
		g.leaveSoon()
	}
	for {
		if err := g.readError(); err != nil || g.in.Len() > 0 {
			g.grace = err == nil
			return err
		}
		if g.giveBack() {
			g.grace = true
			return nil
		}
		g.read.Wait()
	}
}

// BodyRead says that a request was read to its end: the loop receives from now on, and so finds out
// when the peer leaves.
func (g *GoConn) BodyRead() {
	g.mu.Lock()
	defer g.mu.Unlock()
	// The next request, or the end: the loop takes it. It may have left that to a reader, who has
	// not come to it: a request without a body is read before its end is looked for.
	if something := g.mine && g.giveBack() || g.aside && g.ready && g.in.Len() == 0; something {
		g.mine, g.asked.resume = false, true
		g.ask()
	}
}

// giveBack lets the loop receive again, unless there is something to receive, which it reports:
// then a reader has to. g.mu is held.
func (g *GoConn) giveBack() (something bool) {
	for g.aside && g.ready && !g.receiving && !g.shut {
		g.ready, g.mine = false, true
		var err error
		g.use(func() { err = g.c.sock.Peek() })
		if err != ErrWait {
			g.ready = true
			return true
		}
	}
	g.mine = false
	return false
}
