package ring

import (
	"testing"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/server/internal/loop"
	"github.com/tallywheel/tallywheel/server/internal/loop/looptest"
	"github.com/tallywheel/tallywheel/uring"
)

// TestAcceptErrors: what accept(2) says of an error decides whether the listener goes on.
func TestAcceptErrors(t *testing.T) {
	needRings(t)
	looptest.AcceptErrors(t, func(l *loop.Loop, fail func() error) (loop.Driver, error) {
		d, err := New(l, Config{Conns: 100})
		if err != nil {
			return nil, err
		}
		d.(*driver).taken = func(op *uring.Op) (int, error) {
			conn, err := taken(op)
			if err == nil {
				if err = fail(); err != nil {
					_ = sys.CloseFD(conn)
				}
			}
			return conn, err
		}
		return d, nil
	})
}

// needRings skips where a loop has no ring.
func needRings(t *testing.T) {
	t.Helper()
	p := uring.Probe()
	for _, f := range []uring.Feature{uring.Rings, uring.BufferRings, uring.MultishotAccept, uring.MultishotReceive} {
		if err := p.Has(f); err != nil {
			t.Skipf("SKIPPED: %v; this needs a kernel that has it", err)
		}
	}
}
