package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// service is a recorder that a systemd of its own runs, as `systemd --user` does it, in namespaces
// that take all of it with them.
type service struct {
	*recorder
	dir, unit, runtime string
	inside             int // a process in the namespaces
}

// startService starts systemd, and under it a recorder of the sources, by what the unit in deploy/
// says of the descriptor store. limit is FileDescriptorStoreMax; "": what the unit has.
func startService(t *testing.T, dir, sources, limit string) *service {
	t.Helper()
	const manager = "/lib/systemd/systemd"
	s := &service{
		dir: dir, unit: fmt.Sprintf("tallywheel-%d.service", os.Getpid()),
		runtime: filepath.Join(dir, "runtime"),
	}
	err := error(nil)
	for _, name := range []string{manager, "systemctl", "unshare", "nsenter"} {
		if _, lookErr := exec.LookPath(name); lookErr != nil {
			err = lookErr
		}
	}
	if os.Geteuid() != 0 || err != nil {
		t.Skipf("SKIPPED: user %d, %v; needs root for namespaces, and systemd: apt-get install systemd", os.Geteuid(),
			err)
	}
	home := filepath.Join(dir, "home")
	for _, d := range []string{s.runtime, filepath.Join(home, "systemd", "user")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(dir, "tallywheel.yaml")
	text := fmt.Sprintf("log: {dir: %s/data, segment: 4MiB}\napi: {listen: 127.0.0.1:0}\nisolate: process\nsources:\n%s", dir, sources)
	unit := s.unitText(t, testenv.Binary(t)+" run --json -c "+config, limit)
	for file, text := range map[string]string{config: text, filepath.Join(home, "systemd", "user", s.unit): unit} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := fmt.Sprintf("mount --make-rprivate / && mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && "+
		"XDG_RUNTIME_DIR=%s XDG_CONFIG_HOME=%s %s --user --unit=basic.target; exit 1", s.runtime, home, manager)
	p := testenv.Start(t, "unshare", "-m", "--pid", "--fork", "--kill-child", "--mount-proc", "--", "sh", "-c", script)
	s.recorder = &recorder{Process: &testenv.Process{Out: &testenv.Buffer{}, Err: &testenv.Buffer{}}}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) { // until it answers
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.Cmd.Process.Pid))
		s.inside, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		if _, err := s.ask("show-environment"); err == nil {
			break
		} else if time.Now().After(end) {
			t.Skipf("SKIPPED: systemd --user does not answer: %v; it says %.500s; needs namespaces and a cgroup to write to", err, p.Err)
		}
	}
	t.Cleanup(func() {
		_, _ = s.ask("stop", s.unit) // a kill of the namespace follows
		if t.Failed() {
			said := s.journal()
			t.Logf("the recorder said, at the end:\n%s\nsystemd: %s", said[max(0, len(said)-4000):], p.Err)
		}
	})
	s.systemctl(t, "start", s.unit)
	s.listens(t, 0)
	if limit == "" {
		s.keeps(t, 1)
	}
	return s
}

// unitText is what the unit in deploy/ says of starting again and of the store.
func (s *service) unitText(t *testing.T, start, limit string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "deploy", "tallywheel.service"))
	if err != nil {
		t.Fatal(err)
	}
	text := "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=" + start + "\n"
	for _, key := range []string{
		"Type", "NotifyAccess", "FileDescriptorStoreMax", "Restart", "RestartSec",
		"TimeoutStopSec",
	} {
		at := strings.Index(string(b), "\n"+key+"=")
		if at < 0 {
			t.Fatalf("the unit in deploy/ has no %s=", key)
		}
		line, _, _ := strings.Cut(string(b[at+1:]), "\n")
		if key == "FileDescriptorStoreMax" && limit != "" {
			line = key + "=" + limit
		}
		text += line + "\n"
	}
	return text + "StandardOutput=append:" + s.dir + "/out\nStandardError=append:" + s.dir + "/err\n"
}

