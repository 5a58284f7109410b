package probe

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

const (
	threadPaths = Kind("paths of a thread")
	mostPaths   = 65536 // as in bpf/probe.c
)

// Path is how a thread came to run once, by the kernel's CLOCK_MONOTONIC in ns.
type Path struct {
	Interrupted uint64 // when the interrupt began in which that timer was handled; 0: none that is traced
	Expired     uint64 // when the timer expired that was handled last on the CPU that woke it; 0: none was
	Woken       uint64 // the thread was put among those that may run
	Runs        uint64 // a CPU was given to it
}

// Follower notes the paths of one thread: see [Follow]. Its methods may be called from several
// goroutines at once.
type Follower struct {
	paths, count *ebpf.Map
	links        []link.Link
	gate         gate
}

// Follow begins to note how a thread, by its number, comes to run whenever it was woken: the first
// 65,536 times. Each costs the thread some hundred nanoseconds. Close must be called.
func Follow(thread int) (*Follower, error) {
	if thread <= 0 {
		return nil, fmt.Errorf("probe: %w: thread %d", ErrOptions, thread)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", thread)); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("probe: there is no thread %d", thread)
	} else if err != nil {
		return nil, fmt.Errorf("probe: thread %d: %w", thread, err)
	}
	c, links, err := load(threadPaths, map[string]any{"only_thread": uint32(thread)})
	if err != nil {
		return nil, err
	}
	defer c.Close() // links and maps keep what they need
	return &Follower{links: links, paths: c.DetachMap("paths"), count: c.DetachMap("path_count")}, nil
}

// Paths are those so far, in their order; [os.ErrClosed], wrapped, after Close.
func (f *Follower) Paths() ([]Path, error) {
	leave, err := f.gate.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if f.count == nil {
		return nil, errors.New("probe: read: it was not started: see Follow")
	}
	var n uint32
	if err := f.count.Lookup(uint32(0), &n); err != nil {
		return nil, fmt.Errorf("probe: read: %w", err)
	}
	all := make([]Path, min(n, mostPaths))
	for i := range all {
		if err := f.paths.Lookup(uint32(i), &all[i]); err != nil {
			return nil, fmt.Errorf("probe: read: %w", err)
		}
	}
	return all, nil
}

// Close takes the programs out of the kernel.
func (f *Follower) Close() error {
	return f.gate.shut(func() error { return errors.Join(closeAll(f.links), f.paths.Close(), f.count.Close()) })
}
