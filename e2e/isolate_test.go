package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

var (
	isolatedKills = flag.Int("kills", 30, "how often a process of an isolated recorder is killed")
	readerKills   = flag.Int("reader-kills", 10, "how many of them are of the reader")
)

// lines is virtual ports with devices that send numbered frames.
type lines struct {
	ports   []*serialtest.Port
	devices []*serialtest.Device
	stop    func()
}

func startLines(t *testing.T, dir string, rates ...int) (l lines, sources string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var sending sync.WaitGroup
	for i, rate := range rates {
		id := fmt.Sprintf("line-%d", i+1)
		port, err := serialtest.NewPort(filepath.Join(dir, id))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = port.Close() })
		d := serialtest.NewDevice(port,
			serialtest.Plan{Rate: rate, Device: uint32(i + 1), Epoch: 1, Seed: uint64(i + 1)})
		sending.Go(func() {
			if err := d.Run(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
		l.ports, l.devices = append(l.ports, port), append(l.devices, d)
		sources += serialSource(id, port.Link)
	}
	l.stop = sync.OnceFunc(func() { cancel(); sending.Wait() })
	t.Cleanup(l.stop)
	return l, sources
}

// drain ends the sending, and waits until all is read.
func (l lines) drain(t *testing.T) {
	t.Helper()
	l.stop()
	if !serialtest.DrainAll(l.ports, time.Minute) {
		t.Fatal("the ports are not read to their ends")
	}
}

// startIsolated starts a recorder of three processes.
func startIsolated(t *testing.T, dir, sources string) *recorder {
	t.Helper()
	return startRecorder(t, dir, sources+"isolate: process\n")
}

// process is the one of a role, once it is there and is not the one of that number.
func (r *recorder) process(t *testing.T, role isolate.Role, not int) (found isolate.Process) {
	t.Helper()
	testenv.Until(t, 20*time.Second, "there is a "+string(role), func() bool {
		r.find()
		var s struct{ Processes []isolate.Process }
		if !r.get("api/v1/status", &s) {
			return false
		}
		for _, p := range s.Processes {
			if p.Role == role && p.PID != 0 && p.PID != not {
				found = p
				return true
			}
		}
		return false
	})
	return found
}

// find looks where the API is now: a recorder that is started again has another port.
func (r *recorder) find() {
	if all := pageURL.FindAllStringSubmatch(r.Err.String(), -1); len(all) > 0 {
		r.url = all[len(all)-1][1]
	}
}

// killAtRandom kills recorder and reader again and again, as often as the flags say, in any order.
// It returns once both are there again.
func (r *recorder) killAtRandom(t *testing.T) {
	t.Helper()
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	last, readers := map[isolate.Role]int{}, *readerKills
	for n := range *isolatedKills {
		role := isolate.Recorder
		if rng.IntN(*isolatedKills-n) < readers {
			role = isolate.Reader
			readers--
		}
		p := r.process(t, role, last[role])
		last[role] = p.PID
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond) // the moment of the kill
		if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
			t.Fatalf("kill %d: %v", n, err)
		}
	}
	r.process(t, isolate.Recorder, last[isolate.Recorder])
	r.process(t, isolate.Reader, last[isolate.Reader])
}

// TestIsolatedKills kills recorder and reader of an isolated recorder under load. Each frame is
// stored once, the books of the last sheet have all of them, and outages are of restarts.
func TestIsolatedKills(t *testing.T) {
	dir := t.TempDir()
	l, sources := startLines(t, dir, 400_000, 400_000, 400_000, 400_000, 11_520, 11_520, 11_520, 11_520)
	r := startIsolated(t, dir, sources)
	r.killAtRandom(t)
	l.drain(t)
	s := r.stop(t)
	verifyLog(t, dir)
	var made, uncertain uint64
	for i, p := range s.Ports {
		made += l.devices[i].Truth.Made
		uncertain += p.Unread["reader_killed"]
		if lost := l.devices[i].Truth.Made - p.Frames.Stored; lost > 0 && *readerKills == 0 || p.Frames.Duplicate > 0 ||
			lost != p.Frames.Missing {
			t.Errorf("%s: %d frames made, %d stored, %d missing, %d there twice; unread %v", p.ID,
				l.devices[i].Truth.Made, p.Frames.Stored,
				p.Frames.Missing, p.Frames.Duplicate, p.Unread)
		}
		if p.Frames.Stored+p.Frames.Missing != l.devices[i].Truth.Made {
			t.Errorf("%s: the books do not have all frames that were made", p.ID)
		}
		for _, o := range p.Outages {
			if !strings.Contains(o.Cause, "was restarted") {
				t.Errorf("%s: an outage of %q", p.ID, o.Cause)
			}
		}
	}
	for _, r := range s.Verdict.Reasons {
		if r.Kind == "unread" {
			t.Errorf("the verdict has bytes as lost that nobody knows to be: %+v", r)
		}
	}
	if stored := storedOnce(t, filepath.Join(dir, "data")); stored != made-missing(s) {
		t.Errorf("%d frames are in the log, %d were made, and %d are missing", stored, made, missing(s))
	}
	t.Logf("%d kills, %d of the reader: %d frames made, %d missing, up to %d bytes uncertain", *isolatedKills,
		*readerKills, made, missing(s), uncertain)
}

