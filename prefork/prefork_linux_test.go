package prefork

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
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

// patience is for what other processes do, on a machine that has other work.
const patience = time.Minute

var anyPort = []string{"127.0.0.1:0"}

// TestRestartsLoseNothing restarts, upgrades, and fails to upgrade while many ask: each request is
// answered.
func TestRestartsLoseNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "server")
	install(t, path, "0")
	r := start(t, appConfig{Config: Config{
		Listen: anyPort, Workers: 2, Path: path, StartFor: patience,
		LameDuck: patience / 2, DrainFor: patience,
	}}, nil)
	l := &load{addr: r.addr}
	l.begin(8, true, "?for=1ms")
	l.begin(8, false, "?for=1ms")
	want := "0"
	expect := func(word, result string) {
		t.Helper()
		if got := r.do(word); !strings.Contains(got, result) {
			t.Errorf("%s: %q; want %q", word, got, result)
		}
		if a, err := r.get(""); err != nil || a.Version != want {
			t.Errorf("after %s version %q answers: %v; want %q", word, a.Version, err, want)
		}
	}
	for i := range *rounds {
		expect("restart", "<nil>")
		want = strconv.Itoa(i + 1)
		install(t, path, want)
		expect("upgrade", "<nil>")
		install(t, path, "broken")
		expect("upgrade", "ended before it was ready: exit status 1; the old workers go on")
		expect("restart", "<nil>") // of the version that serves, not of what lies there
		replaceFile(t, path, []byte("this is no program"))
		expect("upgrade", path+": exec format error; the old workers go on")
		pipe := path + ".new"
		if err := errors.Join(syscall.Mkfifo(pipe, 0o700), os.Rename(pipe, path)); err != nil {
			t.Fatal(err)
		}
		expect("upgrade", "is no ordinary file: move it away; the old workers go on")
	}
	testenv.Until(t, 10*patience, "so many requests",
		func() bool { return l.good.Load() >= int64(*requests) || l.bad.Load() > 0 })
	good, bad := l.end()
	t.Logf("%d requests over %d restarts, %d upgrades and %d failed ones: %d failed", good, 2**rounds, *rounds,
		2**rounds, bad)
	if bad > 0 {
		t.Errorf("%d of %d requests failed: %v", bad, good+bad, l.errs)
	}
}

// TestUpgradeThatHangs gives up after a time.
func TestUpgradeThatHangs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "server")
	install(t, path, "0")
	r := start(t, appConfig{Config: Config{Listen: anyPort, Workers: 1, Path: path, StartFor: 20 * time.Second}}, nil)
	before := r.status()[0].PID
	install(t, path, "hangs")
	if got := r.do("upgrade"); !strings.Contains(got, "was not ready within 20s; the old workers go on") {
		t.Error(got)
	}
	if a, err := r.get(""); err != nil || a.PID != before {
		t.Errorf("%d answers, not %d: %v", a.PID, before, err)
	}
}

// TestOrphanIsServed kills a worker whose successor does not come for long: the other one answers
// who connects to its socket.
func TestOrphanIsServed(t *testing.T) {
	t.Parallel()
	r := start(t, appConfig{Config: Config{
		Listen: anyPort, Workers: 2, BackOff: time.Hour, MaxBackOff: time.Hour,
		StartFor: patience,
	}}, nil)
	victim, survivor := r.status()[0].PID, r.status()[1].PID
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range 64 { // the kernel shares them out by a hash
		if a, err := r.get(""); err != nil || a.PID != survivor && a.PID != victim {
			t.Fatalf("%d answers: %v", a.PID, err)
		}
	}
	if st := r.status()[0]; st.PID != 0 || st.LentTo != 1 || st.Restarts != 1 {
		t.Errorf("the slot: %+v", st)
	}
	if got := r.do("restart"); got != "<nil>" {
		t.Error(got)
	}
	seen := map[int]bool{}
	for range 64 {
		a, err := r.get("")
		if err != nil || a.PID == survivor {
			t.Fatalf("%d answers: %v", a.PID, err)
		}
		seen[a.Slot] = true
	}
	if st := r.status()[0]; len(seen) != 2 || st.PID == 0 || st.LentTo != -1 {
		t.Errorf("after a restart slots %v answer; the first: %+v", seen, st)
	}
}

