package rt

import (
	"fmt"
	"strings"
	"time"
)

// Policy is a scheduling class.
type Policy int

// Scheduling classes, as sched(7) describes them.
const (
	Other    Policy = iota // the ordinary class, SCHED_OTHER
	Batch                  // as Other, and taken for one that computes
	Idle                   // behind all others
	FIFO                   // real time: runs until it waits, or a higher priority comes
	RR                     // as FIFO, and takes turns with its own priority
	Deadline               // so much time in each period, promised by the kernel
)

var policyNames = []string{"other", "batch", "idle", "fifo", "rr", "deadline"}

// String is the name in lower case: "fifo".
func (p Policy) String() string {
	if p < 0 || int(p) >= len(policyNames) {
		return fmt.Sprintf("policy %d", int(p))
	}
	return policyNames[p]
}

// ParsePolicy reads a name: other, batch, idle, fifo, rr or deadline.
func ParsePolicy(name string) (Policy, error) {
	for i, n := range policyNames {
		if strings.EqualFold(name, n) {
			return Policy(i), nil
		}
	}
	return 0, fmt.Errorf("scheduling class %q: want one of %s", name, strings.Join(policyNames, ", "))
}

// Scheduling is how a thread is scheduled. The zero value is an ordinary thread.
type Scheduling struct {
	Policy      Policy
	Priority    int  // FIFO and RR: 1 (lowest) to 99; else 0
	Nice        int  // Other and Batch: -20 (gets most) to 19
	ResetOnFork bool // threads and processes that this one starts are ordinary

	// Deadline alone: Runtime of CPU time in each Period, by Deadline after its start. Runtime is
	// at least about 1 µs; Runtime ≤ Deadline ≤ Period; a Period of 0 is the Deadline.
	Runtime, Deadline, Period time.Duration
}

// check finds what the kernel would call an invalid argument, in words.
func (s Scheduling) check() error {
	switch real := s.Policy == FIFO || s.Policy == RR; {
	case s.Policy < Other || s.Policy > Deadline:
		return fmt.Errorf("rt: %v is no scheduling class", s.Policy)
	case real && (s.Priority < 1 || s.Priority > 99):
		return fmt.Errorf("rt: priority %d of class %v: want 1 to 99", s.Priority, s.Policy)
	case !real && s.Priority != 0:
		return fmt.Errorf("rt: priority %d of class %v: only fifo and rr have one; want 0", s.Priority, s.Policy)
	case s.Nice < -20 || s.Nice > 19:
		return fmt.Errorf("rt: nice %d: want -20 to 19", s.Nice)
	case s.Policy == Deadline && (s.Runtime <= 0 || s.Deadline < s.Runtime || s.Period != 0 && s.Period < s.Deadline):
		return fmt.Errorf("rt: deadline with runtime %v, deadline %v, period %v: want 0 < runtime ≤ deadline ≤ period",
			s.Runtime, s.Deadline, s.Period)
	}
	return nil
}

// String is short: "fifo 10", "other, nice 5", "deadline 100µs in 1ms".
func (s Scheduling) String() string {
	switch {
	case s.Policy == FIFO || s.Policy == RR:
		return fmt.Sprintf("%v %d", s.Policy, s.Priority)
	case s.Policy == Deadline:
		return fmt.Sprintf("deadline %v in %v", s.Runtime, max(s.Period, s.Deadline))
	case s.Nice != 0:
		return fmt.Sprintf("%v, nice %d", s.Policy, s.Nice)
	}
	return s.Policy.String()
}

// NotAllowedError is what the kernel refused, and what this process lacks to be allowed it.
type NotAllowedError struct {
	What    string   // "scheduling fifo 10"
	Missing []string // each one way or one thing that is in the way, with what to do
	Err     error    // the kernel's
}

// Error says all on one line.
func (e *NotAllowedError) Error() string {
	return fmt.Sprintf("%s: %v; %s", e.What, e.Err, strings.Join(e.Missing, "; "))
}

// Unwrap is the kernel's error, such as EPERM.
func (e *NotAllowedError) Unwrap() error { return e.Err }
