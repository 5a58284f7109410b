package uring

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Resize gives the ring queues of another size, while operations are in flight: what was queued is
// submitted first, and completions that nobody has seen stay. entries and inFlight are those of
// Config; 0 leaves one as it is. It refuses with ErrBusy to hold fewer operations than are in
// flight. Only a Locked ring without SQPoll can be resized. Linux 6.13: see Resizing.
func (r *Ring) Resize(entries, inFlight int) error {
	if r.closed() || r.ending != nil {
		return errRingClosed
	}
	if entries == 0 {
		entries = len(r.sqes)
	}
	if inFlight == 0 {
		inFlight = r.Depth()
	}
	if entries < 1 || entries > maxEntries || inFlight < 1 || inFlight >= 2*maxEntries {
		return fmt.Errorf("uring: resize to %d entries and %d in flight: want 1 to %d, and 1 to %d", entries, inFlight,
			maxEntries, 2*maxEntries-1)
	}
	if r.setup&setupDeferTaskrun == 0 {
		return errors.New("uring: resize: want a ring made with Locked and without SQPoll")
	}
	slots, err := r.slotsFor(inFlight + cancelSlots)
	if err != nil {
		return err
	}
	if err := r.Submit(); err != nil {
		return err
	}
	r.giveBack()
	p := params{flags: setupCQSize, sqEntries: uint32(entries), cqEntries: uint32(max(inFlight+cancelSlots, entries))}
	if _, e := r.register(registerResizeRings, unsafe.Pointer(&p), 1); e != 0 {
		switch e {
		case unix.EINVAL:
			return notSupported(string(Resizing), "6.13")
		case unix.EOVERFLOW:
			return fmt.Errorf("uring: resize: completions wait that %d places do not hold: %w", p.cqEntries, ErrBusy)
		}
		return fmt.Errorf("uring: resize: %w", r.refused("io_uring_register", e))
	}
	mem, sqeMem := r.mem, r.sqeMem
	p.flags |= r.setup & setupNoSQArray
	if err := r.mapQueues(p); err != nil {
		return r.end(fmt.Errorf("uring: resize: the old queues are gone, and so is the ring: %w", err))
	}
	unix.Munmap(mem)
	unix.Munmap(sqeMem)
	r.headSeen = load(r.sqHead)
	r.slots, r.free, r.nFree, r.spent = slots.all, slots.free, slots.nFree, slots.spent
	return nil
}

// slotTable is the slots of a ring, and which of them are free.
type slotTable struct {
	all   []slot
	free  []uint32
	nFree int
	spent uint64
}

// slotsFor is the ring's slots in a table of n. An operation keeps its slot, since that is a part
// of its name; so a table can be no shorter than the last slot in use.
func (r *Ring) slotsFor(n int) (t slotTable, err error) {
	fits := r.InFlight() <= n-cancelSlots
	for i := n; i < len(r.slots); i++ {
		fits = fits && r.slots[i].op == nil
	}
	if !fits {
		return t, fmt.Errorf("uring: resize: %d operations are in flight: %w", r.InFlight(), ErrBusy)
	}
	t.all, t.free = make([]slot, n), make([]uint32, n)
	t.spent = r.spent
	for i := n; i < len(r.slots); i++ {
		t.spent = max(t.spent, r.slots[i].name&^(genStep-1))
	}
	names := r.slots[0].name & (serialMask << nameSerial)
	for i := copy(t.all, r.slots); i < n; i++ {
		t.all[i].name = (names | uint64(i) | t.spent) + genStep
	}
	for i := n - 1; i >= 0; i-- {
		if t.all[i].op == nil {
			t.free[t.nFree] = uint32(i)
			t.nFree++
		}
	}
	return t, nil
}
