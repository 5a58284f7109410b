package uring_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/uring"
	"golang.org/x/sys/unix"
)

func TestChain(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		cfg.Entries = 8
		r := open(t, cfg)
		chain := func(push func(...*uring.Op) error, failAt int) []*uring.Op {
			ops := make([]*uring.Op, 4)
			bad, err := uring.NewFile(1<<20), error(nil)
			for i := range ops {
				ops[i] = new(uring.Op).Nop()
				if i == failAt {
					ops[i].Fsync(bad, false)
				}
			}
			if err = push(ops...); err != nil {
				t.Fatal(err)
			}
			reap(t, r, len(ops))
			return ops
		}
		for fail := range 4 {
			soft, hard := chain(r.Chain, fail), chain(r.HardChain, fail)
			for i := range 4 {
				switch {
				case i == fail:
					fails(t, soft[i], unix.EBADF)
				case i > fail:
					fails(t, soft[i], unix.ECANCELED)
				default:
					is(t, soft[i], 0)
				}
				// a descriptor that is bad is found before the chain starts when it is the head
				if i != fail && fail > 0 {
					is(t, hard[i], 0)
				}
			}
		}
		long := make([]*uring.Op, 9)
		for i := range long {
			long[i] = new(uring.Op)
		}
		few := open(t, uring.Config{Entries: 16, InFlight: 8})
		// no waiting helps, as against ErrFull
		for what, r := range map[string]*uring.Ring{"the queue": r, "what can be in flight": few} {
			if err := r.Chain(long...); !errors.Is(err, uring.ErrTooLong) || errors.Is(err, uring.ErrFull) ||
				r.InFlight() != 0 {
				t.Errorf("a chain longer than %s: %v", what, err)
			}
		}
		if err := few.Chain(long[:8]...); err != nil {
			t.Errorf("a chain as long as what can be in flight: %v", err)
		}
		reap(t, few, 8)
		if err := r.Chain(long[0], long[1], long[0]); !errors.Is(err, uring.ErrBusy) || r.InFlight() != 0 {
			t.Errorf("a chain with one operation twice: %v, %d in flight", err, r.InFlight())
		}
	})
}

func TestLinkTimeout(t *testing.T) {
	r := open(t, uring.Config{})
	a, _ := pipe(t)
	buf := uring.Wrap(make([]byte, 8))
	var read, limit uring.Op
	if err := r.Chain(read.Read(a, buf, uring.Current), limit.LinkTimeout(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	reap(t, r, 2)
	fails(t, &read, unix.ECANCELED)
	fails(t, &limit, unix.ETIME)
}

func TestDrainWaitsForTheOthers(t *testing.T) {
	r := open(t, uring.Config{})
	var slow, after uring.Op
	for _, op := range []*uring.Op{slow.Timeout(3*time.Millisecond, 0), after.Nop().Drain()} {
		if err := r.Push(op); err != nil {
			t.Fatal(err)
		}
	}
	if order := reap(t, r, 2); order[0] != &slow {
		t.Error("the operation that drains came first")
	}
}
