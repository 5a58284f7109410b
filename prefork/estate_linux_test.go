package prefork

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// freeAddress is one that somebody had a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// TestMasterIsRenewed: the master becomes the new program again and again while many ask. Its
// process, sockets, workers and counts stay; nobody is turned away, of the master's own address
// neither.
func TestMasterIsRenewed(t *testing.T) {
	t.Parallel()
	path, own := filepath.Join(t.TempDir(), "server"), freeAddress(t)
	install(t, path, "0")
	r := start(t, appConfig{Config: Config{
		Listen: anyPort, MasterListen: []string{own}, Workers: 2, Path: path, BackOff: time.Millisecond, Intensity: 100,
		StartFor: patience, LameDuck: patience / 2, DrainFor: patience,
	}}, nil)
	l := &load{addr: r.addr}
	l.begin(4, true, "?for=1ms")
	l.begin(4, false, "?for=1ms")
	answered := uint64(0)
	for i := 1; i <= 3; i++ {
		want := strconv.Itoa(i)
		install(t, path, want)
		if got := r.do("upgrade"); got != "<nil>" {
			t.Fatal(got)
		}
		before := r.status()
		if got := r.do("renew"); got != r.addr {
			t.Fatalf("renewal %d: it says %q, not that it serves %s", i, got, r.addr)
		}
		if m, err := ask("http://" + own); err != nil || m.PID != r.cmd.Process.Pid || m.Version != want ||
			m.Left != "" {
			t.Errorf("the master is %+v: %v; want process %d, version %s", m, err, r.cmd.Process.Pid, want)
		}
		for slot, st := range r.status() {
			if st.PID != before[slot].PID || st.Answered < before[slot].Answered {
				t.Errorf("slot %d: %+v; before: %+v", slot, st, before[slot])
			}
			if answered += st.Answered; st.Answered == 0 {
				t.Errorf("slot %d has answered nothing", slot)
			}
		}
		if got := r.do("renew"); !strings.Contains(got, "is older than the master; restart or upgrade the workers") {
			t.Errorf("a second renewal of the same workers: %q", got)
		}
		victim := r.status()[0].PID // that was another program's child
		if i == 3 {
			good, bad := l.end()
			t.Logf("%d requests over 3 upgrades and renewals: %d failed", good, bad)
			if bad > 0 || good == 0 {
				t.Errorf("%d of %d requests failed: %v", bad, good+bad, l.errs)
			}
			if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			testenv.Until(t, patience, "a successor", func() bool {
				pid := r.status()[0].PID
				return pid != 0 && pid != victim
			})
		}
	}
	if _, zombies := childrenOf(t, r.cmd.Process.Pid); len(zombies) > 0 {
		t.Errorf("zombies: %v", zombies)
	}
	workers := r.status()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-r.waited
	if r.waitErr != nil || strings.Contains(r.said.String(), "did not end in time") {
		t.Errorf("it ended with %v: %s", r.waitErr, r.said)
	}
	for _, st := range workers {
		if !ended(st.PID) {
			t.Errorf("worker %d is left", st.PID)
		}
	}
}

// TestSignalRenews: SIGUSR2 brings the master, too.
func TestSignalRenews(t *testing.T) {
	t.Parallel()
	path, own := filepath.Join(t.TempDir(), "server"), freeAddress(t)
	install(t, path, "0")
	r := start(t, appConfig{Config: Config{
		Listen: anyPort, MasterListen: []string{own}, Workers: 1, Path: path,
		StartFor: patience,
	}}, nil)
	install(t, path, "1")
	for range 2 { // the second one may come in the middle of it
		if err := r.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
	}
	if line := r.line(); line != r.addr {
		t.Errorf("it says %q, not that it serves %s", line, r.addr)
	}
	if m, err := ask("http://" + own); err != nil || m.Version != "1" || m.PID != r.cmd.Process.Pid {
		t.Errorf("the master is %+v: %v", m, err)
	}
}

// TestEndBeforeRenewal: a master that is asked to end when it is about to become another program
// ends, and its workers with it.
func TestEndBeforeRenewal(t *testing.T) {
	t.Parallel()
	r := start(t, appConfig{Ends: true, Config: Config{Listen: anyPort, Workers: 2, StartFor: patience}}, nil)
	workers := r.status()
	if got := r.do("renew"); got != "" && got != "prefork: the master ends" {
		t.Errorf("it says %q", got)
	}
	r.wait()
	if r.waitErr != nil {
		t.Errorf("ended with %v: %s", r.waitErr, r.said)
	}
	for _, w := range workers {
		if !ended(w.PID) {
			t.Errorf("worker %d is still there", w.Slot)
		}
	}
}

// TestRehearsal: a program that could not be the master is found out before it is, and before any
// worker is replaced.
func TestRehearsal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "server")
	install(t, path, "0")
	r := start(t, appConfig{Config: Config{Listen: anyPort, Workers: 2, Path: path, StartFor: patience}}, nil)
	before := r.status()
	install(t, path, "more workers")
	if got := r.do("upgrade"); !strings.Contains(got,
		"rehearses to be the master: exit status 1; the old workers go on") {
		t.Errorf("%q; it said: %s", got, r.said)
	}
	testenv.Until(t, patience, "the new program's own words", func() bool {
		return strings.Contains(r.said.String(), "an upgrade keeps the workers: 2 (shared false), not 3")
	})
	for slot, st := range r.status() {
		if st.PID != before[slot].PID {
			t.Errorf("slot %d has another worker", slot)
		}
	}
}

// TestRehearsalEndsEarly: what ended a rehearsal is told, the time only if it was up.
func TestRehearsalEndsEarly(t *testing.T) {
	t.Parallel()
	over, end := context.WithCancel(t.Context())
	end()
	for want, c := range map[string]struct {
		life, asks context.Context
		startFor   time.Duration
	}{
		"it did not within 1ns": {t.Context(), t.Context(), time.Nanosecond},
		"the master ends":       {over, t.Context(), patience},
		"context canceled":      {t.Context(), over, patience},
	} {
		m := &Master{cfg: Config{StartFor: c.startFor}, life: c.life, starter: sys.NewStarter()}
		ctx, cancel := m.within(c.asks)
		err := m.rehearse(ctx, &program{path: filepath.Join(t.TempDir(), "none")})
		m.starter.Close()
		cancel()
		if want = "prefork: the new program rehearses to be the master: " + want; fmt.Sprint(err) != want {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

// TestEstateOfAnother: what a master of another kind leaves is refused.
func TestEstateOfAnother(t *testing.T) {
	cfg := Config{Listen: anyPort, Workers: 2}
	good := estate{Version: estateVersion, Listen: anyPort, Workers: 2}
	if err := good.fits(&cfg); err != nil {
		t.Error(err)
	}
	for name, e := range map[string]estate{
		"version 2": {Version: 2, Listen: anyPort, Workers: 2},
		"addresses": {Version: estateVersion, Listen: []string{"127.0.0.1:1"}, Workers: 2},
		"shared":    {Version: estateVersion, Listen: anyPort, Workers: 2, Shared: true},
	} {
		if err := e.fits(&cfg); err == nil || !strings.Contains(err.Error(), "restart it") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{"", "x", "2", rehearsal, fmt.Sprint(1 << 40)} {
		t.Setenv(estateVariable, text)
		if _, _, err := inheritedEstate(&cfg); err == nil {
			t.Errorf("%s=%q is taken", estateVariable, text)
		}
		if _, left := os.LookupEnv(estateVariable); left {
			t.Error("the variable is still there")
		}
	}
}
