package loadgen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tallywheel/tallywheel/uring"
)

// holder is a ring, its connections, and the thread that all of it belongs to. A connection that
// rests has nothing in flight, and costs its held alone.
type holder struct {
	cfg     *HoldConfig
	ctx     context.Context
	ring    *uring.Ring
	stock   *uring.BufferRing
	request *uring.Buffer

	conns []held
	next  int    // connection that is made next
	first int    // no connection before it is being made
	asks  []*ask // free
	busy  int    // in flight
	looks int    // … of which so many only look

	answer int // length of an answer; 0: not known yet

	open, made             int
	answered, failed, late uint64
	counting               bool // the connections are all made
	latency                *hdrhistogram.Histogram
	bad                    error // the last thing that went wrong
}

// held is a connection. Its file is nil where it has ended, or is not made yet.
type held struct {
	file *uring.File
	ask  *ask // under way
}

// ask is a request under way, or a connection that is made.
type ask struct {
	conn     int
	op, recv uring.Op
	flying   int       // of the two
	got      int       // bytes of the answer
	due      time.Time // … or begun
	looks    bool      // it only looks whether the connection is still there
	bad      error
}

var errClosed = errors.New("the server has closed the connection")

const (
	askBuffers = 256
	askSize    = 2048
	maxAnswer  = 1 << 30
	patience   = 100 * time.Millisecond // of a wait, so that the end of the context is seen
)

// hold makes connections lo to hi, waits for the start, and has them ask until the time is over.
func (h *holder) hold(to []netip.AddrPort, lo, hi int, start func() time.Time) (err error) {
	h.conns = make([]held, hi-lo)
	rings := uring.Config{Entries: 512, InFlight: h.cfg.inFlight + askBuffers, Locked: true}
	if h.ring, err = uring.New(rings); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.ring.Shutdown(func(*uring.Op) {})) }()
	if err = h.ring.RegisterFiles(len(h.conns) + opening); err != nil {
		return err
	}
	if h.stock, err = h.ring.NewBufferRing(askBuffers, askSize, false); err != nil {
		return err
	}
	for h.next < len(h.conns) || h.busy > 0 {
		for h.next < len(h.conns) && h.busy < opening {
			a := h.take(h.next)
			a.due = time.Now()
			a.op.Socket(family(to[0].Addr()), syscall.SOCK_STREAM, 0).Direct()
			h.next++
			if err := h.push(a, &a.op); err != nil {
				return err
			}
		}
		if err := h.turn(patience, to, lo); err != nil {
			return err
		}
		if h.ctx.Err() != nil {
			return fmt.Errorf("load: hold: stopped while connections were made: %w", context.Cause(h.ctx))
		}
		if err := h.overdue(); err != nil {
			return err
		}
	}
	if h.failed > 0 {
		return fmt.Errorf("load: hold: %d of %d connections could not be made and answered: %w", h.failed, len(h.conns),
			h.bad)
	}
	h.counting = true
	return h.serve(start(), to, lo)
}

// overdue is the error for a connection that is not made, or whose first answer does not come, in
// time. They are begun in order: the first of those under way has waited the longest.
func (h *holder) overdue() error {
	for h.first < h.next && h.conns[h.first].ask == nil {
		h.first++
	}
	if h.first == h.next || time.Since(h.conns[h.first].ask.due) <= h.cfg.Timeout {
		return nil
	}
	what := "no answer"
	if got := h.conns[h.first].ask.got; got > 0 {
		what = fmt.Sprintf("%d bytes of an answer, and the first one had %d,", got, h.answer)
	}
	return fmt.Errorf("load: hold: connection %d of %d: %s within %v", h.first+1, len(h.conns), what, h.cfg.Timeout)
}

