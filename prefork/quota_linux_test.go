package prefork

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestQuota makes groups in a folder that looks like a cgroup of version 2.
func TestQuota(t *testing.T) {
	root := t.TempDir()
	cfg := &Config{Workers: 2, Limit: Limit{CPU: 0.5, Memory: 1 << 30}, Log: slog.New(slog.DiscardHandler)}
	if _, err := newQuota(root, cfg, ""); err == nil || !strings.Contains(err.Error(), "Delegate=") {
		t.Errorf("without a cgroup: %v", err)
	}
	base := filepath.Join(root, "sys/fs/cgroup/system.slice/x.service")
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "proc/self"), 0o755),
		os.WriteFile(filepath.Join(root, "proc/self/cgroup"), []byte("0::/system.slice/x.service\n"),
			0o600)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", "master", "worker-0", "worker-1"} { // the kernel would make these files
		if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"cgroup.procs", "cgroup.subtree_control", "cpu.max", "memory.max"} {
			if err := os.WriteFile(filepath.Join(base, dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, controllers := range []string{"memory pids", "memory cpuset"} {
		if err := os.WriteFile(filepath.Join(base, "cgroup.controllers"), []byte(controllers+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := newQuota(root, cfg, ""); err == nil || !strings.Contains(err.Error(), "no controller cpu") {
			t.Errorf("controllers %s: %v", controllers, err)
		}
	}
	if err := os.WriteFile(filepath.Join(base, "cgroup.controllers"), []byte("cpuset cpu memory pids\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	q, err := newQuota(root, cfg, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"worker-1/cpu.max": "50000 100000", "worker-0/memory.max": "1073741824"} {
		if b, err := os.ReadFile(filepath.Join(base, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v; want %q", name, b, err, want)
		}
	}
	var attr syscall.SysProcAttr
	release, err := q.enter(&attr, 1)
	if err != nil || !attr.UseCgroupFD {
		t.Fatalf("%+v: %v", attr, err)
	}
	release()
	if env := q.environment(); len(env) != 1 || env[0] != "GOMEMLIMIT=966367642" ||
		!strings.HasPrefix(q.how, "cgroup v2") {
		t.Errorf("%v, by %s", env, q.how)
	}
	if err := os.WriteFile(filepath.Join(base, "worker-1/memory.events"), []byte("max 7\noom 3\noom_kill 2\noom_group_kill 0\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if n, known := q.kills(1); n != 2 || !known {
		t.Errorf("%d kills, known: %t", n, known)
	}
	if n, known := q.kills(0); n != 0 || known {
		t.Errorf("%d kills where nothing counts, known: %t", n, known)
	}
	var exit *exec.ExitError
	if err := exec.CommandContext(t.Context(), "sh", "-c", "kill -9 $$").Run(); !errors.As(err, &exit) {
		t.Fatal(err)
	}
	for limit, want := range map[int64]string{0: "signal: killed", 1 << 50: "signal: killed", 4096: "signal: killed: perhaps for its memory"} {
		q.limit.Memory = limit
		_, why := q.blame(exit, 0, 0)
		if !strings.HasPrefix(why.Error(), want) || (limit != 4096) != (why == error(exit)) {
			t.Errorf("with a limit of %d: %v; want %s", limit, why, want)
		}
	}
}

// TestQuotaOfTheFirstVersion makes groups in folders that look like the controllers of version 1.
func TestQuotaOfTheFirstVersion(t *testing.T) {
	root := t.TempDir()
	cfg := &Config{Workers: 2, Limit: Limit{CPU: 1.5, Memory: 1 << 28}, Log: slog.New(slog.DiscardHandler)}
	own, err := groupOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	early := earlyGroup + strconv.Itoa(os.Getpid())
	gone := []string{
		earlyGroup + "4194304", // beyond the largest number of a process
		masterGroup + "4194304.7",
		masterGroup + strconv.Itoa(os.Getpid()) + ".1", // its number is this process's now
	}
	for dir, files := range map[string]string{
		"proc/self": "", "sys/fs/cgroup/cpu": "", "sys/fs/cgroup/memory/below": "",
		"sys/fs/cgroup/cpu/" + gone[0] + "/worker-0":          "",
		"sys/fs/cgroup/cpu/" + gone[1] + "/worker-0":          "",
		"sys/fs/cgroup/memory/below/" + gone[2] + "/worker-1": "",
		"sys/fs/cgroup/cpu/" + early:                          "",
		"sys/fs/cgroup/cpu/" + own + "/worker-0":              "cpu.cfs_period_us cpu.cfs_quota_us cgroup.procs",
		"sys/fs/cgroup/cpu/" + own + "/worker-1":              "cpu.cfs_period_us cpu.cfs_quota_us cgroup.procs",
		"sys/fs/cgroup/memory/below/" + own + "/worker-0":     "memory.limit_in_bytes cgroup.procs",
		"sys/fs/cgroup/memory/below/" + own + "/worker-1":     "memory.limit_in_bytes cgroup.procs",
	} { // the kernel would make these files
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields(files) {
			if err := os.WriteFile(filepath.Join(root, dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	groups := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, "proc/self/cgroup"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	groups("4:memory:/below\n1:cpu,cpuacct:/\n0::/\n")
	if _, err := newQuota(root, &Config{Workers: 2}, ""); err != nil {
		t.Error(err)
	}
	for _, name := range gone {
		for _, parent := range []string{"cpu", "memory/below"} {
			if _, err := os.Stat(filepath.Join(root, "sys/fs/cgroup", parent, name)); err == nil {
				t.Errorf("%s of a master that was killed is still there", name)
			}
		}
	}
	for _, name := range []string{own, early, masterGroup + "x"} {
		if !inUse(name) {
			t.Errorf("%s is nobody's, as this process has it", name)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "sys/fs/cgroup/cpu", early)); err != nil {
		t.Error(err)
	}
	groups("4:memory:/below\n0::/\n")
	if _, err := newQuota(root, cfg, ""); err == nil || !strings.Contains(err.Error(), "there is no controller cpu") {
		t.Errorf("without one for CPU time: %v", err)
	}
	groups("4:memory:/below\n1:cpu,cpuacct:/\n0::/\n")
	q, err := newQuota(root, cfg, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := q.put(4711, 1); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"cpu/" + own + "/worker-0/cpu.cfs_quota_us": "150000", "cpu/" + own + "/worker-1/cpu.cfs_period_us": "100000",
		"memory/below/" + own + "/worker-0/memory.limit_in_bytes": "268435456",
		"cpu/" + own + "/worker-1/cgroup.procs":                   "4711",
		"memory/below/" + own + "/worker-1/cgroup.procs":          "4711", "cpu/" + own + "/worker-0/cgroup.procs": "",
	} {
		if b, err := os.ReadFile(filepath.Join(root, "sys/fs/cgroup", name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v; want %q", name, b, err, want)
		}
	}
	if !strings.HasPrefix(q.how, "cgroup v1, ") {
		t.Errorf("it says %q", q.how)
	}
}

// firstVersion skips a test that bounds workers by cgroup v1 where that cannot be. counts: it
// counts what the kernel has killed for want of memory. It is called before t.Parallel: it makes
// groups of this process, and removes them.
func firstVersion(t *testing.T) (counts bool) {
	t.Helper()
	q, err := newQuota("/", &Config{
		Workers: 1, Limit: Limit{CPU: 0.5, Memory: 1 << 28}, Log: slog.New(slog.DiscardHandler),
	}, "")
	if err != nil {
		t.Skipf("SKIPPED: %v; run as root, where control groups can be made", err)
	}
	defer q.close()
	if q.groups != "" {
		t.Skip("SKIPPED: this process would be moved into a group of its own (cgroup v2); the machines of CI have version 1")
	}
	_, counts = q.kills(0)
	return counts
}

// groupsOf are the groups of a running master, one for each controller.
func groupsOf(t *testing.T, r *running) (all []string) {
	t.Helper()
	group, err := groupOf(r.cmd.Process.Pid)
	below, err2 := memberships("/")
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cpu", "memory"} {
		all = append(all, filepath.Join("/sys/fs/cgroup", name, below[name], group))
	}
	return all
}

// TestQuotaHere bounds real workers by what this machine has.
func TestQuotaHere(t *testing.T) {
	firstVersion(t)
	t.Parallel()
	r := start(t, appConfig{Config: Config{
		Listen: anyPort, Workers: 2, Limit: Limit{CPU: 0.5, Memory: 1 << 28},
		StartFor: patience,
	}}, nil)
	groups := groupsOf(t, r)
	group := filepath.Base(groups[0])
	for slot, st := range r.status() {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(st.PID) + "/cgroup")
		if want := "/" + group + "/" + slotName(slot) + "\n"; err != nil || strings.Count(string(b), want) != 2 {
			t.Errorf("slot %d is in %s, not twice in %s: %v", slot, b, want, err)
		}
	}
	if !strings.Contains(r.said.String(), `quota="cgroup v1, `) {
		t.Errorf("it said: %s", r.said)
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-r.waited
	for _, dir := range groups {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
}

// TestMemoryLimitIsNamed: a worker that the kernel has killed at its limit is told so, one that
// somebody else kills is not.
func TestMemoryLimitIsNamed(t *testing.T) {
	t.Parallel()
	if !firstVersion(t) {
		t.Skip("SKIPPED: no memory group of cgroup v1 that counts kills; run as root on Linux 4.13 with version 1")
	}
	r := start(t, appConfig{Config: Config{
		Listen: anyPort, Workers: 1, Limit: Limit{Memory: 64 << 20}, StartFor: patience, BackOff: time.Millisecond,
	}}, nil)
	victim := r.status()[0].PID
	if a, err := r.get("?eat"); err == nil {
		t.Fatalf("%+v answers", a)
	}
	successor := func() (pid int) {
		testenv.Until(t, patience, "a successor", func() bool {
			pid = r.status()[0].PID
			return pid != 0 && pid != victim
		})
		return pid
	}
	victim = successor()
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	successor()
	const want = "has ended: signal: killed: by the kernel, at the memory limit of 67108864 bytes; raise Limit.Memory"
	if said := r.said.String(); strings.Count(said, want) != 1 || strings.Count(said, "signal: killed") != 2 {
		t.Errorf("it said: %s; want once: %s", said, want)
	}
}

// TestGrandchildIsNotTheWorker: where the kernel has killed only what a worker had started, the log
// says that, and the worker's own end is not put down to its memory; that of its successor is, once
// it is that.
func TestGrandchildIsNotTheWorker(t *testing.T) {
	if !firstVersion(t) {
		t.Skip("SKIPPED: no memory group of cgroup v1 that counts kills; run as root on Linux 4.13 with version 1")
	}
	t.Parallel()
	r := start(t, appConfig{Config: Config{
		Listen: anyPort, Workers: 1, Limit: Limit{Memory: 64 << 20}, StartFor: patience, BackOff: time.Millisecond,
	}}, nil)
	victim := r.status()[0].PID
	if a, err := r.get("?feed"); err != nil || a.PID != victim {
		t.Fatalf("%+v, %v; want an answer of %d", a, err, victim)
	}
	testenv.Until(t, patience, "the log says what was killed", func() bool {
		return strings.Contains(r.said.String(), "the kernel has killed what a worker had started")
	})
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, patience, "a successor", func() bool {
		pid := r.status()[0].PID
		return pid != 0 && pid != victim
	})
	const blamed = "has ended: signal: killed: by the kernel"
	if said := r.said.String(); strings.Contains(said, blamed) || strings.Count(said, "signal: killed") != 1 {
		t.Errorf("it said: %s", said)
	}
	if a, err := r.get("?eat"); err == nil {
		t.Fatalf("%+v answers", a)
	}
	testenv.Until(t, patience, "the end of the successor", func() bool {
		return strings.Count(r.said.String(), "signal: killed") == 2
	})
	if said := r.said.String(); !strings.Contains(said, blamed) || strings.Count(said, "had started") != 1 {
		t.Errorf("it said: %s", said)
	}
}

// TestGroupsLeftBehind: a group of a worker that somebody is in when the master ends stays, those
// of the other workers do not; the next master removes it.
func TestGroupsLeftBehind(t *testing.T) {
	firstVersion(t)
	t.Parallel()
	r := start(t, appConfig{Config: Config{
		Listen: anyPort, Workers: 2, Limit: Limit{CPU: 0.5, Memory: 1 << 28}, StartFor: patience,
	}}, nil)
	groups := groupsOf(t, r)
	stays := testenv.Start(t, "sleep", "1h")
	for _, dir := range groups {
		err := write(filepath.Join(dir, slotName(0)), "cgroup.procs", strconv.Itoa(stays.Cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.wait()
	there := func() (left []string) {
		for _, dir := range groups {
			all, _ := filepath.Glob(filepath.Join(dir, slotGroup+"*"))
			left = append(left, all...)
		}
		return left
	}
	if left := there(); len(left) != 2 || filepath.Base(left[0]) != slotName(0) ||
		filepath.Base(left[1]) != slotName(0) {
		t.Errorf("left: %v; want the groups of slot 0", left)
	}
	if err := stays.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = stays.Cmd.Wait() // killed
	sweep("/")
	for _, dir := range groups {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("the next master leaves %s", dir)
		}
	}
}
