package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// fake is a machine of files in a folder, on which everything that is tried works.
func fake(t *testing.T, files map[string]string) Kernel {
	t.Helper()
	k := Kernel{Root: t.TempDir(), Ask: &Asker{
		Rings: func() (map[string]error, []string) { return map[string]error{"io_uring": nil}, []string{"io_uring"} },
		FIFO:  func(int) error { return nil }, Deadline: func() error { return nil },
		HugePage: func() error { return nil },
		Lock:     func(int) error { return nil }, LockAll: func() error { return nil },
		Perf: func() error { return nil }, BPF: func() error { return nil },
		Files: func() (uint64, uint64, error) { return 1024, 1 << 20, nil },
		Ports: func() ([]string, error) { return []string{"ttyUSB0"}, nil },
		Clock: func() (bool, error) { return true, nil },
	}}
	for name, text := range files {
		put(t, k, name, text)
	}
	return k
}

// poor is a machine that wants for much.
func poor(t *testing.T) Kernel {
	return fake(t, map[string]string{
		"/proc/sys/vm/swappiness": "60", "/proc/swaps": "Filename Type Size\n/dev/sda2 partition 1",
		"/proc/sys/net/core/rmem_max": "212992", "/proc/sys/net/core/somaxconn": "128",
		"/sys/kernel/mm/transparent_hugepage/enabled":                      "[always] madvise never",
		"/sys/class/tty/ttyUSB0/device/latency_timer":                      "16",
		"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor":            "powersave",
		"/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor":            "powersave",
		"/sys/fs/cgroup/cpu.max":                                           "50000 100000",
		"/sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet",
		"/proc/sys/fs/file-max":                                            "9223372036854775807",
	})
}

