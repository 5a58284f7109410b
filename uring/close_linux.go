package uring

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// closePatience bounds the wait for cancelled operations to come back. Only an operation that the
// kernel cannot interrupt takes long: a disk or a network file system that hangs.
const closePatience = 10 * time.Second

// errRingClosed is what all that needs an open ring returns.
var errRingClosed = fmt.Errorf("uring: ring: %w", ErrClosed)

// Close is Shutdown for a ring whose operations have all been seen. If any had not, they are
// cancelled, and ErrUnreaped says how many.
func (r *Ring) Close() error {
	n := 0
	err := r.Shutdown(func(op *Op) {
		n++
		op.discard()
	})
	if err == nil && n > 0 {
		err = fmt.Errorf("uring: close: %d %w", n, ErrUnreaped)
	}
	return err
}

// Shutdown cancels everything in flight, hands every completion that had not been seen to each
// (nil: nobody), and frees the ring. To each the ring is closed already: it can push nothing
// again, wait for nothing, and not close it. Operations that the kernel does not give back within
// 10 s, or whose owner thread is gone, keep their memory for ever, since the kernel may still write
// there; the error counts them.
func (r *Ring) Shutdown(each func(*Op)) error {
	if r.closed() || r.ending != nil {
		return errRingClosed
	}
	if each == nil {
		each = (*Op).discard
	}
	r.ending = new(Op)
	defer func() { r.ending = nil }() // of an each that panics, too: the ring can be closed then
	r.headSeen = r.submitted - uint32(len(r.sqes))
	if r.setup&setupSQPoll == 0 {
		for r.tail != r.submitted {
			op := r.unqueueLast()
			op.Res, op.flags = -int32(unix.ECANCELED), 0
			op.closeAnyway()
			each(op)
		}
		atomic.StoreUint32(r.sqTail, r.tail)
	}
	return r.end(r.cancelAll(each))
}

// end frees the ring. What is in flight is given up.
func (r *Ring) end(err error) error {
	r.endBoxes()
	r.unregisterRing()
	if stuck := r.InFlight(); stuck > 0 {
		r.strand()
		err = errors.Join(err, fmt.Errorf("uring: close: %d operations never came back; their memory is kept", stuck))
	} else {
		for _, g := range r.groups {
			g.end()
		}
		alive.Delete(r)
	}
	if r.arena != nil {
		r.arena.ring = nil
	}
	r.giveBack()
	err = errors.Join(err, r.health(), r.door.close(),
		os.NewSyscallError("munmap", unix.Munmap(r.mem)), os.NewSyscallError("munmap", unix.Munmap(r.sqeMem)))
	r.fd, r.mem, r.sqeMem = -1, nil, nil
	r.headSeen = r.tail - uint32(len(r.sqes))     // Push finds no room, and then the reason
	r.head, r.given, r.cqTail = 0, 0, new(uint32) // Next finds an empty queue
	return err
}

// strand gives up on operations that did not come back. Their memory stays, but their files can be
// closed: the kernel has a reference of its own.
func (r *Ring) strand() {
	for _, s := range r.slots {
		if s.op == nil {
			continue
		}
		if f := s.op.file; f != nil {
			f.uses--
		}
		m := s.op.side
		if m == nil {
			continue
		}
		if m.source != nil {
			m.source.uses--
		}
		if m.to != nil {
			m.to.leave()
		}
	}
}

// cancelAll ends what is in flight. A cancellation misses what is between two of the kernel's lists
// at that moment, and what begins only when an operation before it has ended; so it is repeated,
// less and less often while nothing ends.
func (r *Ring) cancelAll(each func(*Op)) error {
	cancel := r.ending
	pause, end := cancelFirst, time.Now().Add(closePatience)
	for again := time.Now(); ; {
		for op := r.Next(); op != nil; op = r.Next() {
			if op != cancel {
				each(op)
				pause = cancelFirst
			}
		}
		now := time.Now()
		if r.InFlight() == r.boxes || now.After(end) {
			return nil
		}
		if again = earlier(again, now.Add(pause)); !now.Before(again) {
			if cancel.InFlight() || r.nFree == 0 { // a drain holds it up, or it has no place
				r.cancelBeside()
			} else if err := r.Push(cancel.CancelAll()); err != nil && !errors.Is(err, ErrFull) {
				return err
			}
			again = now.Add(pause)
			pause = min(2*pause, cancelLast)
		}
		until := end
		if again.After(now) && again.Before(end) {
			until = again
		}
		err := r.await(1, until)
		if err != nil && !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrFull) && !errors.Is(err, ErrStray) {
			return err
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

const (
	cancelFirst = time.Millisecond
	cancelLast  = 100 * time.Millisecond
)

// endBoxes ends the mailboxes, which the kernel knows nothing of.
func (r *Ring) endBoxes() {
	for i := range r.slots {
		if s := &r.slots[i]; s.op != nil && s.op.Code() == opMailbox {
			r.finish(s, uint32(i))
		}
	}
	r.boxes = 0
}
