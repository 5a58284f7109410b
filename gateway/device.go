package gateway

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/serial"
)

// device is an open port: a descriptor to read, and what is known of it.
type device interface {
	fd() int
	name() string                // where it was found
	settings() map[string]string // optional settings and what became of them; may be nil
	kernel() *ledger.Kernel      // the driver's counts since the lane began; nil if it has none
	close() error
}

// opener opens the device of one source, again and again.
type opener interface {
	// open blocks until the device is there, fails, or the context ends.
	open(ctx context.Context) (device, error)
	// replaced is closed when a newer device waits to take the place of the one open now; it may be nil.
	replaced() <-chan struct{}
	close() error
}

func newOpener(cfg SourceConfig) (opener, error) {
	switch {
	case cfg.Serial != nil:
		return &serialOpener{cfg: cfg.Serial}, nil
	case cfg.UDP != nil:
		return &udpOpener{addr: cfg.UDP.Listen}, nil
	case cfg.TCP.Dial != "":
		return &dialOpener{addr: cfg.TCP.Dial}, nil
	default:
		return listen(cfg.TCP.Listen)
	}
}

// serialOpener finds a port by its path at first, and by its identity from then on.
type serialOpener struct {
	cfg      *SerialConfig
	identity string
	counted  serial.Counters // of devices closed before
}

func (o *serialOpener) open(context.Context) (device, error) {
	path, err := serial.Resolve(o.cfg.Port, o.identity)
	if err != nil {
		return nil, err
	}
	p, err := serial.Open(path, o.cfg.line())
	if err != nil {
		return nil, err
	}
	if id := serial.Identity(path); id != "" {
		o.identity = id
	}
	d := &serialDevice{port: p, o: o}
	d.start, err = p.Counters()
	d.counts = err == nil
	return d, nil
}

func (o *serialOpener) replaced() <-chan struct{} { return nil }
func (o *serialOpener) close() error              { return nil }

type serialDevice struct {
	port   *serial.Port
	o      *serialOpener
	counts bool
	start  serial.Counters
}

func (d *serialDevice) fd() int                     { return d.port.FD() }
func (d *serialDevice) name() string                { return d.port.Path }
func (d *serialDevice) settings() map[string]string { return d.port.Accepted }

func (d *serialDevice) kernel() *ledger.Kernel {
	if !d.counts {
		return nil
	}
	now, err := d.port.Counters()
	if err != nil {
		return nil
	}
	t := d.o.counted
	total := func(before, start, now uint64) *uint64 {
		n := before + now - start
		return &n
	}
	return &ledger.Kernel{
		Overrun:       total(t.Overrun, d.start.Overrun, now.Overrun),
		BufferOverrun: total(t.BufferOverrun, d.start.BufferOverrun, now.BufferOverrun),
		Framing:       total(t.Framing, d.start.Framing, now.Framing),
		Parity:        total(t.Parity, d.start.Parity, now.Parity),
		Break:         total(t.Break, d.start.Break, now.Break),
	}
}

func (d *serialDevice) close() error {
	if k := d.kernel(); k != nil {
		d.o.counted = serial.Counters{
			Overrun: *k.Overrun, BufferOverrun: *k.BufferOverrun, Framing: *k.Framing, Parity: *k.Parity, Break: *k.Break,
		}
	}
	return d.port.Close()
}

// socket is a network connection, taken out of the hands of package net: the runtime's poller, which knows every net.Conn, would
// wake for everything that arrives, too.
type socket struct {
	descriptor int
	peer       string
	datagrams  bool
}

// newSocket takes over a connection; conn is closed, whatever happens.
func newSocket(conn net.Conn) (*socket, error) {
	defer conn.Close()
	s := &socket{peer: conn.LocalAddr().String()}
	if r := conn.RemoteAddr(); r != nil {
		s.peer = r.String()
	}
	_, s.datagrams = conn.(*net.UDPConn)
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var dupErr error
	err = raw.Control(func(fd uintptr) { s.descriptor, dupErr = sys.Dup(int(fd)) })
	return s, errors.Join(err, dupErr)
}

func (s *socket) fd() int                     { return s.descriptor }
func (s *socket) name() string                { return s.peer }
func (s *socket) settings() map[string]string { return nil }
func (s *socket) close() error                { return sys.CloseFD(s.descriptor) }

func (s *socket) kernel() *ledger.Kernel {
	if !s.datagrams {
		return nil
	}
	n, err := sys.SocketDrops(s.descriptor)
	if err != nil {
		return nil
	}
	return &ledger.Kernel{BufferOverrun: &n}
}

type dialOpener struct{ addr string }

func (o *dialOpener) open(ctx context.Context) (device, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", o.addr)
	if err != nil {
		return nil, err
	}
	return newSocket(conn)
}

func (o *dialOpener) replaced() <-chan struct{} { return nil }
func (o *dialOpener) close() error              { return nil }

// udpBuffer is the receive buffer asked of the kernel, in bytes: half a second of a fast source.
const udpBuffer = 4 << 20

type udpOpener struct{ addr string }

func (o *udpOpener) open(context.Context) (device, error) {
	addr, err := net.ResolveUDPAddr("udp", o.addr)
	if err != nil {
		return nil, err
	}
	conn, err := net.ListenUDP("udp", addr)
	if err != nil {
		return nil, err
	}
	_ = conn.SetReadBuffer(udpBuffer) // the kernel gives what its limit allows
	return newSocket(conn)
}

func (o *udpOpener) replaced() <-chan struct{} { return nil }
func (o *udpOpener) close() error              { return nil }

// listener takes one connection at a time. A new one replaces the old: a device that connects again has lost its old
// connection, whether we have noticed or not.
type listener struct {
	l     net.Listener
	newer chan struct{} // has a signal while a connection waits; closed with the listener

	mu      sync.Mutex
	waiting net.Conn // nil: none
	closed  bool
}

func listen(addr string) (*listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	o := &listener{l: l, newer: make(chan struct{}, 1)}
	go o.accept()
	return o, nil
}

func (o *listener) accept() {
	for {
		c, err := o.l.Accept()
		if err == nil {
			o.offer(c)
		} else if errors.Is(err, net.ErrClosed) {
			return
		} // else the connection was gone before we took it
	}
}

// offer lets a connection wait; one that waited before is given up. The signal changes together with it: a signal left behind by a
// connection that has been taken would end that connection.
func (o *listener) offer(c net.Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		_ = c.Close()
		return
	}
	if o.waiting != nil {
		_ = o.waiting.Close()
	}
	o.waiting = c
	select {
	case o.newer <- struct{}{}:
	default:
	}
}

// take returns the connection that waits, nil if none does.
func (o *listener) take() (net.Conn, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, net.ErrClosed
	}
	c := o.waiting
	o.waiting = nil
	select {
	case <-o.newer:
	default:
	}
	return c, nil
}

func (o *listener) open(ctx context.Context) (device, error) {
	for {
		c, err := o.take()
		if err != nil {
			return nil, err
		}
		if c != nil {
			return newSocket(c)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-o.newer:
		}
	}
}

func (o *listener) replaced() <-chan struct{} { return o.newer }

func (o *listener) close() error {
	err := o.l.Close()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed = true
		close(o.newer)
		if o.waiting != nil {
			_ = o.waiting.Close()
		}
	}
	return err
}
