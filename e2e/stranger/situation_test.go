package stranger

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// situation is what happens while the feeder sends.
type situation struct {
	name    string
	prepare func(s *stage) // before the first start
	act     func(s *stage)
	lossy   bool // it may lose what is sent around a moment that the stage notes as dark
	erased  bool // … and the books of the start before it
	devices int  // that number their frames; 0: one
	quick   bool // it needs much load
}

var situations = []situation{
	{name: "normal", act: func(s *stage) { s.pause(time.Second, 2*time.Second) }},
	{name: "storm", act: storm},
	{name: "kill", act: kill, lossy: true},
	{name: "stop", act: stopWithInputWaiting},
	{name: "change", act: changeThis},
	{name: "change-other", act: changeOther},
	{name: "disk-full", prepare: smallDisk, act: fullDisk, quick: true},
	{name: "freeze", act: freeze, quick: true},
	{name: "devices", act: func(s *stage) { s.pause(2*time.Second, 3*time.Second) }, devices: 2000},
	{name: "folder-gone", act: folderGone, lossy: true, erased: true},
	{name: "descriptors", prepare: fewDescriptors, act: takeDescriptors},
	{name: "fault", prepare: faultyDisk, act: survive},
	{name: "slow-disk", prepare: slowDisk, act: func(s *stage) { s.pause(2*time.Second, 3*time.Second) }},
	{name: "rhythm", prepare: rhythm, act: keepRhythm},
	{name: "kill-recorder", prepare: isolated, act: func(s *stage) { s.killProcess("recorder") }},
	{name: "kill-reader", prepare: isolated, act: func(s *stage) { s.killProcess("reader") }},
}

func storm(s *stage) {
	for range 1 + s.rng.IntN(2) {
		s.feeder.command("storm")
		s.goesOn("after a storm", livePatience)
		if s.carrier == "tcp-listen" {
			s.cfg.peers = "first"
			s.reload()
		}
	}
}

func kill(s *stage) {
	for range 1 + s.rng.IntN(2) {
		s.pause(100*time.Millisecond, 1500*time.Millisecond)
		at := time.Now()
		s.recorder.signal(syscall.SIGKILL)
		s.recorder.wait(startPatience, "the kill")
		s.start()
		s.darkness(at)
		s.goesOn("after a kill", livePatience+s.redial())
	}
}

// isolated has reading and recording lie in processes of their own.
func isolated(s *stage) {
	s.cfg.more = "isolate: process\n"
	if s.cfg.read == "strategy: pipeline" {
		s.cfg.read = "strategy: ring"
	}
}

// killProcess kills a process of a role again and again. Nothing may be lost: the others hold what
// it had.
func (s *stage) killProcess(role string) {
	for range 1 + s.rng.IntN(4) {
		s.pause(50*time.Millisecond, 1200*time.Millisecond)
		pid := s.recorder.process(role, 0)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			s.t.Fatalf("kill the %s: %v", role, err)
		}
		s.recorder.process(role, pid)
		s.goesOn("after a kill of the "+role, livePatience)
	}
}

// redial is how long the feeder or the recorder may need to find the other again.
func (s *stage) redial() time.Duration {
	// a listener that closes answers nobody: the kernel asks again
	if s.carrier == "tcp-dial" || s.carrier == "tcp-all" {
		return time.Second
	}
	return 0
}

func stopWithInputWaiting(s *stage) {
	s.pause(300*time.Millisecond, time.Second)
	s.recorder.signal(syscall.SIGSTOP)
	s.pause(100*time.Millisecond, 700*time.Millisecond)
	s.recorder.signal(syscall.SIGTERM)
	s.recorder.signal(syscall.SIGCONT)
	s.recorder.stopped()
	if s.rng.IntN(2) == 0 { // and another one goes on
		s.start()
		s.goesOn("after a new start", livePatience+s.redial())
	}
}