func missing(s ledger.Sheet) (n uint64) {
	for _, p := range s.Ports {
		n += p.Frames.Missing
	}
	return n
}

// TestIsolatedKeeperIsKilled kills the keeper: the others record what there is, and end.
func TestIsolatedKeeperIsKilled(t *testing.T) {
	dir := t.TempDir()
	l, sources := startLines(t, dir, 11_520)
	r := startIsolated(t, dir, sources)
	keeper, reader, recorder := r.process(t, isolate.Keeper, 0), r.process(t, isolate.Reader, 0),
		r.process(t, isolate.Recorder, 0)
	if keeper.PID != r.Cmd.Process.Pid {
		t.Errorf("the keeper is process %d, and %d was started", keeper.PID, r.Cmd.Process.Pid)
	}
	testenv.Until(t, 20*time.Second, "frames are stored", func() bool { return r.sheet(t).Ports[0].Frames.Stored > 10 })
	_ = syscall.Kill(keeper.PID, syscall.SIGKILL)
	_ = r.Cmd.Wait()
	testenv.Until(t, 20*time.Second, "reader and recorder have ended", func() bool {
		return syscall.Kill(reader.PID, 0) == syscall.ESRCH && syscall.Kill(recorder.PID, 0) == syscall.ESRCH
	})
	verifyLog(t, dir)
	if said := r.Err.String(); !strings.Contains(said, "the keeper has ended") {
		t.Errorf("the recorder says %q", said)
	}
	// The next one goes on as behind any stop.
	r = startIsolated(t, dir, sources)
	l.drain(t)
	s := r.stop(t)
	if p := s.Ports[0]; p.Frames.Duplicate > 0 || len(p.Outages) != 1 ||
		!strings.HasPrefix(p.Outages[0].Cause, "the recorder was not running") {
		t.Errorf("the start behind it: %+v, outages %+v", p.Frames, p.Outages)
	}
}

// TestIsolatedUnplug pulls a port out while the reader runs, and while the recorder does not.
func TestIsolatedUnplug(t *testing.T) {
	dir := t.TempDir()
	port, err := serialtest.NewPort(filepath.Join(dir, "line"))
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	r := startIsolated(t, dir, serialSource("line", port.Link))
	state := func(want string) func() bool {
		return func() bool {
			r.find()
			var s ledger.Sheet
			return r.get("api/v1/sheet", &s) && s.Ports[0].State == want
		}
	}
	testenv.Until(t, 20*time.Second, "the port is open", state(ledger.StateOpen))
	if err := port.Unplug(); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, 20*time.Second, "the port is gone", state(ledger.StateWaiting))
	rec := r.process(t, isolate.Recorder, 0)
	_ = syscall.Kill(rec.PID, syscall.SIGKILL)
	if err := port.Plug(); err != nil {
		t.Fatal(err)
	}
	r.process(t, isolate.Recorder, rec.PID)
	testenv.Until(t, 20*time.Second, "the port is open again", state(ledger.StateOpen))
	s := r.stop(t)
	if p := s.Ports[0]; p.OutageCount != 1 || p.Outages[0].To == 0 {
		t.Errorf("outages %+v, want one that is over", p.Outages)
	}
}

