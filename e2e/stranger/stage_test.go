package stranger

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// stage is where a scenario plays: a folder, a feeder and, one after the other, recorders.
type stage struct {
	scenario
	t        *testing.T
	rng      *rand.Rand
	dir      string
	data     string // folder of the log
	address  string // of the source
	cfg      config
	interval time.Duration // of the feeder's frames; 0: it sends by its rate
	paused   bool          // it left some frames out, on purpose
	long     bool          // … for so long that it may be a silence
	stillness
	reopened int      // how often a reload had the line closed, and opened anew
	level    *status  // what the verdict said before the last stop; nil: nobody has looked
	ends     bool     // the recorder will end by itself, with an error
	wrap     []string // program and arguments that the recorder is started by; nil: none
	feeder   *feeder
	recorder *recorder
	starts   []*recorder
	dark     []window // when what is sent may be lost without a number
}

// window is a time in which nobody recorded for certain.
type window struct{ from, to time.Time }

// config is what situations change of the configuration.
type config struct {
	sync, engine     string
	read             string
	overflow, buffer string
	max, baud        int
	peers            string
	others           []string // more sources
	more             string   // more sections
	expect           string   // what the source says of its rhythm
}

func newStage(t *testing.T, sc scenario) *stage {
	dir := t.TempDir()
	s := &stage{
		scenario: sc, t: t, rng: rand.New(rand.NewPCG(sc.seed, 0)), dir: dir, data: filepath.Join(dir, "data"),
		address: filepath.Join(dir, "line"),
		cfg:     config{baud: 115200, peers: "newest"},
	}
	s.watch(t)
	one := func(of ...string) string { return of[s.rng.IntN(len(of))] }
	s.cfg.overflow, s.cfg.buffer = one("block", "block", "drop-oldest", "drop-newest"), one("64KiB", "256KiB")
	s.cfg.read = "strategy: " + one("ring", "pipeline", "blocking", "polling")
	if s.cfg.read == "strategy: ring" {
		s.cfg.read += ", mode: " + one("latency", "throughput", "hybrid")
	}
	s.cfg.sync, s.cfg.engine = one("always", "batch", "batch", "interval", "never"), one("std", "uring")
	if sc.carrier == "tcp-all" {
		s.cfg.peers = "all"
	}
	if sc.carrier != "pty" {
		s.address = freeAddress(t, sc)
	}
	return s
}

