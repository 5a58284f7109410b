package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/rt"
)

const (
	prepareTimeout = 30 * time.Second // until a contestant is ready
	endTimeout     = 30 * time.Second // that it may take beyond its time
	outputLimit    = 1 << 20
)

// turn is one contestant working once in one cell.
type turn struct {
	b      *Bench
	c      *Contestant
	cell   Params
	length time.Duration
	count  bool // count system calls instead of time
}

// outcome is what came of it.
type outcome struct {
	metrics Metrics
	known   time.Duration // CPU time that the contestant and the laboratory used, the load's processes too
	others  float64       // share of the machine's CPU time that neither the contestant nor the laboratory used
	steal   float64       // share that the hypervisor took
	stopped int64         // times a CPU limit stopped it
	warm    float64       // operations before the time that counts
	note    string        // on how it was measured
	said    string        // by the contestant, of what it found out
}

// run runs the turn.
func (t turn) run(ctx context.Context, e *Experiment) (o outcome, err error) {
	var scene Scene
	if e.Scene != nil {
		s, err := e.Scene(t.b, t.c, t.cell)
		if err != nil {
			return o, err
		}
		scene = *s
	}
	if scene.Close != nil {
		defer func() { err = errors.Join(err, scene.Close()) }()
	}
	argv, err := t.command(e, scene.Params)
	if err != nil {
		return o, err
	}
	limit := prepareTimeout + 3*t.length + endTimeout
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if t.c.Command != nil && scene.Serves == "" {
		if o, err = t.tool(ctx, argv); err == nil {
			err = o.metrics.wrong()
		}
		return o, err
	}
	p, err := t.start(ctx, argv, scene)
	if err != nil {
		return o, err
	}
	o, err = p.work(ctx, t, scene)
	if err != nil {
		_ = p.cmd.Process.Kill() // what went wrong is known already
		_ = p.cmd.Wait()
		if ctx.Err() != nil && t.b.ctx.Err() == nil && p.said() == "" {
			err = fmt.Errorf("not done after %v", limit)
		}
		return o, p.why(err)
	}
	if e.Derive != nil {
		e.Derive(t.cell, t.length, o.metrics)
	}
	return o, o.metrics.wrong()
}

func (t turn) command(e *Experiment, scene Params) ([]string, error) {
	path, err := t.b.Program(t.c.Program)
	if err != nil {
		return nil, err
	}
	all := Params{"seconds": strconv.FormatFloat(t.length.Seconds(), 'f', -1, 64), "dir": t.b.Dir}
	maps.Copy(all, t.cell)
	maps.Copy(all, scene)
	if t.c.Starts != (Program{}) {
		started, err := t.b.Program(t.c.Starts)
		if err != nil {
			return nil, err
		}
		all["program"] = started[0]
	}
	if t.c.Command != nil {
		return append(path, t.c.Command(t.b, all, t.length)...), nil
	}
	argv := append(path, t.c.Args...)
	if t.c.Work != nil {
		argv = append(argv, e.Name, t.c.Name)
	}
	for k, v := range all {
		argv = append(argv, k+"="+v)
	}
	return argv, nil
}

// process is a contestant that is ready.
type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	talk *bytes.Buffer

	found string // what it said that it found out
}

// launch starts a command, on the CPU that was asked for.
func (t turn) launch(cmd *exec.Cmd) error {
	return sys.Start(func() error {
		if t.b.options.CPU < 0 {
			return cmd.Start()
		}
		undo, err := rt.Pin(rt.CPUs{t.b.options.CPU})
		if err != nil {
			return err
		}
		return errors.Join(cmd.Start(), undo())
	})
}

// start starts a contestant and waits until it is ready.
func (t turn) start(ctx context.Context, argv []string, scene Scene) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, argv[0], argv[1:]...), talk: &bytes.Buffer{}}
	p.cmd.ExtraFiles = scene.Files
	p.cmd.Stderr = &limited{p.talk, outputLimit}
	p.cmd.Env = append(append(os.Environ(), t.c.Program.env()...), t.c.Env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.WaitDelay = time.Second
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.out = in, bufio.NewReader(io.LimitReader(out, outputLimit))
	if err := t.launch(p.cmd); err != nil {
		return nil, err
	}
	if scene.Serves != "" {
		return p, p.serves(ctx, scene)
	}
	line, err := p.out.ReadString('\n')
	if line != "ready\n" {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		if text := p.said(); text != "" {
			return nil, errors.New(text)
		}
		return nil, fmt.Errorf("not ready, but %q: %w", line, err)
	}
	return p, nil
}

// why is what the contestant said was wrong, or else the error.
func (p *process) why(err error) error {
	if text := p.said(); err != nil && text != "" {
		return errors.New(text)
	}
	return err
}

// said is what the contestant said was wrong. Python says that last.
func (p *process) said() string {
	text := strings.TrimSpace(p.talk.String())
	if strings.HasPrefix(text, "Traceback ") {
		text = text[strings.LastIndexByte(text, '\n')+1:]
	}
	return strings.TrimPrefix(text, "tallywheel: ")
}

