package isolate

import (
	"context"
	"time"

	"github.com/tallywheel/tallywheel/internal/sockets"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/serial"
)

// wire is how the device of a line is had. Its methods are called by the goroutine of line.run, but
// for heard.
type wire interface {
	// open returns once the device is there, cannot be had, or ctx is done.
	open(ctx context.Context) (device, error)
	// kept is called once the keeper has the device that open has returned.
	kept()
	// adopt makes a device of the descriptor that the reader before had.
	adopt(fd int, p Port) (device, error)
	// identity is what the device is found by under another name; "": nothing.
	identity() string
	// newer has a signal when another device waits to take the place of the one that is open;
	// nil: never.
	newer() <-chan struct{}
	// heard takes an answer of the keeper. The goroutine that follows the link calls it.
	heard(e Entry)
	// rest is the next of the devices that wait when the line ends. It waits for none to come, only
	// for descriptors, until the line is late. nil: there is none, or the line is left.
	rest() device
	// leave ends what the wire does by itself; what is on the shelf stays there.
	leave()
	// close ends it all.
	close()
}

// device is what a line reads.
type device interface {
	FD() int
	about() Port
	counts() []count // of the driver, or the kernel
	deafen()         // nothing more arrives, as far as that can be had; what has arrived can still be read
	discard() uint64 // gives that up, and says how many bytes it was
	Close() error
}

// count is where a counter stands; see spool.Counted.
type count struct {
	which uint32
	n     uint64
}

func (l *line) newWire(before adoption) wire {
	switch l.lane.Kind {
	case Datagrams:
		return &datagrams{addr: l.lane.Port}
	case Dialled:
		return &dialled{line: l, next: before.next}
	case Given:
		return newGiven(l, before)
	case First, Newest:
		return newListening(l, before)
	}
	return &tty{lane: l.lane, known: before.Identity}
}

// plain is a wire of one device that is opened, and nothing more.
type plain struct{}

func (plain) kept()                  {}
func (plain) identity() string       { return "" }
func (plain) newer() <-chan struct{} { return nil }
func (plain) heard(e Entry)          { e.CloseFDs() }
func (plain) rest() device           { return nil }
func (plain) leave()                 {}
func (plain) close()                 {}

// tty is the wire of a serial port. It opens it by its path at first, and by its identity from then
// on.
type tty struct {
	plain
	lane  Lane
	known string // its identity; "": none
}

func (t *tty) identity() string { return t.known }

func (t *tty) open(context.Context) (device, error) {
	path, err := serial.Resolve(t.lane.Port, t.known)
	if err != nil {
		return nil, err
	}
	p, err := serial.Open(path, t.lane.Line)
	if err != nil {
		return nil, err
	}
	if id := serial.Identity(path); id != "" {
		t.known = id
	}
	return &ttyDevice{p, t.known}, nil
}

func (t *tty) adopt(fd int, p Port) (device, error) {
	port, err := serial.Adopt(fd, p.Path, p.Accepted)
	if err != nil {
		_ = sys.CloseFD(fd)
		return nil, err
	}
	return &ttyDevice{port, p.Identity}, nil
}

type ttyDevice struct {
	*serial.Port
	identity string
}

func (d *ttyDevice) about() Port {
	return Port{Path: d.Path, Accepted: d.Accepted, Identity: d.identity}
}

func (d *ttyDevice) counts() (all []count) {
	c, err := d.Counters()
	if err != nil {
		return nil
	}
	for i, n := range []uint64{c.Overrun, c.BufferOverrun, c.Framing, c.Parity, c.Break} {
		all = append(all, count{uint32(i), n})
	}
	return all
}

func (d *ttyDevice) deafen()         {} // a line cannot be stopped
func (d *ttyDevice) discard() uint64 { return sockets.DiscardLine(d.FD()) }

// netDevice is a connection, or a socket of datagrams.
type netDevice struct {
	fd        int
	peer      string
	datagrams bool
}

