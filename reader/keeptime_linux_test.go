package reader

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestKeepTime: a reader whose thread keeps time reads on, prepares that thread and no other, and
// lets goroutines run and the collector collect, though no other thread may run any.
func TestKeepTime(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	r, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	prepared, thread := 0, 0
	if err := KeepTime(r, func() { prepared, thread = prepared+1, sys.ThreadID() }); err != nil {
		t.Fatal(err)
	}
	if n := runtime.GOMAXPROCS(0); n != 1 || prepared != 1 {
		t.Errorf("GOMAXPROCS is %d, and %d threads are prepared", n, prepared)
	}
	fd, w, c := collectBeside(t, r)
	beats := 0
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	testenv.Until(t, time.Minute, "timers go on", func() bool {
		<-tick.C
		beats++
		return beats > 20
	})
	w.Close()
	c.until(func() bool { return c.ended })
	syscall.Close(fd)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("GOMAXPROCS is %d behind Close", n)
	}
	t.Logf("thread %d, %d prepared", thread, prepared)
}

// TestKeepTimeNeedsAThread refuses readers that have no thread of their own, or one that spins or
// ticks, and one that is closed.
func TestKeepTimeNeedsAThread(t *testing.T) {
	for _, cfg := range []Config{{Strategy: Blocking}, {Strategy: Polling}, {Mode: Throughput}, {Mode: Hybrid}, {}} {
		r, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if cfg == (Config{}) {
			_ = r.Close()
		}
		if err := KeepTime(r, func() { t.Error("it prepares a thread") }); err == nil {
			t.Errorf("%+v keeps time", cfg)
		}
		_ = r.Close()
	}
}

// TestAlone: a reader that has its process for itself reads on, and the collector collects.
func TestAlone(t *testing.T) {
	for _, cfg := range []Config{{}, {Mode: Throughput}, {Strategy: Blocking}} {
		before := runtime.GOMAXPROCS(0)
		r, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		Alone(r)
		fd, w, c := collectBeside(t, r)
		w.Close()
		c.until(func() bool { return c.ended })
		syscall.Close(fd)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		Alone(r) // it is closed
		if n := runtime.GOMAXPROCS(0); n != before {
			t.Errorf("%+v: GOMAXPROCS is %d behind Close, and was %d", cfg, n, before)
		}
	}
}