// work lets a contestant that is ready do its work, and counts.
func (p *process) work(ctx context.Context, t turn, scene Scene) (o outcome, err error) {
	pid := p.cmd.Process.Pid
	var counted calls
	defer func() {
		if err != nil {
			counted.abandon()
		}
	}()
	if err := p.begin(ctx, t, scene, &o, &counted); err != nil {
		return o, err
	}
	before, err := usageOf(pid)
	if err != nil {
		return o, err
	}
	if scene.Started != nil {
		scene.Started(pid)
	}
	quiet, ours := readNoise(), labCPU()
	began := time.Now()
	if scene.Load == nil {
		if _, err := io.WriteString(p.in, "go\n"); err != nil {
			return o, err
		}
	}
	memory := make(chan float64, 1)
	timer := time.AfterFunc(t.length*9/10, func() { memory <- peakMemory(pid) })
	judge := func(Metrics) {}
	var said string
	if scene.Load != nil {
		judge, err = scene.Load(ctx, t.length)
	} else {
		said, err = p.done()
	}
	if err != nil {
		return o, err
	}
	took := time.Since(began)
	used, usedErr := usageOf(pid) // its end and its sums are not what is measured
	around := o.surroundings(quiet, max(0, used.cpu-before.cpu)+labCPU()-ours)
	if timer.Stop() {
		memory <- peakMemory(pid) // it was quicker than that, or the machine is busy
	}
	if o.metrics, err = p.results(scene, said, judge); err != nil {
		return o, err
	}
	o.said = p.found
	if usedErr != nil { // it does not wait to be looked at
		used = usageAtEnd(p.cmd.ProcessState)
	}
	if t.count { // of all operations
		n, err := counted.end()
		if err != nil {
			return o, err
		}
		o.metrics.addCalls(n)
		o.note = counted.note
	}
	o.metrics.leaveOut(o.warm, took)
	if rss := <-memory; rss > 0 {
		o.metrics["rss_bytes"] = rss
	}
	o.cost(used, before, took)
	o.metrics.split(p.cmd.ProcessState)
	maps.Copy(o.metrics, around)
	if scene.Serves == "" {
		judge(o.metrics)
	}
	return o, nil
}

// begin begins to count the system calls, if they are to be counted, and the load, which begins
// before it counts.
func (p *process) begin(ctx context.Context, t turn, scene Scene, o *outcome, counted *calls) error {
	if t.count && scene.Serves == "" {
		if err := counted.count(p.cmd.Process.Pid); err != nil {
			return err
		}
	}
	if scene.Load != nil {
		if err := p.warm(ctx, t, scene, o); err != nil {
			return err
		}
	}
	if t.count && scene.Serves != "" { // what a server does for the first time is not what a request costs
		return counted.count(p.cmd.Process.Pid)
	}
	return nil
}

// warm lets the load run for a moment that does not count: what a contestant does for the first
// time costs more.
func (p *process) warm(ctx context.Context, t turn, scene Scene, o *outcome) error {
	if scene.Serves != "" { // its load counts by itself
		_, err := scene.Load(ctx, min(warmLoad, t.length/2))
		return err
	}
	if _, err := io.WriteString(p.in, "go\n"); err != nil {
		return err
	}
	judge, err := scene.Load(ctx, min(warmLoad, t.length/2))
	if err != nil {
		return err
	}
	m := Metrics{}
	judge(m)
	o.warm = m["sent_frames"] - m[LostAtPort.name]
	return nil
}

// leaveOut takes what was done before the time that counts out of the figures, which then are of
// that time.
func (m Metrics) leaveOut(warm float64, took time.Duration) {
	if warm == 0 || m["ops"] <= warm {
		return
	}
	share := (m["ops"] - warm) / m["ops"]
	if mb, ok := m["MB_per_s"]; ok {
		m["MB_per_s"] = mb * m["wall_s"] * share / took.Seconds()
	}
	if cut, ok := m["cut_frames"]; ok {
		m["cut_frames"] = cut * share
	}
	m["ops"] -= warm
	m["wall_s"] = took.Seconds()
	m["ns_per_op"], m["ops_per_s"] = took.Seconds()*1e9/m["ops"], m["ops"]/took.Seconds()
}

// results ends a contestant and returns its figures.
func (p *process) results(scene Scene, said string, judge func(Metrics)) (Metrics, error) {
	if scene.Serves != "" {
		return p.stop(judge)
	}
	return p.finish(said)
}

// finish tells a contestant to end and reads its results.
func (p *process) finish(said string) (Metrics, error) {
	if err := p.in.Close(); err != nil {
		return nil, err
	}
	out, err := io.ReadAll(p.out)
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Wait(); err != nil {
		return nil, err
	}
	out = append([]byte(said), out...)
	p.found = foundOut(out)
	return parseResult(out)
}

// done waits until a contestant that works for its time says that it is done, and returns what it
// has printed besides.
func (p *process) done() (said string, err error) {
	for {
		line, err := p.out.ReadString('\n')
		switch {
		case line == "done\n", errors.Is(err, io.EOF):
			return said, nil
		case err != nil:
			return said, err
		}
		said += line
	}
}

