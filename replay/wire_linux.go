package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/serial"
)

// Bounds says how long a wire waits.
type Bounds struct {
	Open  time.Duration // until a receiver is there; 0 means a minute
	Stall time.Duration // until one that is there takes some more; 0 means 10 s
}

func (b Bounds) filled() Bounds {
	if b.Open == 0 {
		b.Open = time.Minute
	}
	if b.Stall == 0 {
		b.Stall = 10 * time.Second
	}
	return b
}

// ErrGone says that whoever received has gone away.
var ErrGone = errors.New("the receiver has gone away")

// stalled is the error for a receiver that takes nothing.
func stalled(name string, after time.Duration) error {
	return fmt.Errorf("%s: the receiver has taken nothing for %v", name, after)
}

// look is between two looks at what the kernel does not wake anybody for.
const look = 5 * time.Millisecond

// tty is a serial port, or the near end of a pty.
type tty struct {
	name   string
	fd     int
	stall  time.Duration
	isLeft func() (bool, error) // whether something is not received, or sent, yet
	end    func() error
}

// maxStream is how much goes to a stream at once. A pty takes some 20 KB.
const maxStream = 64 << 10

func (t *tty) MaxSend() (int, bool) { return maxStream, false }

func (t *tty) Send(ctx context.Context, b []byte) error {
	for moved := time.Now(); len(b) > 0; {
		if err := t.Gone(); err != nil { // a pty takes what nobody will read until it is full
			return err
		}
		n, err := sys.Write(t.fd, b)
		if err != nil {
			return t.gone(err)
		}
		if b = b[n:]; n > 0 {
			moved = time.Now()
			continue
		}
		if time.Since(moved) > t.stall {
			return stalled(t.name, t.stall)
		}
		if _, err := sys.PollOut(t.fd, 50*time.Millisecond); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// Gone asks the kernel.
func (t *tty) Gone() error {
	gone, err := sys.PollOut(t.fd, 0)
	if gone {
		err = syscall.EIO
	}
	if err != nil {
		return t.gone(err)
	}
	return nil
}

func (t *tty) gone(err error) error {
	if errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.ENODEV) {
		return fmt.Errorf("%s: %w (%w)", t.name, ErrGone, err)
	}
	return fmt.Errorf("%s: %w", t.name, err)
}

// Finish looks ten times in a row: a reader that has just emptied what the line discipline holds
// asks for the next only after it has copied that.
func (t *tty) Finish(ctx context.Context) error {
	late := time.Now().Add(t.stall)
	for empty := 0; empty < 10; {
		left, err := t.isLeft()
		if err != nil {
			return t.gone(err)
		}
		if empty++; left {
			empty = 0
		}
		if time.Now().After(late) {
			return stalled(t.name, t.stall)
		}
		if !pass(ctx, look) {
			return ctx.Err()
		}
	}
	return nil
}

// Close implements io.Closer.
func (t *tty) Close() error { return t.end() }

// pass waits so long, and reports whether it was not ended before.
func pass(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Closer is a wire that must be closed.
type Closer interface {
	Wire
	io.Closer
}

// ToPort plays to a serial port, of which nobody else may send or receive.
func ToPort(path string, cfg serial.Config, b Bounds) (Closer, error) {
	p, err := serial.Open(path, cfg)
	if err != nil {
		return nil, err
	}
	return &tty{
		name: path, fd: p.FD(), stall: b.filled().Stall, end: p.Close,
		isLeft: func() (bool, error) { n, err := sys.Unsent(p.FD()); return n > 0, err },
	}, nil
}

// ToPTY makes a pty and plays to whoever opens its other end, once that is so: ready is told its
// path before. link, unless it is "", is made a link to it, and must not be there yet; it goes with
// the pty.
func ToPTY(ctx context.Context, link string, b Bounds, ready func(path string)) (Closer, error) {
	b = b.filled()
	master, path, err := sys.OpenPTY()
	if err != nil {
		return nil, err
	}
	t := &tty{name: path, fd: master, stall: b.Stall}
	t.end = func() error {
		if link != "" {
			return errors.Join(os.Remove(link), sys.CloseFD(master))
		}
		return sys.CloseFD(master)
	}
	t.isLeft = func() (bool, error) { return isUnread(master, path) }
	if link != "" {
		if err := os.Symlink(path, link); err != nil {
			return nil, errors.Join(err, sys.CloseFD(master))
		}
		t.name, _ = filepath.Abs(link)
	}
	if err = raw(master, path); err == nil {
		ready(t.name)
		err = awaitReader(ctx, master, t.name, b.Open)
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// raw makes the line pass every byte on as it is, and has its other end closed once: only from then
// on the near end knows whether anybody has it open.
func raw(master int, path string) error {
	slave, err := sys.OpenTTY(path)
	if err != nil {
		return err
	}
	t, err := sys.GetTermios(slave)
	if err == nil {
		sys.SetLine(t, sys.Line{Baud: 115200, DataBits: 8})
		err = sys.SetTermios(slave, t)
	}
	return errors.Join(err, sys.CloseFD(slave))
}

func awaitReader(ctx context.Context, master int, name string, within time.Duration) error {
	for late := time.Now().Add(within); ; {
		gone, err := sys.PollOut(master, 0)
		if err != nil || !gone {
			return err
		}
		if time.Now().After(late) {
			return fmt.Errorf("%s: nobody has opened it within %v", name, within)
		}
		if !pass(ctx, look) {
			return ctx.Err()
		}
	}
}

// isUnread reports whether bytes wait at the other end of a pty; if nobody has that open, they are
// lost.
func isUnread(master int, path string) (bool, error) {
	gone, err := sys.PollOut(master, 0)
	if err != nil {
		return false, err
	}
	slave, err := sys.OpenTTY(path)
	if err != nil {
		return false, err
	}
	ready, _, err := sys.PollIn(slave, -1, 0)
	if ready && gone {
		err = errors.Join(err, syscall.EIO)
	}
	return ready, errors.Join(err, sys.CloseFD(slave))
}

// connection is TCP, or UDP.
type connection struct {
	conn     net.Conn
	name     string
	stall    time.Duration
	datagram bool
	hears    sync.WaitGroup        // the goroutine that takes what the receiver says …
	reset    atomic.Pointer[error] // … and what has ended it, but the receiver's own end: that may read on
}

// maxDatagram is what a UDP datagram carries over IPv4.
const maxDatagram = 65507

func (c *connection) MaxSend() (int, bool) {
	if c.datagram {
		return maxDatagram, true
	}
	return maxStream, false
}

func (c *connection) Send(ctx context.Context, b []byte) error {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	for len(b) > 0 {
		if err := c.conn.SetWriteDeadline(time.Now().Add(c.stall)); err != nil {
			return err
		}
		if ctx.Err() != nil { // it may have ended before the deadline was set
			return ctx.Err()
		}
		n, err := c.conn.Write(b)
		b = b[n:]
		switch {
		case err == nil || errors.Is(err, os.ErrDeadlineExceeded) && n > 0 && ctx.Err() == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, os.ErrDeadlineExceeded):
			return stalled(c.name, c.stall)
		case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
			return fmt.Errorf("%s: %w (%w)", c.name, ErrGone, err)
		case errors.Is(err, syscall.ECONNREFUSED): // an answer to an earlier datagram
			return fmt.Errorf("%s: nobody receives there: %w", c.name, err)
		default:
			return err
		}
	}
	return nil
}

// Gone is what came back.
func (c *connection) Gone() error {
	if why := c.reset.Load(); why != nil {
		return fmt.Errorf("%s: %w (%w)", c.name, ErrGone, *why)
	}
	return nil
}

// Finish ends a stream, and waits until the receiver has ended it, too: to close it with what it
// says unread would take from it what it has not read yet.
func (c *connection) Finish(ctx context.Context) error {
	tcp, ok := c.conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	if err := tcp.CloseWrite(); err != nil {
		return fmt.Errorf("%s: %w (%w)", c.name, ErrGone, err)
	}
	ended := make(chan struct{})
	go func() { c.hears.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(c.stall): // it keeps its end open: it has taken note of ours, or never will
	case <-ctx.Done():
	}
	return nil
}

// Close implements io.Closer.
func (c *connection) Close() error {
	err := c.conn.Close()
	c.hears.Wait()
	return err
}

// ToAddress plays to an address, by network tcp or udp. Where nobody takes a connection there yet,
// it tells waits the address, and tries again until somebody does, within b.Open.
func ToAddress(ctx context.Context, network, address string, b Bounds, waits func(address string)) (Closer, error) {
	b = b.filled()
	late, told := time.Now().Add(b.Open), false
	for {
		conn, err := (&net.Dialer{Deadline: late}).DialContext(ctx, network, address)
		switch {
		case err == nil:
			return newConnection(conn, network+":"+address, b), nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !isAbsent(err):
			return nil, err
		case time.Until(late) < redial:
			return nil, fmt.Errorf("%s:%s: nobody has taken the connection within %v: %w", network, address, b.Open,
				err)
		}
		if !told {
			told = true
			waits(address)
		}
		if !pass(ctx, redial) {
			return nil, ctx.Err()
		}
	}
}

// redial is between two tries to connect.
const redial = 100 * time.Millisecond

// isAbsent reports whether an error says that nobody is at an address, who may come.
func isAbsent(err error) bool {
	for _, no := range []error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ECONNRESET} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// ToCaller plays to the first who connects to an address, at which it listens by TCP: ready is told
// before.
func ToCaller(ctx context.Context, address string, b Bounds, ready func(address string)) (Closer, error) {
	b = b.filled()
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { _ = l.(*net.TCPListener).SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(b.Open)); err != nil {
		return nil, err
	}
	ready(l.Addr().String())
	conn, err := l.Accept()
	switch {
	case ctx.Err() != nil:
		if err == nil {
			err = conn.Close()
		}
		return nil, errors.Join(ctx.Err(), err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("%s: nobody has connected within %v", l.Addr(), b.Open)
	case err != nil:
		return nil, err
	}
	return newConnection(conn, conn.RemoteAddr().String(), b), nil
}

func newConnection(conn net.Conn, name string, b Bounds) *connection {
	_, stream := conn.(*net.TCPConn)
	c := &connection{conn: conn, name: name, stall: b.Stall, datagram: !stream}
	if stream { // what is not read would end in a reset, and one of UDP would hide that nobody is there
		c.hears.Go(func() {
			if _, err := io.Copy(io.Discard, conn); err != nil {
				c.reset.Store(&err)
			}
		})
	}
	return c
}
