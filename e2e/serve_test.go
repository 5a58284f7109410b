package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// served is a tallywheel serve that runs.
type served struct {
	*testenv.Process
	url, admin string
}

var (
	servedAt = regexp.MustCompile(`msg=serving addresses=(\S+)`)
	adminAt  = regexp.MustCompile(`url=http://(\S+)`)
)

func startServe(t *testing.T, args ...string) *served {
	t.Helper()
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--workers", "2"}, args...)
	s := &served{Process: testenv.Start(t, testenv.Binary(t), args...)}
	testenv.Until(t, time.Minute, "the workers serve", func() bool { return adminAt.MatchString(s.Err.String()) })
	s.url = "http://" + servedAt.FindStringSubmatch(s.Err.String())[1]
	s.admin = adminAt.FindStringSubmatch(s.Err.String())[1]
	return s
}

type workerNow struct {
	PID      int
	Answered uint64
	Refused  uint64
	Restarts int
	InFlight int `json:"in_flight"`
}

func (s *served) status(t *testing.T) (rows []workerNow) {
	t.Helper()
	out := command(t, "serve", "status", "--once", "--json", "--admin", s.admin)
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return rows
}

func asked(t *testing.T, r *http.Request, err error) (int, string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultTransport.RoundTrip(r) // which follows nothing
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

// TestServeGivesFilesOfItsFolder, and nothing that a link or a path would have it give from
// elsewhere.
func TestServeGivesFilesOfItsFolder(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "www")
	for path, text := range map[string]string{"www/a.txt": "content of a", "secret": "secret"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(parent, path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(parent, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../secret", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	s := startServe(t, dir)
	for path, want := range map[string]string{
		"/a.txt": "content of a", "/link": "", "/../secret": "",
		"/%2e%2e/secret": "", "/nothing": "",
	} {
		r, err := http.NewRequest(http.MethodGet, s.url+path, nil)
		if code, got := asked(t, r, err); (code == http.StatusOK) != (want != "") || want != "" && got != want ||
			strings.Contains(got, "secret\n") {
			t.Errorf("%s: %d %q", path, code, got)
		}
	}
	if out, err := exec.Command(testenv.Binary(t), "serve",
		filepath.Join(dir, "absent")).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "want a folder, echo or json") {
		t.Errorf("a folder that is not there: %v, %s", err, out)
	}
	if out, err := exec.Command(testenv.Binary(t), "serve", "--listen", "0.0.0.0:0",
		"echo").CombinedOutput(); err == nil || !strings.Contains(string(out), "loopback") {
		t.Errorf("beyond loopback: %v, %s", err, out)
	}
}

// TestServeUpgradesUnderLoad: clients that keep their connections ask all the time; no request is
// lost by upgrades and restarts, the status counts each once, and nothing is left at the end.
func TestServeUpgradesUnderLoad(t *testing.T) {
	s := startServe(t, "echo", "--in-flight", "64", "--queue", "64")
	before := s.status(t)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	var mu sync.Mutex
	sent := uint64(0)
	for i := range 4 {
		clients.Go(func() {
			c := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
			defer c.CloseIdleConnections()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				want := fmt.Sprint(i, " ", n)
				if got, err := post(c, s.url, want); err != nil || got != want {
					t.Errorf("client %d, request %d: %q, %v", i, n, got, err)
					return
				}
				mu.Lock()
				sent++
				mu.Unlock()
			}
		})
	}
	for range 3 {
		if out := command(t, "serve", "upgrade", "--admin", s.admin); out != "upgraded\n" {
			t.Errorf("upgrade: %q", out)
		}
	}
	testenv.Until(t, time.Minute, "a restart, behind the last upgrade", func() bool {
		r, err := http.NewRequest(http.MethodPost, "http://"+s.admin+"/restart", nil)
		code, text := asked(t, r, err)
		if code != http.StatusOK && code != http.StatusServiceUnavailable {
			t.Errorf("restart: %d %s", code, text)
		}
		return code == http.StatusOK
	})
	testenv.Until(t, time.Minute, "the log says that there were three upgrades and a restart", func() bool {
		log := s.Err.String()
		return strings.Count(log, "upgrade done") == 3 && strings.Count(log, "restart done") == 1 &&
			strings.Count(log, "msg=serving") == 4 // the master that was started, and three that it became
	})
	close(stop)
	clients.Wait()
	testenv.Until(t, time.Minute, "the status has each request once", func() bool {
		answered, refused := uint64(0), uint64(0)
		for _, w := range s.status(t) {
			answered += w.Answered
			refused += w.Refused
		}
		return answered == sent && refused == 0
	})
	for i, w := range s.status(t) {
		if w.PID == before[i].PID || w.PID == 0 || w.Restarts != 0 {
			t.Errorf("worker %d: %+v, before %+v", i, w, before[i])
		}
	}
	for _, foreign := range []func(*http.Request){
		func(r *http.Request) { r.Host = "rebound.example" },
		func(r *http.Request) { r.Header.Set("Origin", "https://elsewhere.example") },
	} {
		r, err := http.NewRequest(http.MethodPost, "http://"+s.admin+"/upgrade", nil)
		if err == nil {
			foreign(r)
		}
		if code, _ := asked(t, r, err); code != http.StatusForbidden {
			t.Errorf("an upgrade that another site asks for: %d, want 403", code)
		}
	}
	pids := s.status(t)
	finish := s.holdARequest(t)
	keeps := &http.Client{Transport: &http.Transport{MaxIdleConns: 1}, Timeout: time.Minute}
	defer keeps.CloseIdleConnections()
	if _, err := post(keeps, s.url, "before"); err != nil {
		t.Fatal(err)
	}
	if err := s.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, time.Minute, "a client is asked to leave", func() bool {
		answer, err := keeps.Get(s.url)
		if err == nil {
			answer.Body.Close()
		}
		return err != nil || answer.Close
	})
	inFlight := 0
	for _, w := range s.status(t) {
		inFlight += w.InFlight
	}
	if inFlight != 1 {
		t.Errorf("the status of a master that drains tells of %d requests, want 1", inFlight)
	}
	r, err := http.NewRequest(http.MethodPost, "http://"+s.admin+"/upgrade", nil)
	if code, text := asked(t, r, err); code != http.StatusConflict || !strings.HasSuffix(text, "the master ends\n") {
		t.Errorf("an upgrade of a master that drains: %d %q", code, text)
	}
	if got := finish(); !strings.HasSuffix(got, "\r\n\r\none two") {
		t.Errorf("a request that was under way at SIGTERM: %q", got)
	}
	if err := s.Cmd.Wait(); err != nil {
		t.Errorf("SIGTERM: %v\n%s", err, s.Err.String())
	}
	if i := slices.IndexFunc(pids, func(w workerNow) bool { return syscall.Kill(w.PID, 0) == nil }); i >= 0 {
		t.Errorf("worker %d is still there", i)
	}
}

