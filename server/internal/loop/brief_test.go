package loop

import (
	"log/slog"
	"testing"
	"time"
)

// waiter is a driver that notes how it was asked to wait. Something comes at once while quick is
// set, and never otherwise.
type waiter struct {
	stub
	quick  bool
	briefs []bool
	longs  int // brief ones that may last longer than they should
}

func (d *waiter) Wait(timeout time.Duration, brief bool) error {
	d.briefs = append(d.briefs, brief)
	if brief && (timeout < 0 || timeout > briefWait) {
		d.longs++
	}
	for began := d.l.group.Clock(); !d.quick && d.l.group.Clock()-began < int64(briefWait); { // nothing comes
	}
	d.l.Tick()
	return nil
}

// TestBriefWaits: a loop keeps the CPU from other goroutines only where handlers run on it, while
// something comes at once, and no goroutine serves one of its connections.
func TestBriefWaits(t *testing.T) {
	for _, onLoop := range []bool{true, false} {
		g := New(Config{Loops: 1, MaxConns: 1, OnLoop: onLoop, Log: slog.New(slog.DiscardHandler)})
		l := &Loop{group: g, shared: &g.shared[0], drained: make(chan struct{})}
		d := &waiter{stub: stub{l: l}}
		l.driver = d
		wait := func(quick bool) bool { // whether a wait was brief
			d.quick = quick
			if err := l.wait(-1); err != nil {
				t.Fatal(err)
			}
			return d.briefs[len(d.briefs)-1]
		}
		if wait(false) {
			t.Error("the first wait is brief")
		}
		brief := false
		for range 10_000 { // the machine may stand still in one
			brief = brief || wait(true)
		}
		if brief != onLoop {
			t.Errorf("handlers on the loop: %v; brief waits where something comes at once: %v", onLoop, brief)
		}
		wait(false)
		if wait(true) {
			t.Error("a wait is brief although nothing came in the one before")
		}
		l.serving++
		for range 100 {
			if wait(true) {
				t.Fatal("a wait is brief although a goroutine serves a connection")
			}
		}
		if d.longs > 0 {
			t.Errorf("%d brief waits were not", d.longs)
		}
	}
}