// TestWorkerThatCannotTakeWhatIsLent: one without descriptors says so, and another is lent the
// sockets of the dead.
func TestWorkerThatCannotTakeWhatIsLent(t *testing.T) {
	t.Parallel()
	r := start(t, appConfig{Config: Config{
		Listen: anyPort, Workers: 3, BackOff: time.Hour, MaxBackOff: time.Hour, StartFor: patience,
		Limit: Limit{Files: 64},
	}}, nil)
	for slot := -1; slot != 1; { // the kernel shares them out by a hash
		a, err := r.get("?fill")
		if err != nil {
			t.Fatal(err)
		}
		slot = a.Slot
	}
	if err := syscall.Kill(r.status()[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, time.Minute, "the other one has the sockets", func() bool { return r.status()[0].LentTo == 2 })
	if st := r.status()[1]; st.PID == 0 || st.Restarts != 0 {
		t.Errorf("the worker without descriptors: %+v", st)
	}
}

// A packet of which not all descriptors could be passed is an error, after which the next comes;
// none of them stays open.
func TestTruncatedDescriptors(t *testing.T) {
	a, b, err := sys.PacketPair()
	if err != nil {
		t.Fatal(err)
	}
	ours, err := newWire(a)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := newWire(b)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.conn.Close()
	defer theirs.conn.Close()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	many := make([]int, 2*maxPassed)
	for i := range many {
		many[i] = int(out.Fd())
	}
	err = errors.Join(ours.send(packet{Lend: true, Slot: 7}, many...), ours.send(packet{Drain: true}), out.Close())
	if err != nil {
		t.Fatal(err)
	}
	if p, fds, err := theirs.receive(); !errors.Is(err, errLostFDs) || !p.Lend || p.Slot != 7 || len(fds) > 0 {
		t.Errorf("%+v with %d descriptors: %v", p, len(fds), err)
	}
	if p, _, err := theirs.receive(); err != nil || !p.Drain {
		t.Errorf("the next one: %+v, %v", p, err)
	}
	_ = in.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := in.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("somebody holds what was passed: %v", err)
	}
}

// TestNothingIsLeft kills many workers, each of which has started a program: no zombie, orphan or
// descriptor is left of them.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	helper := strconv.Itoa(1_000_000_000 + os.Getpid())
	r := start(t, appConfig{Helper: helper, Config: Config{
		Listen: anyPort, Workers: 2, BackOff: time.Millisecond, MaxBackOff: time.Millisecond, Intensity: 1 << 20,
		StartFor: patience,
	}}, nil)
	master := r.cmd.Process.Pid
	descriptors := func() []string {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", master))
		var to []string
		for _, l := range links {
			if name, err := os.Readlink(l); err == nil {
				name, _, _ = strings.Cut(name, ":[") // without its number
				to = append(to, name)
			}
		}
		slices.Sort(to)
		return to
	}
	for range 3 { // nobody asks meanwhile: a worker must end by itself
		if got := r.do("restart"); got != "<nil>" || strings.Contains(r.said.String(), "did not end in time") {
			t.Fatal(got, r.said)
		}
	}
	before := descriptors()
	for i := range *kills {
		slot := i % 2
		victim := r.status()[slot].PID
		if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		testenv.Until(t, patience, "a successor", func() bool {
			pid := r.status()[slot].PID
			return pid != 0 && pid != victim
		})
	}
	var live, zombies []int
	testenv.Until(t, patience, "two workers, each with its helper", func() bool {
		live, zombies = childrenOf(t, master)
		return len(live) == 2 && len(zombies) == 0 && helpers(helper) == 2
	})
	testenv.Until(t, patience, "the descriptors of the beginning",
		func() bool { return slices.Equal(descriptors(), before) })
	if slices.ContainsFunc(before, func(name string) bool { return strings.Contains(name, "memfd") }) {
		t.Errorf("a memfd: %v", before)
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-r.waited
	testenv.Until(t, patience, "no helper left", func() bool { return helpers(helper) == 0 })
}

// helpers counts the programs that workers have started: see appConfig.Helper.
func helpers(helper string) (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		if line, err := os.ReadFile(name); err == nil && string(line) == "sleep\x00"+helper+"\x00" {
			n++
		}
	}
	return n
}

// TestMasterIsKilled: the workers end, and what they have started.
func TestMasterIsKilled(t *testing.T) {
	t.Parallel()
	helper := strconv.Itoa(2_000_000_000 + os.Getpid())
	r := start(t, appConfig{Helper: helper, Config: Config{Listen: anyPort, Workers: 3, StartFor: patience}}, nil)
	all := r.status()
	if n := helpers(helper); n != len(all) {
		t.Fatalf("%d workers have started %d helpers", len(all), n)
	}
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, st := range all {
		testenv.Until(t, patience, "the end of worker "+strconv.Itoa(st.PID), func() bool { return ended(st.PID) })
	}
	testenv.Until(t, patience, "no helper left", func() bool { return helpers(helper) == 0 })
	testenv.Until(t, patience, "a free port", func() bool { // the last threads may still be about to let go of it
		ln, err := net.Listen("tcp", r.addr)
		if err == nil {
			_ = ln.Close()
		}
		return err == nil
	})
}

