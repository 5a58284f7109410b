package rt

import (
	"runtime"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// Thread keeps a goroutine that keeps time on its thread, in a process with GOMAXPROCS 1.
//
// Go's scheduler asks each goroutine that has run for 10 ms to let others run, and a sleep in a raw
// call is running, for it. A goroutine that is locked to its thread is then given back to that by
// another thread, an ordinary one, which may wait for a CPU for long. So the goroutine yields by
// itself, more often than each 10 ms, and is not locked for that moment. With GOMAXPROCS 1 there is
// no other thread that could take it, unless another goroutine blocks in a call: then another
// thread becomes the one that keeps time. What else the process does runs in these moments.
//
// One goroutine owns a Thread: it has called [runtime.LockOSThread] once.
type Thread struct {
	Moved func() // called on a thread that has become the one that keeps time; the one before is ordinary again

	tid int
}

// Begin makes the calling thread the one that keeps time. It changes nothing of it.
func (t *Thread) Begin() { t.tid = sys.ThreadID() }

// Yield lets Go's scheduler run what waits for it, and reports whether another thread keeps time
// behind that.
func (t *Thread) Yield() (moved bool) {
	runtime.UnlockOSThread()
	runtime.Gosched()
	runtime.LockOSThread()
	tid := sys.ThreadID()
	if tid == t.tid {
		return false
	}
	_ = sys.Schedule(t.tid, sys.SchedAttr{Policy: sys.SchedOther}) // it may have ended
	t.tid = tid
	t.Moved()
	return true
}
