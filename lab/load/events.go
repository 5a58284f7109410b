package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/loadgen"
)

// Events is a load on a server of several processes, to which something happens in its middle. What
// fails then is the figure failed_per_event.
type Events struct {
	Event       string // restart, upgrade: the master is told; kill: one of its children ends
	Connections int
	Close       bool // a connection for each request
}

// Scene makes an address for one turn.
func (e Events) Scene(*lab.Bench) (*lab.Scene, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	master, left := 0, []int(nil)
	run := func(ctx context.Context, length time.Duration) (func(lab.Metrics), error) {
		l, err := loadgen.New(loadgen.Config{
			URL: "http://" + addr + "/", Connections: e.Connections, Threads: 1,
			Close: e.Close, Timeout: 5 * time.Second,
		})
		if err != nil {
			return nil, err
		}
		var r *loadgen.Result
		if master == 0 { // the warm-up
			r, err = l.Run(ctx, length)
		} else {
			before := childrenOf(master)
			r, err = throughout(ctx, l, length, func() error { return e.happen(master, before) })
		}
		err = errors.Join(err, l.Close())
		if left = childrenOf(master); master == 0 {
			left = nil
		}
		if err != nil {
			return nil, err
		}
		return func(m lab.Metrics) {
			m["ops"], m["wall_s"], m["failed_per_event"] = float64(r.Requests+r.Late), r.Drained, float64(r.Failed())
			latencies(m, r.LatencyUs, r.Requests+r.Late)
		}, nil
	}
	return &lab.Scene{
		Params: lab.Params{"addr": addr}, Serves: addr, Load: run, Started: func(pid int) { master = pid },
		Close: func() error {
			for _, pid := range left { // that do not end with their master
				_ = syscall.Kill(pid, syscall.SIGKILL) // an error: it has ended
			}
			return nil
		},
	}, nil
}

// throughout lets a load ask for a time in which something happens, after a quarter of it; and
// longer, until it has happened and for another quarter. What ended before it did would not see
// what it costs.
func throughout(ctx context.Context, l *loadgen.Load, length time.Duration, happen func() error,
) (*loadgen.Result, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	happened := make(chan error, 1)
	go func() {
		defer stop()
		began := time.Now()
		time.Sleep(length / 4)
		err := happen()
		time.Sleep(max(length/4, length-time.Since(began)))
		happened <- err
	}()
	r, err := l.Run(ctx, length+happensWithin)
	return r, errors.Join(err, <-happened)
}

// happensWithin is how long an event may take.
const happensWithin = 10 * time.Second

// happen has the event happen, and sees that it has.
func (e Events) happen(master int, before []int) error {
	if len(before) == 0 {
		return errors.New("the server has no workers")
	}
	signal, to := map[string]syscall.Signal{
		"restart": syscall.SIGHUP, "upgrade": syscall.SIGUSR2,
		"kill": syscall.SIGKILL,
	}[e.Event], master
	if e.Event == "kill" {
		to = before[0]
	}
	if err := syscall.Kill(to, signal); err != nil {
		return fmt.Errorf("%s: %w", e.Event, err)
	}
	for end := time.Now().Add(happensWithin); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		now := childrenOf(master)
		stay := slices.ContainsFunc(before,
			func(pid int) bool { return slices.Contains(now, pid) && (e.Event != "kill" || pid == to) })
		if !stay && len(now) >= len(before) {
			return nil
		}
	}
	return fmt.Errorf("%s: the workers were not replaced within %v", e.Event, happensWithin)
}

// childrenOf lists the children of a process, the oldest first.
func childrenOf(pid int) (children []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is good
	started := map[int]int64{}
	for _, name := range stats {
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			continue
		}
		if f, err := sys.ProcessStat(child, 4, 22); err == nil && f[0] == int64(pid) && child != os.Getpid() {
			children = append(children, child)
			started[child] = f[1]
		}
	}
	slices.SortFunc(children, func(a, b int) int { return cmp.Compare(started[a], started[b]) })
	return children
}
