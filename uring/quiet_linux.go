package uring

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// QuietChain is Chain that completes once, and so costs one completion instead of one for each
// operation. Next gives the last operation, if all went well: then each of those before it has done
// all that it was asked to. Otherwise Next gives the one that failed or did less, as a read at the
// end of a file does; those before it are done, and those behind it were not begun. Where the
// kernel refuses one before the first begins (a flag that it does not know), that is the first,
// with ECANCELED. All operations of the chain are the caller's again then; Res of the others is 0
// or -ECANCELED.
//
// Operations that complete more than once, that make a descriptor or pick a buffer cannot be in it,
// nor can a LinkTimeout or a Drain. Those whose failure does not end a chain (see Chain) can only
// be the last: the kernel would say nothing of it. And no operation that is pushed on this ring
// later can have Drain: the kernel forbids it from then on. Linux 5.17: see QuietChains.
func (r *Ring) QuietChain(ops ...*Op) error {
	if r.closed() {
		return errRingClosed
	}
	if r.feats&featCQESkip == 0 {
		return notSupported(string(QuietChains), "5.17")
	}
	if len(ops) < 2 {
		return fmt.Errorf("uring: quiet chain of %d operations: want 2 or more", len(ops))
	}
	for i, op := range ops {
		err := op.canBeQuiet()
		if err == nil && i < len(ops)-1 && !op.Code().endsChain() {
			err = fmt.Errorf("%v: it can only be the last: its failure would not be seen", op.Code())
		}
		if err != nil {
			return fmt.Errorf("uring: operation %d of a quiet chain: %w", i, err)
		}
	}
	for i, op := range ops {
		if op.special(); i < len(ops)-1 {
			op.silent = true
			op.e.flags |= sqeCQESkip
		}
	}
	if err := r.Chain(ops...); err != nil {
		for _, op := range ops {
			op.unmate()
			op.silent = false
		}
		return err
	}
	mates := slices.Clone(ops)
	for _, op := range ops {
		op.more().mates = mates
	}
	r.quiet = true
	return nil
}

// canBeQuiet says why an operation cannot complete without anybody's knowing.
func (o *Op) canBeQuiet() error {
	switch {
	case o == nil:
		return errors.New("none")
	case o.self == nil:
		o.Nop()
	case o.ring != nil:
		return fmt.Errorf("%v: operation: %w", o.Code(), ErrBusy)
	case o.self != o:
		return errors.New("operation: copied after it was filled")
	case o.from != nil, o.e.flags&sqeIODrain != 0:
		return fmt.Errorf("%v: with a drain or a picked buffer", o.Code())
	}
	switch o.Code() {
	case opMailbox, OpOpenAt, OpAccept, OpSocket, OpFilesUpdate, OpLinkTimeout:
		return fmt.Errorf("%v: its completion must be seen", o.Code())
	}
	if o.many {
		return fmt.Errorf("%v: it completes more than once", o.Code())
	}
	return nil
}

// unmate takes an operation out of its quiet chain. What the ring has counted stays until it ends.
func (o *Op) unmate() {
	if o.side != nil {
		o.side.mates = nil
	}
	o.e.flags &^= sqeCQESkip
}

// endMates ends a quiet chain by its one completion, that of o. It runs within the release of o,
// whose slot is free already.
func (o *Op) endMates() {
	mates, res := o.side.mates, int32(0)
	for _, m := range mates {
		m.unmate() // first: the end of each of them comes here, too
	}
	for _, m := range mates {
		if m == o {
			res = -int32(unix.ECANCELED) // those behind it
			continue
		}
		r := m.ring
		m.Res, m.flags = res, nothing
		r.finish(&r.slots[m.slot], m.slot)
		if res != 0 {
			m.closeAnyway()
		}
	}
}

// endsChain reports whether the kernel ends a chain where such an operation fails. It forgets that
// for those that are left out here (Linux 6.18).
func (o Opcode) endsChain() bool {
	switch o {
	case OpNop, OpReadv, OpWritev, OpReadFixed, OpWriteFixed, OpRead, OpWrite, OpSend, OpRecv, OpSendMsg, OpRecvMsg,
		OpConnect, OpBind, OpListen, OpClose, OpSplice, OpFadvise, OpPollAdd, OpPollRemove, OpTimeout, OpTimeoutRemove,
		OpAsyncCancel, OpMsgRing, OpFutexWait, OpFutexWake, OpWaitID:
		return true
	}
	return false
}
