package probe

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"github.com/tallywheel/tallywheel/ipc"
	"github.com/tallywheel/tallywheel/uring"
)

const (
	logSlots   = 64 // as in bpf/probe.c
	opcodes    = 64
	rows       = 2 * opcodes
	segmented  = Kind("uring, in segments")
	mostSample = 1024
)

// usualSample is of how many one is timed. More often would cost a busy server a twentieth of its
// time.
var usualSample = map[Kind]int{Uring: 64, Net: 16, Sched: 1}

// Probe is programs in the kernel that count: see [Start]. Its methods may be called from several
// goroutines at once.
type Probe struct {
	kind   Kind
	sample int
	slots  *ebpf.Map
	sums   *ebpf.Map
	counts *ebpf.Map
	// of segments, nil without them
	segmentSlots, segmentSums *ebpf.Map
	links                     []link.Link
	process                   *ipc.Process // that of Options.PID; nil: all are looked at
	gate                      gate
}

// gate keeps tables open while they are read: a table is asked by the number of its descriptor,
// which can be that of another file once it is closed. Readers hold it shared, Close alone.
type gate struct {
	sync.RWMutex
	closed bool
}

// enter lets a reader in, who calls leave at the end; [os.ErrClosed], wrapped, after shut.
func (g *gate) enter() (leave func(), err error) {
	g.RLock()
	if g.closed {
		g.RUnlock()
		return nil, fmt.Errorf("probe: read: %w", os.ErrClosed)
	}
	return g.RUnlock, nil
}

// shut waits for the readers, and calls end the first time.
func (g *gate) shut(end func() error) error {
	g.Lock()
	defer g.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	return end()
}

// Available says whether a kind can be had here, and what is missing.
func Available(k Kind) error {
	p, err := Start(k, Options{PID: os.Getpid()})
	if err != nil {
		return err
	}
	return p.Close()
}

// Start begins to count. Close must be called.
func Start(k Kind, o Options) (*Probe, error) {
	if !slices.Contains(Kinds(), k) {
		return nil, fmt.Errorf("probe: %w: %q: want one of %v", ErrOptions, k, Kinds())
	}
	if o.Sample == 0 {
		o.Sample = usualSample[k]
	}
	if o.PID < 0 || o.Sample < 1 || o.Sample > mostSample || o.Sample&(o.Sample-1) != 0 {
		return nil, fmt.Errorf("probe: %w: pid %d, sample %d: want a pid, and a power of two up to %d", ErrOptions,
			o.PID, o.Sample, mostSample)
	}
	if k == Sched && o.Sample != 1 {
		return nil, fmt.Errorf("probe: %w: sample %d: of threads, all are timed: want 1, or 0", ErrOptions, o.Sample)
	}
	if o.Segments && k != Uring {
		return nil, fmt.Errorf("probe: %w: segments of %s: want %s", ErrOptions, k, Uring)
	}
	process, err := openProcess(o.PID)
	if err != nil {
		return nil, err
	}
	what := k
	if o.Segments {
		what = segmented
	}
	variables := map[string]any{"only_tgid": uint32(o.PID), "sample_mask": uint64(o.Sample - 1)}
	if k == Uring {
		maps.Copy(variables, ofThisKernel())
	}
	c, links, err := load(what, variables)
	if err != nil {
		return nil, errors.Join(err, closeProcess(process))
	}
	defer c.Close() // links and maps keep what they need
	return &Probe{
		process: process, kind: k, sample: o.Sample, links: links,
		slots: c.DetachMap("slots"), sums: c.DetachMap("sums"),
		counts: c.DetachMap("counts"), segmentSlots: c.DetachMap("segment_slots"),
		segmentSums: c.DetachMap("segment_sums"),
	}, nil
}

// openProcess opens the process of that number; nil, and no error, of 0, which is all of them.
func openProcess(pid int) (*ipc.Process, error) {
	if pid == 0 {
		return nil, nil
	}
	if err := isProcess(pid); err != nil {
		return nil, err
	}
	p, err := ipc.OpenProcess(pid)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ESRCH): // it has ended just now
		return nil, fmt.Errorf("probe: there is no process %d", pid)
	case err != nil:
		return nil, fmt.Errorf("probe: %w", err)
	}
	return p, nil
}

func closeProcess(p *ipc.Process) error {
	if p == nil {
		return nil
	}
	return p.Close()
}

