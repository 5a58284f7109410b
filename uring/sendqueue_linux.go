package uring

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SendQueue holds buffers that wait to be sent, in their order: SendEach sends them. What is put
// into it while they are being sent goes with them. So a connection needs one operation, however
// many buffers there are and however slowly the peer reads, and nothing can overtake anything.
type SendQueue struct {
	provided
	bundles bool // the kernel takes the buffers itself: SendBundles
	held    []outgoing
	first   int // the oldest of held
	n       int
	skip    int  // bytes of the oldest that have been sent
	stale   bool // what the kernel would take is not what is held: it is registered anew
	torn    bool // the kernel has left the oldest behind with a part of it unsent
	lost    bool // … and gone on
	busy    bool // a SendEach is in flight
	closed  bool
}

// outgoing is a buffer that waits.
type outgoing struct {
	buf *Buffer
	pin runtime.Pinner
}

// maxVector is the most buffers that one sendmsg takes: IOV_MAX.
const maxVector = 1024

// NewSendQueue makes a queue for at most n buffers (a power of two, at most 32768). Before Linux
// 6.10, and in a ring with SQPoll, a SendEach takes at most 1024 of them, and none that are put
// later: see SendBundles.
func (r *Ring) NewSendQueue(n int) (*SendQueue, error) {
	if n < 1 || n > maxProvided || n&(n-1) != 0 {
		return nil, fmt.Errorf("uring: send queue of %d buffers: want a power of two up to %d", n, maxProvided)
	}
	q := &SendQueue{held: make([]outgoing, n), bundles: r.mayBundle()}
	if err := q.open(r, n); err != nil {
		return nil, fmt.Errorf("uring: send queue: %w", err)
	}
	if q.bundles {
		if e := q.register(0); e != 0 {
			q.unmap()
			return nil, fmt.Errorf("uring: send queue: %w", r.refused("io_uring_register", e))
		}
	}
	r.addGroup(q.group, q)
	return q, nil
}

// mayBundle reports whether the kernel may take buffers out of a queue by itself. Not its thread of
// SQPoll: on a busy machine, where a socket had room for a part of a buffer, that left the rest out
// and went on with the next one (Linux 6.18; TestSendEach sees it).
func (r *Ring) mayBundle() bool { return r.feats&featBundle != 0 && r.setup&setupSQPoll == 0 }

// addGroup keeps what ends with the ring.
func (r *Ring) addGroup(id uint16, g interface{ end() }) {
	if r.groups == nil {
		r.groups = map[uint16]interface{ end() }{}
	}
	r.groups[id] = g
}

// Len is the number of buffers that were put and have not been sent, as far as Next has seen.
func (q *SendQueue) Len() int { return q.n }

// Put adds a buffer behind the others. It is in flight until all of it has been sent, or the queue
// is closed; an empty one is sent already. It returns ErrFull, wrapped, if the queue has no room.
func (q *SendQueue) Put(b *Buffer) error {
	if b == nil {
		return errors.New("uring: send queue: no buffer")
	}
	err := b.check(false)
	switch {
	case q.closed:
		err = ErrClosed
	case err == nil && b.Len() > maxTransfer:
		err = fmt.Errorf("buffer of %d bytes: want at most %d", b.Len(), maxTransfer)
	case err == nil && b.Len() > 0 && q.n == len(q.held):
		err = fmt.Errorf("%d buffers: %w", q.n, ErrFull)
	}
	if err != nil {
		return fmt.Errorf("uring: send queue: %w", err)
	}
	if b.Len() == 0 {
		return nil
	}
	i := q.slot(q.n)
	b.take(false)
	if q.held[i].buf = b; !b.mapped {
		q.held[i].pin.Pin(unsafe.SliceData(b.mem))
	}
	if q.n++; q.bundles && !q.stale {
		q.provide(i, 0)
		q.publish()
	}
	return nil
}

// slot is where the i-th of those that wait is held.
func (q *SendQueue) slot(i int) int { return (q.first + i) & (len(q.held) - 1) }

// provide shows the kernel a buffer without its first bytes.
func (q *SendQueue) provide(i, skip int) {
	mem := q.held[i].buf.mem[skip:]
	q.put(uintptr(unsafe.Pointer(unsafe.SliceData(mem))), len(mem), uint16(i))
}

