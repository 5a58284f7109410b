package uring

import "golang.org/x/sys/unix"

// A send without copying that fails within a chain before it has begun completes once, without
// More, and the kernel notifies of its memory all the same: a completion whose operation is over.
// The kernel has never had the memory then. Such names are kept until the notification comes.

// failed sees to what an operation leaves that is over, with an error.
func (r *Ring) failed(op *Op, name uint64) {
	switch {
	case op.Res == -int32(unix.ECANCELED) && op.side != nil && op.side.closing != nil:
		op.closeAnyway()
	case op.Code().zeroCopy() && op.flags&cqeNotif == 0:
		if r.late == nil || len(r.late) > len(r.cqes) { // this kernel does not notify of them
			r.late = map[uint64]struct{}{}
		}
		r.late[name] = struct{}{}
	}
}

// wasLate reports whether a completion of no operation is such a notification.
func (r *Ring) wasLate(name uint64) bool {
	_, ok := r.late[name]
	delete(r.late, name)
	return ok
}

// lateThere is how many of them are in the completion queue: [Ring.Next] passes over them.
func (r *Ring) lateThere() (n int) {
	if len(r.late) == 0 {
		return 0
	}
	for at, tail := r.head, load(r.cqTail); at != tail; at++ {
		if _, ok := r.late[r.cqes[at&r.cqMask].userData]; ok {
			n++
		}
	}
	return n
}