// Ended is closed once the process of [Options.PID] has ended: nothing of it is counted any more,
// and its number may be given to another one, which would be. Without a process it is nil.
func (p *Probe) Ended() <-chan struct{} {
	if p.process == nil {
		return nil
	}
	return p.process.Done()
}

// isProcess says whether a process is there of which something can be counted.
func isProcess(pid int) error {
	if pid <= 0 {
		return fmt.Errorf("probe: %w: process %d", ErrOptions, pid)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("probe: there is no process %d", pid)
	} else if err != nil {
		return fmt.Errorf("probe: process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(b)) {
		if group, ok := strings.CutPrefix(line, "Tgid:"); ok && strings.TrimSpace(group) != strconv.Itoa(pid) {
			return fmt.Errorf("probe: %d is a thread of process %s: want the process", pid, strings.TrimSpace(group))
		}
	}
	return nil
}

// programs are those of a kind, in bpf/probe.c.
var programs = map[Kind][]string{
	Uring:     {"uring_submit", "uring_complete", "uring_ready"},
	Net:       {"net_ready", "net_read", "net_state"},
	Sched:     {"sched_woken", "sched_new", "sched_runs"},
	segmented: {"uring_submit", "uring_armed", "uring_given", "uring_ready", "uring_passes", "uring_reaped"},
	calls:     {"call_enters", "call_forks"},
	exchanges: {"way_sent", "way_arrived", "way_read", "way_closed"},
	entered:   {"way_entered", "way_arrived", "way_read", "way_closed"},

	threadPaths: {
		"path_timer_begins", "path_timer_ends", "path_device_begins", "path_device_ends", "path_expired", "path_woken",
		"path_runs",
	},
}

// onX86 are programs of tracepoints that x86 alone has: the timer of each CPU interrupts there
// by a vector of its own.
var onX86 = []string{"path_timer_begins", "path_timer_ends"}

// load brings the programs of a kind into the kernel and lets them run.
func load(k Kind, variables map[string]any) (c *ebpf.Collection, links []link.Link, err error) {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		return nil, nil,
			errors.New("probe: this kernel has no BTF (/sys/kernel/btf/vmlinux): it needs one built with CONFIG_DEBUG_INFO_BTF, as distributions' are")
	}
	_ = rlimit.RemoveMemlock() // needed before Linux 5.11 only
	spec, err := loadKernel()
	if err != nil {
		return nil, nil, fmt.Errorf("probe: %w", err)
	}
	for name, v := range variables {
		if err := spec.Variables[name].Set(v); err != nil {
			return nil, nil, fmt.Errorf("probe: %w", err)
		}
	}
	keep(spec, programs[k])
	if c, err = ebpf.NewCollection(spec); err != nil {
		return nil, nil, explain(k, err)
	}
	for _, name := range programs[k] {
		l, err := attach(spec.Programs[name], c.Programs[name])
		if slices.Contains(onX86, name) && errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			c.Close()
			return nil, nil, errors.Join(explain(k, err), closeAll(links))
		}
		links = append(links, l)
	}
	return c, links, nil
}

// keep drops the other programs, and the tables that these do not use.
func keep(spec *ebpf.CollectionSpec, programs []string) {
	used := map[string]bool{}
	for name, p := range spec.Programs {
		if !slices.Contains(programs, name) {
			delete(spec.Programs, name)
			continue
		}
		for _, i := range p.Instructions {
			if i.IsLoadFromMap() {
				used[i.Reference()] = true
			}
		}
	}
	// .rodata has the variables
	maps.DeleteFunc(spec.Maps,
		func(name string, _ *ebpf.MapSpec) bool { return !used[name] && !strings.HasPrefix(name, ".") })
}

func attach(spec *ebpf.ProgramSpec, p *ebpf.Program) (link.Link, error) {
	if p.Type() == ebpf.RawTracepoint {
		_, event, _ := strings.Cut(spec.SectionName, "/")
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: event, Program: p})
	}
	return link.AttachTracing(link.TracingOptions{Program: p})
}

func closeAll(links []link.Link) (err error) {
	for _, l := range links {
		err = errors.Join(err, l.Close())
	}
	return err
}

