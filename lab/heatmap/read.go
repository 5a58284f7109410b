// Package heatmap reads a trace of Go's runtime (runtime/trace) and shows where its goroutines
// spent their time: the life of each over time, the time in each state, how long system calls took
// and when, and what blocked most. It is a page of its own, which needs no script.
package heatmap

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/exp/trace"
)

// State is what a goroutine does.
type State int

// The states, in the order in which they are shown.
const (
	Running State = iota
	Syscall
	Runnable // waits for a CPU
	Waiting  // blocked
	states
)

// String names a state.
func (s State) String() string {
	return [...]string{"running", "in a system call", "runnable, waits for a CPU", "blocked"}[s]
}

const (
	bins         = 160 // of time
	callBuckets  = 14  // of the length of a system call: up to 1 µs, 2, 4 … 4 ms, more
	mostShown    = 32  // goroutines
	mostBlockers = 12
)

// Goroutine is the life of one.
type Goroutine struct {
	ID    int64
	Name  string // the function it began with
	Total [states]time.Duration
	Bins  [bins][states]time.Duration
	Calls int

	state State
	since trace.Time
	known bool
	why   string // it waits
}

// busy is what it did, not what it waited for.
func (g *Goroutine) busy() time.Duration {
	return g.Total[Running] + g.Total[Syscall] + g.Total[Runnable]
}

// Blocker is a place where goroutines wait.
type Blocker struct {
	Reason, Where string
	Total         time.Duration
	Times         int
	Longest       time.Duration
}

// Map is what a trace says.
type Map struct {
	Length     time.Duration
	Events     int
	Goroutines []*Goroutine // those that did most, first
	Others     int          // that are not shown
	Total      [states]time.Duration
	Calls      [bins][callBuckets]int // system calls by when they ended and how long they took
	CallTimes  []time.Duration        // sorted; of all calls, or of the first of them
	Blockers   []Blocker
	Processors []Processor
	Partial    string // why the end is missing
}

const mostCalls = 1 << 20 // whose length is kept

// Read reads a trace. It is read twice: first for its length. One that is cut off is shown up to
// there.
func Read(path string) (*Map, error) {
	var first, last trace.Time
	n := 0
	partial, err := events(path, func(ev trace.Event) {
		if n == 0 {
			first = ev.Time()
		}
		last = ev.Time()
		n++
	})
	if err != nil {
		return nil, err
	}
	if n == 0 || last <= first {
		return nil, fmt.Errorf("%s: a trace without events; was trace.Stop called?", path)
	}
	c := collector{
		m: &Map{Length: time.Duration(last - first), Events: n, Partial: partial}, first: first, last: last,
		all: map[trace.GoID]*Goroutine{}, blockers: map[[2]string]*Blocker{}, procs: map[trace.ProcID]*Processor{},
	}
	if _, err := events(path, c.event); err != nil {
		return nil, err
	}
	return c.finish(), nil
}

// events reads the events of a trace one by one. Where it is cut off or damaged, partial says so;
// err, that it is no trace at all.
func events(path string, use func(trace.Event)) (partial string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	r, err := trace.NewReader(f)
	if err != nil {
		return "", fmt.Errorf("%s is no trace of Go's runtime: %w", path, err)
	}
	for n := 0; ; n++ {
		ev, err := r.ReadEvent()
		switch {
		case errors.Is(err, io.EOF):
			return "", nil
		case err != nil && n == 0:
			return "", fmt.Errorf("%s is no trace that can be read: %w", path, err)
		case err != nil:
			return fmt.Sprintf("the trace is cut off after %d events: %v", n, err), nil
		}
		use(ev)
	}
}

// collector follows the goroutines through the events.
type collector struct {
	m           *Map
	first, last trace.Time
	all         map[trace.GoID]*Goroutine
	blockers    map[[2]string]*Blocker
	procs       map[trace.ProcID]*Processor
}