// TestServeAnswersDuringUpgrades: who asks the master while a signal has it upgraded is answered,
// an upgrade that it is done, or that one is under way.
func TestServeAnswersDuringUpgrades(t *testing.T) {
	s := startServe(t, "echo")
	one := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	ask := func(method, path string) int {
		r, err := http.NewRequest(method, "http://"+s.admin+path, nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		answer, err := one.Do(r)
		if err == nil {
			_, err = io.ReadAll(answer.Body)
			answer.Body.Close()
		}
		if err != nil {
			t.Errorf("%s %s: %v", method, path, err)
			return 0
		}
		return answer.StatusCode
	}
	for i := range 6 {
		if err := s.Cmd.Process.Signal(syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		var upgrade sync.WaitGroup
		upgrade.Go(func() {
			code := ask(http.MethodPost, "/upgrade")
			if code != http.StatusOK && code != http.StatusServiceUnavailable {
				t.Errorf("round %d: an upgrade: %d", i, code)
			}
		})
		testenv.Until(t, time.Minute, "a new master", func() bool {
			if code := ask(http.MethodGet, "/status"); code != http.StatusOK {
				t.Fatalf("round %d: the status: %d", i, code)
			}
			return strings.Count(s.Err.String(), "msg=serving") > i+1
		})
		upgrade.Wait()
	}
}

// TestSecondServeRefuses: one that is started where another serves says what to do and ends, and a
// request that the first is at goes on.
func TestSecondServeRefuses(t *testing.T) {
	s := startServe(t, "echo")
	finish, before := s.holdARequest(t), s.status(t)
	for name, c := range map[string]struct{ listen, admin, want string }{
		"both":   {strings.TrimPrefix(s.url, "http://"), s.admin, "another master or server has it: end that, or pass it a new program by SIGUSR2"},
		"listen": {strings.TrimPrefix(s.url, "http://"), "off", "another master or server has it: end that, or pass it a new program by SIGUSR2"},
		"admin":  {"127.0.0.1:0", s.admin, "address already in use; --admin chooses another address, or off"},
	} {
		var exit *exec.ExitError
		out, err := exec.CommandContext(t.Context(), testenv.Binary(t), "serve", "--listen", c.listen, "--admin",
			c.admin, "--workers", "2", "echo").CombinedOutput()
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v, %s; want %s", name, err, out, c.want)
		}
	}
	for i, w := range s.status(t) {
		if w.PID != before[i].PID || w.Restarts != 0 {
			t.Errorf("worker %d: %+v, before %+v", i, w, before[i])
		}
	}
	if got := finish(); !strings.HasSuffix(got, "\r\n\r\none two") {
		t.Errorf("a request that was under way: %q", got)
	}
}

// holdARequest sends half of a body; finish sends the rest and returns the answer.
func (s *served) holdARequest(t *testing.T) (finish func() string) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 7\r\n\r\none "); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, time.Minute, "the request is worked on", func() bool {
		n := 0
		for _, w := range s.status(t) {
			n += w.InFlight
		}
		return n == 1
	})
	return func() string {
		if _, err := io.WriteString(c, "two"); err != nil {
			return err.Error()
		}
		b, err := io.ReadAll(c)
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
}

func post(c *http.Client, url, text string) (string, error) {
	answer, err := c.Post(url, "text/plain", strings.NewReader(text))
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusOK {
		err = errors.Join(err, errors.New(answer.Status))
	}
	return string(b), err
}

// TestServeMetrics: promtool takes them, and both workers are there.
func TestServeMetrics(t *testing.T) {
	s := startServe(t, "json")
	r, err := http.NewRequest(http.MethodGet, s.url+"/product/123", nil)
	if code, text := asked(t, r, err); code != http.StatusOK || !strings.Contains(text, `"path":"/product/123"`) {
		t.Errorf("%d %s", code, text)
	}
	r, err = http.NewRequest(http.MethodGet, "http://"+s.admin+"/metrics", nil)
	_, text := asked(t, r, err)
	for _, want := range []string{`tallywheel_serve_up{worker="0"} 1`, `tallywheel_serve_up{worker="1"} 1`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}
	check := exec.Command(testenv.Program(t, "promtool", "apt install prometheus"), "check", "metrics")
	check.Stdin = strings.NewReader(text)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
