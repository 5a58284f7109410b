package uring_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/uring"
)

// A wait for fewer than no completions waits for none, whatever the kernel makes of such a number.
func TestWaitForLessThanNothing(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		late := time.AfterFunc(time.Minute, func() { panic("the wait does not return") })
		defer late.Stop()
		r := open(t, cfg)
		var op uring.Op
		if err := r.Push(op.Timeout(time.Hour, 0)); err != nil {
			t.Fatal(err)
		}
		for _, wait := range []func() error{
			func() error { return r.Wait(-1) },
			func() error { return r.WaitFor(-1, time.Hour) },
			func() error { return r.WaitSome(-5, time.Millisecond, time.Hour) },
		} {
			if err := wait(); err != nil {
				t.Error(err)
			}
		}
		do2(t, r, &op, new(uring.Op).Cancel(&op))
	})
}

// A stock that was closed is no stock any more: another one may have its place in the kernel, whose
// buffers the operation took, for good.
func TestStockThatWasClosed(t *testing.T) {
	stocks(t, 2, 64, func(t *testing.T, r *uring.Ring, g *uring.BufferRing) {
		in, out := sockets(t)
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		other, err := r.NewBufferRing(4, 64, false)
		if err != nil {
			t.Fatal(err)
		}
		send(t, out, "x")
		var op uring.Op
		for _, each := range []*uring.Op{op.RecvFrom(in, g), new(uring.Op).RecvEach(in, g)} {
			if err := r.Push(each); !errors.Is(err, uring.ErrClosed) {
				t.Errorf("%v", err)
			}
		}
		do(t, r, op.RecvFrom(in, other))
		p, ok := op.Picked()
		if !ok || string(p.Bytes) != "x" {
			t.Errorf("%q", p.Bytes)
		}
		p.Give()
		if other.Free() != 4 {
			t.Errorf("%d of 4 are free", other.Free())
		}
	})
}

// What a closed ring is asked for is refused by name, and not by the kernel's "bad file
// descriptor"; and so is what one is asked for that was never made, and would be descriptor 0.
func TestClosedRing(t *testing.T) {
	closed := open(t, uring.Config{})
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	a, err := uring.NewArena(1, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for kind, r := range map[string]*uring.Ring{"closed": closed, "zero": new(uring.Ring)} {
		_, stock := r.NewBufferRing(1, 1, false)
		_, queue := r.NewSendQueue(1)
		for name, err := range map[string]error{
			"Push": r.Push(new(uring.Op)), "Chain": r.Chain(new(uring.Op)), "HardChain": r.HardChain(new(uring.Op)),
			"QuietChain": r.QuietChain(new(uring.Op), new(uring.Op)),
			"Submit":     r.Submit(), "Wait": r.Wait(0), "WaitFor": r.WaitFor(1, time.Hour), "Close": r.Close(),
			"WaitBriefly": r.WaitBriefly(1, time.Hour), "WaitSome": r.WaitSome(1, time.Second, time.Hour),
			"Shutdown": r.Shutdown(nil), "Resize": r.Resize(8, 8),
			"NewBufferRing": stock, "NewSendQueue": queue,
			"RegisterFiles": r.RegisterFiles(1), "RegisterArena": r.RegisterArena(a),
		} {
			if !errors.Is(err, uring.ErrClosed) {
				t.Errorf("%s, %s: %v", kind, name, err)
			}
		}
		if r.Next() != nil || r.InFlight() != 0 || r.Stats().Completed != 0 || r.Mode() == "" {
			t.Errorf("%s: has something", kind)
		}
	}
	if n := new(uring.Ring).Depth(); n != 0 {
		t.Errorf("depth %d of no ring", n)
	}
}