func (c *collector) event(ev trace.Event) {
	if ev.Kind() != trace.EventStateTransition {
		return
	}
	st := ev.StateTransition()
	switch st.Resource.Kind {
	case trace.ResourceProc:
		c.processor(ev, st)
		return
	case trace.ResourceGoroutine:
	default:
		return
	}
	id := st.Resource.Goroutine()
	from, to := st.Goroutine()
	g := c.all[id]
	if g == nil {
		g = &Goroutine{ID: int64(id), since: c.first}
		c.all[id] = g
		if state, ok := stateOf(from); ok {
			g.state, g.known = state, true
		} else if from == trace.GoUndetermined { // the runtime says what it has been in since the beginning
			g.state, g.known = stateOf(to)
		}
	}
	if g.Name == "" {
		g.Name = outermost(st.Stack)
	}
	c.leave(g, ev.Time())
	g.since = ev.Time()
	g.state, g.known = stateOf(to)
	switch g.state {
	case Waiting:
		g.why = st.Reason + "\x00" + innermost(st.Stack)
	case Syscall:
		if g.known {
			g.Calls++
		}
	}
}

// stateOf is false for a goroutine that is not there, or of which nothing is known.
func stateOf(s trace.GoState) (State, bool) {
	switch s {
	case trace.GoRunning:
		return Running, true
	case trace.GoSyscall:
		return Syscall, true
	case trace.GoRunnable:
		return Runnable, true
	case trace.GoWaiting:
		return Waiting, true
	}
	return Waiting, false
}

// leave posts the time that a goroutine has been in its state.
func (c *collector) leave(g *Goroutine, now trace.Time) {
	if !g.known || now <= g.since {
		return
	}
	length := time.Duration(now - g.since)
	g.Total[g.state] += length
	c.m.Total[g.state] += length
	span := max(1, (c.last-c.first+bins-1)/bins)
	for at := g.since; at < now; {
		bin := min(bins-1, int((at-c.first)/span))
		end := min(now, c.first+trace.Time(bin+1)*span)
		if end <= at {
			end = now
		}
		g.Bins[bin][g.state] += time.Duration(end - at)
		at = end
	}
	switch g.state {
	case Syscall:
		c.m.Calls[min(bins-1, int((now-c.first)/span))][bucket(length)]++
		if len(c.m.CallTimes) < mostCalls {
			c.m.CallTimes = append(c.m.CallTimes, length)
		}
	case Waiting:
		reason, where, _ := strings.Cut(g.why, "\x00")
		if strings.HasPrefix(where, "runtime.") || strings.HasPrefix(where, "runtime/trace.") {
			return // the runtime's own goroutines rest
		}
		if reason == "" {
			reason = "no reason in the trace"
		}
		key := [2]string{reason, where}
		b := c.blockers[key]
		if b == nil {
			b = &Blocker{Reason: reason, Where: where}
			c.blockers[key] = b
		}
		b.Total += length
		b.Times++
		b.Longest = max(b.Longest, length)
	}
}

// bucket is the place of a length among powers of two of a microsecond.
func bucket(d time.Duration) int {
	us := float64(d.Nanoseconds()) / 1e3
	if us <= 1 {
		return 0
	}
	return min(callBuckets-1, int(math.Ceil(math.Log2(us))))
}

func (c *collector) finish() *Map {
	for _, g := range c.all {
		c.leave(g, c.last)
	}
	m := c.m
	m.Goroutines = slices.SortedFunc(maps.Values(c.all), func(a, b *Goroutine) int {
		return cmp.Or(cmp.Compare(b.busy(), a.busy()), cmp.Compare(a.ID, b.ID))
	})
	if len(m.Goroutines) > mostShown {
		m.Others = len(m.Goroutines) - mostShown
		m.Goroutines = m.Goroutines[:mostShown]
	}
	for _, b := range slices.SortedFunc(maps.Values(c.blockers), func(a, b *Blocker) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), strings.Compare(a.Where, b.Where))
	}) {
		m.Blockers = append(m.Blockers, *b)
	}
	m.Blockers = m.Blockers[:min(len(m.Blockers), mostBlockers)]
	slices.Sort(m.CallTimes)
	m.Processors = c.processors()
	return m
}

// innermost is the first function of a stack that is not the runtime's own.
func innermost(s trace.Stack) string {
	last := ""
	for f := range s.Frames() {
		last = f.Func
		if !strings.HasPrefix(f.Func, "runtime.") && !strings.HasPrefix(f.Func, "internal/") &&
			!strings.HasPrefix(f.Func, "sync.") {
			return f.Func
		}
	}
	return last
}

// outermost is the function that a goroutine began with.
func outermost(s trace.Stack) (name string) {
	for f := range s.Frames() {
		name = f.Func
	}
	return name
}
