package rt

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// onThread runs f on a thread of its own, which ends after it.
func onThread(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		f()
	}()
	<-done
}

func TestPin(t *testing.T) {
	onThread(t, func() {
		before, err := Affinity(0)
		if err != nil {
			t.Error(err)
			return
		}
		one := before[len(before)-1:]
		undo, err := Pin(one)
		if err != nil {
			t.Error(err)
			return
		}
		if got, _ := Affinity(0); !slices.Equal(got, one) {
			t.Errorf("pinned to %v, allowed on %v", one, got)
		}
		out, err := exec.Command("grep", "Cpus_allowed_list", "/proc/self/status").Output()
		if _, list, _ := strings.Cut(strings.TrimSpace(string(out)), "\t"); err != nil || list != one.String() {
			t.Errorf("what it starts is allowed on %q: %v", out, err)
		}
		if err := undo(); err != nil {
			t.Error(err)
		}
		if got, _ := Affinity(0); !slices.Equal(got, before) {
			t.Errorf("afterwards allowed on %v, before on %v", got, before)
		}
	})
}

func TestAffinityThatCannotBe(t *testing.T) {
	err := SetAffinity(0, CPUs{maxCPU})
	if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "online") {
		t.Errorf("a CPU that is not there: %v", err)
	}
}

// TestProcessAffinity moves all threads of a program in Go, this one's own.
func TestProcessAffinity(t *testing.T) {
	before, err := Affinity(0)
	if err != nil {
		t.Fatal(err)
	}
	one := before[:1]
	if err := SetProcessAffinity(0, one); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := SetProcessAffinity(os.Getpid(), before); err != nil {
			t.Error(err)
		}
	}()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil || len(tasks) < 2 {
		t.Fatalf("%d threads: %v", len(tasks), err)
	}
	for _, task := range tasks {
		status, err := os.ReadFile(filepath.Join("/proc/self/task", task.Name(), "status"))
		if err == nil && !strings.Contains(string(status), "Cpus_allowed_list:\t"+one.String()+"\n") {
			t.Errorf("thread %s may run elsewhere than on %v", task.Name(), one)
		}
	}
}

func TestScheduling(t *testing.T) {
	for _, want := range []Scheduling{
		{},
		{Policy: Batch},
		{Nice: 7, ResetOnFork: true},
		{Policy: Idle},
		{Policy: FIFO, Priority: 3, ResetOnFork: true},
		{Policy: RR, Priority: 1},
		{
			Policy: Deadline, Runtime: 100 * time.Microsecond, Deadline: 50 * time.Millisecond,
			Period: 100 * time.Millisecond,
		},
	} {
		t.Run(want.Policy.String(), func(t *testing.T) {
			onThread(t, func() {
				err := SetScheduling(want)
				if refusal := new(NotAllowedError); errors.As(err, &refusal) {
					if refusal.Missing == nil || want.Policy <= Idle {
						t.Errorf("%v is refused: %v", want, err)
					}
					t.Logf("not allowed here: %v", err)
					return
				}
				if err != nil {
					t.Errorf("%v: %v", want, err)
					return
				}
				got, err := GetScheduling(0)
				got.Nice = max(got.Nice, 0)
				if want.Policy == Idle { // a thread of this class keeps the nice value that the tests were started with
					got.Nice = 0
				}
				if err != nil || got != want {
					t.Errorf("%+v became %+v: %v", want, got, err)
				}
			})
		})
	}
}

func TestSchedulingThatCannotBe(t *testing.T) {
	for _, bad := range []Scheduling{
		{Policy: 17},
		{Policy: -1},
		{Priority: 1},
		{Policy: FIFO},
		{Policy: FIFO, Priority: 100},
		{Nice: 20},
		{Nice: -21},
		{Policy: Deadline},
		{Policy: Deadline, Runtime: 2, Deadline: 1},
		{Policy: Deadline, Runtime: 1, Deadline: 3, Period: 2},
	} {
		if err := TryScheduling(bad); err == nil || !strings.Contains(err.Error(), "rt: ") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	for _, name := range []string{"other", "batch", "idle", "fifo", "RR", "deadline"} {
		if p, err := ParsePolicy(name); err != nil || !strings.EqualFold(p.String(), name) {
			t.Errorf("%q is %v: %v", name, p, err)
		}
	}
	if _, err := ParsePolicy("real"); err == nil {
		t.Error("a class that is none")
	}
}

// TestWhatIsMissing reads the advice as a process without rights gets it.
func TestWhatIsMissing(t *testing.T) {
	onThread(t, func() {
		err := Scheduling{Policy: FIFO, Priority: 99}.refused(os.NewSyscallError("sched_setattr", syscall.EPERM))
		if !errors.Is(err, syscall.EPERM) ||
			!strings.HasPrefix(err.Error(), "scheduling fifo 99: sched_setattr: operation not permitted; ") {
			t.Error(err)
		}
	})
	if err := (Scheduling{Policy: FIFO, Priority: 1}).refused(nil); err != nil {
		t.Error(err)
	}
	root := t.TempDir()
	if _, yes := throttled(root); yes {
		t.Error("no cgroup forbids it where there is none")
	}
	group := filepath.Join(root, "sys/fs/cgroup/cpu,cpuacct/a/b")
	if err := errors.Join(os.MkdirAll(group, 0o755), os.MkdirAll(filepath.Join(root, "proc/self"), 0o755),
		os.WriteFile(filepath.Join(root, "proc/self/cgroup"), []byte("4:memory:/x\n2:cpu,cpuacct:/a/b\n0::/\n"), 0o600),
		os.WriteFile(filepath.Join(group, "cpu.rt_runtime_us"), []byte("0\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if path, yes := throttled(root); !yes || path != filepath.Join(group, "cpu.rt_runtime_us") {
		t.Errorf("a group without a budget: %q, %v", path, yes)
	}
	if err := lockRefused("locking", syscall.EPERM); err == nil || !strings.Contains(err.Error(), "; ") {
		t.Error(err)
	}
}

// TestMemory locks and unlocks in a process that can be thrown away.
func TestMemory(t *testing.T) {
	const asked = "TALLYWHEEL_RT_LOCK"
	if os.Getenv(asked) != "" {
		if err := LockMemory(); err != nil {
			if refusal := new(NotAllowedError); !errors.As(err, &refusal) {
				t.Fatal(err)
			}
			t.Logf("not allowed here: %v", err)
			return
		}
		if err := UnlockMemory(); err != nil {
			t.Fatal(err)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestMemory$")
	cmd.Env = append(os.Environ(), asked+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if err := TryLockMemory(4096); err != nil {
		t.Logf("not allowed here: %v", err)
	}
}

func TestTimerSlack(t *testing.T) {
	onThread(t, func() {
		if err := SetTimerSlack(7 * time.Microsecond); err != nil {
			t.Error(err)
		}
		if got, err := TimerSlack(); err != nil || got != 7*time.Microsecond {
			t.Errorf("%v: %v", got, err)
		}
	})
	if err := SetTimerSlack(0); err == nil {
		t.Error("0 would be the default, and is taken")
	}
}

func TestSleepUntil(t *testing.T) {
	for name, sleep := range map[string]func(time.Duration) error{"giving": SleepUntil, "holding": SleepUntilHolding} {
		at := Now() + 3*time.Millisecond
		if err := sleep(at); err != nil || Now() < at {
			t.Errorf("%s: woken %v early: %v", name, at-Now(), err)
		}
		if err := sleep(Now() - time.Hour); err != nil {
			t.Errorf("%s: a moment that is past: %v", name, err)
		}
	}
}
