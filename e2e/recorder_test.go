// Package e2e tests the whole recorder as a process: with real programs, real kills and a real
// browser.
package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/api"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

func TestMain(m *testing.M) {
	if role := isolate.Role(os.Getenv(isolate.RoleVariable)); role != "" {
		pretend(role) // this program was put in place of a recorder's
		return
	}
	code := m.Run()
	testenv.CleanUp()
	os.Exit(code)
}

// recorder is a `tallywheel run` under test.
type recorder struct {
	*testenv.Process
	url string
}

var (
	pageURL = regexp.MustCompile(`url=(http://\S+)`) // in the log of run
	// noMessage is what a message must not have: an error that is none, a time in nanoseconds, a
	// mistake in a format.
	noMessage = regexp.MustCompile(`.*(<nil>|[a-z]=1[0-9]{18}\b|%!).*`)
	demoURL   = regexp.MustCompile(`page: (http://\S+)`) // in the talk of demo
)

// startRecorder runs the sources, given as YAML list items, on the log in dir.
func startRecorder(t *testing.T, dir, sources string) *recorder {
	t.Helper()
	return startRecorderBy(t, nil, dir, sources)
}

// startRecorderBy has another program start the recorder: by is its path and arguments.
func startRecorderBy(t *testing.T, by []string, dir, sources string) *recorder {
	t.Helper()
	return startProgram(t, append(by[:len(by):len(by)], testenv.Binary(t)), dir, sources)
}

// startProgram starts the recorder that lies somewhere, or that another program starts.
func startProgram(t *testing.T, program []string, dir, sources string) *recorder {
	t.Helper()
	file := filepath.Join(dir, "tallywheel.yaml")
	text := fmt.Sprintf("log: {dir: %s/data, segment: 4MiB}\napi: {listen: 127.0.0.1:0}\nsources:\n%s", dir, sources)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(program[:len(program):len(program)], "run", "-c", file, "--json")
	r := &recorder{Process: testenv.Start(t, args[0], args[1:]...)}
	t.Cleanup(func() {
		said := r.Err.String()
		if m := noMessage.FindString(said); m != "" {
			t.Errorf("the recorder said %q, which tells nobody anything", m)
		}
		if t.Failed() {
			t.Logf("the recorder said, at the end:\n%s", said[max(0, len(said)-4000):])
		}
	})
	testenv.Until(t, 20*time.Second, "the recorder serves", func() bool {
		m := pageURL.FindStringSubmatch(r.Err.String())
		if m != nil {
			r.url = m[1]
		}
		return m != nil
	})
	return r
}

// get reads a JSON answer; false if the recorder does not answer.
func (r *recorder) get(path string, v any) bool {
	resp, err := http.Get(r.url + path)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK && json.Unmarshal(b, v) == nil
}

func (r *recorder) sheet(t *testing.T) ledger.Sheet {
	t.Helper()
	var s ledger.Sheet
	if !r.get("api/v1/sheet", &s) {
		t.Fatalf("no sheet; stderr: %s", r.Err)
	}
	if !s.Balanced {
		t.Errorf("the sheet does not balance: %+v", s)
	}
	return s
}

// stop ends the recorder in order and returns the sheet that it prints last.
func (r *recorder) stop(t *testing.T) ledger.Sheet {
	t.Helper()
	if err := r.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.Cmd.Wait(); err != nil {
		t.Fatalf("run ended with %v; stderr: %s", err, r.Err)
	}
	var s ledger.Sheet
	if err := json.Unmarshal([]byte(r.Out.String()), &s); err != nil {
		t.Fatalf("run --json printed no sheet: %v: %s", err, r.Out)
	}
	if !s.Balanced {
		t.Errorf("the last sheet does not balance: %+v", s)
	}
	return s
}

// serialSource is a source on a virtual port.
func serialSource(id, path string) string {
	return fmt.Sprintf("  - {id: %s, serial: {port: %s}, frame: tally128}\n", id, path)
}

// command runs a verb to its end and returns its output.
func command(t *testing.T, args ...string) string {
	t.Helper()
	p := testenv.Start(t, testenv.Binary(t), args...)
	if err := p.Cmd.Wait(); err != nil {
		t.Fatalf("tallywheel %v: %v\n%s%s", args, err, p.Out, p.Err)
	}
	return p.Out.String()
}

func (r *recorder) status(t *testing.T) api.Status {
	t.Helper()
	var s api.Status
	if !r.get("api/v1/status", &s) {
		t.Fatalf("no status; stderr: %s", r.Err)
	}
	return s
}
