package loadgen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// dialer makes connections with TLS for a thread. A handshake of crypto/tls waits, so each has a
// goroutine; once it is over the thread reads and writes the socket itself, and never waits.
type dialer struct {
	cfg  *Config
	to   string
	news int // an eventfd: something is in made
	made chan dialled
	ctx  context.Context
	stop context.CancelFunc
	all  sync.WaitGroup
}

// dialled is what came of it.
type dialled struct {
	index int
	tls   *tls.Conn
	wire  *wire
	kind  string // of the error
	err   error
}

// newDialer makes one for so many connections, each of which is made once at a time.
func newDialer(cfg *Config, to netip.AddrPort, connections int) (*dialer, error) {
	news, err := sys.Eventfd()
	if err != nil {
		return nil, err
	}
	d := &dialer{cfg: cfg, to: to.String(), news: news, made: make(chan dialled, connections)}
	d.ctx, d.stop = context.WithCancel(context.Background())
	return d, nil
}

func (d *dialer) close() {
	d.stop()
	d.all.Wait()
	close(d.made)
	for one := range d.made {
		if one.wire != nil {
			_ = one.wire.Close()
		}
	}
	_ = sys.CloseFD(d.news)
}

// dial begins a connection.
func (d *dialer) dial(index int) {
	d.all.Go(func() {
		ctx, end := context.WithTimeout(d.ctx, d.cfg.Timeout)
		defer end()
		d.made <- d.shake(ctx, index) // it has room
		sys.EventfdSignal(d.news)
	})
}

func (d *dialer) shake(ctx context.Context, index int) dialled {
	var to net.Dialer
	conn, err := to.DialContext(ctx, "tcp", d.to)
	if err != nil {
		return dialled{index: index, kind: "connect", err: d.late(ctx, "", err)}
	}
	w := &wire{TCPConn: conn.(*net.TCPConn), fd: -1}
	c := tls.Client(w, d.cfg.TLS)
	if err = c.HandshakeContext(ctx); err == nil {
		err = w.take()
	}
	if err != nil {
		_ = w.Close()
		return dialled{index: index, kind: "tls", err: d.late(ctx, " of TLS", err)}
	}
	return dialled{index: index, tls: c, wire: w}
}

// late is an error, that of a time-out in words.
func (d *dialer) late(ctx context.Context, of string, err error) error {
	if ctx.Err() != context.DeadlineExceeded {
		return err
	}
	return fmt.Errorf("no answer%s within %v", of, d.cfg.Timeout)
}

// takeDialled takes the connections that were made.
func (t *thread) takeDialled() {
	sys.EventfdDrain(t.dialer.news)
	for {
		select {
		case one := <-t.dialer.made:
			c := t.conns[one.index]
			if one.err == nil {
				one.err, one.kind = t.epoll.Add(one.wire.fd, sys.Readable, uint64(one.index)), "connect"
				c.tls, c.wire, c.fd = one.tls, one.wire, one.wire.fd
			}
			if one.err != nil {
				t.notMade(c, one.kind, one.err)
			} else {
				t.opened(c)
			}
		default:
			return
		}
	}
}

// wire is the socket below TLS. Until it is taken it waits, as any [net.Conn].
type wire struct {
	*net.TCPConn
	fd  int    // -1: it is not taken
	out []byte // what the socket has not taken
	end bool   // the server has ended the connection
}

// take makes calls return [errAgain] where they would wait.
func (w *wire) take() error {
	raw, err := w.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { w.fd = int(fd) })
}

// Read implements [io.Reader].
func (w *wire) Read(b []byte) (int, error) {
	if w.fd < 0 {
		return w.TCPConn.Read(b)
	}
	n, err := sys.Receive(w.fd, b)
	switch {
	case sys.Pending(err):
		return 0, errAgain
	case err == nil && n == 0:
		w.end = true
		return 0, io.EOF
	}
	return n, err
}

// Write implements [io.Writer]. It takes everything.
func (w *wire) Write(b []byte) (int, error) {
	if w.fd < 0 {
		return w.TCPConn.Write(b)
	}
	w.out = append(w.out, b...)
	return len(b), w.flush()
}

func (w *wire) flush() error {
	n, err := sys.Send(w.fd, w.out)
	if err != nil && !sys.Pending(err) {
		return err
	}
	w.out = w.out[:copy(w.out, w.out[max(n, 0):])]
	return nil
}

// again says that nothing can be read, or written, now. Its methods are those of a [net.Error]:
// after one that is temporary, a [tls.Conn] can be read again.
type again struct{}

func (again) Error() string   { return "it would wait" }
func (again) Timeout() bool   { return true }
func (again) Temporary() bool { return true }

var errAgain error = again{}

// tlsPart is how much of a request is encrypted at a time, in bytes.
const tlsPart = 64 << 10

// write sends as much as the socket takes. whole: that was all.
func (c *conn) write(b []byte) (n int, whole bool, err error) {
	if c.tls == nil {
		n, err = sys.Send(c.fd, b)
		if sys.Pending(err) {
			n, err = 0, nil
		}
		return n, n == len(b), err
	}
	if err = c.wire.flush(); err != nil {
		return 0, false, err
	}
	for len(c.wire.out) == 0 && n < len(b) {
		part, err := c.tls.Write(b[n:min(len(b), n+tlsPart)])
		if n += part; err != nil {
			return n, false, err
		}
	}
	return n, n == len(b) && len(c.wire.out) == 0, nil
}

// readsAtOnce bounds how much of one connection is read in a turn, in records of TLS: a server that
// sends without a pause would keep the thread from its clock, and from its other connections.
const readsAtOnce = 16

// read reads what has come. What it leaves, the next turn goes on with.
func (t *thread) read(c *conn) {
	if c.unread {
		return // this turn comes to it
	}
	made := c.made
	for range readsAtOnce {
		if !t.receive(c) || c.fd < 0 || c.made != made {
			return
		}
	}
	c.unread = true
	t.unread = append(t.unread, asked{c, made})
}

// readOn goes on with what the turn before has left.
func (t *thread) readOn() {
	left := t.unread
	t.unread = t.spare[:0]
	for _, a := range left {
		if c := a.c; c.fd >= 0 && c.made == a.made {
			c.unread = false
			t.read(c)
		}
	}
	t.spare = left
}

// read reads what has come; 0: the server has ended.
func (c *conn) read(b []byte) (int, error) {
	if c.tls == nil {
		n, err := sys.Receive(c.fd, b)
		if sys.Pending(err) {
			err = errAgain
		}
		return n, err
	}
	n, err := c.tls.Read(b)
	if n > 0 || errors.Is(err, io.EOF) {
		return n, nil
	}
	return n, err
}

// cutOff is the kind of error for a body that may be a part of one.
const cutOff = "closed without the end of TLS"

// isCutOff reports whether a connection of TLS has ended, and no alert has said before that it
// would: anybody between the two can end one so. A body that goes on until then may be a part of
// it.
func (c *conn) isCutOff() bool { return c.tls != nil && c.wire.end }

// shut closes the connection, if there is one.
func (c *conn) shut() {
	switch {
	case c.tls != nil:
		_ = c.tls.Close() // it says so to the server, and does not wait
	case c.fd >= 0:
		_ = sys.CloseFD(c.fd)
	}
	c.fd, c.tls, c.wire = -1, nil, nil
}
