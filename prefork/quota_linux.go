package prefork

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// quota bounds workers by control groups, one for each slot: by version 2, where a group is
// delegated to this process, into whose own ones workers are born; else by the controllers of
// version 1, into whose groups a worker is put as soon as it is there. Without either only Go's own
// memory limit is left.
type quota struct {
	how   string // for the log
	limit Limit

	groups string   // version 2: the folder of the slots' groups; empty: not that
	first  []string // version 1: those of each controller
}

// cpuPeriod is the period of a limit of CPU time in µs, the kernel's default.
const cpuPeriod = 100_000

// masterGroup begins the name of the folder in which version 1 has the groups of a master. Its
// process number and the time of its start follow: the number alone may be that of another process
// once the master has ended. An earlier version of this package gave the number alone, behind
// earlyGroup, and removes what begins so and does not end in the number of a process.
const (
	masterGroup = "prefork."
	earlyGroup  = "prefork-"
)

// groupOf is the name of a master's folder; an error: there is no such process.
func groupOf(pid int) (string, error) {
	const startTime = 22 // in clock ticks since the machine's start, see proc_pid_stat(5)
	f, err := sys.ProcessStat(pid, startTime)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s%d.%d", masterGroup, pid, f[0]), nil
}

// inUse reports whether the master that has made a folder is still there.
func inUse(folder string) bool {
	number, early := strings.CutPrefix(folder, earlyGroup)
	if !early {
		number, _, _ = strings.Cut(strings.TrimPrefix(folder, masterGroup), ".")
	}
	pid, err := strconv.Atoi(number)
	if err != nil {
		return true // somebody else's
	}
	name, err := groupOf(pid)
	return err == nil && (early || name == folder)
}

// newQuota finds out by which means workers are bounded. root is / but for tests; groups is where
// the master before has had them, in version 2.
func newQuota(root string, cfg *Config, groups string) (*quota, error) {
	q := &quota{how: "none", limit: cfg.Limit}
	sweep(root)
	if q.limit.CPU == 0 && q.limit.Memory == 0 {
		return q, nil
	}
	second := q.delegated(root, cfg.Workers, groups)
	if second == nil {
		q.how = "cgroup v2, " + q.groups
		return q, nil
	}
	q.groups = ""
	first := q.controllers(root, cfg.Workers)
	if first == nil {
		q.how = "cgroup v1, " + strings.Join(q.first, " ")
		cfg.Log.Info("workers are bounded by cgroup v1", "why", second)
		return q, nil
	}
	q.close()
	q.first = nil
	if q.limit.CPU > 0 {
		return nil,
			fmt.Errorf("prefork: Limit.CPU needs a cgroup: version 2: %w; version 1: %w; Delegate=cpu memory in a unit has systemd do that. "+
				"Procs and CPUs bound it without", second, first)
	}
	q.how = "GOMEMLIMIT"
	cfg.Log.Info("memory is bounded by GOMEMLIMIT alone, which has Go collect harder and kills nobody", "v2", second,
		"v1", first)
	return q, nil
}

// memberships are the groups of this process by controller; version 2 is "".
func memberships(root string) (map[string]string, error) {
	b, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			for _, controller := range strings.Split(f[1], ",") {
				all[controller] = f[2]
			}
		}
	}
	return all, nil
}