func (s *service) ask(args ...string) (string, error) {
	enter := []string{
		"-t", strconv.Itoa(s.inside), "-m", "-p", "env", "XDG_RUNTIME_DIR=" + s.runtime, "systemctl",
		"--user",
	}
	out, err := exec.Command("nsenter", append(enter, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("systemctl %v: %w: %s", args, err, out)
	}
	return strings.TrimSpace(string(out)), err
}

func (s *service) systemctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.ask(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// freeze stops a process of the service, whose number is one of its namespace, and returns once
// none of its threads runs.
func (s *service) freeze(t *testing.T, pid int) {
	t.Helper()
	s.shell(t, fmt.Sprintf("kill -STOP %d && while grep -L '^State:.T' /proc/%[1]d/task/*/status | grep -q .; do sleep 0.05; done", pid))
}

// shell runs a script in the namespaces, for a minute at most.
func (s *service) shell(t *testing.T, script string) {
	t.Helper()
	out, err := exec.Command("nsenter", "-t", strconv.Itoa(s.inside), "-m", "-p", "timeout", "60", "sh", "-c",
		script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// stored is how many descriptors systemd has.
func (s *service) stored(t *testing.T) string {
	t.Helper()
	return s.systemctl(t, "show", "--value", "-p", "NFileDescriptorStore", s.unit)
}

// keeps returns once systemd keeps descriptors, of so many starts that have found none there.
func (s *service) keeps(t *testing.T, starts int) {
	t.Helper()
	testenv.Until(t, time.Minute, "systemd keeps descriptors", func() bool {
		return strings.Count(s.journal(), "systemd keeps what is open") == starts
	})
}

func (s *service) journal() string {
	b, _ := os.ReadFile(filepath.Join(s.dir, "err"))
	return string(b)
}

// listens finds where the API is, of processes whose keeper is not the one of that number.
func (s *service) listens(t *testing.T, not int) (keeper int) {
	t.Helper()
	testenv.Until(t, 30*time.Second, "the recorder serves", func() bool {
		all := pageURL.FindAllStringSubmatch(s.journal(), -1)
		if all == nil {
			return false
		}
		s.url = all[len(all)-1][1]
		var status struct{ Processes []isolate.Process }
		if !s.get("api/v1/status", &status) {
			return false
		}
		at := slices.IndexFunc(status.Processes, func(p isolate.Process) bool { return p.Role == isolate.Keeper })
		if at < 0 {
			return false
		}
		keeper = status.Processes[at].PID
		return keeper != not
	})
	return keeper
}

// again has systemd restart the service, or start it again behind a kill of the keeper ("main") or
// of all three ("all"), and returns once it records.
func (s *service) again(t *testing.T, how string) {
	t.Helper()
	before := s.listens(t, 0)
	if how == "restart" {
		s.systemctl(t, "restart", s.unit)
	} else {
		s.systemctl(t, "kill", "--signal=KILL", "--kill-who="+how, s.unit)
	}
	s.listens(t, before)
}

// lastSheet is the one that the last process has printed.
func (s *service) lastSheet(t *testing.T) (last ledger.Sheet) {
	t.Helper()
	f, err := os.Open(filepath.Join(s.dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for d := json.NewDecoder(f); ; {
		var sheet ledger.Sheet
		if err := d.Decode(&sheet); err == io.EOF {
			return last
		} else if err != nil {
			t.Fatal(err)
		}
		last = sheet
	}
}

// TestSystemdRestarts restarts a service of systemd under load, and kills its keeper. Nothing is
// lost, no connection ends, and the start goes on.
func TestSystemdRestarts(t *testing.T) {
	dir := t.TempDir()
	l, sources := startLines(t, dir, 400_000, 11_520)
	n, more := newNetwork(t)
	s := startService(t, dir, more+sources, "")
	testenv.Until(t, time.Minute, "datagrams are read",
		func() bool { return s.sheet(t).Ports[0].State == ledger.StateOpen })
	n.begin()
	since := s.sheet(t).Since
	for i := range 6 {
		before := s.sheet(t)
		testenv.Until(t, time.Minute, "all sources have sent more", func() bool {
			var now ledger.Sheet
			return s.get("api/v1/sheet", &now) && !slices.ContainsFunc(now.Ports, func(p ledger.Port) bool {
				at := slices.IndexFunc(before.Ports, func(q ledger.Port) bool { return q.ID == p.ID })
				return p.Frames.Stored < before.Ports[at].Frames.Stored+50
			})
		})
		s.again(t, []string{"main", "restart"}[i%2])
	}
	l.drain(t)
	n.drain(t, s.recorder)
	s.systemctl(t, "stop", s.unit)
	sheet := s.lastSheet(t)
	verifyLog(t, dir)
	made := map[string]uint64{}
	var all uint64 // but for datagrams that the kernel had no room for
	for i, d := range l.devices {
		made[fmt.Sprintf("line-%d", i+1)] = d.Truth.Made
	}
	for _, k := range n.talkers {
		made[k.id] = k.made.Load()
	}
	var gaps []time.Duration
	for _, p := range sheet.Ports {
		lost := dropped(p)
		all += made[p.ID] - lost
		if p.Frames.Stored+lost != made[p.ID] || p.Frames.Missing > lost || p.Frames.Duplicate > 0 ||
			lost > 0 && p.ID != "udp" {
			t.Errorf("%s: %d frames made, %d stored, %d missing, %d twice; unread %v", p.ID, made[p.ID],
				p.Frames.Stored, p.Frames.Missing, p.Frames.Duplicate, p.Unread)
		}
		for _, o := range p.Outages {
			if strings.Contains(o.Cause, "connect") { // before the first connection
				continue
			}
			if !strings.Contains(o.Cause, "restarted") || o.To == 0 {
				t.Errorf("%s: an outage %+v", p.ID, o)
			}
			gaps = append(gaps, time.Duration(o.To-o.From))
		}
	}
	if stored := storedOnce(t, filepath.Join(dir, "data")); stored != all {
		t.Errorf("%d frames are in the log, and %d were made", stored, all)
	}
	if slices.Sort(gaps); len(gaps) < 6*len(sheet.Ports) || sheet.Since != since || !sheet.Balanced {
		t.Errorf("%d outages of %d sources; it began at %v, and now at %v", len(gaps), len(sheet.Ports), since,
			sheet.Since)
		return
	}
	t.Logf("%d frames; %d gaps of %v to %v, half of them below %v", all, len(gaps), gaps[0], gaps[len(gaps)-1],
		gaps[len(gaps)/2])
}

// TestSystemdStops: behind a stop the store is empty, and the next start is one behind an ordered
// end.
func TestSystemdStops(t *testing.T) {
	dir := t.TempDir()
	l, sources := startLines(t, dir, 11_520)
	s := startService(t, dir, sources, "")
	stored := func() bool { return s.sheet(t).Ports[0].Frames.Stored > 10 }
	testenv.Until(t, time.Minute, "frames are stored", stored)
	s.again(t, "restart")
	first := s.sheet(t).Since
	s.systemctl(t, "stop", s.unit)
	if n := s.stored(t); n != "0" {
		t.Errorf("behind a stop systemd has %s descriptors", n)
	}
	s.systemctl(t, "start", s.unit)
	s.listens(t, 0)
	s.keeps(t, 2)
	testenv.Until(t, time.Minute, "frames are stored", stored)
	l.drain(t)
	s.systemctl(t, "stop", s.unit)
	sheet := s.lastSheet(t)
	p := sheet.Ports[0]
	if sheet.Since == first || len(p.Outages) != 1 ||
		!strings.HasPrefix(p.Outages[0].Cause, "the recorder was not running") || p.Frames.Duplicate > 0 {
		t.Errorf("the start behind a stop: %+v, outages %+v", p.Frames, p.Outages)
	}
	if strings.Contains(s.journal(), "left no end") {
		t.Error("the next start takes a stop for a kill")
	}
	left, err := archive.LoadStart(filepath.Join(dir, "data"), slog.New(slog.DiscardHandler))
	if err != nil || left.End != "" || left.Left == "" {
		t.Errorf("the sheet on disk: %+v, %v", left, err)
	}
	if got := storedOnce(t, filepath.Join(dir, "data")); got+p.Frames.Missing != l.devices[0].Truth.Made {
		t.Errorf("%d frames are in the log, %d are missing, %d were made", got, p.Frames.Missing,
			l.devices[0].Truth.Made)
	}
}

// TestSystemdStoreIsFull: with a store that is too small the recorder goes on as without one.
func TestSystemdStoreIsFull(t *testing.T) {
	dir := t.TempDir()
	l, sources := startLines(t, dir, 11_520, 11_520, 11_520)
	s := startService(t, dir, sources, "4")
	testenv.Until(t, time.Minute, "the journal says so",
		func() bool { return strings.Contains(s.journal(), "raise FileDescriptorStoreMax=") })
	testenv.Until(t, time.Minute, "frames are stored", func() bool { return s.sheet(t).Ports[2].Frames.Stored > 10 })
	if n := s.stored(t); n != "0" {
		t.Errorf("systemd has %s descriptors", n)
	}
	s.again(t, "restart")
	l.drain(t)
	s.systemctl(t, "stop", s.unit)
	for i, p := range s.lastSheet(t).Ports {
		if len(p.Outages) != 1 || !strings.HasPrefix(p.Outages[0].Cause, "the recorder was not running") ||
			p.Frames.Duplicate > 0 {
			t.Errorf("line %d: %+v, outages %+v", i, p.Frames, p.Outages)
		}
	}
}
