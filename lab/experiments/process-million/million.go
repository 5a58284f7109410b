package processmillion

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"syscall"

	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/uring"
)

// perRing is how many connections a ring takes: its table of direct descriptors has at most as many
// slots as RLIMIT_NOFILE allows, 20,000 in many places.
const perRing = 18_000

// The stock of a ring is what comes between two looks, and a buffer holds a small request. All of
// it is touched in turn, so that each connection carries a part of it; where it is empty, the
// receive is asked for again.
const (
	stockBuffers = 512
	stockSize    = 256
)

// million serves connections as direct descriptors of rings, which no limit of descriptors counts,
// at the parameter spread many addresses from addr upward: each ring has listeners of its own, so
// that none gets more than it has room for. connections is how many there will be.
func million(t *contestant.Turn) error {
	first, err := netip.ParseAddrPort(t.Text("addr"))
	if err != nil {
		return err
	}
	spread, rings := t.Int("spread", 1), (t.Int("connections", 1000)+perRing-1)/perRing
	listeners := make([][]*net.TCPListener, rings)
	at := first.Addr()
	if spread < rings {
		return fmt.Errorf("%d addresses for %d rings: want one each", spread, rings)
	}
	for i := range spread {
		if i > 0 {
			at = at.Next()
		}
		var lc net.ListenConfig
		lc.SetMultipathTCP(false)
		ln, err := lc.Listen(context.Background(), "tcp", netip.AddrPortFrom(at, first.Port()).String())
		if err != nil {
			return err
		}
		listeners[i%rings] = append(listeners[i%rings], ln.(*net.TCPListener))
	}
	failed := make(chan error)
	for _, l := range listeners {
		go func() {
			runtime.LockOSThread()
			failed <- (&direct{}).serve(l)
		}()
	}
	return <-failed
}

// direct is a ring and its connections.
type direct struct {
	ring   *uring.Ring
	stock  *uring.BufferRing
	answer *uring.Buffer
	conns  []directConn // by slot of the ring's table
	sends  []*uring.Op  // free
}

// directConn is what a connection holds.
type directConn struct {
	recv    uring.Op
	file    *uring.File
	matched uint8 // of the end of a head
	sending uint8
	ended   bool
}

// What an operation is, in its tag, above the number of the connection or listener.
const (
	tagAccept = iota << 32
	tagReceive
	tagSend
)

func (d *direct) serve(listeners []*net.TCPListener) (err error) {
	if d.ring, err = uring.New(uring.Config{Entries: 1024, InFlight: perRing + 8192, Locked: true}); err != nil {
		return err
	}
	if err := d.ring.RegisterFiles(perRing + 1000); err != nil {
		return err
	}
	if d.stock, err = d.ring.NewBufferRing(stockBuffers, stockSize, false); err != nil {
		return err
	}
	hello := contestant.HelloAnswer()
	memory, err := uring.NewArena(1, len(hello)) // what is not of the Go heap need not be pinned for each send
	if err != nil {
		return err
	}
	d.answer = memory.Buffer(0)
	copy(d.answer.Bytes(), hello)
	d.conns = make([]directConn, perRing+1000)
	accepts := make([]uring.Op, len(listeners))
	files := make([]*uring.File, len(listeners))
	for i, ln := range listeners {
		if files[i], err = uring.FileOf(ln); err != nil {
			return err
		}
		accepts[i].Tag = tagAccept | uint64(i)
		if err := d.ring.Push(accepts[i].AcceptEach(files[i]).Direct()); err != nil {
			return err
		}
	}
	for {
		if err := d.ring.Wait(1); err != nil {
			return err
		}
		for op := d.ring.Next(); op != nil; op = d.ring.Next() {
			i := int(uint32(op.Tag))
			switch op.Tag &^ (1<<32 - 1) {
			case tagAccept:
				err = d.accepted(op, files[i])
			case tagReceive:
				err = d.received(op, i)
			default:
				_, bad := op.Result()
				c := &d.conns[i]
				c.sending--
				c.ended = c.ended || bad != nil
				d.sends = append(d.sends, op)
				d.closeIfEnded(c)
			}
			if err != nil {
				return err
			}
		}
	}
}

// accepted takes a connection, and goes on accepting where the kernel has stopped.
func (d *direct) accepted(op *uring.Op, f *uring.File) error {
	if _, err := op.Result(); err == nil {
		file, err := op.NewFile(d.ring)
		if err != nil {
			return err
		}
		c := &d.conns[file.FD()]
		c.file, c.matched, c.sending, c.ended = file, 0, 0, false
		if err := d.receive(c); err != nil {
			return err
		}
	} else if !errors.Is(err, syscall.ENFILE) && !errors.Is(err, syscall.ECONNABORTED) {
		return fmt.Errorf("accept: %w", err)
	}
	if !op.More() {
		return d.ring.Push(op.AcceptEach(f).Direct())
	}
	return nil
}

func (d *direct) receive(c *directConn) error {
	c.recv.Tag = tagReceive | uint64(c.file.FD())
	return d.ring.Push(c.recv.RecvEach(c.file, d.stock))
}

// received takes what has come, and answers each head that ends.
func (d *direct) received(op *uring.Op, i int) error {
	c := &d.conns[i]
	n, err := op.Result()
	heads := 0
	if piece, ok := op.Picked(); ok {
		heads = c.heads(piece.Bytes)
		piece.Give()
	}
	c.ended = c.ended || n == 0 && err == nil || err != nil && !errors.Is(err, syscall.ENOBUFS)
	for range heads {
		if err := d.send(c, i); err != nil {
			return err
		}
	}
	if !c.ended && !op.More() {
		return d.receive(c)
	}
	d.closeIfEnded(c)
	return nil
}

func (d *direct) send(c *directConn, i int) error {
	op := &uring.Op{}
	if last := len(d.sends) - 1; last >= 0 {
		op, d.sends = d.sends[last], d.sends[:last]
	}
	op.Tag = tagSend | uint64(i)
	c.sending++
	return d.ring.Push(op.Send(c.file, d.answer))
}

// closeIfEnded closes a connection that nothing is in flight for.
func (d *direct) closeIfEnded(c *directConn) {
	if c.ended && c.sending == 0 && c.file != nil && !c.recv.InFlight() {
		_ = c.file.Close() // the client has gone
		c.file = nil
	}
}

var endOfHead = []byte("\r\n\r\n")

// heads counts the heads of requests that end in b, which may come in pieces.
func (c *directConn) heads(b []byte) (n int) {
	if c.matched == 0 && bytes.HasSuffix(b, endOfHead) && bytes.Count(b, endOfHead) == 1 { // as nearly always
		return 1
	}
	for _, x := range b {
		switch {
		case x == endOfHead[c.matched]:
			c.matched++
		case x == '\r':
			c.matched = 1
		default:
			c.matched = 0
		}
		if int(c.matched) == len(endOfHead) {
			n++
			c.matched = 0
		}
	}
	return n
}