// TestIsolatedReload changes and takes out sources of an isolated recorder.
func TestIsolatedReload(t *testing.T) {
	dir := t.TempDir()
	l, sources := startLines(t, dir, 11_520, 11_520)
	r := startIsolated(t, dir, sources)
	testenv.Until(t, 20*time.Second, "frames are stored", func() bool {
		s := r.sheet(t)
		return s.Ports[0].Frames.Stored > 10 && s.Ports[1].Frames.Stored > 10
	})
	file := filepath.Join(dir, "tallywheel.yaml")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), "line-1, serial: {port: ", "line-1, serial: {baud: 57600, port: ", 1)
	text = strings.Replace(text, serialSource("line-2", l.ports[1].Link), "", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = r.Cmd.Process.Signal(syscall.SIGHUP)
	testenv.Until(t, 20*time.Second, "the sources have changed", func() bool {
		s := r.sheet(t)
		return len(s.Ports) == 1 && s.Ports[0].Frames.Stored > 10 && s.Ports[0].OutageCount == 1
	})
	rec := r.process(t, isolate.Recorder, 0)
	_ = syscall.Kill(rec.PID, syscall.SIGKILL)
	r.process(t, isolate.Recorder, rec.PID)
	l.stop()
	if !l.ports[0].Drain(time.Minute) {
		t.Fatal("the port is not read to its end")
	}
	s := r.stop(t)
	if p := s.Ports[0]; len(s.Ports) != 1 || p.Frames.Duplicate > 0 || p.OutageCount != 1 ||
		p.Outages[0].Cause != "the source was changed" {
		t.Errorf("the last sheet: %+v, outages %+v", p.Frames, p.Outages)
	}
}

// A source that a reload has taken out, and that is back after the recorder alone was killed, has
// one outage, from when it was read last.
func TestIsolatedTakenOut(t *testing.T) {
	dir := t.TempDir()
	stays := "  - {id: stays, udp: {listen: '127.0.0.1:0'}, frame: line}\n"
	r := startIsolated(t, dir, stays+"  - {id: goes, udp: {listen: '127.0.0.1:0'}, frame: line}\n")
	file := filepath.Join(dir, "tallywheel.yaml")
	both, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	load := func(text string, sources int) (s ledger.Sheet) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		reloads := strings.Count(r.Err.String(), "msg=reloaded")
		_ = r.Cmd.Process.Signal(syscall.SIGHUP)
		testenv.Until(t, 20*time.Second, "the sources have changed, and are open", func() bool {
			s = r.sheet(t)
			return strings.Count(r.Err.String(), "msg=reloaded") > reloads && len(s.Ports) == sources &&
				!slices.ContainsFunc(s.Ports, func(p ledger.Port) bool { return p.State != ledger.StateOpen })
		})
		return s
	}
	load(string(both), 2)
	lines := strings.SplitAfter(string(both), "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, "id: goes") })
	out := load(strings.Join(lines, ""), 1)
	rec := r.process(t, isolate.Recorder, 0)
	_ = syscall.Kill(rec.PID, syscall.SIGKILL)
	r.process(t, isolate.Recorder, rec.PID)
	s := load(string(both), 2)
	i := slices.IndexFunc(s.Ports, func(p ledger.Port) bool { return p.ID == "goes" })
	want := "the source was not in the configuration; then: the recorder was restarted"
	if o := s.Ports[i].Outages; len(o) != 1 || o[0].From > out.At || o[0].To <= out.At || o[0].Cause != want {
		t.Errorf("outages %+v; want one that begins before %v: %s", o, out.At, want)
	}
	r.stop(t)
}

// TestIsolatedCannotBegin: a recorder that cannot have its log says why and ends all, as one
// process does.
func TestIsolatedCannotBegin(t *testing.T) {
	dir := t.TempDir()
	first := startRecorder(t, dir, serialSource("x", filepath.Join(dir, "none")))
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for log, want := range map[string]string{"data": seglog.ErrLocked.Error(), "file": "is no folder"} {
		for _, isolate := range []string{"none", "process"} {
			config := filepath.Join(dir, log+"-"+isolate+".yaml")
			text := fmt.Sprintf("isolate: %s\nlog: {dir: %s}\napi: {listen: off}\nsources:\n%s", isolate,
				filepath.Join(dir, log), serialSource("x", "/none"))
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			p := testenv.Start(t, testenv.Binary(t), "run", "-c", config)
			ended := time.AfterFunc(time.Minute, func() { _ = p.Cmd.Process.Kill() })
			err := p.Cmd.Wait()
			if ended.Stop(); p.Cmd.ProcessState.ExitCode() != 1 || !strings.Contains(p.Err.String(), want) {
				t.Errorf("isolate: %s on %s: %v, want exit code 1 and %q:\n%.2000s", isolate, log, err, want, p.Err)
			}
		}
	}
	first.stop(t)
}

