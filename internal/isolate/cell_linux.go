package isolate

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
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
	Thread   int      `json:"thread"` // that keeps time
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
	k := Kept{PID: os.Getpid(), Priority: c.Priority, CPU: c.CPU, Lacking: []string{}}
	lack := func(err error) {
		if err != nil {
			k.Lacking = append(k.Lacking, err.Error())
		}
	}
	var cpus rt.CPUs
	if c.CPU != "" {
		var err error
		if cpus, err = rt.ParseCPUs(c.CPU); err != nil {
			return err
		}
	}
	r.cell = true
	lack(rt.LockMemory())
	lack(r.populate())
	lack(sys.SetLimit(sys.LimitRealTimeRun, uint64(runaway.Microseconds())))
	first := true
	err := reader.KeepTime(r.read, func() {
		errs := []error{
			rt.SetTimerSlack(1),
			rt.SetScheduling(rt.Scheduling{Policy: rt.FIFO, Priority: c.Priority, ResetOnFork: true}),
		}
		if cpus != nil {
			errs = append(errs, rt.SetAffinity(0, cpus))
		}
		if first {
			k.Thread = sys.ThreadID()
			for _, err := range errs {
				lack(err)
			}
		}
		first = false
	})
	if err != nil {
		return err
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(int64(min(m.Sys-m.HeapReleased, math.MaxInt64-garbage)) + garbage)
	if len(k.Lacking) > 0 {
		r.log.Warn("isolate: cell is not all to be had here: the reader goes on with what it has", "lacking", k.Lacking)
	} else {
		r.log.Info("the reader keeps time", "thread", k.Thread, "priority", c.Priority, "cpu", c.CPU)
	}
	return r.link.Put(CellEntry, k)
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
