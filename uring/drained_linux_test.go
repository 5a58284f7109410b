package uring_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tallywheel/tallywheel/uring"
)

// TestCloseBehindADrain: what waits for an operation that never ends holds up every cancellation
// that comes behind it. Close took ten seconds, and kept the memory of all of them for ever.
func TestCloseBehindADrain(t *testing.T) {
	const drains = 100
	kinds(t, func(t *testing.T, cfg uring.Config) {
		cfg.Entries = 2 * drains
		needs(t, uring.OpSendZC) // the call that cancels beside the queue is as old: Linux 6.0
		r := open(t, cfg)
		in, _ := sockets(t)
		ops := []*uring.Op{
			new(uring.Op).Recv(in, uring.Wrap(make([]byte, 8))), new(uring.Op).PollEach(in, unix.POLLIN), new(uring.Op).Timeout(time.Hour, 0),
		}
		for range drains {
			ops = append(ops, new(uring.Op).Timeout(time.Hour, 0).Drain())
		}
		for _, op := range ops {
			if err := r.Push(op); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Submit(); err != nil {
			t.Fatal(err)
		}
		began, n := time.Now(), 0
		err := r.Shutdown(func(*uring.Op) { n++ })
		if took := time.Since(began); err != nil || n < len(ops) || took > 5*time.Second {
			t.Errorf("%v: %d of %d operations came back in %v", err, n, len(ops), took)
		}
	})
}
