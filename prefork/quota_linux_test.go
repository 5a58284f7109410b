package prefork

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestQuota makes groups in a folder that looks like a cgroup of version 2.
func TestQuota(t *testing.T) {
	root := t.TempDir()
	cfg := &Config{Workers: 2, Limit: Limit{CPU: 0.5, Memory: 1 << 30}, Log: slog.New(slog.DiscardHandler)}
	if _, err := newQuota(root, cfg); err == nil || !strings.Contains(err.Error(), "Delegate=") {
		t.Errorf("without a cgroup: %v", err)
	}
	base := filepath.Join(root, "sys/fs/cgroup/system.slice/x.service")
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "proc/self"), 0o755), os.WriteFile(filepath.Join(root, "proc/self/cgroup"), []byte("0::/system.slice/x.service\n"), 0o600)); err != nil {
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
		if _, err := newQuota(root, cfg); err == nil || !strings.Contains(err.Error(), "no controller cpu") {
			t.Errorf("controllers %s: %v", controllers, err)
		}
	}
	if err := os.WriteFile(filepath.Join(base, "cgroup.controllers"), []byte("cpuset cpu memory pids\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	q, err := newQuota(root, cfg)
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
	if env := q.environment(); len(env) != 1 || env[0] != "GOMEMLIMIT=966367642" || !strings.HasPrefix(q.how, "cgroup v2") {
		t.Errorf("%v, by %s", env, q.how)
	}
}
