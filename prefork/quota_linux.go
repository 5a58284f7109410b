package prefork

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// quota bounds workers by cgroup v2, where one is delegated to this process: a group for each slot,
// into which workers are born. Else only Go's own memory limit is left.
type quota struct {
	how    string // for the log
	limit  Limit
	groups string // folder of the slots' groups; empty: there are none
}

// cpuPeriod is the period of cpu.max in µs, the kernel's default.
const cpuPeriod = 100_000

// newQuota finds out by which means workers are bounded. root is / but for tests.
func newQuota(root string, cfg *Config) (*quota, error) {
	q := &quota{how: "none", limit: cfg.Limit}
	if q.limit.CPU == 0 && q.limit.Memory == 0 {
		return q, nil
	}
	err := q.delegated(root, cfg.Workers)
	if err == nil {
		q.how = "cgroup v2, " + q.groups
		return q, nil
	}
	q.groups = ""
	if q.limit.CPU > 0 {
		return nil, fmt.Errorf("prefork: Limit.CPU needs cgroup v2, delegated to this process: %w; Delegate=cpu memory in a unit has systemd do that. Procs and CPUs bound it without", err)
	}
	q.how = "GOMEMLIMIT"
	cfg.Log.Info("memory is bounded by GOMEMLIMIT alone, which has Go collect harder and kills nobody", "why", err)
	return q, nil
}

// delegated makes the groups. This process moves into one of its own, since a group of version 2
// with controllers for its children holds no process itself.
func (q *quota) delegated(root string, workers int) error {
	b, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return err
	}
	own, found := "", false
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			own, found = path, true
		}
	}
	base := filepath.Join(root, "sys/fs/cgroup", own)
	have, err := os.ReadFile(filepath.Join(base, "cgroup.controllers"))
	if !found || err != nil {
		return errors.Join(errors.New("there is no cgroup v2"), err)
	}
	var enable []string
	for name, wanted := range map[string]bool{"cpu": q.limit.CPU > 0, "memory": q.limit.Memory > 0} {
		if !wanted {
			continue
		}
		if !strings.Contains(" "+strings.TrimSpace(string(have))+" ", " "+name+" ") {
			return fmt.Errorf("%s has no controller %s", base, name)
		}
		enable = append(enable, "+"+name)
	}
	master := filepath.Join(base, "master")
	if err := os.Mkdir(master, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := write(master, "cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	if err := write(base, "cgroup.subtree_control", strings.Join(enable, " ")); err != nil {
		return err
	}
	q.groups = base
	for slot := range workers {
		if err := q.group(slot); err != nil {
			return err
		}
	}
	return nil
}

func (q *quota) folder(slot int) string {
	return filepath.Join(q.groups, "worker-"+strconv.Itoa(slot))
}

// group makes the group of a slot.
func (q *quota) group(slot int) error {
	dir := q.folder(slot)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	var err error
	if q.limit.CPU > 0 {
		err = write(dir, "cpu.max", fmt.Sprintf("%d %d", int(q.limit.CPU*cpuPeriod), cpuPeriod))
	}
	if q.limit.Memory > 0 {
		err = errors.Join(err, write(dir, "memory.max", strconv.FormatInt(q.limit.Memory, 10)))
	}
	return err
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

// enter has a worker be born in its group. release is called once it is.
func (q *quota) enter(attr *syscall.SysProcAttr, slot int) (release func(), err error) {
	if q.groups == "" {
		return func() {}, nil
	}
	f, err := os.Open(q.folder(slot))
	if err != nil {
		return nil, err
	}
	attr.UseCgroupFD, attr.CgroupFD = true, int(f.Fd())
	return func() { _ = f.Close() }, nil
}

// close removes the groups of the slots; that of this process stays, it is in it.
func (q *quota) close() {
	for slot := range 1024 {
		if q.groups == "" || os.Remove(q.folder(slot)) != nil {
			return
		}
	}
}
