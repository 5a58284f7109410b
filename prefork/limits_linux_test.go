package prefork

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// statistic reads a number of a control group's file of names and numbers.
func statistic(t *testing.T, path, name string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if text, found := strings.CutPrefix(line, name+" "); found {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("%s has no %s: %s", path, name, b)
	return 0
}

// TestCPULimitHolds: a worker that computes is held to its part of each period, by the kernel's own
// account. On a busy machine it may not come to as much in most of them.
func TestCPULimitHolds(t *testing.T) {
	firstVersion(t)
	t.Parallel()
	const limit, work = 0.1, 60 * time.Millisecond
	r := start(t, appConfig{Config: Config{
		Listen: anyPort, Workers: 1, Limit: Limit{CPU: limit}, StartFor: patience,
	}}, nil)
	stat := filepath.Join(groupsOf(t, r)[0], slotName(0), "cpu.stat")
	const least = int(work/time.Microsecond)/(limit*cpuPeriod) - 2 // the first and the last one are not whole
	testenv.Calm(t, func() error {
		periods, held := statistic(t, stat, "nr_periods"), statistic(t, stat, "nr_throttled")
		if _, err := r.get("?compute=" + work.String()); err != nil {
			t.Fatal(err)
		}
		periods, held = statistic(t, stat, "nr_periods")-periods, statistic(t, stat, "nr_throttled")-held
		if periods < least || held == 0 {
			return fmt.Errorf("%v of CPU time took %d periods, in %d of which the worker was held; want at least %d",
				work, periods, held, least)
		}
		return nil
	})
}

// TestWithoutGroups: where no control group can be made, memory is bounded by GOMEMLIMIT, which the
// log says, descriptors by their limit all the same, and a limit of CPU time is refused.
func TestWithoutGroups(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	limit := Limit{Memory: 1 << 28, Files: 400}
	log := slog.New(slog.NewTextHandler(&said, nil))
	q, err := newQuota(t.TempDir(), &Config{Workers: 2, Limit: limit, Log: log}, "")
	if err != nil {
		t.Fatal(err)
	}
	if env := q.environment(); q.how != "GOMEMLIMIT" || len(env) != 1 || env[0] != "GOMEMLIMIT=241591911" {
		t.Errorf("%v, by %s", env, q.how)
	}
	const alone = "memory is bounded by GOMEMLIMIT alone, which has Go collect harder and kills nobody"
	for _, want := range []string{alone, ` v2="open `, ` v1="open `} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it says %s; want %s", said.String(), want)
		}
	}
	hide := []string{
		testenv.Program(t, "unshare", "apt install util-linux"), "--mount", "sh", "-c",
		`mount -t tmpfs none /sys/fs/cgroup && exec "$0"`,
	}
	if out, err := exec.CommandContext(t.Context(), hide[0], append(hide[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: the control groups cannot be hidden from a master: %v, %s; run as root", err, out)
	}
	c := Config{Listen: anyPort, Workers: 1, Limit: limit, StartFor: patience}
	r := start(t, appConfig{Config: c}, nil, hide...)
	if a, err := r.get(""); err != nil || a.Memory != "241591911" {
		t.Errorf("%+v, %v; want GOMEMLIMIT=241591911", a, err)
	}
	if said := r.said.String(); !strings.Contains(said, alone) || !strings.Contains(said, "quota=GOMEMLIMIT") {
		t.Errorf("it said: %s", said)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", r.status()[0].PID))
	if err != nil || !strings.Contains(strings.Join(strings.Fields(string(limits)), " "), "Max open files 400 400") {
		t.Errorf("%s: %v", limits, err)
	}
	c.Limit.CPU = 0.5
	r = begin(t, appConfig{Config: c}, nil, hide...)
	if r.wait(); r.waitErr == nil || !strings.Contains(r.said.String(), "Procs and CPUs bound it without") {
		t.Errorf("a limit of CPU time: %v, and it said: %s", r.waitErr, r.said)
	}
}