func (d *netDevice) FD() int      { return d.fd }
func (d *netDevice) about() Port  { return Port{Path: d.peer} }
func (d *netDevice) Close() error { return sys.CloseFD(d.fd) }

// counts is what the kernel has dropped of datagrams since the socket was opened.
func (d *netDevice) counts() []count {
	if !d.datagrams {
		return nil
	}
	const bufferOverrun = 1
	n, err := sys.SocketDrops(d.fd)
	if err != nil {
		return nil
	}
	return []count{{bufferOverrun, uint64(n)}}
}

func (d *netDevice) deafen() {
	if d.datagrams {
		_ = sys.Deafen(d.fd) // where that is refused, what comes while the rest is read is read, too
		return
	}
	sys.Hang(d.fd)
}

func (d *netDevice) discard() uint64 {
	if d.datagrams {
		return sockets.Discard(d.fd)
	}
	return sockets.Waiting(d.fd)
}

// datagrams is the wire of a UDP socket.
type datagrams struct {
	plain
	addr string
}

func (w *datagrams) open(context.Context) (device, error) {
	fd, name, err := sockets.ListenDatagrams(w.addr)
	if err != nil {
		return nil, err
	}
	return &netDevice{fd, name, true}, nil
}

func (w *datagrams) adopt(fd int, p Port) (device, error) { return &netDevice{fd, p.Path, true}, nil }

// dialled is the wire of a device that listens. The keeper has each socket before it connects: a
// connection that is made while the reader is killed is the next one's.
type dialled struct {
	plain
	line   *line
	next   int  // a socket that the reader before was about to connect; -1: there is none
	failed bool // an attempt has failed since the device was open last: the outage says why
}

func (w *dialled) open(ctx context.Context) (device, error) {
	if fd := w.next; fd >= 0 {
		if w.next = -1; sys.IsConnected(fd) || sockets.Waiting(fd) > 0 {
			w.failed = false
			return &netDevice{fd: fd, peer: w.line.lane.Port}, nil
		}
		_ = sys.CloseFD(fd)
	}
	answered := w.watch()
	fd, peer, err := sockets.Dial(ctx, w.line.lane.Port, sockets.AnswersWithin, func(fd int) {
		if err := w.line.link.Put(NextOf(w.line.source), nil, fd); err != nil {
			w.line.log.Warn("the keeper has ended", "error", err)
		}
	})
	answered()
	if w.failed = err != nil; err != nil {
		w.kept() // a socket that came to nothing
		return nil, err
	}
	return &netDevice{fd: fd, peer: peer}, nil
}

// watch writes down that the device is not there, should it not answer at once. answered ends that.
func (w *dialled) watch() (answered func()) {
	if w.failed {
		return func() {}
	}
	began, told := time.Now(), make(chan struct{})
	late := time.AfterFunc(sockets.AnswersAtOnce, func() {
		defer close(told)
		at := spool.MomentOf(began)
		w.line.note(spool.Mark{Time: at.Wall, Kind: spool.Absent, A: spool.Connecting, B: uint64(at.Steady)})
	})
	return func() {
		if !late.Stop() {
			<-told
		}
	}
}

// kept takes the socket off the shelf that was about to be connected.
func (w *dialled) kept() {
	if err := w.line.link.Drop(NextOf(w.line.source)); err != nil {
		w.line.log.Warn("the keeper has ended", "error", err)
	}
}

func (w *dialled) adopt(fd int, p Port) (device, error) {
	if w.next >= 0 && sys.SameFile(fd, w.next) {
		_ = sys.CloseFD(w.next)
		w.next = -1
		w.kept()
	}
	return &netDevice{fd: fd, peer: p.Path}, nil
}

func (w *dialled) close() {
	if w.next >= 0 {
		_ = sys.CloseFD(w.next)
	}
	w.kept()
}