// TestStoppedAtTheStart: a SIGTERM that comes while the configuration is read stops the recorder,
// also one that is about to become a keeper, which is another program.
func TestStoppedAtTheStart(t *testing.T) {
	for _, isolate := range []string{"none", "process"} {
		dir := t.TempDir()
		config := filepath.Join(dir, "pipe")
		if err := syscall.Mkfifo(config, 0o600); err != nil {
			t.Fatal(err)
		}
		p := testenv.Start(t, testenv.Binary(t), "run", "-c", config)
		ended := time.AfterFunc(time.Minute, func() { _ = p.Cmd.Process.Kill() })
		defer ended.Stop()
		f, err := os.OpenFile(config, os.O_WRONLY, 0) // it reads now, and waits
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		testenv.Until(t, time.Minute, "it has caught the signal", func() bool {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
			return err == nil && strings.Contains(string(status), "ShdPnd:\t0000000000000000")
		})
		_, err = fmt.Fprintf(f, "isolate: %s\nlog: {dir: %s}\napi: {listen: off}\nsources:\n%s", isolate,
			filepath.Join(dir, "data"), serialSource("x", "/none"))
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if err := p.Cmd.Wait(); err != nil {
			t.Errorf("isolate: %s: %v, want an end without an error:\n%.2000s", isolate, err, p.Err)
		}
	}
}

// storedOnce counts the frames in a log, each of which must be there once.
func storedOnce(t *testing.T, dir string) (n uint64) {
	t.Helper()
	type name struct {
		source  string
		device  uint32
		numbers uint64 // 64 of them, a bit each
	}
	seen := map[name]uint64{}
	eachRecord(t, dir, func(d archive.Record) {
		k, bit := name{d.Source, *d.Device, *d.Number / 64}, uint64(1)<<(*d.Number%64)
		if seen[k]&bit != 0 {
			t.Fatalf("frame %d of %s is stored twice", *d.Number, d.Source)
		}
		seen[k] |= bit
		n++
	})
	return n
}

// eachRecord reads a log that has all its records.
func eachRecord(t *testing.T, dir string, each func(archive.Record)) {
	t.Helper()
	eachLeft(t, dir, each, func(gap *seglog.GapError) { t.Fatal(gap) })
}

// eachLeft reads a log of which records may be gone.
func eachLeft(t *testing.T, dir string, each func(archive.Record), gone func(*seglog.GapError)) {
	t.Helper()
	fs, err := seglog.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	streams, err := archive.LoadStreams(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := seglog.NewReader(fs, 0)
	defer r.Close()
	for {
		rec, err := r.Next()
		var gap *seglog.GapError
		switch {
		case err == nil:
			d, _ := streams.Describe(rec)
			each(d)
		case errors.Is(err, io.EOF):
			return
		case errors.As(err, &gap):
			gone(gap)
		default:
			t.Fatal(err)
		}
	}
}

// TestIsolatedKeeperIsSmall: the keeper has no more than 10 MB once all is calm, also behind kills.
func TestIsolatedKeeperIsSmall(t *testing.T) {
	r := startIsolated(t, t.TempDir(), "  - {id: udp, udp: {listen: 127.0.0.1:0}, frame: tally128}\n")
	size := func() (kB int) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.Cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, at, _ := strings.Cut(string(b), "VmRSS:")
		if _, err := fmt.Sscan(at, &kB); err != nil {
			t.Fatal(err)
		}
		return kB
	}
	last := map[isolate.Role]int{}
	for n := range 12 {
		role := []isolate.Role{isolate.Recorder, isolate.Reader}[n%2]
		last[role] = r.process(t, role, last[role]).PID
		_ = syscall.Kill(last[role], syscall.SIGKILL)
	}
	testenv.Until(t, time.Minute, "the keeper has given back what it needed to start processes",
		func() bool { return size() <= 10_000 })
	t.Logf("the keeper has %d kB", size())
	r.stop(t)
	if said := r.Err.String(); strings.Count(said, "is started again") != 2 ||
		strings.Count(said, "msg=recording") > 2 {
		t.Errorf("of 12 kills the journal says\n%s", said)
	}
}
