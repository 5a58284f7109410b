package prefork

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/rt"
)

var (
	requests = flag.Int("requests", 10_000, "requests over the restarts and upgrades of TestRestartsLoseNothing")
	rounds   = flag.Int("rounds", 2, "rounds of those: two restarts, an upgrade, two failed ones")
	kills    = flag.Int("kills", 30, "workers that TestNothingIsLeft kills")
)

// appVariable makes this test's own program the server that is tested: its value is an appConfig.
const appVariable = "TALLYWHEEL_PREFORK_APP"

type appConfig struct {
	Config
	Started  *struct{} `json:",omitempty"` // hides Config's, which is no text
	Renewing *struct{} `json:",omitempty"` // … too
	Helper   string    // an argument of sleep(1), which each worker starts and leaves behind
	DieFile  string    // a worker that begins while it is there ends at once
	Starts   string    // a file to which each worker adds a byte when it begins
	Ends     bool      // SIGTERM comes as the master is about to become another program
}

func TestMain(m *testing.M) {
	if text := os.Getenv(appVariable); text != "" {
		if err := app(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// app is the server: its master obeys words on its standard input and answers each by a line.
func app(text string) error {
	if text == eats {
		eat()
	}
	var c appConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	if version() == "more workers" {
		c.Workers++
	}
	c.Config.Started = func(m *Master) {
		all, err := m.Listeners()
		for _, ln := range all {
			go func() { _ = http.Serve(ln, http.HandlerFunc(ofMaster)) }()
		}
		if fmt.Println(strings.Join(m.Addresses(), " ")); err != nil {
			fmt.Println(err)
		}
		go command(m)
	}
	if c.Ends {
		c.Config.Renewing = func() (goesOn func()) {
			heard := make(chan os.Signal, 1)
			signal.Notify(heard, syscall.SIGTERM)
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
			<-heard // another thread may take it, and later
			return nil
		}
	}
	return Run(context.Background(), c.Config, func(w *Worker) error {
		if err := prepare(&c); err != nil {
			return err
		}
		who := answer{
			Slot: w.Slot(), PID: os.Getpid(), Version: version(), Procs: runtime.GOMAXPROCS(0),
			Memory: os.Getenv("GOMEMLIMIT"),
		}
		cpus, err := rt.Affinity(0)
		if err != nil {
			return err
		}
		who.CPUs = cpus.String()
		who.Left = os.Getenv(slotVariable) + os.Getenv(fdsVariable)
		text, err := json.Marshal(who)
		if err != nil {
			return err
		}
		return w.Serve(&http.Server{Handler: w.Handler(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			if d, err := time.ParseDuration(r.URL.Query().Get("for")); err == nil { // as if it worked
				select {
				case <-time.After(d):
				case <-r.Context().Done():
				}
			}
			if r.URL.Query().Has("hold") { // the client has the front of an answer, and waits for the rest
				_ = http.NewResponseController(out).Flush()
				<-r.Context().Done()
			}
			if r.URL.Query().Has("fill") && w.Slot() == 1 {
				fill()
			}
			if d, err := time.ParseDuration(r.URL.Query().Get("compute")); err == nil {
				compute(d)
			}
			if r.URL.Query().Has("eat") {
				eat()
			}
			if r.URL.Query().Has("feed") { // something that eats, which the worker survives
				eater := exec.Command("/proc/self/exe")
				eater.Env = append(os.Environ(), appVariable+"="+eats)
				_ = eater.Run() // it is killed
			}
			_, _ = out.Write(text)
		}))})
	})
}

// ofMaster answers for the master.
func ofMaster(out http.ResponseWriter, _ *http.Request) {
	out.Header().Set("Connection", "close")
	_ = json.NewEncoder(out).Encode(answer{PID: os.Getpid(), Version: version(), Left: os.Getenv(estateVariable)})
}

// compute uses CPU time.
func compute(d time.Duration) {
	begin, err := sys.ProcessCPU(os.Getpid())
	for now := begin; now-begin < d && err == nil; {
		now, err = sys.ProcessCPU(os.Getpid())
	}
}

// eats, in place of an appConfig, has this program eat.
const eats = "eats"

// eat takes memory until there is none.
func eat() {
	for {
		b := make([]byte, 1<<20)
		for i := range b {
			b[i] = 1
		}
		eaten = append(eaten, b)
	}
}

var eaten [][]byte

// fill opens files until there are no descriptors left.
func fill() {
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return
		}
		filled = append(filled, f)
	}
}

var filled []*os.File // kept open