func find(t *testing.T, all []Finding, name string) Finding {
	t.Helper()
	for _, f := range all {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("nothing is said of %s", name)
	return Finding{}
}

func TestExamine(t *testing.T) {
	k := poor(t)
	k.Ask.FIFO = func(priority int) error {
		if priority > 10 { // a reader's, and not a cell's
			return syscall.EPERM
		}
		return nil
	}
	k.Ask.Deadline = func() error { return syscall.EPERM }
	k.Ask.LockAll = func() error { return syscall.ENOMEM }
	k.Ask.Rings = func() (map[string]error, []string) {
		return map[string]error{"io_uring": errors.New("forbidden by seccomp")}, []string{"io_uring"}
	}
	k.Ask.Clock = func() (bool, error) { return false, nil }
	all := k.Examine()
	for name, want := range map[string]State{
		"clock synchronised": Poor,
		"io_uring":           Missing, "SCHED_FIFO": Good, "SCHED_FIFO 80": Missing, "SCHED_DEADLINE": Poor,
		"memory lock of 64 MiB": Good, "memory lock of a whole program": Missing, "perf events": Good,
		"transparent huge pages": Poor, "vm.swappiness": Poor, "ttyUSB0, latency timer": Poor,
		"frequency governor, cpu1": Poor, "CPU limit of the cgroup": Poor, "clock source": Poor, "open files": Good,
		"tracefs": Missing, "net.ipv4.tcp_max_syn_backlog": Unknown, "fs.file-max": Good,
	} {
		f := find(t, all, name)
		if f.State != want {
			t.Errorf("%s: %s (found %s), want %s", name, f.State, f.Found, want)
		}
		if f.Why == "" || f.Wanted == "" || f.Found == "" || (f.State == Poor || f.State == Missing) && f.How == "" {
			t.Errorf("%s: not all is said: %+v", name, f)
		}
		if f.State == Good && f.Fix != nil {
			t.Errorf("%s is good, and yet to be changed", name)
		}
	}
	if f := find(t, fake(t, map[string]string{"/proc/sys/vm/swappiness": "60", "/proc/swaps": "Filename"}).Examine(),
		"vm.swappiness"); f.State != Good {
		t.Errorf("without swap: %+v", f)
	}
}

// TestThisMachine: the real kernel can be asked, by whoever runs this.
func TestThisMachine(t *testing.T) {
	all := Kernel{}.Examine()
	if len(all) < 15 {
		t.Errorf("only %d findings", len(all))
	}
	for _, f := range all {
		if f.Area == "" || f.Name == "" || f.State == "" || f.Found == "" {
			t.Errorf("not all is said: %+v", f)
		}
	}
}

// put writes a file of a fake machine.
func put(t *testing.T, k Kernel, name, text string) {
	t.Helper()
	path := k.path(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
		os.WriteFile(path, []byte(text+"\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, k Kernel, path string) string {
	t.Helper()
	v, ok := k.read(path)
	if !ok {
		t.Fatalf("%s is gone", path)
	}
	return v
}

func TestFixAndUndo(t *testing.T) {
	k := poor(t)
	record := filepath.Join(t.TempDir(), "state", "doctor.json")
	fix, err := k.Prescribe(k.Examine(), record)
	if err != nil {
		t.Fatal(err)
	}
	if err := fix.Apply(); err != nil {
		t.Fatal(err)
	}
	const swappiness, governor, thp = "/proc/sys/vm/swappiness",
		"/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "/sys/kernel/mm/transparent_hugepage/enabled"
	if read(t, k, swappiness) != "10" || read(t, k, governor) != "performance" || read(t, k, thp) != "madvise" {
		t.Error("not everything was changed")
	}
	if _, err := k.Prescribe(k.Examine(), record); !errors.Is(err, ErrNothing) {
		t.Errorf("after it there is more to change: %v", err)
	}

	// Somebody sets one of them: that one stays as it is.
	if err := os.WriteFile(k.path(governor), []byte("schedutil\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	undo, err := k.Undo(record)
	if err != nil {
		t.Fatal(err)
	}
	skipped := 0
	for _, c := range undo.Changes {
		if c.Skip != "" {
			skipped++
			if c.Path != governor || !strings.Contains(c.Skip, "schedutil now") {
				t.Errorf("left alone: %+v", c)
			}
		}
	}
	if err := undo.Apply(); err != nil || skipped != 1 {
		t.Errorf("%d left alone, %v", skipped, err)
	}
	if read(t, k, swappiness) != "60" || read(t, k, governor) != "schedutil" || read(t, k, thp) != "always" {
		t.Error("not everything was put back")
	}
	if _, err := k.Undo(record); !errors.Is(err, ErrNothing) {
		t.Errorf("it can be undone twice: %v", err)
	}
	if _, err := os.Stat(record); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record is still there: %v", err)
	}
}

// TestFixTwiceKeepsTheFirstValue: what undo puts back is what was there before the doctor came.
func TestFixTwiceKeepsTheFirstValue(t *testing.T) {
	k := poor(t)
	record := filepath.Join(t.TempDir(), "doctor.json")
	apply := func() {
		fix, err := k.Prescribe(k.Examine(), record)
		if err != nil {
			t.Fatal(err)
		}
		if err := fix.Apply(); err != nil {
			t.Fatal(err)
		}
	}
	apply()
	const somaxconn = "/proc/sys/net/core/somaxconn"
	if err := os.WriteFile(k.path(somaxconn), []byte("64\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	apply()
	undo, err := k.Undo(record)
	if err != nil {
		t.Fatal(err)
	}
	if err := undo.Apply(); err != nil || read(t, k, somaxconn) != "128" {
		t.Errorf("put back to %s: %v", read(t, k, somaxconn), err)
	}
}

// What the doctor may change it also takes from its record.
func TestPrescribedSettingsAreTreated(t *testing.T) {
	k := poor(t)
	fix, err := k.Prescribe(k.Examine(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range fix.Changes {
		if err := c.check(); err != nil {
			t.Error(err)
		}
	}
}

// A record that no doctor has written is refused as a whole, and no other file is read for it.
func TestForeignRecords(t *testing.T) {
	const swappiness = "/proc/sys/vm/swappiness"
	for name, c := range map[string]Change{
		"another file":       {Path: "/etc/passwd", Old: "1", New: "root"},
		"a way out":          {Path: "/proc/sys/../../etc/passwd", Old: "1", New: "root"},
		"a way out of a tty": {Path: "/sys/class/tty/../device/latency_timer", Old: "1", New: "2"},
		"another setting":    {Path: "/proc/sys/kernel/core_pattern", Old: "|/tmp/program", New: "core"},
		"a long value":       {Path: swappiness, Old: strings.Repeat("9", 10_000), New: "10"},
		"two lines":          {Path: swappiness, Old: "60\n\x1b[2J", New: "10"},
	} {
		t.Run(name, func(t *testing.T) {
			k := poor(t)
			if err := os.MkdirAll(k.path("/etc"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(k.path("/etc/passwd"), []byte("root"), 0o644); err != nil {
				t.Fatal(err)
			}
			record := filepath.Join(t.TempDir(), "doctor.json")
			written := recordFile{Changes: []Change{{Path: swappiness, Old: "1", New: "60"}, c}}
			if err := written.write(record); err != nil {
				t.Fatal(err)
			}
			_, err := k.Undo(record)
			if err == nil || !strings.Contains(err.Error(), "nothing was changed") || len(err.Error()) > 400 ||
				strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("Undo: %v", err)
			}
			fix, err := k.Prescribe(k.Examine(), record)
			if err != nil {
				t.Fatal(err)
			}
			if err := fix.Apply(); err == nil || read(t, k, swappiness) != "60" {
				t.Errorf("Apply: %v", err)
			}
		})
	}
}

// The doctor is killed when it has written down what it will change: undo puts back what it had
// changed, and leaves the rest as it is.
func TestKilledBetween(t *testing.T) {
	for changed := range 3 {
		k := poor(t)
		record := filepath.Join(t.TempDir(), "doctor.json")
		fix, err := k.Prescribe(k.Examine(), record)
		if err != nil {
			t.Fatal(err)
		}
		var r recordFile
		for _, c := range fix.Changes {
			r.remember(c)
		}
		if err := r.write(record); err != nil {
			t.Fatal(err)
		}
		for _, c := range fix.Changes[:changed] {
			if err := k.write(c.Path, c.New); err != nil {
				t.Fatal(err)
			}
		}
		undo, err := k.Undo(record)
		if err != nil {
			t.Fatal(err)
		}
		skipped := 0
		for _, c := range undo.Changes {
			if c.Skip != "" {
				skipped++
				if !strings.HasSuffix(c.Skip, " already") {
					t.Errorf("left alone: %+v", c)
				}
			}
		}
		if err := undo.Apply(); err != nil || skipped != len(fix.Changes)-changed {
			t.Errorf("%d changed, %d left alone: %v", changed, skipped, err)
		}
		for _, c := range fix.Changes {
			if v := choice(read(t, k, c.Path)); v != c.Old {
				t.Errorf("%s is %s, not %s", c.Path, v, c.Old)
			}
		}
		if _, err := os.Stat(record); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the record is still there: %v", err)
		}
	}
}

// TestWhatCannotBeChanged: the rest is changed all the same, the error says which was not, and undo
// knows only of what was.
func TestWhatCannotBeChanged(t *testing.T) {
	k := poor(t)
	record := filepath.Join(t.TempDir(), "doctor.json")
	fix, err := k.Prescribe(k.Examine(), record)
	if err != nil {
		t.Fatal(err)
	}
	const stuck = "/proc/sys/vm/swappiness"
	// a folder cannot be written, by root neither
	if err := errors.Join(os.Remove(k.path(stuck)), os.Mkdir(k.path(stuck), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := fix.Apply(); err == nil || !strings.Contains(err.Error(), "swappiness") {
		t.Errorf("changed what cannot be: %v", err)
	}
	if got := read(t, k, "/proc/sys/net/core/somaxconn"); got != "4096" {
		t.Errorf("the rest was not changed: %s", got)
	}
	undo, err := k.Undo(record)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range undo.Changes {
		if c.Path == stuck {
			t.Error("undo would put back what was not changed")
		}
	}
}

// TestRecordFollowsNoLink: whoever else can write in the record's folder cannot have root write
// into another file. What was there beside the record stays, and nothing more.
func TestRecordFollowsNoLink(t *testing.T) {
	k := poor(t)
	dir := t.TempDir()
	record, other := filepath.Join(dir, "doctor.json"), filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink(other, record+".new"), os.Symlink(other+"2", record)); err != nil {
		t.Fatal(err)
	}
	fix, err := k.Prescribe(k.Examine(), record)
	if err != nil {
		t.Fatal(err)
	}
	if err := fix.Apply(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(other); err != nil || string(b) != "precious" {
		t.Errorf("the other file is %q: %v", b, err)
	}
	if _, err := os.Lstat(other + "2"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record was written through a link: %v", err)
	}
	if st, err := os.Lstat(record); err != nil || !st.Mode().IsRegular() || st.Mode().Perm()&^0o644 != 0 {
		t.Errorf("the record: %v, %v", st.Mode(), err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 2 {
		t.Errorf("in the record's folder are %v: %v", all, err)
	}
}

// TestRecordComesFirst: if the old values cannot be written down, nothing is changed.
func TestRecordComesFirst(t *testing.T) {
	k := poor(t)
	dir := filepath.Join(t.TempDir(), "dir")
	record := filepath.Join(dir, "doctor.json")
	if err := os.Symlink("nowhere", dir); err != nil { // there is no record, and none can be made
		t.Fatal(err)
	}
	fix, err := k.Prescribe(k.Examine(), record)
	if err != nil {
		t.Fatal(err)
	}
	if err := fix.Apply(); err == nil {
		t.Error("it was written down in a folder that is not there")
	}
	if got := read(t, k, "/proc/sys/vm/swappiness"); got != "60" {
		t.Errorf("changed to %s without a record", got)
	}
}