// changeThis changes the source under test. A reload of a source under load loses nothing.
func changeThis(s *stage) {
	for range 3 + s.rng.IntN(3) {
		switch s.rng.IntN(5) {
		case 0:
			s.cfg.overflow = []string{"block", "drop-oldest", "drop-newest"}[s.rng.IntN(3)]
		case 1:
			s.cfg.buffer = []string{"64KiB", "1MiB"}[s.rng.IntN(2)]
		case 2:
			s.cfg.max = 48 * (32 + s.rng.IntN(5)) // more than any frame has
		case 3:
			before := s.cfg.baud
			if s.cfg.baud = []int{9600, 57600, 115200}[s.rng.IntN(3)]; s.cfg.baud != before {
				s.reopened++
			}
			if s.carrier == "tcp-all" {
				s.oneByOne()
				break
			}
			s.cfg.peers = []string{"first", "newest"}[s.rng.IntN(2)]
		case 4:
			s.quarantine = !s.quarantine
		}
		s.reload()
		s.goesOn("after a reload", livePatience+s.redial())
		s.pause(10*time.Millisecond, 400*time.Millisecond)
	}
}

// oneByOne has a source that reads all of its senders read one for a while. It ends every
// connection, and so does the way back.
func (s *stage) oneByOne() {
	s.cfg.peers = []string{"first", "newest"}[s.rng.IntN(2)]
	s.reload()
	s.goesOn("after a reload to one peer", livePatience+s.redial())
	s.cfg.peers = "all"
}

func changeOther(s *stage) {
	for n := range 3 + s.rng.IntN(3) {
		s.cfg.others = nil
		for m := range s.rng.IntN(3) {
			s.cfg.others = append(s.cfg.others,
				fmt.Sprintf("  - {id: other-%d, serial: {port: %s/absent-%d-%d}, frame: line}\n", m, s.dir, n, m))
		}
		s.reload()
		s.goesOn("after a reload", livePatience)
		s.pause(10*time.Millisecond, 300*time.Millisecond)
	}
}

// diskSize is that of the small disk, of which the recorder leaves 16 MiB free as long as it can
// choose.
const diskSize = 40 << 20

