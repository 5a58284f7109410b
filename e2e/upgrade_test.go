package e2e

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// pretend is what this program does in place of recorder or reader, as a file beside it says. What
// hangs, ends by itself, should nobody kill it.
func pretend(role isolate.Role) {
	own, err := os.Executable()
	if err != nil {
		panic(err)
	}
	b, err := os.ReadFile(own + ".mode")
	if err != nil {
		panic(err)
	}
	mode, real, _ := strings.Cut(string(b), " ")
	if mode == "late-reader" && role == isolate.Recorder {
		panic(syscall.Exec(real, append([]string{real}, os.Args[1:]...), os.Environ()))
	}
	if mode != "hangs" {
		link, err := isolate.Inherit()
		if err == nil {
			_, _, err = link.Prepare()
		}
		if err == nil {
			err = link.Prepared()
		}
		if err == nil {
			_, err = link.Shelf()
		}
		if err != nil || mode == "dies" {
			os.Exit(1)
		}
	}
	time.Sleep(time.Minute)
}

// upgrading is an isolated recorder whose program is replaced.
type upgrading struct {
	*recorder
	dir, program string
}

func startUpgrading(t *testing.T, dir, sources string) *upgrading {
	t.Helper()
	u := &upgrading{dir: dir, program: filepath.Join(dir, "bin", "tallywheel")}
	if err := os.Mkdir(filepath.Dir(u.program), 0o700); err != nil {
		t.Fatal(err)
	}
	u.replace(t, testenv.Binary(t))
	u.recorder = startProgram(t, []string{u.program}, dir, sources+"isolate: process\n")
	return u
}

// replace puts a copy of a program in the place of the recorder's.
func (u *upgrading) replace(t *testing.T, by string) {
	t.Helper()
	b, err := os.ReadFile(by)
	if err == nil {
		err = os.WriteFile(u.program+".new", b, 0o700)
	}
	if err == nil {
		err = os.Rename(u.program+".new", u.program)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// change changes a text of the configuration.
func (u *upgrading) change(t *testing.T, from, to string) {
	t.Helper()
	file := filepath.Join(u.dir, "tallywheel.yaml")
	b, err := os.ReadFile(file)
	if err == nil && !strings.Contains(string(b), from) {
		err = fmt.Errorf("%q is not in %s", from, b)
	}
	if err == nil {
		err = os.WriteFile(file, []byte(strings.Replace(string(b), from, to, 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// upgrade runs `tallywheel upgrade` and returns what it says, and whether it went.
func (u *upgrading) upgrade(t *testing.T) (said string, ok bool) {
	t.Helper()
	p := testenv.Start(t, testenv.Binary(t), "upgrade", "-c", filepath.Join(u.dir, "tallywheel.yaml"))
	err := p.Cmd.Wait()
	return p.Out.String() + p.Err.String(), err == nil
}

// runs waits until the process of a role is one of the program that lies there now, or of another
// one. It is to be the process with that number, or any other than the one with its negative; 0:
// any.
func (u *upgrading) runs(t *testing.T, role isolate.Role, isNew bool, number int) {
	t.Helper()
	lies, err := os.Stat(u.program)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, time.Minute, fmt.Sprintf("the %s is of the right program", role), func() bool {
		pid := u.process(t, role, 0).PID
		is, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
		return err == nil && os.SameFile(is, lies) == isNew && (number <= 0 || pid == number) && pid != -number
	})
}

// ask asks the API again and again, until stop is called: no request may fail.
func (r *recorder) ask(t *testing.T, client *http.Client) (stop func()) {
	done, url := make(chan struct{}), r.url+"api/v1/ports"
	var all sync.WaitGroup
	all.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				t.Logf("%d requests were answered", n)
				return
			default:
			}
			resp, err := client.Get(url)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("request %d: %v, %+v", n, err, resp)
				return
			}
		}
	})
	return sync.OnceFunc(func() { close(done); all.Wait() })
}

// askByTwo is ask by a client that keeps its connection, and one that does not.
func (r *recorder) askByTwo(t *testing.T) (stop func()) {
	keeps := r.ask(t, &http.Client{Timeout: 2 * time.Minute})
	closes := r.ask(t, &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true}})
	return func() { keeps(); closes() }
}