// freeAddress is one that nobody else takes: connections go out from 127.0.0.1.
func freeAddress(t *testing.T, sc scenario) string {
	host := fmt.Sprintf("127.%d.%d.%d:0", 64+sc.seed>>16%64, sc.seed>>8%256, 1+sc.seed%250)
	l, err := net.Listen("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// source is the source under test, as YAML.
func (s *stage) source() string {
	var device string
	switch s.carrier {
	case "pty":
		device = fmt.Sprintf("serial: {port: %s, baud: %d}", s.address, s.cfg.baud)
	case "udp":
		device = fmt.Sprintf("udp: {listen: %q}", s.address)
	case "tcp-dial":
		device = fmt.Sprintf("tcp: {dial: %q}", s.address)
	default:
		device = fmt.Sprintf("tcp: {listen: %q, peers: %s}", s.address, s.cfg.peers)
	}
	frame := s.frame
	if s.cfg.max > 0 && strings.HasPrefix(frame, "{") {
		frame = regexp.MustCompile(`, max: \d+`).ReplaceAllString(frame, "")
		frame = fmt.Sprintf("%s, max: %d}", strings.TrimSuffix(frame, "}"), s.cfg.max)
	}
	return fmt.Sprintf("  - {id: x, %s, frame: %s, overflow: %s, buffer: %s, quarantine: %v%s}\n",
		device, frame, s.cfg.overflow, s.cfg.buffer, s.quarantine, s.cfg.expect)
}

func (s *stage) configFile() string { return filepath.Join(s.dir, "tallywheel.yaml") }

func (s *stage) configure() {
	s.t.Helper()
	text := fmt.Sprintf("log: {dir: %s, segment: 1MiB, sync: %s, engine: %s}\n", s.data, s.cfg.sync, s.cfg.engine) +
		fmt.Sprintf("read: {%s}\napi: {listen: 127.0.0.1:0}\n", s.cfg.read) + s.cfg.more +
		"sources:\n" + s.source() + strings.Join(s.cfg.others, "")
	if err := os.WriteFile(s.configFile()+".next", []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.configFile()+".next", s.configFile()); err != nil {
		s.t.Fatal(err)
	}
}

// reload changes the configuration and waits until the recorder has taken it.
func (s *stage) reload() {
	s.t.Helper()
	s.configure()
	before := strings.Count(s.recorder.Err.String(), "msg=reloaded")
	s.recorder.signal(syscall.SIGHUP)
	refused := func() bool { return strings.Contains(s.recorder.Err.String(), "msg=reload ") }
	testenv.Until(s.t, startPatience, "the reload is heard", func() bool {
		return refused() || strings.Count(s.recorder.Err.String(), "msg=reloaded") > before
	})
	if refused() {
		s.t.Errorf("the reload was refused")
	}
}

// start starts a recorder and waits until it serves.
func (s *stage) start() {
	s.t.Helper()
	s.configure()
	args := append(append([]string{}, s.wrap...), testenv.Binary(s.t), "run", "-c", s.configFile(), "--json")
	r := &recorder{Process: testenv.Start(s.t, args[0], args[1:]...), t: s.t, ended: make(chan error, 1)}
	go func() { r.ended <- r.Cmd.Wait() }()
	s.recorder = r
	s.starts = append(s.starts, r)
	testenv.Until(s.t, startPatience, "the recorder serves", func() bool {
		return r.find() || !r.running()
	})
	if !r.running() {
		s.t.Fatalf("the recorder does not start: %v", r.err)
	}
}

// goesOn holds the recorder to storing more than it has by now.
func (s *stage) goesOn(what string, within time.Duration) {
	s.t.Helper()
	var before, now portSheet
	begin := time.Now()
	testenv.Until(s.t, startPatience, what+": the recorder answers", func() bool { return s.recorder.source(&before) })
	testenv.Until(s.t, startPatience, what+": recording HANGS", func() bool {
		return s.recorder.source(&now) && now.Frames.Stored > before.Frames.Stored
	})
	if took := time.Since(begin); took > within {
		s.t.Errorf("%s: recording goes on after %v, not within %v", what, took, within)
	}
}

// darkness notes that what is sent from a second before until now may be lost without being
// counted.
func (s *stage) darkness(since time.Time) {
	s.dark = append(s.dark, window{s.before(since, time.Second), time.Now()})
}

// pause lets the feeder send for a while.
func (s *stage) pause(low, high time.Duration) {
	time.Sleep(low + time.Duration(s.rng.Int64N(int64(high-low)))) // this is load, not synchronisation
}

var pageURL = regexp.MustCompile(`url=(http://\S+)`)

// recorder is a `tallywheel run`.
type recorder struct {
	*testenv.Process
	t     *testing.T
	url   string
	ended chan error
	over  bool
	err   error // once it is over
	http  http.Client
}

func (r *recorder) running() bool {
	if !r.over {
		select {
		case r.err = <-r.ended:
			r.over = true
		default:
		}
	}
	return !r.over
}

// wait waits for the end. What does not end says where it is.
func (r *recorder) wait(within time.Duration, what string) {
	r.t.Helper()
	if r.over {
		return
	}
	patience := time.NewTimer(within)
	defer patience.Stop()
	select {
	case r.err = <-r.ended:
		r.over = true
	case <-patience.C:
		r.signal(syscall.SIGQUIT)
		r.err, r.over = <-r.ended, true
		r.t.Fatalf("%s HANGS for %v", what, within)
	}
}

func (r *recorder) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.Cmd.Process.Signal(s); err != nil && r.running() {
		r.t.Fatal(err)
	}
}

// stop ends the recorder in order.
func (r *recorder) stop() {
	r.t.Helper()
	r.signal(syscall.SIGTERM)
	r.stopped()
}

func (r *recorder) stopped() {
	r.t.Helper()
	r.wait(startPatience, "the stop")
	if r.err != nil {
		r.t.Errorf("the recorder ended with %v", r.err)
	}
}

// process is the number of the process of a role, once there is one, and it is not that one.
func (r *recorder) process(role string, not int) (pid int) {
	r.t.Helper()
	testenv.Until(r.t, startPatience, "there is a "+role, func() bool {
		r.find()
		var st status
		if !r.get("api/v1/status", &st) {
			return false
		}
		for _, p := range st.Processes {
			if p.Role == role && p.PID != 0 && p.PID != not {
				pid = p.PID
			}
		}
		return pid != 0
	})
	return pid
}

// find looks where the API is now: a recorder that is started again may have another port.
func (r *recorder) find() bool {
	all := pageURL.FindAllStringSubmatch(r.Err.String(), -1)
	if len(all) > 0 {
		r.url = all[len(all)-1][1]
	}
	return len(all) > 0
}

func (r *recorder) get(path string, v any) bool {
	r.http.Timeout = 5 * time.Second
	resp, err := r.http.Get(r.url + path)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK && json.Unmarshal(b, v) == nil
}

// source reads the books of the source under test: what its peers have read and stored is added.
func (r *recorder) source(p *portSheet) bool {
	var s sheet
	if !r.get("api/v1/sheet", &s) {
		return false
	}
	for _, p := range s.Ports {
		if len(p.Unbalanced) > 0 {
			r.t.Errorf("a sheet does not balance: %v", p.Unbalanced)
		}
	}
	at := s.ports("x")
	if len(at) == 0 {
		return false
	}
	*p = at[0]
	for _, peer := range at[1:] {
		p.Bytes.Read += peer.Bytes.Read
		p.Frames.Stored += peer.Frames.Stored
	}
	return true
}

// feeder is the Python program that sends.
type feeder struct {
	t     *testing.T
	in    io.WriteCloser
	lines chan string
	err   *testenv.Buffer
	truth string
}

func startFeeder(t *testing.T, s *stage, python string) *feeder {
	f := &feeder{t: t, truth: filepath.Join(s.dir, "truth.json"), err: &testenv.Buffer{}, lines: make(chan string, 1)}
	plan, err := json.Marshal(map[string]any{
		"framing": s.framing, "carrier": s.carrier, "address": s.address, "seed": s.seed, "truth": f.truth,
		"devices": max(1, s.situation.devices), "faults": s.withFaults, "rate": s.rate(),
		"interval": s.interval.Seconds(),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(python, "-B", "testdata/feeder.py", string(plan))
	c.Stderr = f.err
	f.in, err = c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			f.lines <- lines.Text()
		}
		close(f.lines)
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return f
}

// command has the feeder do something, and waits until it has.
func (f *feeder) command(word string) {
	f.t.Helper()
	if _, err := fmt.Fprintln(f.in, word); err != nil {
		f.t.Fatalf("%s: %v: %s", word, err, f.err)
	}
	patience := time.NewTimer(2 * time.Minute)
	defer patience.Stop()
	select {
	case _, ok := <-f.lines:
		if !ok {
			f.t.Fatalf("the feeder ends at %q: %s", word, f.err)
		}
	case <-patience.C:
		f.t.Fatalf("the feeder HANGS at %q", word)
	}
}

// rate is that of the feeder, in bytes a second.
func (s *stage) rate() int {
	if s.scenario.rate > 0 {
		return s.scenario.rate
	}
	if s.situation.quick {
		return 1_000_000
	}
	return 100_000 + s.rng.IntN(300_000)
}