// smallDisk puts the log on a file system of its own, in which a filler takes most.
func smallDisk(s *stage) {
	if err := os.Mkdir(s.data, 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := syscall.Mount("none", s.data, "tmpfs", 0, fmt.Sprintf("size=%d", diskSize)); err != nil {
		s.t.Skipf("SKIPPED: no small disk can be mounted: %v; run as root", err)
	}
	s.t.Cleanup(func() { _ = syscall.Unmount(s.data, syscall.MNT_DETACH) })
	s.fill(diskSize - 16<<20 - 2500<<10)
}

// fill takes room of the small disk.
func (s *stage) fill(size int64) {
	f, err := os.OpenFile(filepath.Join(s.data, "filler"), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = syscall.Fallocate(int(f.Fd()), 0, 0, size)
		f.Close()
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func fullDisk(s *stage) {
	for n := range 1 + s.rng.IntN(2) {
		if n > 0 { // not at the end: a stop without room is an error
			s.fill(diskSize - 24<<20)
		}
		if s.rng.IntN(2) == 0 { // another one takes all that is left, at once
			s.takeDisk()
		}
		testenv.Until(s.t, 40*time.Second, "the disk is full", func() bool {
			var st status
			return s.recorder.get("api/v1/status", &st) && !st.Good && strings.Contains(st.Verdict, "the disk is full")
		})
		s.pause(100*time.Millisecond, 1500*time.Millisecond)
		if err := os.Truncate(filepath.Join(s.data, "filler"), 0); err != nil {
			s.t.Fatal(err)
		}
		s.goesOn("after there is room", livePatience)
	}
}

func freeze(s *stage) {
	s.pause(100*time.Millisecond, 500*time.Millisecond)
	s.recorder.signal(syscall.SIGSTOP)
	s.pause(500*time.Millisecond, 3*time.Second)
	s.recorder.signal(syscall.SIGCONT)
	s.goesOn("after a freeze", livePatience)
}

func folderGone(s *stage) {
	s.pause(300*time.Millisecond, time.Second)
	at := time.Now()
	err := os.Rename(s.data, s.data+".away")
	if err == nil && s.rng.IntN(2) == 0 {
		for err = os.RemoveAll(s.data + ".away"); errors.Is(err, syscall.ENOTEMPTY); { // still written to
			err = os.RemoveAll(s.data + ".away")
		}
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.recorder.wait(startPatience, "a recorder without its folder")
	if took := time.Since(at); took > livePatience {
		s.t.Errorf("the recorder notices after %v that its folder is gone", took)
	}
	if s.recorder.err == nil {
		s.t.Error("a recorder whose folder is gone ends as if nothing had happened")
	}
	s.start()
	s.dark = append(s.dark, window{time.Time{}, time.Now()})
	s.goesOn("after a new start", livePatience+s.redial())
}

func fewDescriptors(s *stage) {
	s.wrap = []string{"/bin/sh", "-c", `ulimit -n 64 && exec "$@"`, "sh"}
}

func takeDescriptors(s *stage) {
	s.goesOn("before", livePatience)
	var idle []net.Conn
	api := strings.Trim(strings.TrimPrefix(s.recorder.url, "http://"), "/")
	for range 120 {
		if c, err := net.DialTimeout("tcp", api, time.Second); err == nil {
			idle = append(idle, c)
		}
	}
	if s.carrier != "pty" {
		s.feeder.command("storm")
	}
	s.pause(500*time.Millisecond, 2*time.Second)
	for _, c := range idle {
		_ = c.Close()
	}
	s.goesOn("after descriptors are to be had", livePatience)
}

// inject starts the recorder under strace, which makes system calls of it fail.
func (s *stage) inject(calls string, args ...string) {
	strace := testenv.Program(s.t, "strace", "apt install strace")
	s.cfg.sync, s.cfg.engine = "batch", "std" // by the calls that can be made to fail
	if out, err := exec.Command(strace, "-f", "--seccomp-bpf", "-o", "/dev/null", "true").CombinedOutput(); err != nil {
		s.t.Skipf("SKIPPED: strace may not trace here: %v: %s; run as root, or allow ptrace", err, out)
	}
	s.wrap = []string{strace, "-D", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=" + calls}
	s.wrap = append(s.wrap, args...)
}

// faultyDisk makes system calls fail: for a while, or one that the log cannot survive.
func faultyDisk(s *stage) {
	when := 5 + s.rng.IntN(40)
	if s.rng.IntN(3) == 0 {
		s.inject("openat", "-e", fmt.Sprintf("inject=openat:error=EMFILE:when=%d..%d", 40+when, 100+when))
		return
	}
	s.ends = true
	fault := []string{"EIO", "ENOSPC"}[s.rng.IntN(2)]
	s.inject("fdatasync", "-e", fmt.Sprintf("inject=fdatasync:error=%s:when=%d", fault, when))
}

// survive is what a supervisor does: a recorder that has ended with an error is started again, here
// without faults.
func survive(s *stage) {
	if !s.ends {
		s.pause(2*time.Second, 3*time.Second)
	} else {
		s.recorder.wait(startPatience, "a recorder whose log has failed")
		if s.recorder.err == nil {
			s.t.Error("a recorder whose log has failed ends as if nothing had happened")
		}
		s.wrap = nil
		s.start()
	}
	s.goesOn("after faults", livePatience+s.redial())
}

func slowDisk(s *stage) {
	s.inject("fdatasync", "-e",
		fmt.Sprintf("inject=fdatasync:delay_enter=%d:when=3+%d", 200_000+s.rng.IntN(1_000_000), 2+s.rng.IntN(20)))
}
