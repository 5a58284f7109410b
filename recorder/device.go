package recorder

import (
	"context"
	"net"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/sockets"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/serial"
)

// device is an open port: a descriptor to read, and what is known of it.
type device interface {
	fd() int
	name() string                // where it was found
	settings() map[string]string // optional settings and what became of them; may be nil
	kernel() *ledger.Kernel      // the driver's counts since it was opened; nil if it has none, or does not answer
	recount()                    // another lane begins: kernel counts from what the last one was told
	deafen()                     // nothing more arrives, as far as that can be had; what has arrived can still be read
	waiting() bool               // something has arrived that nobody has read
	discard() uint64             // gives that up, before the device is closed, and says how many bytes it was
	close() error
}

// connection is a device of which a source may have many open. Its name is the address it comes
// from.
type connection interface {
	device
	unread() uint64 // how many bytes wait in it
	ending() bool   // nothing more will be sent, though what was sent may still wait
	leaveShelf()    // another process reads it, and the keeper need not have it any more
}

// opener opens the device of one source, again and again.
type opener interface {
	// open blocks until the device is there, fails, or the context ends.
	open(ctx context.Context) (device, error)
	// replaced has a signal when a newer device waits to take the place of the one open now; it may
	// be nil.
	replaced() <-chan struct{}
	// close ends it. What waits to be opened is returned: its bytes are to be read, or counted.
	// With more it is to be called again, once that is closed, or after a while; with giveUp it
	// counts what it cannot take, and returns that as an error.
	close(giveUp bool) (rest []device, more bool, err error)
}

func newOpener(cfg config.Source) opener {
	switch {
	case cfg.Serial != nil:
		return &serialOpener{cfg: cfg.Serial}
	case cfg.UDP != nil:
		return &udpOpener{addr: cfg.UDP.Listen}
	case cfg.TCP.Dial != "":
		return &dialOpener{cfg.TCP.Dial, sockets.AnswersWithin}
	default:
		return newListener(cfg.TCP.Listen, cfg.TCP.Peers)
	}
}

// serialOpener finds a port by its path at first, and by its identity from then on.
type serialOpener struct {
	cfg      *config.Serial
	identity string
}

func (o *serialOpener) open(context.Context) (device, error) {
	path, err := serial.Resolve(o.cfg.Port, o.identity)
	if err != nil {
		return nil, err
	}
	p, err := serial.Open(path, o.cfg.Line())
	if err != nil {
		return nil, err
	}
	if id := serial.Identity(path); id != "" {
		o.identity = id
	}
	d := &serialDevice{port: p, path: p.Path, accepted: p.Accepted}
	d.told, err = p.Counters()
	d.counts = err == nil
	return d, nil
}

func (o *serialOpener) replaced() <-chan struct{}          { return nil }
func (o *serialOpener) close(bool) ([]device, bool, error) { return nil, false, nil }

type serialDevice struct {
	port     serialPort
	path     string
	accepted map[string]string
	counts   bool
	told     serial.Counters // what the driver said last
	n        serial.Counters // … of which so much is new since it was opened, or since recount
}

// serialPort is what a device needs of a [serial.Port]. An adapter that is unplugged does not say
// any more what it has counted.
type serialPort interface {
	FD() int
	Counters() (serial.Counters, error)
	Close() error
}

func (d *serialDevice) fd() int                     { return d.port.FD() }
func (d *serialDevice) name() string                { return d.path }
func (d *serialDevice) settings() map[string]string { return d.accepted }
func (d *serialDevice) recount()                    { d.n = serial.Counters{} }

func (d *serialDevice) deafen()         {} // a line cannot be stopped
func (d *serialDevice) waiting() bool   { return sockets.Waiting(d.port.FD()) > 0 }
func (d *serialDevice) discard() uint64 { return sockets.DiscardLine(d.port.FD()) }
func (d *serialDevice) close() error    { return d.port.Close() }

func (d *serialDevice) kernel() *ledger.Kernel {
	if !d.counts {
		return nil
	}
	now, err := d.port.Counters()
	if err != nil {
		return nil
	}
	total := func(n *uint64, told, now uint64) *uint64 {
		*n += uint64(uint32(now - told)) // across the driver's 2^32, too
		sum := *n
		return &sum
	}
	k := &ledger.Kernel{
		Overrun:       total(&d.n.Overrun, d.told.Overrun, now.Overrun),
		BufferOverrun: total(&d.n.BufferOverrun, d.told.BufferOverrun, now.BufferOverrun),
		Framing:       total(&d.n.Framing, d.told.Framing, now.Framing),
		Parity:        total(&d.n.Parity, d.told.Parity, now.Parity),
		Break:         total(&d.n.Break, d.told.Break, now.Break),
	}
	d.told = now
	return k
}

// socket is a network connection, taken out of the hands of package net: the runtime's poller,
// which knows every net.Conn, would wake for everything that arrives, too.
type socket struct {
	descriptor int
	peer       string
	datagrams  bool
	told       uint32 // what the kernel said last of the datagrams that it has dropped here
	dropped    uint64 // … of which so many since it was opened, or since recount
	unshelve   func() // takes it off the keeper's shelf, where it is until somebody reads it; nil: it is not there
}

// newSocket makes a second descriptor for a connection, which the caller closes.
func newSocket(conn *net.TCPConn) (*socket, error) {
	fd, err := sys.SocketOf(conn)
	if err != nil {
		return nil, err
	}
	return &socket{descriptor: fd, peer: conn.RemoteAddr().String()}, nil
}

func (s *socket) fd() int                     { return s.descriptor }
func (s *socket) name() string                { return s.peer }
func (s *socket) settings() map[string]string { return nil }

// deafen makes the kernel refuse what comes from now on, so that no byte is acknowledged behind the
// last one that is read.
func (s *socket) deafen() {
	if s.datagrams {
		_ = sys.Deafen(s.descriptor) // where that is refused, what comes while the rest is read is read, too
		return
	}
	sys.Hang(s.descriptor)
}

func (s *socket) waiting() bool  { return s.unread() > 0 }
func (s *socket) unread() uint64 { return sockets.Waiting(s.descriptor) }
func (s *socket) ending() bool   { return sys.PeerEnded(s.descriptor) }

func (s *socket) discard() uint64 {
	if s.datagrams {
		return sockets.Discard(s.descriptor)
	}
	return s.unread()
}

func (s *socket) close() error {
	s.leaveShelf()
	return sys.CloseFD(s.descriptor)
}

func (s *socket) leaveShelf() {
	if s.unshelve != nil {
		s.unshelve()
		s.unshelve = nil
	}
}

func (s *socket) recount() { s.dropped = 0 }

func (s *socket) kernel() *ledger.Kernel {
	if !s.datagrams {
		return nil
	}
	now, err := sys.SocketDrops(s.descriptor)
	if err != nil {
		return nil
	}
	s.dropped += uint64(now - s.told) // across its 2^32, too
	s.told = now
	n := s.dropped
	return &ledger.Kernel{BufferOverrun: &n}
}

type udpOpener struct{ addr string }

func (o *udpOpener) open(context.Context) (device, error) {
	fd, name, err := sockets.ListenDatagrams(o.addr)
	if err != nil {
		return nil, err
	}
	return &socket{descriptor: fd, peer: name, datagrams: true}, nil
}

func (o *udpOpener) replaced() <-chan struct{}          { return nil }
func (o *udpOpener) close(bool) ([]device, bool, error) { return nil, false, nil }