// upgradeToItself replaces the program by another copy of it, and all processes by those of that.
// The keeper keeps its number.
func (u *upgrading) upgradeToItself(t *testing.T) {
	t.Helper()
	keeper := u.process(t, isolate.Keeper, 0)
	u.replace(t, testenv.Binary(t))
	said, ok := u.upgrade(t)
	// a machine that is busy with something else
	for ; !ok && strings.Contains(said, "within 2s"); said, ok = u.upgrade(t) {
		t.Logf("once more: %s", said)
	}
	if !ok {
		t.Fatalf("the upgrade did not go: %s", said)
	}
	u.runs(t, isolate.Recorder, true, 0)
	u.runs(t, isolate.Reader, true, 0)
	u.runs(t, isolate.Keeper, true, keeper.PID)
}

// reload changes the configuration, and returns once another process of a role works with that.
func (u *upgrading) reload(t *testing.T, from, to string, role isolate.Role) {
	t.Helper()
	before := u.process(t, role, 0)
	u.change(t, from, to)
	_ = u.Cmd.Process.Signal(syscall.SIGHUP)
	u.process(t, role, before.PID)
}

var upgrades = flag.Int("upgrades", 1, "how often an isolated recorder is upgraded, and reloaded three times each")

// TestIsolatedUpgrades replaces recorder and reader under load, by new programs and for changed
// configurations, also by programs that do not work. Each frame is stored once, and none is
// missing; no request fails.
func TestIsolatedUpgrades(t *testing.T) {
	dir := t.TempDir()
	l, sources := startLines(t, dir, 400_000, 11_520)
	u := startUpgrading(t, dir, sources)
	stopAsking := u.askByTwo(t)
	defer func() { stopAsking() }()
	for n := range *upgrades {
		u.upgradeToItself(t)
		sizes := []string{"segment: 4MiB", "segment: 2MiB"}
		u.reload(t, sizes[n%2], sizes[1-n%2], isolate.Recorder)
		for line, role := range map[string]isolate.Role{
			"server: {loops: 2}\n":       isolate.Recorder,
			"read: {mode: throughput}\n": isolate.Reader,
		} {
			if n%2 == 0 {
				u.reload(t, "sources:", line+"sources:", role)
			} else {
				u.reload(t, line, "", role)
			}
		}
	}
	if got := u.process(t, isolate.Recorder, 0); got.Restarts != 0 {
		t.Errorf("the recorder counts %d crashes", got.Restarts)
	}
	upgradeToAPipe(t, u)
	failUpgrades(t, u)
	u.upgradeToItself(t)
	stopAsking()                                  // what a process is asked that is killed, nobody answers
	recorder := u.process(t, isolate.Recorder, 0) // a keeper that has taken over starts it again
	if err := syscall.Kill(recorder.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if p := u.process(t, isolate.Recorder, recorder.PID); p.Restarts != recorder.Restarts+1 {
		t.Errorf("the first answer of the next recorder tells %d crashes: want %d", p.Restarts, recorder.Restarts+1)
	}
	stopAsking = u.askByTwo(t)
	u.upgradeToItself(t)
	stopAsking()
	l.drain(t)
	s := u.stop(t)
	verifyLog(t, dir)
	var made uint64
	for i, p := range s.Ports {
		made += l.devices[i].Truth.Made
		if f := p.Frames; f.Stored != l.devices[i].Truth.Made || f.Missing+f.Duplicate+f.Corrupt > 0 ||
			p.Unread["reader_killed"] > 0 {
			t.Errorf("%s: %d frames made, %+v; unread %v", p.ID, l.devices[i].Truth.Made, f, p.Unread)
		}
		for _, o := range p.Outages {
			if !strings.Contains(o.Cause, "was restarted") {
				t.Errorf("%s: an outage of %q", p.ID, o.Cause)
			}
		}
	}
	if stored := storedOnce(t, filepath.Join(dir, "data")); stored != made {
		t.Errorf("%d frames are in the log, %d were made", stored, made)
	}
}

// upgradeToAPipe upgrades to what is no program at all, and would keep waiting whoever opens it.
func upgradeToAPipe(t *testing.T, u *upgrading) {
	t.Helper()
	before := u.process(t, isolate.Recorder, 0)
	pipe := u.program + ".pipe"
	if err := errors.Join(syscall.Mkfifo(pipe, 0o700), os.Rename(pipe, u.program)); err != nil {
		t.Fatal(err)
	}
	if said, ok := u.upgrade(t); ok || !strings.Contains(said, "is no ordinary file: move it away") {
		t.Errorf("a pipe: `upgrade` says %q", said)
	}
	u.runs(t, isolate.Recorder, false, before.PID)
}

// failUpgrades upgrades to programs that do not work: the one before goes on.
func failUpgrades(t *testing.T, u *upgrading) {
	t.Helper()
	none, err := exec.LookPath("false")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(u.dir, "text")
	if err := os.WriteFile(text, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, program, mode, says string
		stays                     bool // the process of before goes on
		role                      isolate.Role
	}{
		{"no program", text, "", "exec format error; the old one goes on", true, isolate.Recorder},
		{"it ends at once", none, "", "exit status 1; the old one goes on", true, isolate.Recorder},
		{"it hangs", own, "hangs", "is not ready within 10s; the old one goes on", true, isolate.Recorder},
		{"it does not record", own, "late", "within 2s; the old program is started again", false, isolate.Recorder},
		{
			"it dies as it begins", own, "dies", "exit status 1; the old program is started again", false,
			isolate.Recorder,
		},
		{
			"its reader does not read", own, "late-reader " + testenv.Binary(t),
			"within 2s; the old program is started again", false, isolate.Reader,
		},
	} {
		before := u.process(t, c.role, 0)
		u.replace(t, c.program)
		if err := os.WriteFile(u.program+".mode", []byte(c.mode), 0o600); err != nil {
			t.Fatal(err)
		}
		said, ok := u.upgrade(t)
		if ok || !strings.Contains(said, c.says) {
			t.Errorf("%s: `upgrade` says %q, want %q", c.what, said, c.says)
		}
		number := before.PID
		if !c.stays {
			number = -number
		}
		u.runs(t, c.role, false, number)
	}
}

// TestIsolatedReloadsThatFail changes the configuration to what a recorder cannot go on with: the
// one that is there goes on, and so does the one behind a kill of it, with what it was.
func TestIsolatedReloadsThatFail(t *testing.T) {
	dir := t.TempDir()
	l, sources := startLines(t, dir, 11_520)
	u := startUpgrading(t, dir, sources)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct{ from, to, says string }{
		{"/data, segment", "/elsewhere, segment", "log.dir has changed"},
		{"127.0.0.1:0", taken.Addr().String(), "address already in use"},
		{"isolate: process", "isolate: none", "isolate has changed"},
		{"segment: 4MiB", "segment: 4MiB, nonsense: 1", "nonsense"},
	} {
		before := u.process(t, isolate.Recorder, 0)
		u.change(t, c.from, c.to)
		_ = u.Cmd.Process.Signal(syscall.SIGHUP)
		testenv.Until(t, time.Minute, c.says, func() bool { return strings.Contains(u.Err.String(), c.says) })
		if after := u.process(t, isolate.Recorder, 0); after.PID != before.PID {
			t.Errorf("%s: the recorder is another process", c.says)
		}
		_ = syscall.Kill(before.PID, syscall.SIGKILL)
		u.process(t, isolate.Recorder, before.PID)
		u.change(t, c.to, c.from)
	}
	file, aside := filepath.Join(dir, "tallywheel.yaml"), filepath.Join(dir, "aside")
	if err := errors.Join(os.Rename(file, aside), syscall.Mkfifo(file, 0o600)); err != nil {
		t.Fatal(err)
	}
	before := u.process(t, isolate.Recorder, 0)
	_ = syscall.Kill(before.PID, syscall.SIGKILL)
	u.process(t, isolate.Recorder, before.PID) // it does not wait for who writes into that pipe
	if err := os.Rename(aside, file); err != nil {
		t.Fatal(err)
	}
	l.drain(t)
	s := u.stop(t)
	if p := s.Ports[0]; p.Frames.Stored != l.devices[0].Truth.Made || p.OutageCount != 0 {
		t.Errorf("%d frames made, %+v, outages %+v", l.devices[0].Truth.Made, p.Frames, p.Outages)
	}
}