// serve has each connection ask in its turn. All have one period, so their order stays.
func (h *holder) serve(began time.Time, to []netip.AddrPort, lo int) error {
	end, n := began.Add(h.cfg.Duration), len(h.conns)
	step := h.cfg.Every / time.Duration(n)
	offset := time.Duration(lo) * step % max(step, 1) // the rings do not beat together
	for k := 0; h.ctx.Err() == nil; {
		now := time.Now()
		due := began.Add(offset + time.Duration(k/n)*h.cfg.Every + h.cfg.Every*time.Duration(k%n)/time.Duration(n))
		next := due
		if !due.Before(end) { // they are held until the time is over, also where nothing is due any more
			next = end
		}
		if wait := next.Sub(now); wait > 0 {
			if err := h.turn(min(wait, patience), to, lo); err != nil {
				return err
			}
			continue
		}
		if !due.Before(end) {
			break
		}
		if h.isFull() && now.Before(end.Add(h.cfg.Timeout)) { // what is due waits
			if err := h.turn(patience, to, lo); err != nil {
				return err
			}
			continue
		}
		if now.Sub(due) > lateAfter {
			h.late++
		}
		if err := h.send(k%n, due); err != nil {
			return err
		}
		k++
	}
	for giveUp := time.Now().Add(h.cfg.Timeout); h.busy > 0 && time.Now().Before(giveUp); {
		if err := h.turn(patience, to, lo); err != nil {
			return err
		}
	}
	err := h.look(to, lo)
	h.failed += uint64(h.busy) // never answered
	return err
}

// look finds the connections that the server has ended, or that have broken, while nothing was due
// on them: those are not open any more, and nothing else would tell.
func (h *holder) look(to []netip.AddrPort, lo int) error {
	for i := 0; i < len(h.conns) || h.looks > 0; {
		for ; i < len(h.conns) && h.looks < askBuffers; i++ {
			if c := &h.conns[i]; c.file != nil && c.ask == nil {
				a := h.take(i)
				a.looks = true
				h.looks++
				a.recv.RecvFrom(c.file, h.stock).Flags(syscall.MSG_PEEK | syscall.MSG_DONTWAIT)
				if err := h.push(a, &a.recv); err != nil {
					return err
				}
			}
		}
		if h.looks > 0 {
			if err := h.turn(patience, to, lo); err != nil {
				return err
			}
		}
	}
	return nil
}

// looked takes what there is to be read on a connection where nothing is due.
func (h *holder) looked(a *ask) {
	n, err := a.recv.Result()
	if piece, some := a.recv.Picked(); some {
		piece.Give()
	}
	switch {
	case err == nil && n > 0, errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOBUFS):
	case err == nil:
		a.bad = errClosed
	default:
		a.bad = err
	}
}

// take has a free ask be that of a connection.
func (h *holder) take(conn int) *ask {
	a := &ask{}
	if last := len(h.asks) - 1; last >= 0 {
		a, h.asks = h.asks[last], h.asks[:last]
	}
	a.conn, a.got, a.bad, a.flying, a.looks = conn, 0, nil, 0, false
	h.conns[conn].ask = a
	h.busy++
	return a
}

func (h *holder) push(a *ask, op *uring.Op) error {
	op.Tag = uint64(a.conn)
	a.flying++
	return h.ring.Push(op)
}

// send sends a request on a connection, unless the one before is not answered, which then is late
// until it is, or there is no room to.
func (h *holder) send(conn int, due time.Time) error {
	c := &h.conns[conn]
	if c.file == nil || c.ask != nil || h.isFull() {
		h.failed++
		return nil
	}
	a := h.take(conn)
	a.due = due
	return h.ask(a)
}

// isFull reports whether the ring has no room for an ask, which is two operations: so it is where
// the server, or this program, has stood still for a while.
func (h *holder) isFull() bool { return h.ring.InFlight()+2 > h.cfg.inFlight }

func (h *holder) ask(a *ask) error {
	f := h.conns[a.conn].file
	a.op.Send(f, h.request)
	if err := h.push(a, &a.op); err != nil {
		return err
	}
	a.recv.RecvFrom(f, h.stock)
	return h.push(a, &a.recv)
}

func family(a netip.Addr) int {
	if a.Is4() {
		return syscall.AF_INET
	}
	return syscall.AF_INET6
}