// TestDeadAtOnce has workers end as soon as they begin: they are not started in a loop.
func TestDeadAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := appConfig{
		DieFile: filepath.Join(dir, "die"), Starts: filepath.Join(dir, "starts"),
		Config: Config{
			Listen: anyPort, Workers: 2, BackOff: time.Millisecond, Intensity: 3, Period: time.Hour,
			StartFor: patience,
		},
	}
	starts := func() int {
		b, _ := os.ReadFile(c.Starts)
		return len(b)
	}
	die := func(yes bool) {
		t.Helper()
		err := os.Remove(c.DieFile)
		if yes {
			err = os.WriteFile(c.DieFile, nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	die(true)
	r := begin(t, c, nil)
	<-r.waited
	if n := starts(); n > 2 || !strings.Contains(r.said.String(), "ended before it was ready: exit status 1") {
		t.Errorf("%d starts, and it said: %s", n, r.said)
	}
	die(false)
	r = start(t, c, nil)
	n := starts()
	die(true)
	all := r.status()
	if err := syscall.Kill(all[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, patience, "a slot that rests",
		func() bool { return strings.Contains(r.said.String(), "resting=true") })
	if n = starts() - n; n != 3 {
		t.Errorf("%d starts before the slot rests, want 3", n)
	}
	if st := r.status()[0]; st.PID != 0 || st.Restarts != 4 {
		t.Errorf("behind a kill and 3 ends before it was ready the slot is %+v", st)
	}
	if a, err := r.get(""); err != nil || a.PID != all[1].PID {
		t.Errorf("%d answers, not the other worker: %v", a.PID, err)
	}
	if err := syscall.Kill(all[1].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-r.waited
	if !strings.Contains(r.said.String(), "no worker is left: ") {
		t.Errorf("it ended with: %s", r.said)
	}
}

// TestEnd has a request answered that is under way when the server is to end, and one killed that
// takes too long.
func TestEnd(t *testing.T) {
	t.Parallel()
	r := start(t, appConfig{Config: Config{Listen: anyPort, Workers: 2, StartFor: patience, DrainFor: patience}}, nil)
	answered := make(chan error, 1)
	go func() {
		_, err := r.get("?for=500ms")
		answered <- err
	}()
	testenv.Until(t, patience, "the request in flight", func() bool {
		all := r.status()
		return all[0].InFlight+all[1].InFlight == 1 || len(answered) > 0
	})
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	<-r.waited
	if r.waitErr != nil || strings.Contains(r.said.String(), "failed") {
		t.Errorf("ended with %v: %s", r.waitErr, r.said)
	}

	r = start(t, appConfig{Config: Config{
		Listen: anyPort, Workers: 1, StartFor: patience, LameDuck: time.Millisecond,
		DrainFor: time.Second,
	}}, nil)
	go func() { _, _ = r.get("?for=1h") }()
	testenv.Until(t, patience, "the request in flight", func() bool { return r.status()[0].InFlight == 1 })
	pid := r.status()[0].PID
	if got := r.do("restart"); got != "<nil>" || !ended(pid) {
		t.Errorf("restart: %s; has the old worker ended: %v", got, ended(pid))
	}
}

// TestOnePortOneMaster has many masters want one port at a time: one gets it, and shares it out.
func TestOnePortOneMaster(t *testing.T) {
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := probe.Addr().String()
	_ = probe.Close()
	cfg := Config{Listen: []string{addr}, Workers: 4}
	var all sync.WaitGroup
	results, errs := make([]*sockets, 8), make([]error, 8)
	for i := range results {
		all.Go(func() { results[i], errs[i] = listen(&cfg) })
	}
	all.Wait()
	won := 0
	for i, s := range results {
		if errs[i] == nil {
			won++
			defer s.close()
			shared(t, s, addr)
		} else if !strings.Contains(errs[i].Error(), "another master or server has it") {
			t.Error(errs[i])
		}
	}
	if won != 1 {
		t.Errorf("%d of %d masters have the port: %v", won, len(results), errs)
	}
	if s, err := listen(&cfg); err == nil {
		_ = s.close()
		t.Error("a later master gets the port, too")
	}
}

// shared checks that connections come to all sockets of an address.
func shared(t *testing.T, s *sockets, addr string) {
	const dials = 256
	for range dials {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	sum := 0
	for slot := range s.slots {
		n := waiting(t, s.slots[slot][0])
		if sum += n; n == 0 {
			t.Errorf("socket %d gets none of %d connections", slot, dials)
		}
	}
	if sum != dials {
		t.Errorf("%d of %d connections are found", sum, dials)
	}
}

// waiting accepts the connections that wait at a socket, and closes them. It returns how many.
func waiting(t *testing.T, socket *os.File) (n int) {
	ln, err := net.FileListener(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	raw, err := ln.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) { // it does not block
		for ; ; n++ {
			c, _, err := syscall.Accept4(int(fd), syscall.SOCK_CLOEXEC)
			if err != nil {
				return
			}
			_ = syscall.Close(c)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestPassedSockets has the master serve what a supervisor passes, as sd_listen_fds(3) has it.
func TestPassedSockets(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := start(t, appConfig{Config: Config{Workers: 2, StartFor: patience}}, []*os.File{f}, "sh", "-c",
		`LISTEN_FDS=1 LISTEN_PID=$$ exec "$0"`)
	if r.addr != ln.Addr().String() {
		t.Errorf("it serves %s, not %s", r.addr, ln.Addr())
	}
	if a, err := r.get(""); err != nil || a.Left != "" {
		t.Errorf("%+v: %v", a, err)
	}
}

// TestPassedSocketsThatCannotBe: the error says which descriptor it is, and what to do.
func TestPassedSocketsThatCannotBe(t *testing.T) {
	t.Parallel()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	f, err := udp.(*net.UDPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for want, c := range map[string]struct {
		environment string
		passed      *os.File
	}{
		"number 1 of LISTEN_FDS=1: a socket that does not listen, as one of UDP": {"LISTEN_FDS=1 LISTEN_PID=$$", f},
		"non-socket; LISTEN_FDS is too high, or something else is passed":        {"LISTEN_FDS=1 LISTEN_PID=$$", null},
		`for process LISTEN_PID="", this is `:                                    {"LISTEN_FDS=1", f},
		`LISTEN_FDS is "many": want 1 to 64`:                                     {"LISTEN_FDS=many", f},
		"name an address, or start this from a socket unit":                      {"LISTEN_PID=$$", f},
	} {
		r := begin(t, appConfig{Config: Config{Workers: 1}}, []*os.File{c.passed}, "sh", "-c",
			c.environment+` exec "$0"`)
		if <-r.waited; !strings.Contains(r.said.String(), want) {
			t.Errorf("%s: it said %s; want %s", c.environment, r.said, want)
		}
	}
	if err := listens(1 << 20); err == nil || !strings.Contains(err.Error(), "LISTEN_FDS is too high") {
		t.Errorf("a descriptor that is not there: %v", err)
	}
}

// TestFewDescriptors: who may open too few files is told so.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	r := begin(t, appConfig{Config: Config{Listen: anyPort, Workers: 16}}, nil, "sh", "-c", `ulimit -n 16; exec "$0"`)
	if <-r.waited; !strings.Contains(r.said.String(),
		"too many open files; this process may have 16: raise the limit of descriptors (ulimit -n, LimitNOFILE=)") {
		t.Errorf("it said %s", r.said)
	}
}

// TestWhatWorkersGet looks at a worker from within.
func TestWhatWorkersGet(t *testing.T) {
	t.Parallel()
	cpus, err := rt.Affinity(0)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, appConfig{Config: Config{
		Listen: anyPort, Workers: 2, Procs: 3, CPUs: []rt.CPUs{cpus[:1], cpus[len(cpus)-1:]},
		Limit: Limit{Memory: 1 << 30, Files: 500}, StartFor: patience,
	}}, nil)
	seen := map[int]bool{}
	testenv.Until(t, patience, "an answer of each", func() bool {
		a, err := r.get("")
		if err != nil {
			t.Fatal(err)
		}
		seen[a.Slot] = true
		if want := (rt.CPUs{cpus[a.Slot*(len(cpus)-1)]}).String(); a.CPUs != want || a.Procs != 3 ||
			a.Memory != "966367642" {
			t.Errorf("%+v; want CPU %s, GOMAXPROCS=3, GOMEMLIMIT=966367642", a, want)
		}
		return len(seen) == 2
	})
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", r.status()[0].PID))
	if err != nil || !strings.Contains(strings.Join(strings.Fields(string(limits)), " "), "Max open files 500 500") {
		t.Errorf("%s: %v", limits, err)
	}
}