// cost adds what the kernel counted between the start and the end.
func (o *outcome) cost(after, before usage, took time.Duration) {
	ops := o.metrics["ops"]
	cpu := after.cpu - before.cpu
	o.metrics["cpu_us_per_op"] = cpu.Seconds() * 1e6 / ops
	o.metrics["cpu_percent"] = 100 * cpu.Seconds() / took.Seconds()
	o.metrics["context_switches_per_op"] = float64(
		after.voluntary-before.voluntary+after.preempted-before.preempted) / ops
	if after.threads > 0 { // it was looked at while it ran
		o.metrics[Threads.name] = float64(after.threads)
	}
	o.metrics["involuntary_per_op"] = float64(after.preempted-before.preempted) / ops
	o.metrics["page_faults_per_op"] = float64(after.minorFaults-before.minorFaults) / ops
	o.metrics["major_faults_per_op"] = float64(after.majorFts-before.majorFts) / ops
	if mb := o.metrics["MB_per_s"] * o.metrics["wall_s"]; mb > 0 {
		o.metrics["cpu_ms_per_MB"] = cpu.Seconds() * 1e3 / mb
	}
}

// split divides the CPU time of an operation into that of the program and that of the kernel for
// it, as the process's whole life was divided.
func (m Metrics) split(s *os.ProcessState) {
	if all := s.UserTime() + s.SystemTime(); all > 0 {
		user := m["cpu_us_per_op"] * s.UserTime().Seconds() / all.Seconds()
		m["cpu_user_us_per_op"], m["cpu_system_us_per_op"] = user, m["cpu_us_per_op"]-user
	}
}

// surroundings says what else the machine did while this ran, as figures too; known is the CPU time
// of contestant and laboratory.
func (o *outcome) surroundings(before noise, known time.Duration) Metrics {
	o.known = known
	n := readNoise().since(before)
	if n.all > 0 {
		o.others = max(0, (n.busy-known.Seconds()*100)/n.all)
		o.steal = n.steal / n.all
	}
	o.stopped = n.throttled
	return Metrics{"others_percent": 100 * o.others, "steal_percent": 100 * o.steal, "throttled": float64(o.stopped)}
}

// labCPU is the CPU time that the laboratory has used, with those of its processes that it has
// waited for: a load that is a program of its own, and contestants that have ended.
func labCPU() (all time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		if err := syscall.Getrusage(who, &r); err == nil {
			all += time.Duration(r.Utime.Nano() + r.Stime.Nano())
		}
	}
	return all
}

// tool runs a program that does not speak the protocol, and counts all of it, its start too.
func (t turn) tool(ctx context.Context, argv []string) (o outcome, err error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = t.b.Dir
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &limited{&out, outputLimit}, &limited{&talk, outputLimit}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	quiet, ours := readNoise(), labCPU()
	began := time.Now()
	if err := t.launch(cmd); err != nil {
		return o, err
	}
	if err := cmd.Wait(); err != nil {
		return o, fmt.Errorf("%w: %s", err, strings.TrimSpace(talk.String()))
	}
	said, err := t.c.Output(out.Bytes(), t.length)
	if err != nil {
		return o, err
	}
	used := usageAtEnd(cmd.ProcessState)
	o.metrics = maps.Clone(said)
	o.cost(used, usage{}, time.Since(began))
	maps.Copy(o.metrics, said) // what it knows better than we do
	o.metrics.split(cmd.ProcessState)
	maps.Copy(o.metrics, o.surroundings(quiet, labCPU()-ours)) // the tool has been waited for
	return o, nil
}

// parseResult reads the lines of a Go benchmark. Of several lines the figures of the last are kept.
// It adds what follows: ops, wall_s, ns_per_op and ops_per_s.
func parseResult(out []byte) (Metrics, error) {
	m := Metrics{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 4 || len(f)%2 != 0 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		ops, err := strconv.ParseFloat(f[1], 64)
		if err != nil || ops <= 0 {
			return nil, fmt.Errorf("%q: %q is no number of operations", strings.TrimSpace(line), f[1])
		}
		m["ops"] = ops
		for i := 2; i < len(f); i += 2 {
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %q is no figure", strings.TrimSpace(line), f[i])
			}
			if f[i+1] == "ns/op" {
				m["ns_per_op"], m["ops_per_s"], m["wall_s"] = v, 1e9/v, v*ops/1e9
			} else {
				m[f[i+1]] = v
			}
		}
	}
	if m["ops_per_s"] == 0 {
		return nil, fmt.Errorf("no line of results in %q", strings.TrimSpace(string(out)))
	}
	return m, nil
}

// foundOut is what the lines "found: …" say.
func foundOut(out []byte) string {
	var all []string
	for line := range strings.Lines(string(out)) {
		if text, ok := strings.CutPrefix(line, contestant.FoundPrefix); ok {
			all = append(all, strings.TrimSpace(text))
		}
	}
	return strings.Join(all, "; ")
}

// limited keeps the first bytes of what is written.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(b []byte) (int, error) {
	n := min(len(b), l.left)
	l.left -= n
	if _, err := l.w.Write(b[:n]); err != nil {
		return 0, err
	}
	return len(b), nil
}
