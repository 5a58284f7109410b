// Package doctor looks at what a machine allows and how it is set, as far as that matters to a
// recorder: what it found, what is wanted, why, and how to change it. It asks the kernel by trying,
// never by its version.
//
// [Kernel.Examine] and, for a [Job], [Kernel.ExamineFor] change nothing. [Kernel.Prescribe] lists
// the settings that are safe to change, [Treatment.Apply] changes them and records the old values
// in a file, and [Kernel.Undo] puts those back. Settings that touch security, or that only a
// restart or another unit file can change, are never applied: the finding says what to do.
//
// Linux only.
package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// State is how a finding is.
type State string

// The states.
const (
	Good    State = "good"
	Poor    State = "could be better"
	Missing State = "missing"
	Unknown State = "cannot tell"
)

// Finding is one line of the doctor's.
type Finding struct {
	// kernel, io_uring, real time, tracing, memory, cpu, clock, limits, serial, network, job
	Area   string   `json:"area"`
	Name   string   `json:"name"`
	State  State    `json:"state"`
	Found  string   `json:"found"`
	Wanted string   `json:"wanted"`
	Why    string   `json:"why"`
	How    string   `json:"how,omitempty"` // to change it; where it is good: empty
	Fix    *Setting `json:"fix,omitempty"` // a change that is safe
}

// Setting is a value in a file of the kernel's.
type Setting struct {
	Path  string `json:"path"` // from the root, /proc/sys/vm/swappiness
	Value string `json:"value"`
}

// Kernel is what is asked. The zero value is this machine; tests put a tree of files and answers in
// its place.
type Kernel struct {
	Root string // in front of /proc and /sys
	Ask  *Asker // nil: this machine
}

// path is where a file of the kernel's is.
func (k Kernel) path(name string) string { return filepath.Join("/", k.Root, name) }

// read returns what a file says, without white space at its ends; false if it cannot be read.
func (k Kernel) read(name string) (string, bool) {
	b, err := os.ReadFile(k.path(name))
	return strings.TrimSpace(string(b)), err == nil
}

// Examine looks at everything.
func (k Kernel) Examine() (all []Finding) {
	ask := k.Ask
	if ask == nil {
		ask = thisMachine()
	}
	all = append(all, k.version(), k.upgrade(ask))
	all = append(all, rings(ask)...)
	all = append(all, k.realTime(ask)...)
	all = append(all, k.tracing(ask)...)
	all = append(all, k.memory(ask)...)
	all = append(all, k.cpu()...)
	all = append(all, clock(ask))
	all = append(all, k.limits(ask)...)
	all = append(all, k.serialPorts(ask)...)
	all = append(all, k.sysctls()...)
	order := map[string]int{}
	for i, f := range all {
		if _, ok := order[f.Area]; !ok {
			order[f.Area] = i
		}
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return order[a.Area] - order[b.Area] })
	return all
}

// version says which kernel this is. Nothing is judged by it: what matters is tried.
func (k Kernel) version() Finding {
	f := Finding{
		Area: "kernel", Name: "version", State: Good, Wanted: "4.12 or later",
		Why: "whoever is told of a fault asks for it; what it can do is tried below",
	}
	var there bool
	if f.Found, there = k.read("/proc/sys/kernel/osrelease"); !there {
		f.State, f.Found = Unknown, "there is no /proc/sys/kernel/osrelease"
	}
	return f
}

// Asker asks the kernel for things by trying.
type Asker struct {
	Rings    func() (features map[string]error, order []string)
	FIFO     func(priority int) error
	Deadline func() error // SCHED_DEADLINE
	Lock     func(bytes int) error
	LockAll  func() error // all memory of this process
	HugePage func() error
	Perf     func() error
	BPF      func() error
	Files    func() (soft, hard uint64, err error)
	Ports    func() ([]string, error) // names of serial ports, ttyUSB0
	Clock    func() (bool, error)     // whether a time service keeps the clock
	Disk     func(dir string) (Disk, error)
}

// tried makes a finding of something that was tried.
func tried(area, name string, err error, why, how string) Finding {
	f := Finding{Area: area, Name: name, State: Good, Found: "works", Wanted: "works", Why: why}
	if err != nil {
		f.State, f.Found, f.How = Missing, err.Error(), how
	}
	return f
}

// setting makes a finding of a file with one value; ok says whether the value will do. where says
// what a person may do who wants it to stay.
func (k Kernel) setting(area, name, path, wanted, why string, ok func(string) bool, safe bool) Finding {
	f := Finding{Area: area, Name: name, Wanted: wanted, Why: why}
	value, there := k.read(path)
	switch {
	case !there:
		f.State, f.Found = Unknown, "there is no "+path
	case ok(value):
		f.State, f.Found = Good, value
	default:
		f.State, f.Found = Poor, value
		f.How = fmt.Sprintf("write %s to %s", wanted, path)
		if name, isSysctl := strings.CutPrefix(path, "/proc/sys/"); isSysctl {
			f.How = fmt.Sprintf("sysctl -w %s=%s, and the same line in /etc/sysctl.d to keep it",
				strings.ReplaceAll(name, "/", "."), wanted)
		}
		if safe {
			f.Fix = &Setting{path, wanted}
		}
	}
	return f
}
