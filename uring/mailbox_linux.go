package uring

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Mailbox lets other rings complete this operation, any number of times: see Message. Push it like
// an operation; the kernel never sees it, and it is in flight until the ring is shut down.
func (o *Op) Mailbox() *Op { o.set(opMailbox); return o }

// Address is where a mailbox can be reached, from any goroutine.
type Address struct {
	door *door
	name uint64
}

// Address of a mailbox in flight.
func (o *Op) Address() Address {
	if o.Code() != opMailbox || o.ring == nil {
		panic("uring: Address is for a Mailbox that has been pushed")
	}
	return Address{o.ring.door, o.userData()}
}

// Message completes a mailbox of another ring with Res = value, and wakes its owner. It completes
// with EOVERFLOW if that ring's completion queue is full. Push returns ErrClosed if the ring is
// closed. Linux 5.18.
func (o *Op) Message(to Address, value uint32) *Op {
	e := o.set(OpMsgRing)
	e.off, e.len = to.name, value
	if o.more().to = to.door; to.door == nil {
		o.fail(errors.New("no address"))
	}
	return o.special()
}

// door is a ring's descriptor as other rings use it. The ring closes it; where messages are on
// their way by then, the last of them does, so that the number means no other ring until they have
// arrived.
type door struct {
	mu       sync.Mutex
	fd       int
	messages int // pushed and not yet completed
	closed   bool
}

// enter puts the descriptor into the entry of a message.
func (d *door) enter(e *entry) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("ring of the mailbox: %w", ErrClosed)
	}
	d.messages++
	e.fd = int32(d.fd)
	return nil
}

func (d *door) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.messages--; d.messages == 0 && d.closed {
		unix.Close(d.fd)
	}
}

func (d *door) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed = true; d.messages > 0 {
		return nil
	}
	return os.NewSyscallError("close", unix.Close(d.fd))
}
