package prefork

import (
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// keeper is a client that keeps its connection.
func keeper(t *testing.T) *http.Client {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: time.Minute}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// wait waits until the server has ended.
func (r *running) wait() {
	r.t.Helper()
	select {
	case <-r.waited:
	case <-time.After(patience):
		r.t.Fatalf("the server does not end; it said: %s", r.said)
	}
}

// TestSecondSignalKills: a master that drains ends at once when it is asked a second time, and
// nothing is left behind.
func TestSecondSignalKills(t *testing.T) {
	t.Parallel()
	helper := strconv.Itoa(1_500_000_000 + syscall.Getpid())
	r := start(t, appConfig{Helper: helper, Config: Config{
		Listen: anyPort, Workers: 2, StartFor: patience, LameDuck: time.Hour, DrainFor: 2 * time.Hour,
	}}, nil)
	workers := r.status()
	held, err := http.Get("http://" + r.addr + "/?hold")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Body.Close()
	keeps := keeper(t)
	asked := func() (draining bool) {
		answer, err := keeps.Get("http://" + r.addr)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, answer.Body) // else the connection is closed
		if err = errors.Join(err, answer.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return answer.Close
	}
	if asked() {
		t.Fatal("a worker drains before it is asked to")
	}
	term := func() {
		t.Helper()
		if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	term()
	testenv.Until(t, patience, "the worker drains", asked)
	term()
	r.wait()
	if rest, err := io.ReadAll(held.Body); err == nil {
		t.Errorf("a request that was under way was answered, with %q", rest)
	}
	if said := r.said.String(); r.waitErr != nil || !strings.Contains(said, "asked to end a second time") ||
		strings.Contains(said, "did not end in time") {
		t.Errorf("it ended with %v, and said: %s", r.waitErr, said)
	}
	for _, st := range workers {
		if !ended(st.PID) {
			t.Errorf("worker %d is left", st.PID)
		}
	}
	if n := helpers(helper); n > 0 {
		t.Errorf("%d programs that workers have started are left", n)
	}
	ln, err := net.Listen("tcp", r.addr)
	if err != nil {
		t.Fatalf("somebody still listens: %v", err)
	}
	_ = ln.Close()
}

// TestSecondMasterRefuses: one that is started where another serves says what to do and ends. It
// starts no worker, and nobody who is connected notices.
func TestSecondMasterRefuses(t *testing.T) {
	t.Parallel()
	own := freeAddress(t)
	for name, c := range map[string]Config{
		"hash":   {Workers: 2},
		"shared": {Workers: 2, Shared: true},
		"own":    {Workers: 2, MasterListen: []string{own}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.Listen, c.StartFor = anyPort, patience
			first := start(t, appConfig{Config: c}, nil)
			pids := map[int]bool{}
			for _, st := range first.status() {
				pids[st.PID] = true
			}
			keeps := keeper(t)
			by := func() int { // the worker that a kept connection is at
				t.Helper()
				a, err := askBy(keeps, "http://"+first.addr)
				if err != nil {
					t.Fatal(err)
				}
				return a.PID
			}
			before := by()
			c.Listen = []string{first.addr}
			starts := filepath.Join(t.TempDir(), "starts")
			second := begin(t, appConfig{Config: c, Starts: starts}, nil)
			second.wait()
			if code := second.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(second.said.String(),
				"address already in use; another master or server has it: end that, or pass it a new program by SIGUSR2") {
				t.Errorf("the second ends with %d and says: %s", code, second.said)
			}
			if worked, _ := filepath.Glob(starts); len(worked) > 0 {
				t.Error("the second has started workers")
			}
			if after := by(); after != before {
				t.Errorf("worker %d has the connection of worker %d", after, before)
			}
			for range 32 {
				if a, err := first.get(""); err != nil || !pids[a.PID] {
					t.Fatalf("%d answers, none of %v: %v", a.PID, pids, err)
				}
			}
			for slot, st := range first.status() {
				if !pids[st.PID] || st.Restarts != 0 {
					t.Errorf("slot %d: %+v", slot, st)
				}
			}
		})
	}
}
