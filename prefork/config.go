package prefork

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/admission"
	"github.com/tallywheel/tallywheel/rt"
)

// Config says how many workers serve where. The zero value serves the sockets that systemd passes,
// by a worker for each CPU.
type Config struct {
	// Listen are TCP addresses, host:port; port 0 is any. Without one, the sockets of LISTEN_FDS
	// are served, and shared by all workers.
	Listen []string
	// MasterListen are TCP addresses of the master itself, for status and commands: see
	// Master.Listeners.
	MasterListen []string
	// Workers is their number, 1 to 1024; 0: one for each CPU that this process may use.
	Workers int
	// Procs is GOMAXPROCS of each worker; 0: 1.
	Procs int
	// CPUs pins workers: slot i runs on CPUs[i % len(CPUs)] only. Empty: anywhere.
	CPUs []rt.CPUs
	// Shared has all workers accept from one socket. Else each slot has its own, by SO_REUSEPORT:
	// no worker is woken in vain, and connections are shared out by a hash, unevenly if they are
	// few.
	Shared bool

	// Weights shares new connections out by the slots' weights, each above 0, and by their load:
	// weight × (1 − load). Slot i has Weights[i % len(Weights)]; its load, from 0 to 1, is the
	// largest of its CPU time, its memory and its connections, each by its limit where there is
	// one: Limit.CPU or Procs, Limit.Memory, MaxConns; connections without a limit count by their
	// share of all. It is looked at each second. Empty: the kernel shares them out by a hash, which
	// knows nothing of load.
	Weights []float64

	// Path is of the program that workers run; empty: this one. With Attr.Chroot it has to lie at
	// that path in there, for the workers, and out here, for the master.
	Path string
	Dir  string   // of the workers; empty: this one's; with Attr.Chroot: in there
	Env  []string // NAME=value, over this process's own
	// chroot, credentials, capabilities, name spaces; Pdeathsig, Setpgid and the cgroup are set
	// here
	Attr  *syscall.SysProcAttr
	Limit Limit // of each worker

	// InFlight is the most requests that Worker.Handler lets in at a time, Queue how many more may
	// wait; whoever comes then gets 503 with Retry-After. InFlight 0: no limit.
	InFlight, Queue int
	RetryAfter      time.Duration // 0: 1 s
	// MaxConns is the most connections that a worker takes at a time from Worker.Listeners; others
	// wait at the socket, where the death of a worker does not hurt them. 0: no limit.
	MaxConns int

	StartFor time.Duration // how long a worker has until it is ready; 0: 30 s
	LameDuck time.Duration // how long a worker that is to end lets its clients leave by themselves; 0: 2 s
	DrainFor time.Duration // from the call to end until SIGKILL, lame duck included; 0: 30 s

	// A worker that ends unasked is started again: at once-ish, after BackOff, and after twice as
	// long for each further end within Period, up to MaxBackOff, each time more or less by half.
	// After Intensity ends within Period the slot rests for a Period. 0: 100 ms, 10 s, 5, 1 min.
	BackOff, MaxBackOff time.Duration
	Intensity           int
	Period              time.Duration

	Log     *slog.Logger  // nil: slog.Default
	Started func(*Master) // called in the master when all workers serve; may be nil. It must not block

	// Renewing is called before the master becomes another program (Master.Renew), to answer who
	// has asked the master itself: the connections that it has accepted are gone then, while those
	// that wait at Config.MasterListen stay. What it returns is called if the master goes on as it
	// was. May be nil.
	Renewing func() (goesOn func())
}

// ErrRenewing is the error of a change that is asked for in the moment in which the master becomes
// another program. Nothing was done.
var ErrRenewing = errors.New("prefork: an upgrade is under way: the master is about to become the new program; ask again in a moment")

// ErrMasterListen is the error of Run where an address of Config.MasterListen cannot be had.
var ErrMasterListen = errors.New("prefork: the master cannot listen at its own address")