// delegated makes the groups of version 2. This process moves into one of its own, since a group
// with controllers for its children holds no process itself.
func (q *quota) delegated(root string, workers int, base string) error {
	var enable []string
	for name, wanted := range map[string]bool{"cpu": q.limit.CPU > 0, "memory": q.limit.Memory > 0} {
		if wanted {
			enable = append(enable, "+"+name)
		}
	}
	if base == "" {
		own, err := memberships(root)
		if err != nil {
			return err
		}
		path, found := own[""]
		base = filepath.Join(root, "sys/fs/cgroup", path)
		have, err := os.ReadFile(filepath.Join(base, "cgroup.controllers"))
		if !found || err != nil {
			return errors.Join(errors.New("there is no cgroup v2"), err)
		}
		for _, name := range enable {
			if !slices.Contains(strings.Fields(string(have)), name[1:]) {
				return fmt.Errorf("%s has no controller %s", base, name[1:])
			}
		}
		master := filepath.Join(base, "master")
		if err := folder(master); err != nil {
			return err
		}
		if err := write(master, "cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
			return err
		}
	}
	if err := write(base, "cgroup.subtree_control", strings.Join(enable, " ")); err != nil {
		return err
	}
	q.groups = base
	return q.each(workers, func(slot string) error {
		dir := filepath.Join(base, slot)
		err := folder(dir)
		if err == nil && q.limit.CPU > 0 {
			err = write(dir, "cpu.max", fmt.Sprintf("%d %d", int(q.limit.CPU*cpuPeriod), cpuPeriod))
		}
		if err == nil && q.limit.Memory > 0 {
			err = write(dir, "memory.max", strconv.FormatInt(q.limit.Memory, 10))
		}
		return err
	})
}