// explain says what to do about a program that the kernel does not take.
func explain(k Kind, err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("probe: this process may not load programs into the kernel: run it as root, or with CAP_BPF and CAP_PERFMON: %w", err)
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, os.ErrNotExist):
		since := map[Kind]string{
			Uring: "6.0", segmented: "6.0", Net: "6.3", Sched: "5.11", calls: "5.11", threadPaths: "5.11",
			exchanges: "6.16", entered: "6.3",
		}[k]
		return fmt.Errorf("probe: this kernel lacks a tracepoint of %s, which is in Linux %s: %w", k, since, err)
	}
	return fmt.Errorf("probe: %s: %w", k, err)
}

// Read returns what has been counted so far; [os.ErrClosed], wrapped, after Close.
func (p *Probe) Read() (Report, error) {
	r := Report{Kind: p.kind, Sample: p.sample, Latency: []Histogram{}}
	leave, err := p.gate.enter()
	if err != nil {
		return r, err
	}
	defer leave()
	if p.counts == nil {
		return r, errors.New("probe: read: it was not started: see Start")
	}
	ops := rows
	if p.kind != Uring {
		ops = 1
	}
	// what is timed has been counted before: read in this order, no more is timed than counted
	sums, err := sum(p.sums, ops)
	if err != nil {
		return r, err
	}
	timed := make([][]uint64, ops)
	for row, ns := range sums {
		if ns > 0 {
			if timed[row], err = sumFrom(p.slots, row*logSlots, logSlots); err != nil {
				return r, err
			}
		}
	}
	counts, err := sum(p.counts, 2+rows)
	if err != nil {
		return r, err
	}
	r.Submitted, r.Completed = counts[0], counts[1]
	for row := range ops {
		h := Histogram{
			Op: p.name(row), Multishot: row >= opcodes, Submitted: counts[2+row], SumNs: sums[row], Log2Ns: timed[row],
		}
		if h.Log2Ns == nil {
			h.Log2Ns = make([]uint64, logSlots)
		}
		for _, n := range h.Log2Ns {
			h.Count += n
		}
		if p.segmentSlots != nil && h.Count > 0 {
			if h.Segments, err = p.segments(row); err != nil {
				return r, err
			}
		}
		if h.Count > 0 || h.Submitted > 0 {
			r.Latency = append(r.Latency, h)
		}
	}
	if p.kind == Sched && len(r.Latency) > 0 { // all are timed, and a moment ago
		r.Completed = r.Latency[0].Count
	}
	slices.SortStableFunc(r.Latency,
		func(a, b Histogram) int { return cmp.Compare(b.Submitted+b.Count, a.Submitted+a.Count) })
	return r, nil
}

// segments reads those of a row that it has had.
func (p *Probe) segments(row int) (all []Segment, err error) {
	for i, name := range Segments() {
		at := row*len(Segments()) + i
		slots, err := sumFrom(p.segmentSlots, at*logSlots, logSlots)
		if err != nil {
			return nil, err
		}
		sums, err := sumFrom(p.segmentSums, at, 1)
		if err != nil {
			return nil, err
		}
		s := Segment{
			Name: name, Histogram: Histogram{Op: p.name(row), Multishot: row >= opcodes, SumNs: sums[0], Log2Ns: slots},
		}
		for _, n := range slots {
			s.Count += n
		}
		if s.Count > 0 {
			all = append(all, s)
		}
	}
	return all, nil
}

// name is the operation of a row: multishot requests have a row of their own.
func (p *Probe) name(row int) string {
	switch p.kind {
	case Net:
		return "read"
	case Sched:
		return "wakeup"
	}
	return uring.Opcode(row % opcodes).String()
}

// sum adds a map's first n values up over the CPUs.
func sum(m *ebpf.Map, n int) ([]uint64, error) { return sumFrom(m, 0, n) }

func sumFrom(m *ebpf.Map, first, n int) ([]uint64, error) {
	all := make([]uint64, n)
	var keys []uint32
	for k := range all {
		keys = append(keys, uint32(first+k))
	}
	for i, k := range keys {
		var each []uint64
		if err := m.Lookup(k, &each); err != nil {
			return nil, fmt.Errorf("probe: read: %w", err)
		}
		for _, v := range each {
			all[i] += v
		}
	}
	return all, nil
}

// Close takes the programs out of the kernel. It waits for a Read that has begun.
func (p *Probe) Close() error {
	return p.gate.shut(func() error {
		return errors.Join(closeAll(p.links), p.slots.Close(), p.sums.Close(), p.counts.Close(),
			p.segmentSlots.Close(), p.segmentSums.Close(), closeProcess(p.process))
	})
}