// SendEach sends all that the queue holds, and what is put into it meanwhile; it completes for each
// bundle of buffers, with More, until the queue is empty, it fails, or it is cancelled. Res is how
// many bytes a completion has sent. What has not been sent stays in the queue: while Len is above 0
// after the last completion, push it again. A queue has one SendEach in flight at a time. Where the
// kernel has no bundles it sends those that are there when it is pushed, and completes once.
func (o *Op) SendEach(f *File, q *SendQueue) *Op {
	o.setFile(OpSend, f).opFlags = unix.MSG_NOSIGNAL
	if o.more().queue = q; q == nil {
		o.fail(errors.New("no send queue"))
	}
	return o.repeats()
}

// ready says why a SendEach cannot begin now, and makes the kernel's queue what it should be.
func (q *SendQueue) ready(r *Ring) error {
	switch {
	case q.closed:
		return fmt.Errorf("send queue: %w", ErrClosed)
	case q.ring != r:
		return errors.New("send queue: of another ring")
	case q.busy:
		return fmt.Errorf("send queue: another SendEach: %w", ErrBusy)
	case q.lost:
		return errors.New("send queue: the kernel has left bytes out: close the connection, and the queue")
	case q.n == 0:
		return errors.New("send queue: nothing in it")
	case !q.stale:
		return nil
	}
	if err := q.unregister(); err != nil {
		return fmt.Errorf("send queue: %w", err)
	}
	if e := q.register(0); e != 0 {
		return fmt.Errorf("send queue: %w", r.refused("io_uring_register", e))
	}
	skip := q.skip
	for i := range q.n {
		q.provide(q.slot(i), skip)
		skip = 0
	}
	q.publish()
	q.stale, q.torn = false, false
	return nil
}

// begin puts the queue into the entry of a SendEach: as its group, or as a message of what it
// holds.
func (q *SendQueue) begin(o *Op) {
	q.busy = true
	o.flags |= cqeBuffer // each of its completions is for arrive
	if q.bundles {
		o.e.flags |= sqeBufferSelect
		o.e.ioprio, o.e.bufIndex = recvSendBundle, q.group
		return
	}
	x := o.extra()
	x.vector(min(q.n, maxVector))
	skip := q.skip
	for i := range x.iov {
		mem := q.held[q.slot(i)].buf.mem[skip:]
		x.iov[i].Base = unsafe.SliceData(mem)
		x.iov[i].SetLen(len(mem))
		skip = 0
	}
	x.msg, x.control = unix.Msghdr{Iov: &x.iov[0]}, nil
	x.msg.SetIovlen(len(x.iov))
	o.e.opcode = uint8(OpSendMsg)
	o.e.addr, o.e.len = uint64(uintptr(unsafe.Pointer(&x.msg))), 1
	o.e.opFlags |= unix.MSG_WAITALL
}

// sent takes what a completion has sent out of the queue, and returns the flags that the operation
// is to have.
func (q *SendQueue) sent(res int32, flags uint32) uint32 {
	if res > 0 {
		q.lost = q.lost || q.torn
		q.drop(int(res))
	}
	if flags&cqeMore != 0 {
		q.torn = q.torn || q.skip > 0
		return flags | cqeBuffer
	}
	// What the kernel has taken out of its queue is certain only where it has sent whole buffers.
	q.stale = q.bundles && (res <= 0 || q.skip > 0 || q.torn || flags&cqeBuffer == 0)
	return flags &^ cqeBuffer
}

// drop takes n bytes out of the queue.
func (q *SendQueue) drop(n int) {
	for n += q.skip; q.n > 0; q.n-- {
		h := &q.held[q.first]
		if n < h.buf.Len() {
			break
		}
		n -= h.buf.Len()
		h.letGo()
		q.first = q.slot(1)
	}
	q.skip = n
}

func (h *outgoing) letGo() {
	h.buf.letGo(false)
	h.pin.Unpin()
	h.buf = nil
}

// Close gives the buffers that have not been sent back. It refuses with ErrBusy while a SendEach is
// in flight.
func (q *SendQueue) Close() error {
	switch {
	case q.closed:
		return nil
	case q.busy:
		return fmt.Errorf("uring: send queue: %w", ErrBusy)
	case q.ring.fd >= 0:
		if q.bundles {
			if err := q.unregister(); err != nil {
				return fmt.Errorf("uring: send queue: %w", err)
			}
		}
		delete(q.ring.groups, q.group)
	}
	q.end()
	return nil
}

// end gives up what is in the queue.
func (q *SendQueue) end() {
	for q.closed = true; q.n > 0; q.n-- {
		q.held[q.first].letGo()
		q.first = q.slot(1)
	}
	q.skip = 0
	q.unmap()
}