// controllers makes the groups of version 1, below those of this process.
func (q *quota) controllers(root string, workers int) error {
	own, err := memberships(root)
	if err != nil {
		return err
	}
	group, err := groupOf(os.Getpid())
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name   string
		wanted bool
		values [][2]string
	}{
		{"cpu", q.limit.CPU > 0, [][2]string{
			{"cpu.cfs_period_us", strconv.Itoa(cpuPeriod)},
			{"cpu.cfs_quota_us", strconv.Itoa(int(q.limit.CPU * cpuPeriod))},
		}},
		{"memory", q.limit.Memory > 0, [][2]string{{"memory.limit_in_bytes", strconv.FormatInt(q.limit.Memory, 10)}}},
	} {
		if !c.wanted {
			continue
		}
		path, found := own[c.name]
		if !found {
			return fmt.Errorf("there is no controller %s", c.name)
		}
		base := filepath.Join(root, "sys/fs/cgroup", c.name, path, group)
		q.first = append(q.first, base)
		if err := folder(base); err != nil {
			return err
		}
		err := q.each(workers, func(slot string) error {
			dir := filepath.Join(base, slot)
			err := folder(dir)
			for _, v := range c.values {
				if err == nil {
					err = write(dir, v[0], v[1])
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sweep removes the groups that masters which were killed have left below those of this process, in
// version 1, whether or not this one makes any.
func sweep(root string) {
	own, _ := memberships(root) // an error: newQuota says it where it matters
	var left []string
	for _, controller := range []string{"cpu", "memory"} {
		if path, found := own[controller]; found {
			for _, begins := range []string{masterGroup, earlyGroup} {
				all := filepath.Join(root, "sys/fs/cgroup", controller, path, begins+"*")
				dirs, _ := filepath.Glob(all) // the pattern is good
				left = append(left, dirs...)
			}
		}
	}
	for _, dir := range left {
		if !inUse(filepath.Base(dir)) {
			removeSlots(dir)
			_ = os.Remove(dir) // an error: somebody is in it
		}
	}
}

// removeSlots removes the groups of slots, but for those that somebody is in.
func removeSlots(base string) {
	slots, _ := filepath.Glob(filepath.Join(base, slotGroup+"*")) // the pattern is good
	for _, s := range slots {
		_ = os.Remove(s)
	}
}

const slotGroup = "worker-" // and the slot's number

func slotName(slot int) string { return slotGroup + strconv.Itoa(slot) }

func (q *quota) each(workers int, make func(slot string) error) error {
	for slot := range workers {
		if err := make(slotName(slot)); err != nil {
			return err
		}
	}
	return nil
}

// folder makes a group, unless it is there.
func folder(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

func write(dir, name, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// environment is what a worker needs to know: Go collects before the kernel kills.
func (q *quota) environment() []string {
	if q.limit.Memory == 0 {
		return nil
	}
	return []string{"GOMEMLIMIT=" + strconv.FormatInt(q.limit.Memory-q.limit.Memory/10, 10)}
}

// enter has a worker be born in its group, where that can be. release is called once it is.
func (q *quota) enter(attr *syscall.SysProcAttr, slot int) (release func(), err error) {
	if q.groups == "" {
		return func() {}, nil
	}
	f, err := os.Open(filepath.Join(q.groups, slotName(slot)))
	if err != nil {
		return nil, err
	}
	attr.UseCgroupFD, attr.CgroupFD = true, int(f.Fd())
	return func() { _ = f.Close() }, nil
}

// put puts a worker into its groups, where it was not born there.
func (q *quota) put(pid, slot int) error {
	for _, base := range q.first {
		if err := write(filepath.Join(base, slotName(slot)), "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// kills is how many processes of a slot the kernel has killed so far at Limit.Memory. It is not
// known where no group bounds that, and before Linux 4.13.
func (q *quota) kills(slot int) (n int, known bool) {
	files := []string{filepath.Join(q.groups, slotName(slot), "memory.events")}
	for _, base := range q.first {
		files = append(files, filepath.Join(base, slotName(slot), "memory.oom_control"))
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // of another controller, or version
		}
		for line := range strings.Lines(string(b)) {
			if text, found := strings.CutPrefix(line, "oom_kill "); found {
				n, err = strconv.Atoi(strings.TrimSpace(text))
				return n, err == nil
			}
		}
	}
	return 0, false
}

// killsEvery is how often the master looks whether the kernel has killed somebody for memory.
const killsEvery = time.Second

// askSurvivors begins to ask workers for an answer when the kernel has killed somebody in their
// group: who answers was not that. Else the next end of the worker would be put down to its memory,
// though only something that it had started was killed. A SIGKILL from elsewhere in the second
// before the question still is.
func (m *Master) askSurvivors() {
	if _, known := m.quota.kills(0); !known {
		return
	}
	m.running.Go(func() {
		tick := time.NewTicker(killsEvery)
		defer tick.Stop()
		for {
			select {
			case <-m.life.Done():
				return
			case <-tick.C:
			}
			for c, kills := range m.toAsk() {
				_ = c.link.send(packet{Tell: true, Kills: kills}) // an error: it has ended
			}
		}
	})
}

// toAsk are the workers that are to answer, and after how many kills of their slot.
func (m *Master) toAsk() map[*child]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[*child]int{}
	for c := range m.all {
		if n, _ := m.quota.kills(c.slot); n > c.asks && n > c.survived {
			c.asks, all[c] = n, n
		}
	}
	return all
}

// survivor says that the kernel has killed something of a worker's, but not the worker, which has
// answered since.
func (m *Master) survivor(c *child, kills int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if before := max(c.survived, m.slots[c.slot].kills); kills > before {
		m.log.Warn("the kernel has killed what a worker had started, at the memory limit of both; raise Limit.Memory, or have them take less",
			"worker", c.String(), "limit", m.quota.limit.Memory, "kills", kills-before)
	}
	c.survived = max(c.survived, kills)
}

// blame says what a worker's end by SIGKILL has to do with its memory. before is how many of kills
// had nothing to do with it.
func (q *quota) blame(err *exec.ExitError, slot, before int) (kills int, why error) {
	status, _ := err.Sys().(syscall.WaitStatus)
	if q.limit.Memory == 0 || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		return before, err
	}
	now, known := q.kills(slot)
	if now > before {
		return before + 1, fmt.Errorf("%w: by the kernel, at the memory limit of %d bytes; raise Limit.Memory, or have it take less",
			err, q.limit.Memory)
	}
	usage, _ := err.SysUsage().(*syscall.Rusage)
	if !known && usage != nil && int64(usage.Maxrss)<<10 > q.limit.Memory-q.limit.Memory/10 {
		return before, fmt.Errorf("%w: perhaps for its memory, which was %d KiB, with a limit of %d bytes", err,
			usage.Maxrss, q.limit.Memory)
	}
	return before, err
}

// close removes the groups; in version 2 that of this process stays, it is in it.
func (q *quota) close() {
	if q == nil {
		return
	}
	if q.groups != "" {
		removeSlots(q.groups)
	}
	for _, base := range q.first {
		removeSlots(base)
		_ = os.Remove(base)
	}
}
