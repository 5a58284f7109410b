package ipc

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tallywheel/tallywheel/ring"
)

// MaxSlot bounds RingConfig.Slot, in bytes.
const MaxSlot = 1 << 20

// slotHead is the bytes before a message: its length u32, and 4 that are 0.
const slotHead = 8

// stride is the room of a slot for messages of n bytes. A slot that goes over the end of the ring
// goes on in its second mapping, so the size need be no multiple of it.
func stride(n int) int { return (slotHead + n + 7) &^ 7 }

// between returns an error if a position that the memory told lies within a slot.
func (r *Ring) between(position uint64) error {
	if position%uint64(stride(r.slot)) != 0 {
		return fmt.Errorf("ipc: position %d in slots of %d bytes: %w", position, stride(r.slot), ErrCorrupt)
	}
	return nil
}

// Sender is the end of a ring of messages that sends. One goroutine at a time may use it, but for
// Watch and Interrupt.
type Sender struct {
	*end
	p      *Producer
	slot   int
	stride int
}

// Sender takes the end that sends; see [Ring.Producer].
func (r *Ring) Sender() (*Sender, error) {
	if r.slot == 0 {
		return nil, errOfBytes
	}
	p, err := r.producer()
	if err == nil {
		err = r.between(p.Position())
	}
	if err != nil {
		return nil, err
	}
	return &Sender{p.end, p, r.slot, stride(r.slot)}, nil
}

// Count is the number of messages that were sent since the ring was made.
func (s *Sender) Count() uint64 { return s.p.Position() / uint64(s.stride) }

// patience is how long a sender that met a full ring waits for half of it before it takes any slot:
// to be woken for each one would cost a system call a message on both sides.
const patience = time.Millisecond

// Send sends a message of at most RingConfig.Slot bytes. It waits while the ring is full, at most
// so long, or without end if within is negative; errors are those of [Producer.Wait].
func (s *Sender) Send(b []byte, within time.Duration) error {
	if len(b) > s.slot {
		return fmt.Errorf("ipc: a message of %d bytes: want at most %d (RingConfig.Slot)", len(b), s.slot)
	}
	space, err := s.p.Space(s.stride)
	if err != nil {
		return err
	}
	if len(space) < s.stride {
		if space, err = s.room(within); err != nil {
			return err
		}
	}
	ring.Uint32(space, 0).Store(uint32(len(b)))
	copy(space[slotHead:s.stride], b)
	s.p.Publish(s.stride)
	return nil
}

// room waits for a slot.
func (s *Sender) room(within time.Duration) ([]byte, error) {
	first := patience
	if within >= 0 {
		first = min(first, within)
	}
	half := max(s.p.ring.Size()/2, s.stride)
	space, err := s.p.Wait(half, first)
	if len(space) < s.stride && errors.Is(err, os.ErrDeadlineExceeded) {
		if within >= 0 {
			within -= first
		}
		space, err = s.p.Wait(s.stride, within)
	}
	if len(space) >= s.stride {
		return space, nil
	}
	return nil, err
}

// Close closes the end: the receiver gets io.EOF once it has all that was sent.
func (s *Sender) Close() { s.close() }

// Receiver is the end of a ring of messages that receives. One goroutine at a time may use it, but
// for Watch and Interrupt.
type Receiver struct {
	*end
	c      *Consumer
	slot   int
	stride int
}

// Receiver takes the end that receives; see [Ring.Consumer].
func (r *Ring) Receiver() (*Receiver, error) {
	if r.slot == 0 {
		return nil, errOfBytes
	}
	c, err := r.consumer()
	if err == nil {
		err = r.between(c.Position())
	}
	if err != nil {
		return nil, err
	}
	return &Receiver{c.end, c, r.slot, stride(r.slot)}, nil
}

// Count is the number of messages that were received since the ring was made.
func (r *Receiver) Count() uint64 { return r.c.Position() / uint64(r.stride) }

// Receive copies the next message to b, which must have room for RingConfig.Slot bytes, and returns
// its length. It waits at most so long for one, or without end if within is negative; errors are
// those of [Consumer.Wait]. A process that is killed within Receive has received the message, or
// the next one does; Count tells which.
func (r *Receiver) Receive(b []byte, within time.Duration) (int, error) {
	n, err := r.peek(b, within)
	if err == nil {
		r.c.Release(r.stride)
	}
	return n, err
}

// Peek is Receive that leaves the message there until [Receiver.Discard]: so that what was done
// with it can be made sure of before it is gone.
func (r *Receiver) Peek(b []byte, within time.Duration) (int, error) { return r.peek(b, within) }

// Discard takes the message that Peek has returned out of the ring. It panics if there is none.
func (r *Receiver) Discard() { r.c.Release(r.stride) }

func (r *Receiver) peek(b []byte, within time.Duration) (int, error) {
	if len(b) < r.slot {
		return 0, fmt.Errorf("ipc: room for a message of %d bytes: want %d (RingConfig.Slot)", len(b), r.slot)
	}
	view, err := r.c.View(r.stride)
	if err == nil && len(view) < r.stride {
		view, err = r.c.Wait(r.stride, within)
	}
	if err != nil {
		return 0, err
	}
	n := ring.Uint32(view, 0).Load() // once: it may change
	if n > uint32(r.slot) {
		return 0, fmt.Errorf("ipc: a message of %d bytes in a slot of %d: %w", n, r.slot, ErrCorrupt)
	}
	return copy(b[:n], view[slotHead:r.stride]), nil
}

// Close closes the end: a sender that waits gets [ErrPeerClosed].
func (r *Receiver) Close() { r.close() }
