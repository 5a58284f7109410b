package reader

import (
	"errors"
	"runtime"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/rt"
)

const (
	// yieldAfter is how long the thread runs until it yields. Go's scheduler would ask it to after
	// 10 ms, of which a wait takes as much again, and the visits to ports the rest.
	yieldAfter = 4 * time.Millisecond
	// restAfter is how many times it yields until it sleeps for a moment, whatever there is to
	// read: a real-time thread that never waits is killed by RLIMIT_RTTIME, and so it should be.
	restAfter = 25
	rest      = 50 * time.Microsecond
)

// KeepTime has the thread of a reader of strategy ring and mode latency keep time from now on, and
// lowers GOMAXPROCS to 1: it is for a process that does nothing else. The thread keeps its P also
// while the lines are idle, and all other goroutines run while it yields, each 4 ms. prepare is
// called on the thread, and on each that takes its place (see [rt.Thread]): it may set affinity and
// class.
func KeepTime(r Reader, prepare func()) error {
	ring, ok := r.(*ringReader)
	if !ok || ring.cfg.Mode != Latency {
		return errors.New("only a reader of strategy ring and mode latency has a thread that can keep time")
	}
	if !ring.do(func() {
		runtime.GOMAXPROCS(1)
		ring.beat = &beat{thread: rt.Thread{Moved: prepare}}
		ring.beat.thread.Begin()
		prepare()
	}) {
		return errors.New("the reader is closed")
	}
	return nil
}

// beat is when the thread of strategy ring yields, where it keeps time. The thread owns it.
type beat struct {
	thread rt.Thread
	last   time.Time // when it yielded
	yields int
}

// yield lets others run, if it is time to.
func (b *beat) yield() {
	if time.Since(b.last) < yieldAfter {
		return
	}
	if b.yields++; b.yields%restAfter == 0 {
		sys.SleepRaw(rest)
	}
	b.thread.Yield()
	b.last = time.Now()
}
