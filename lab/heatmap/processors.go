package heatmap

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/exp/trace"
)

// Processor is a P of Go's scheduler. It runs goroutines while a thread (M) has it; a thread that
// stays in a system call loses it to another (src/runtime/proc.go, handoffp and retake).
type Processor struct {
	ID            int64
	Running, Idle time.Duration
	Starts        int // times that it was given to a thread
	Moves         int // of them, to another one than before
	Threads       int // that had it

	running, known bool
	since          trace.Time
	last           trace.ThreadID
	threads        map[trace.ThreadID]bool
}

// processor takes a transition of a P.
func (c *collector) processor(ev trace.Event, st trace.StateTransition) {
	id := st.Resource.Proc()
	p := c.procs[id]
	if p == nil {
		p = &Processor{ID: int64(id), since: c.first, last: trace.NoThread, threads: map[trace.ThreadID]bool{}}
		c.procs[id] = p
	}
	from, to := st.Proc()
	if !p.known { // what it has been in since the beginning
		p.known, p.running = from != trace.ProcNotExist, from == trace.ProcRunning ||
			from == trace.ProcUndetermined && to == trace.ProcRunning
	}
	p.leave(ev.Time())
	if p.known, p.running = to != trace.ProcNotExist, to == trace.ProcRunning; !p.running || from == trace.ProcRunning {
		return
	}
	p.threads[ev.Thread()] = true
	if from != trace.ProcUndetermined {
		p.Starts++
		if p.last != trace.NoThread && p.last != ev.Thread() {
			p.Moves++
		}
	}
	p.last = ev.Thread()
}

// leave posts the time in a state.
func (p *Processor) leave(now trace.Time) {
	switch length := time.Duration(now - p.since); {
	case !p.known || length <= 0:
	case p.running:
		p.Running += length
	default:
		p.Idle += length
	}
	p.since = now
}

// processors lists them by number.
func (c *collector) processors() (all []Processor) {
	for _, p := range slices.SortedFunc(maps.Values(c.procs),
		func(a, b *Processor) int { return cmp.Compare(a.ID, b.ID) }) {
		p.leave(c.last)
		p.Threads = len(p.threads)
		all = append(all, *p)
	}
	return all
}

// String says it in one line.
func (p Processor) String() string {
	return fmt.Sprintf("P %d: running %s, idle %s; given to a thread %d times, %d times to another one than before; %d threads had it",
		p.ID, round(p.Running), round(p.Idle), p.Starts, p.Moves, p.Threads)
}
