package prefork

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// statusOf reads a line of /proc/PID/status.
func statusOf(t *testing.T, pid int, name string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if text, found := strings.CutPrefix(line, name+":"); found {
			return strings.Join(strings.Fields(text), " ")
		}
	}
	t.Fatalf("no %s in %s", name, b)
	return ""
}

// leadsTo checks a link of /proc/PID.
func leadsTo(t *testing.T, pid int, name, want string) {
	t.Helper()
	if to, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, name)); err != nil || to != want {
		t.Errorf("%s of worker %d is %s: %v; want %s", name, pid, to, err, want)
	}
}

// TestDirAndEnv: each worker begins in Config.Dir, and has the master's environment with Config.Env
// over it, except for what is the master's alone.
func TestDirAndEnv(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, appConfig{Config: Config{
		Listen: anyPort, Workers: 2, Procs: 2, StartFor: patience, Dir: dir,
		Env: []string{"PREFORK_A=of the workers", "PREFORK_C=new", "NOTIFY_SOCKET=/nowhere", "GOMAXPROCS=7"},
	}}, nil, "env", "PREFORK_A=of the master", "PREFORK_B=of the master", "WATCHDOG_USEC=1")
	leadsTo(t, r.cmd.Process.Pid, "cwd", workingDir(t))
	for slot, st := range r.status() {
		leadsTo(t, st.PID, "cwd", dir)
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", st.PID))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for v := range strings.SplitSeq(string(b), "\x00") {
			name, _, _ := strings.Cut(v, "=")
			if strings.HasPrefix(name, "PREFORK_") || name == "GOMAXPROCS" || slices.Contains(masterless, name) {
				got = append(got, v)
			}
		}
		slices.Sort(got)
		want := []string{
			"GOMAXPROCS=2", "LISTEN_FDS=1", "PREFORK_A=of the workers", "PREFORK_B=of the master", "PREFORK_C=new",
			slotVariable + "=" + strconv.Itoa(slot),
		}
		if !slices.Equal(got, want) {
			t.Errorf("slot %d has %q; want %q", slot, got, want)
		}
	}
}

func workingDir(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// copyBelow copies files to the same paths below a root, so that anybody may run them.
func copyBelow(t *testing.T, root string, paths ...string) {
	t.Helper()
	for _, path := range paths {
		b, err := os.ReadFile(path)
		to := filepath.Join(root, path)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to+".new", b, 0o755),
			os.Rename(to+".new", to))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// libraries are the files that this program needs beside itself, if it is linked to any.
func libraries(t *testing.T) (paths []string) {
	t.Helper()
	self, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	for _, p := range self.Progs {
		if p.Type == elf.PT_INTERP {
			name, err := io.ReadAll(p.Open())
			if err != nil {
				t.Fatal(err)
			}
			paths = append(paths, strings.TrimRight(string(name), "\x00"))
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if f := strings.Fields(line); len(f) == 6 && strings.Contains(filepath.Base(f[5]), ".so") {
			paths = append(paths, f[5])
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// TestAttr has workers in a root of their own, as somebody else, with one capability: those of the
// start, those after a crash, and those of an upgrade, for which the program lies at one path
// inside and outside.
func TestAttr(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root may chroot, and be somebody else; run as root")
	}
	const bind, nobody, group, more = 10, 65534, 65533, 65532 // bind is CAP_NET_BIND_SERVICE
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "server")
	install(t, path, "0")
	copyBelow(t, root, append(libraries(t), path)...)
	if err := os.Mkdir(filepath.Join(root, "work"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := start(t, appConfig{Config: Config{
		Listen: anyPort, Workers: 1, Path: path, Dir: "/work", StartFor: patience, BackOff: 1,
		Attr: &syscall.SysProcAttr{
			Chroot: root, AmbientCaps: []uintptr{bind},
			Credential: &syscall.Credential{Uid: nobody, Gid: group, Groups: []uint32{more}},
		},
	}}, nil)
	check := func(version string, before int) (pid int) {
		t.Helper()
		a, err := r.get("")
		if pid = r.status()[0].PID; err != nil || a.PID != pid || pid == before {
			t.Fatalf("%d answers: %v; the worker is %d, before %d", a.PID, err, pid, before)
		}
		leadsTo(t, pid, "root", root)
		leadsTo(t, pid, "cwd", filepath.Join(root, "work"))
		capability := fmt.Sprintf("%016x", 1<<bind)
		for name, want := range map[string]string{
			"Uid":    strings.Repeat(" "+strconv.Itoa(nobody), 4)[1:],
			"Gid":    strings.Repeat(" "+strconv.Itoa(group), 4)[1:],
			"Groups": strconv.Itoa(more), "CapEff": capability, "CapPrm": capability,
		} {
			if got := statusOf(t, pid, name); got != want {
				t.Errorf("%s: %s; want %s", name, got, want)
			}
		}
		if got := versionOf(fmt.Sprintf("/proc/%d/exe", pid)); got != version {
			t.Errorf("it is of version %s; want %s", got, version)
		}
		return pid
	}
	first := check("0", 0)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, patience, "a successor", func() bool {
		pid := r.status()[0].PID
		return pid != 0 && pid != first
	})
	second := check("0", first)
	install(t, path, "1")
	copyBelow(t, root, path)
	if got := r.do("upgrade"); got != "<nil>" {
		t.Fatal(got)
	}
	check("1", second)
	if to, err := os.Readlink(fmt.Sprintf("/proc/%d/root", r.cmd.Process.Pid)); err != nil || to != "/" {
		t.Errorf("the master's root is %s: %v", to, err)
	}
}

// TestDirThatIsNotThere: the error names the folder, not the program, which is there.
func TestDirThatIsNotThere(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	r := begin(t, appConfig{Config: Config{Listen: anyPort, Workers: 1, Dir: dir}}, nil)
	<-r.waited
	if !strings.Contains(r.said.String(), "the folder that Dir names: stat "+dir+": no such file or directory") {
		t.Errorf("it said: %s", r.said)
	}
}