// prepare is what a worker does before it serves, as its version has it.
func prepare(c *appConfig) error {
	if c.Starts != "" {
		f, err := os.OpenFile(c.Starts, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = f.WriteString("x")
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	if _, err := os.Stat(c.DieFile); err == nil {
		return errors.New("told to die")
	}
	if c.Helper != "" {
		if err := exec.Command("sleep", c.Helper).Start(); err != nil {
			return err
		}
	}
	switch version() {
	case "broken":
		return errors.New("this version is broken")
	case "hangs":
		select {}
	}
	return nil
}

// answer says who has answered.
type answer struct {
	Slot, PID, Procs            int
	Version, CPUs, Memory, Left string
}

const versionMark = "\nTALLYWHEEL_VERSION="

// version is that of this program.
func version() string { return versionOf("/proc/self/exe") }

// versionOf is what lies behind the end of a program's file, as the tests put it there.
func versionOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	end, _ := f.Seek(-64, io.SeekEnd)
	tail := make([]byte, 64)
	n, _ := f.ReadAt(tail, end)
	if _, v, ok := bytes.Cut(tail[:n], []byte(versionMark)); ok {
		return string(v)
	}
	return "0"
}

func command(m *Master) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var err error
		switch in.Text() {
		case "restart":
			err = m.Restart(context.Background())
		case "upgrade":
			err = m.Upgrade(context.Background())
		case "renew":
			err = m.Renew(context.Background())
		case "status":
			text, _ := json.Marshal(m.Status())
			fmt.Println(string(text))
			continue
		}
		fmt.Println(strings.ReplaceAll(fmt.Sprint(err), "\n", "; "))
	}
}

// running is the server as a test sees it.
type running struct {
	t       testing.TB
	cmd     *exec.Cmd
	path    string // of its program
	addr    string
	in      io.WriteCloser
	out     *bufio.Reader
	said    *testenv.Buffer
	mu      sync.Mutex // one command at a time
	waitErr error
	waited  chan struct{}
}

func (c appConfig) encode(t testing.TB) string {
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// install puts the test's own program to path, in a version. It replaces what is there at once.
func install(t testing.TB, path, version string) {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	replaceFile(t, path, append(self, versionMark+version...))
}

func replaceFile(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+".new", content, 0o700), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// begin starts the server. wrap is a command line that is put before it.
func begin(t testing.TB, c appConfig, files []*os.File, wrap ...string) *running {
	t.Helper()
	r := &running{t: t, path: os.Args[0], said: &testenv.Buffer{}, waited: make(chan struct{})}
	if c.Config.Path != "" {
		r.path = c.Config.Path
	}
	argv := append(wrap, r.path)
	r.cmd = exec.Command(argv[0], argv[1:]...)
	r.cmd.Env = append(os.Environ(), appVariable+"="+c.encode(t))
	r.cmd.Stderr, r.cmd.ExtraFiles, r.cmd.WaitDelay = r.said, files, 10*time.Second
	in, err1 := r.cmd.StdinPipe()
	out, err2 := r.cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	r.in, r.out = in, bufio.NewReader(out)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		r.waitErr = r.cmd.Wait() // and all that it said is read
		close(r.waited)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // and the kernel kills its workers
		<-r.waited
		if t.Failed() {
			t.Logf("the server said:\n%s", r.said)
		}
	})
	return r
}

// start starts the server and waits until it serves.
func start(t testing.TB, c appConfig, files []*os.File, wrap ...string) *running {
	t.Helper()
	r := begin(t, c, files, wrap...)
	if r.addr = r.line(); r.addr == "" {
		t.Fatalf("the server does not start: %s", r.said)
	}
	return r
}

func (r *running) line() string {
	line, _ := r.out.ReadString('\n')
	return strings.TrimSpace(line)
}

// do has the master obey a word and returns its answer.
func (r *running) do(word string) string {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := io.WriteString(r.in, word+"\n"); err != nil {
		r.t.Errorf("%s: %v", word, err)
	}
	return r.line()
}

func (r *running) status() (all []WorkerStatus) {
	r.t.Helper()
	text := r.do("status")
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		r.t.Fatalf("status %q: %v; it said: %s", text, err, r.said)
	}
	return all
}

// get asks once, on a connection of its own.
func (r *running) get(query string) (a answer, err error) {
	return ask("http://" + r.addr + "/" + query)
}

func ask(url string) (a answer, err error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	return askBy(&client, url)
}

func askBy(client *http.Client, url string) (a answer, err error) {
	res, err := client.Get(url)
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return a, errors.New(res.Status)
	}
	text, err := io.ReadAll(res.Body) // to its end: else a kept connection is closed
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(text, &a)
}

// ended reports whether a process has: it is gone, or nobody has asked for its end yet.
func ended(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

// childrenOf lists the children of a process, and which of them are zombies.
func childrenOf(t testing.TB, pid int) (live, zombies []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		text := string(stat)
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		child, _ := strconv.Atoi(strings.Split(name, "/")[2])
		switch {
		case len(fields) < 2 || fields[1] != strconv.Itoa(pid):
		case fields[0] == "Z":
			zombies = append(zombies, child)
		default:
			live = append(live, child)
		}
	}
	return live, zombies
}