// ErrConfig is in the error for a [Config] that no master can have.
var ErrConfig = errors.New("wrong configuration")

type configError struct{ error }

func (configError) Is(target error) bool { return target == ErrConfig }

// Limit bounds each worker. The master's log says by which means.
type Limit struct {
	CPU    float64 // CPUs' worth of time, such as 0.5; 0: no limit. Needs a cgroup, of version 2 or 1
	Memory int64   // bytes; 0: no limit. By a cgroup, else as GOMEMLIMIT, which only makes Go collect harder
	Files  uint64  // descriptors, RLIMIT_NOFILE, at least 32 and one for each address; 0: as they are
}

const (
	maxWorkers = 1024
	leastFiles = 32 // of a worker, but for its sockets: Go's own, the master's, and some clients
)

// withDefaults checks the configuration and fills in what is not given.
func (c Config) withDefaults() (Config, error) {
	if c.Workers == 0 {
		c.Workers = runtime.NumCPU()
	}
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&c.RetryAfter, time.Second)
	set(&c.StartFor, 30*time.Second)
	set(&c.LameDuck, 2*time.Second)
	set(&c.DrainFor, 30*time.Second)
	set(&c.BackOff, 100*time.Millisecond)
	set(&c.MaxBackOff, 10*time.Second)
	set(&c.Period, time.Minute)
	if c.Intensity == 0 {
		c.Intensity = 5
	}
	if c.Procs == 0 {
		c.Procs = 1
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if err := c.check(); err != nil {
		return c, configError{err}
	}
	return c, nil
}

func (c Config) check() error {
	for name, n := range map[string]int{
		"Procs": c.Procs, "InFlight": c.InFlight, "Queue": c.Queue,
		"MaxConns": c.MaxConns, "Intensity": c.Intensity,
	} {
		if n < 0 {
			return fmt.Errorf("prefork: %s is %d: want 0 or more", name, n)
		}
	}
	for _, d := range []time.Duration{
		c.RetryAfter, c.StartFor, c.LameDuck, c.DrainFor, c.BackOff, c.MaxBackOff,
		c.Period,
	} {
		if d < 0 {
			return fmt.Errorf("prefork: a time of %v: want 0 or more", d)
		}
	}
	switch {
	case c.Workers < 1 || c.Workers > maxWorkers:
		return fmt.Errorf("prefork: %d workers: want 1 to %d", c.Workers, maxWorkers)
	case max(c.InFlight, c.Queue) > admission.MaxLimit:
		return fmt.Errorf("prefork: InFlight is %d and Queue %d: want at most %d", c.InFlight, c.Queue,
			admission.MaxLimit)
	case c.Queue > 0 && c.InFlight == 0:
		return fmt.Errorf("prefork: Queue is %d without InFlight: nobody would wait", c.Queue)
	case c.LameDuck >= c.DrainFor:
		return fmt.Errorf("prefork: LameDuck %v is not below DrainFor %v: requests would have no time to end",
			c.LameDuck, c.DrainFor)
	case len(c.Weights) > 0 && (c.Shared || len(c.Listen) == 0):
		return errors.New("prefork: Weights need a socket for each slot: not with Shared, nor with sockets that systemd passes")
	case slices.ContainsFunc(c.Weights, func(w float64) bool { return !(w > 0) || math.IsInf(w, 0) }):
		return fmt.Errorf("prefork: Weights are %v: want each above 0", c.Weights)
	case c.Limit.Files > 0 && c.Limit.Files < uint64(leastFiles+len(c.Listen)):
		return fmt.Errorf("prefork: Limit.Files is %d: want 0 or at least %d: a worker could accept nobody", c.Limit.Files,
			leastFiles+len(c.Listen))
	case c.Limit.CPU < 0 || c.Limit.Memory < 0:
		return fmt.Errorf("prefork: limits of %v CPUs and %d bytes: want 0 or more", c.Limit.CPU, c.Limit.Memory)
	}
	return nil
}
