package uring_test

import (
	"net/netip"
	"os"
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
			new(uring.Op).Recv(in, uring.Wrap(make([]byte, 8))), new(uring.Op).PollEach(in, unix.POLLIN),
			new(uring.Op).Timeout(time.Hour, 0),
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

// TestZeroCopyThatIsCancelledInAChain: its notification was told to be a stray, for good.
func TestZeroCopyThatIsCancelledInAChain(t *testing.T) {
	needs(t, uring.OpSendZC, uring.OpSendMsgZC)
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		_, out := sockets(t)
		buf := uring.Wrap([]byte("hello"))
		for i := range 200 {
			var bad, behind, last, other uring.Op
			zc := behind.SendZeroCopy(out, buf)
			if i%2 == 0 {
				zc = behind.SendMsgZeroCopy(out, netip.AddrPort{}, nil, buf)
			}
			if err := r.Chain(bad.Open("/there/is/no/such/file", os.O_RDONLY, 0), zc, last.Nop()); err != nil {
				t.Fatal(err)
			}
			if err := r.Push(other.Timeout(time.Millisecond, 0)); err != nil {
				t.Fatal(err)
			}
			for seen := 0; seen < 4; {
				if err := r.Wait(1); err != nil {
					t.Fatal(err)
				}
				for op := r.Next(); op != nil; op = r.Next() {
					if seen++; op.More() || op.Notification() {
						t.Fatalf("operation %d: more is to come, or it is a notification", seen)
					}
				}
			}
			fails(t, &behind, unix.ECANCELED)
			if buf.InFlight() {
				t.Fatal("the buffer is in flight")
			}
			do(t, r, other.Nop())
		}
		if err := r.Close(); err != nil || r.Stats().Strays > 0 {
			t.Errorf("%v, %+v", err, r.Stats())
		}
	})
}

// TestZeroCopyAndDrain: the kernel waits for the notification of a send that it has not begun, and
// the ring stood still for ever.
func TestZeroCopyAndDrain(t *testing.T) {
	needs(t, uring.OpSendZC, uring.OpSendMsgZC)
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		_, out := sockets(t)
		buf := uring.Wrap([]byte("x"))
		var slow, drain, send uring.Op
		refused := func(err error) {
			t.Helper()
			if err == nil || send.InFlight() || buf.InFlight() {
				t.Fatalf("%v: want it to be refused", err)
			}
		}
		do(t, r, drain.Nop()) // what was sent before is no matter
		if err := r.Push(send.SendZeroCopy(out, buf)); err != nil {
			t.Fatal(err)
		}
		for send.InFlight() {
			if err := r.Wait(1); err != nil {
				t.Fatal(err)
			}
			r.Next()
		}
		refused(r.Push(send.SendZeroCopy(out, buf).Drain()))
		refused(r.Push(send.SendMsgZeroCopy(out, netip.AddrPort{}, nil, buf).Drain()))
		refused(r.Chain(drain.Nop().Drain(), send.SendZeroCopy(out, buf)))
		for _, op := range []*uring.Op{slow.Timeout(time.Hour, 0), drain.Nop().Drain()} {
			if err := r.Push(op); err != nil {
				t.Fatal(err)
			}
		}
		refused(r.Push(send.SendZeroCopy(out, buf)))
		refused(r.Push(send.SendMsgZeroCopy(out, netip.AddrPort{}, nil, buf)))
		if err := r.Shutdown(nil); err != nil {
			t.Error(err)
		}
	})
}

// TestTickThatIsUpdated: a tick that is always due cannot be cancelled, and Close waited for it for
// ten seconds. UpdateTimeout let one become that.
func TestTickThatIsUpdated(t *testing.T) {
	if err := uring.Probe().Has(uring.MultishotTimeout); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		var tick, update, stop uring.Op
		if err := r.Push(tick.Tick(time.Hour)); err != nil {
			t.Fatal(err)
		}
		for _, d := range []time.Duration{0, 1, time.Microsecond, -time.Second} {
			if err := r.Push(update.UpdateTimeout(&tick, d)); err == nil || update.InFlight() {
				t.Fatalf("a tick every %v: want an error", d)
			}
		}
		if err := r.Push(update.UpdateTimeout(&tick, 2*time.Hour)); err != nil {
			t.Fatal(err)
		}
		reap(t, r, 1)
		do2(t, r, &tick, stop.Cancel(&tick))
	})
}