// turn submits, waits, and takes what has come.
func (h *holder) turn(wait time.Duration, to []netip.AddrPort, lo int) error {
	if h.busy == 0 {
		time.Sleep(wait)
		return nil
	}
	if err := h.ring.WaitFor(1, wait); err != nil && !errors.Is(err, uring.ErrTimeout) {
		return err
	}
	for op := h.ring.Next(); op != nil; op = h.ring.Next() {
		a := h.conns[op.Tag].ask
		a.flying--
		if err := h.came(a, op, to, lo); err != nil {
			return err
		}
		if a.flying == 0 {
			h.end(a)
		}
	}
	return nil
}

// came takes a completion, and goes on to the next step.
func (h *holder) came(a *ask, op *uring.Op, to []netip.AddrPort, lo int) error {
	c := &h.conns[a.conn]
	switch {
	case a.looks:
		h.looked(a)
		return nil
	case op == &a.recv:
		return h.received(a)
	}
	_, err := op.Result()
	code := op.Code()
	switch {
	case err != nil:
		a.bad = err
	case code == uring.OpSocket:
		if c.file, a.bad = op.NewFile(h.ring); a.bad == nil {
			a.op.Connect(c.file, to[(lo+a.conn)%len(to)])
			return h.push(a, &a.op)
		}
	case code == uring.OpConnect:
		h.made++
		return h.ask(a)
	}
	return nil
}

// received takes a piece of an answer.
func (h *holder) received(a *ask) error {
	n, err := a.recv.Result()
	piece, some := a.recv.Picked()
	switch {
	case errors.Is(err, syscall.ENOBUFS): // all buffers are taken for the moment
		a.recv.RecvFrom(h.conns[a.conn].file, h.stock)
		return h.push(a, &a.recv)
	case err != nil:
		a.bad = err
	case n == 0:
		a.bad = errClosed
	case a.got == 0 && !bytes.HasPrefix(piece.Bytes, []byte("HTTP/1.1 200 ")):
		a.bad = notGood(piece.Bytes)
	}
	if some {
		if a.bad == nil && h.answer == 0 {
			h.answer, a.bad = lengthOf(piece.Bytes)
		}
		a.got += n
		piece.Give()
	}
	if a.bad == nil && a.got < h.answer {
		a.recv.RecvFrom(h.conns[a.conn].file, h.stock)
		return h.push(a, &a.recv)
	}
	if a.bad == nil && a.got > h.answer {
		a.bad = fmt.Errorf("an answer of %d bytes or more, with its head, and the first one had %d: want all of one length", a.got, h.answer)
	}
	return nil
}

// notGood says what an answer begins with.
func notGood(b []byte) error {
	line, _, _ := bytes.Cut(b, crlf)
	if f := (framing{}); f.statusLine(line) {
		return fmt.Errorf("an answer of %s with status %d: want HTTP/1.1 and 200", line[:8], f.status)
	}
	return fmt.Errorf("an answer that begins with %.20q: want HTTP/1.1 and status 200", b)
}

// lengthOf is the length of an answer, from its head: those of a server are all alike.
func lengthOf(b []byte) (int, error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return 0, errors.New("the head of the answer does not come in one")
	}
	var f framing
	switch {
	case !f.read(b[:end]):
		return 0, errors.New("the answer is no HTTP")
	case f.length < 0 || f.length > maxAnswer:
		return 0, fmt.Errorf("the answer has no Content-Length, or one above %d", maxAnswer)
	}
	return end + 4 + int(f.length), nil
}

// end is the end of an ask.
func (h *holder) end(a *ask) {
	c := &h.conns[a.conn]
	c.ask = nil
	h.busy--
	if a.looks {
		h.looks--
	}
	h.asks = append(h.asks, a)
	if a.bad != nil {
		if !a.looks {
			h.failed++
		}
		h.bad = a.bad
		if c.file != nil {
			_ = c.file.Close() // it has ended anyway
			if c.file = nil; h.counting {
				h.open--
			}
		}
		return
	}
	if !h.counting {
		h.open++
		return
	}
	if a.looks {
		return
	}
	h.answered++
	_ = h.latency.RecordValue(min(time.Since(a.due).Microseconds(), highest)) // in range, so without an error
}
