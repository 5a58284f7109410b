package loop

import (
	"io"
	"net"
	"os"
	"time"
)

// Write implements net.Conn.
func (g *GoConn) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	return g.send(b, Socket.Send)
}

// WriteMore is Write of what SendFile follows: the end of it may wait for that.
func (g *GoConn) WriteMore(b []byte) (int, error) { return g.send(b, Socket.SendMore) }

// send sends b by one of the socket's calls.
func (g *GoConn) send(b []byte, by func(Socket, []byte) (int, error)) (n int, err error) {
	err = g.transmit("write", func() (bool, error) {
		m, err := by(g.c.sock, b[n:])
		n += m
		g.c.loop.shared.Wrote.Add(uint64(m))
		return n == len(b), err
	})
	return n, err
}

// WriteLast writes b and ends this side of the connection: the end goes with the last bytes.
func (g *GoConn) WriteLast(b []byte) (n int, err error) {
	err = g.transmit("write", func() (bool, error) {
		m, err := g.c.sock.SendMore(b[n:])
		n += m
		g.c.loop.shared.Wrote.Add(uint64(m))
		if err == nil && n == len(b) {
			err = g.c.sock.EndSending()
		}
		return n == len(b), err
	})
	return n, err
}

// WriteAll writes all bufs, as few system calls as can be. It uses bufs up.
func (g *GoConn) WriteAll(bufs net.Buffers) error {
	return g.transmit("write", func() (bool, error) {
		m, err := g.c.sock.SendAll(bufs)
		g.c.loop.shared.Wrote.Add(uint64(m))
		for m > 0 || len(bufs) > 0 && len(bufs[0]) == 0 {
			k := min(m, len(bufs[0]))
			m -= k
			if bufs[0] = bufs[0][k:]; len(bufs[0]) == 0 {
				bufs = bufs[1:]
			}
		}
		return len(bufs) == 0, err
	})
}

// SendFile sends n bytes of a file, and returns how many were sent: fewer, without an error, if the
// file ends.
func (g *GoConn) SendFile(from *os.File, off int64, n int64) (done int64, err error) {
	if n <= 0 {
		return 0, nil
	}
	err = g.transmit("sendfile", func() (bool, error) {
		m, err := g.c.sock.SendFile(from, off+done, int(min(n-done, 1<<30)))
		done += int64(m)
		g.c.loop.shared.Wrote.Add(uint64(m))
		return done == n || m == 0 && err == nil, err
	})
	return done, err
}

// transmit calls step, which sends something, until it has sent all; in between it waits for room.
func (g *GoConn) transmit(op string, step func() (all bool, err error)) error {
	g.writing.Lock()
	defer g.writing.Unlock()
	for {
		rooms, err := g.mayWrite()
		if err != nil {
			return opError(op, err)
		}
		all, err := step()
		g.mu.Lock()
		g.users--
		if g.closed && err != nil { // the loop may have hung up meanwhile
			err = net.ErrClosed
		}
		switch {
		case g.shut:
			g.ask() // the loop waits for us to close the descriptor
		case err == ErrWait && g.aside: // the loop says when there is room, unasked: it may have done so meanwhile
			g.full = g.rooms == rooms
		case err == ErrWait:
			g.full, g.asked.room = true, true
			g.ask()
		}
		g.mu.Unlock()
		if err != nil && err != ErrWait {
			return opError(op, err)
		}
		if all {
			return nil
		}
	}
}

// mayWrite waits until the socket may take something, and counts the caller among its users.
func (g *GoConn) mayWrite() (rooms uint64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		switch {
		case g.closed || g.shut || g.err != nil && g.err != io.EOF:
			if g.err != nil && g.err != io.EOF && !g.closed {
				return 0, g.err
			}
			return 0, net.ErrClosed
		case g.passed(g.writeBy):
			return 0, os.ErrDeadlineExceeded
		case !g.full:
			g.users++
			return g.rooms, nil
		}
		g.write.Wait()
	}
}

// Close implements net.Conn.
func (g *GoConn) Close() error { return g.End(false) }

// End closes; linger gives the peer time to read what was written although it may still be sending.
func (g *GoConn) End(linger bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return opError("close", net.ErrClosed)
	}
	g.closed = true
	g.in.Drop()
	if g.shut {
		return nil
	}
	g.asked.finish, g.asked.linger = true, linger
	g.ask()
	g.read.Broadcast()
	g.write.Broadcast()
	return nil
}

// CloseWrite ends this side of the connection.
func (g *GoConn) CloseWrite() error { return g.endOne(Socket.EndSending) }

// CloseRead ends the other side: what still comes is thrown away by the kernel.
func (g *GoConn) CloseRead() error { return g.endOne(Socket.EndReceiving) }

func (g *GoConn) endOne(end func(Socket) error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.shut {
		return opError("close", net.ErrClosed)
	}
	return end(g.c.sock)
}

// SetDeadline implements net.Conn.
func (g *GoConn) SetDeadline(t time.Time) error { return g.setDeadlines(t, true, true) }

// SetReadDeadline implements net.Conn.
func (g *GoConn) SetReadDeadline(t time.Time) error { return g.setDeadlines(t, true, false) }

// SetWriteDeadline implements net.Conn.
func (g *GoConn) SetWriteDeadline(t time.Time) error { return g.setDeadlines(t, false, true) }

func (g *GoConn) setDeadlines(t time.Time, read, write bool) error {
	at := g.c.loop.group.At(t)
	return g.setUntil(at, at, read, write)
}

// setUntil sets deadlines as in Conn.
func (g *GoConn) setUntil(readBy, writeBy int64, read, write bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.shut {
		return opError("set", net.ErrClosed)
	}
	if read {
		g.readBy = readBy
		g.read.Broadcast()
		g.lookBy(readBy)
	}
	if write {
		g.writeBy = writeBy
		g.write.Broadcast()
		g.lookBy(writeBy)
	}
	return nil
}

// lookBy asks the loop to look at a deadline, unless it looks early enough. g.mu is held.
func (g *GoConn) lookBy(at int64) {
	if look := g.c.lookAt.Load(); at > 0 && (look == 0 || at < look) {
		g.asked.deadline = true
		g.ask()
	}
}

// LocalAddr implements net.Conn.
func (g *GoConn) LocalAddr() net.Addr { return g.addr(0, Socket.Local) }

// RemoteAddr implements net.Conn.
func (g *GoConn) RemoteAddr() net.Addr { return g.addr(1, Socket.Peer) }

func (g *GoConn) addr(i int, of func(Socket) (net.Addr, error)) net.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.addrs[i] == nil {
		g.addrs[i] = &net.TCPAddr{}
		if !g.shut {
			if a, err := of(g.c.sock); err == nil {
				g.addrs[i] = a
			}
		}
	}
	return g.addrs[i]
}
