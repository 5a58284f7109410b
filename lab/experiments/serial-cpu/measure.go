package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// measure runs one contestant over fresh ports.
func (c contestant) measure(dir string, ports int, rate float64, length time.Duration) (m measure, err error) {
	round, err := os.MkdirTemp(dir, "round-")
	if err != nil {
		return m, err
	}
	var lines []*serialtest.Port
	var paths []string
	defer func() {
		for _, p := range lines {
			err = errors.Join(err, p.Close())
		}
	}()
	for i := range ports {
		p, err := serialtest.NewPort(filepath.Join(round, fmt.Sprintf("line-%d", i)))
		if err != nil {
			return m, err
		}
		lines, paths = append(lines, p), append(paths, p.Link)
	}
	run, err := c.start(round, paths)
	if err != nil {
		return m, err
	}
	defer run.end()
	before, err := cpuTime(run.cmd.Process.Pid)
	if err != nil {
		return m, err
	}
	began := time.Now()
	var sent int
	if rate > 0 {
		sent = pace(lines, rate, length)
	} else {
		sent = flood(lines, length)
	}
	if !serialtest.DrainAll(lines, 10*time.Second) {
		return m, errors.New("does not read to the end")
	}
	took := time.Since(began)
	after, err := cpuTime(run.cmd.Process.Pid)
	if err != nil {
		return m, err
	}
	cpu := (after - before).Seconds()
	mb := float64(sent) * tally128.Size / 1e6
	m = measure{cpuPercent: 100 * cpu / took.Seconds(), cpuMsPerMB: 1000 * cpu / mb, mbPerS: mb / took.Seconds()}
	if m.frames, err = run.finish(); err == nil && m.frames != uint64(sent) {
		err = fmt.Errorf("saw %d frames of %d", m.frames, sent)
	}
	return m, err
}

// running is a contestant at work.
type running struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	config bool
}

func (c contestant) start(dir string, paths []string) (*running, error) {
	args := append(c.args[1:len(c.args):len(c.args)], paths...)
	if c.config != "" {
		var b strings.Builder
		fmt.Fprintf(&b, "log: {dir: %s/data, sync: batch}\napi: {listen: 127.0.0.1:0}\nread: {mode: %s}\nsources:\n", dir, c.config)
		for i, p := range paths {
			fmt.Fprintf(&b, "  - {id: line-%d, serial: {port: %s}, frame: tally128}\n", i, p)
		}
		file := filepath.Join(dir, "run.yaml")
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			return nil, err
		}
		args = append(c.args[1:len(c.args):len(c.args)], file)
	}
	r := &running{cmd: exec.Command(c.args[0], args...), config: c.config != ""}
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.out = bufio.NewReader(out)
	talk, err := r.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	if !r.config {
		r.cmd.Stderr = nil
		if line, err := r.out.ReadString('\n'); err != nil || line != "ready\n" {
			text, _ := io.ReadAll(talk)
			return nil, fmt.Errorf("not ready: %q %w %s", line, err, text)
		}
		return r, nil
	}
	opened, lines := 0, bufio.NewScanner(talk)
	for opened < len(paths) && lines.Scan() {
		if strings.Contains(lines.Text(), "msg=open") {
			opened++
		}
	}
	go func() { // nobody may wait for us to read
		for lines.Scan() {
		}
	}()
	time.Sleep(300 * time.Millisecond) // the start of the recorder is not what is measured
	return r, nil
}

// finish ends the contestant in order and returns how many frames it says it saw.
func (r *running) finish() (frames uint64, err error) {
	if r.config {
		if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return 0, err
		}
		var s ledger.Sheet
		if err := json.NewDecoder(r.out).Decode(&s); err != nil {
			return 0, err
		}
		if !s.Balanced {
			return 0, errors.New("its books do not balance")
		}
		for _, p := range s.Ports {
			frames += p.Frames.Durable
		}
		return frames, r.cmd.Wait()
	}
	if err := r.in.Close(); err != nil {
		return 0, err
	}
	if _, err := fmt.Fscanf(r.out, "frames %d\n", &frames); err != nil {
		return 0, err
	}
	return frames, r.cmd.Wait()
}

func (r *running) end() {
	_ = r.cmd.Process.Kill() // it has ended already when all is well
	_ = r.cmd.Wait()
}

// cpuTime is the time that all threads of a process have run, from the scheduler's own count in ns.
func cpuTime(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("no threads of process %d: %w", pid, err)
	}
	var total time.Duration
	for _, f := range files {
		b, err := os.ReadFile(f)
		var ns int64
		if err == nil {
			_, err = fmt.Sscanf(string(b), "%d", &ns)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) { // a thread may end meanwhile
			return 0, err
		}
		total += time.Duration(ns)
	}
	return total, nil
}

// pace writes one frame at a time, the ports in turn, each at the rate, and returns how many frames it wrote.
func pace(ports []*serialtest.Port, rate float64, length time.Duration) int {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	gap := float64(tally128.Size) / rate / float64(len(ports)) * 1e9
	total := int(float64(length) / gap)
	var f [tally128.Size]byte
	start := time.Now()
	for k := range total {
		if wait := time.Duration(float64(k)*gap) - time.Since(start); wait > 0 {
			sys.Sleep(wait)
		}
		tally128.Encode(f[:], tally128.Header{Device: uint32(k % len(ports)), Seq: uint64(k / len(ports))}, nil)
		put(ports[k%len(ports)], f[:])
	}
	return total
}

// flood writes as much as the ports take.
func flood(ports []*serialtest.Port, length time.Duration) int {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const batch = 32
	var b [batch * tally128.Size]byte
	sent := 0
	for start := time.Now(); time.Since(start) < length; {
		for i := range batch {
			tally128.Encode(b[i*tally128.Size:], tally128.Header{Seq: uint64(sent/len(ports) + i)}, nil)
		}
		for _, p := range ports {
			put(p, b[:])
			sent += batch
		}
	}
	return sent
}

// put writes all of b; a pty that is full is waited for.
func put(p *serialtest.Port, b []byte) {
	for len(b) > 0 {
		n, err := p.Write(b)
		if err != nil {
			panic(err) // our own end of a pty that is open
		}
		if b = b[n:]; n == 0 {
			sys.Sleep(20 * time.Microsecond)
		}
	}
}
