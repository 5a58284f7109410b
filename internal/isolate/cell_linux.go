package isolate

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/reader"
	"github.com/tallywheel/tallywheel/rt"
)

// Reading is how the reader reads: what lies under ReadEntry.
type Reading struct {
	reader.Config
	Cell Cell
}

// Cell makes the reader a process that keeps time: `isolate: cell`. The zero value does not.
type Cell struct {
	Priority int    // in SCHED_FIFO, 1 to 99; 0: no cell
	CPU      string // where its thread may run, a list as rt.ParseCPUs reads it; "": anywhere
}

// Kept is what has become of a cell: what lies under CellEntry.
type Kept struct {
	PID      int      `json:"pid"`    // of the reader
	Thread   int      `json:"thread"` // that keeps time now; another one may a moment later
	Priority int      `json:"priority"`
	CPU      string   `json:"cpu,omitempty"`
	Lacking  []string `json:"lacking"` // what it should have and has not, each with how to get it
}

// Bounds of a reader that keeps time.
const (
	// garbage is how much a reader may allocate until there is a collection, which delays it.
	garbage = 64 << 20
	// runaway is how long its thread may compute without a wait, until the kernel kills it. It
	// waits each 0.1 s, whatever there is to read.
	runaway = 2 * time.Second
)

// keepTime makes this process one that keeps time. What it lacks for that it does without.
func (r *ports) keepTime(c Cell) error {
	k := timekeeper{cell: c, moved: make(chan struct{}, 1)}
	if c.CPU != "" {
		var err error
		if k.cpus, err = rt.ParseCPUs(c.CPU); err != nil {
			return err
		}
	}
	r.cell = true
	k.process = lacks(
		rt.LockMemory(),
		r.populate(),
		sys.SetLimit(sys.LimitRealTimeRun, uint64(runaway.Microseconds())),
	)
	if err := reader.KeepTime(r.read, k.prepare); err != nil {
		return err
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(int64(min(m.Sys-m.HeapReleased, math.MaxInt64-garbage)) + garbage)
	put := func(kept Kept) error { return r.link.Put(CellEntry, kept) }
	kept := k.kept()
	if len(kept.Lacking) > 0 {
		r.log.Warn("isolate: cell is not all to be had here: the reader goes on with what it has", "lacking", kept.Lacking)
	} else {
		r.log.Info("the reader keeps time", "thread", kept.Thread, "priority", c.Priority, "cpu", c.CPU)
	}
	if err := put(kept); err != nil {
		return err
	}
	go k.tell(put) // for as long as the process lives
	return nil
}

// timekeeper is which thread of this process keeps time. That changes: see [rt.Thread].
type timekeeper struct {
	cell    Cell
	cpus    rt.CPUs  // nil: anywhere
	process []string // what the process lacks, whichever thread it is
	thread  atomic.Pointer[preparedThread]
	moved   chan struct{} // of one: another thread keeps time
}

type preparedThread struct {
	id      int
	lacking []string
}

// prepare makes the calling thread the one that keeps time. It runs on that thread, and waits for
// nobody.
func (k *timekeeper) prepare() {
	errs := []error{
		rt.SetTimerSlack(1),
		rt.SetScheduling(rt.Scheduling{Policy: rt.FIFO, Priority: k.cell.Priority, ResetOnFork: true}),
	}
	if k.cpus != nil {
		errs = append(errs, rt.SetAffinity(0, k.cpus))
	}
	k.thread.Store(&preparedThread{id: sys.ThreadID(), lacking: lacks(errs...)})
	select {
	case k.moved <- struct{}{}:
	default: // whoever is told of the one before reads this one
	}
}

// kept is the thread that keeps time now.
func (k *timekeeper) kept() Kept {
	thread := k.thread.Load()
	return Kept{
		PID: os.Getpid(), Thread: thread.id, Priority: k.cell.Priority, CPU: k.cell.CPU,
		Lacking: slices.Concat([]string{}, k.process, thread.lacking),
	}
}

// tell puts each thread that comes to keep time, until the keeper takes no more.
func (k *timekeeper) tell(put func(Kept) error) {
	for range k.moved {
		if put(k.kept()) != nil {
			return // the keeper has ended: the link's own loop says so
		}
	}
}

// lacks are the errors among these, as text.
func lacks(errs ...error) (texts []string) {
	for _, err := range errs {
		if err != nil {
			texts = append(texts, err.Error())
		}
	}
	return texts
}

// populate maps what a read would else be the first to touch, in a process that keeps time.
func (r *ports) populate() error {
	if !r.cell {
		return nil
	}
	if err := sys.PopulateMemory(); err != nil {
		return fmt.Errorf("mapping memory ahead: %w; Linux 5.14 has it, and without it what is touched first is a page fault", err)
	}
	return nil
}

// CellOf reads what lies under CellEntry.
func CellOf(e Entry) (k Kept, err error) {
	return k, json.Unmarshal(e.Data, &k)
}
