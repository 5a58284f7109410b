package lab

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/probe"
)

// callMetric begins the names of the metrics that count one system call an operation: call_read.
const callMetric = "call_"

// callsPer begins those of all system calls: syscalls_per_op.
const callsPer = "syscalls_per_"

// isCountedApart reports whether a metric has one value of a turn apart, or of all rounds together,
// and none of each round.
func (m Metric) isCountedApart() bool {
	return strings.HasPrefix(m.name, callMetric) || strings.HasPrefix(m.name, callsPer) || m == ErrorBound
}

// canBeCounted reports whether the system calls of a contestant can be counted: of one that speaks
// the protocol, and of a server, it is known when its work begins.
func (c *Contestant) canBeCounted() bool { return c.Command == nil || c.Output == nil }

// calls counts the system calls of a contestant, once: in the kernel, where programs may be loaded
// into it, else by ptrace, which slows it down.
type calls struct {
	result func() (map[string]uint64, error)
	note   string // how, where that is not the best way
}

func (c *calls) count(pid int) (err error) {
	var inKernel, traced error
	if c.result, inKernel = probe.CountCalls(pid); inKernel == nil {
		return nil
	}
	if c.result, traced = sys.CountCalls(pid); traced == nil {
		c.note = "its system calls were counted by ptrace, which slows it down: fewer may come together in one than usually (" + firstLine(inKernel) + ")"
		return nil
	}
	c.result = nil
	return fmt.Errorf("system calls cannot be counted: %w", errors.Join(traced, inKernel))
}

// end ends the count and returns it.
func (c *calls) end() (map[string]uint64, error) {
	result := c.result
	c.result = nil
	return result()
}

// abandon lets go of a count that nobody will ask for.
func (c *calls) abandon() {
	if c.result != nil {
		go func() { _, _ = c.end() }() // a tracer waits until the contestant has been killed
	}
}

// addCalls adds the system calls that were counted, by name where they are not rare.
func (m Metrics) addCalls(calls map[string]uint64) {
	total := uint64(0)
	for name, k := range calls {
		total += k
		if per := float64(k) / m["ops"]; per >= 0.001 {
			m[callMetric+name] = per
		}
	}
	m["syscalls_per_op"] = float64(total) / m["ops"]
	if mb := m["MB_per_s"] * m["wall_s"]; mb > 0 {
		m["syscalls_per_MB"] = float64(total) / mb
	}
}
