package processfacts

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ipc"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

// patience is how long something is waited for that should happen at once.
const patience = 10 * time.Second

// eventually waits until something is so.
func eventually(what string, is func() (bool, error)) error {
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if yes, err := is(); yes || err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: not within %v", what, patience)
}

// threadsNow is how many threads this process has.
func threadsNow() (int, error) {
	all, err := filepath.Glob("/proc/self/task/*")
	return len(all), err
}

// goroutinesOnThreads has goroutines wait, and counts the threads meanwhile.
func goroutinesOnThreads(*contestant.Turn) (f contestant.Finding, err error) {
	const waiting = 10_000
	over := make(chan struct{})
	var begun, all sync.WaitGroup
	begun.Add(waiting)
	for range waiting {
		all.Go(func() {
			begun.Done()
			<-over
		})
	}
	begun.Wait()
	n, err := threadsNow()
	close(over)
	all.Wait()
	return contestant.Finding{Yes: n < 100, Text: fmt.Sprintf("%d goroutines waited on %d threads", waiting, n)}, err
}

// threadsBeyondProcs lets goroutines wait in system calls, and counts the threads meanwhile.
func threadsBeyondProcs(*contestant.Turn) (f contestant.Finding, err error) {
	const procs, waiting = 2, 16
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
	var pipe [2]int
	if err := syscall.Pipe(pipe[:]); err != nil {
		return f, os.NewSyscallError("pipe", err)
	}
	var all sync.WaitGroup
	for range waiting {
		all.Go(func() { _, _ = syscall.Read(pipe[0], make([]byte, 1)) })
	}
	var n int
	err = eventually("a thread for each wait in the kernel", func() (bool, error) {
		n, err = threadsNow()
		return n > waiting, err
	})
	err = errors.Join(err, syscall.Close(pipe[1])) // ends the reads
	all.Wait()
	return contestant.Finding{
		Yes:  n <= procs,
		Text: fmt.Sprintf("with GOMAXPROCS=%d and %d goroutines in read(2) there were %d threads", procs, waiting, n),
	}, errors.Join(err, syscall.Close(pipe[0]))
}

// goStartsProcesses asks two go statements for their process.
func goStartsProcesses(*contestant.Turn) (contestant.Finding, error) {
	pids := make(chan int, 2)
	for range 2 {
		go func() { pids <- os.Getpid() }()
	}
	a, b := <-pids, <-pids
	return contestant.Finding{Yes: a != b, Text: fmt.Sprintf("both ran in process %d", a)}, nil
}

var clones = regexp.MustCompile(`CLONE_VFORK\s*\|\s*CLONE_VM`)

// startCopies asks the source of package syscall how a process is started.
func startCopies(*contestant.Turn) (f contestant.Finding, err error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return f, fmt.Errorf("no source of Go: go env GOROOT: %w (go.dev/dl)", err)
	}
	const file = "src/syscall/exec_linux.go"
	b, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), file))
	if err != nil {
		return f, err
	}
	line := 0
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if line++; clones.MatchString(s.Text()) {
			return contestant.Finding{Text: fmt.Sprintf("%s:%d: %s", file, line, strings.TrimSpace(s.Text()))}, nil
		}
	}
	return contestant.Finding{Yes: true, Text: file + " of this Go does not share the memory"}, nil
}

// startWithoutShell asks a program what it was called with.
func startWithoutShell(*contestant.Turn) (f contestant.Finding, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return f, err
	}
	defer r.Close()
	echo, err := exec.LookPath("echo")
	if err != nil {
		return f, errors.Join(err, w.Close())
	}
	const asked = "$HOME *"
	p, err := os.StartProcess(echo, []string{"echo", asked}, &os.ProcAttr{Files: []*os.File{nil, w, os.Stderr}})
	if err := errors.Join(err, w.Close()); err != nil {
		return f, err
	}
	said, err := io.ReadAll(r)
	if _, waited := p.Wait(); err != nil || waited != nil {
		return f, errors.Join(err, waited)
	}
	got := strings.TrimSpace(string(said))
	return contestant.Finding{Yes: got == asked, Text: fmt.Sprintf("echo, started with %q, said %q", asked, got)}, nil
}

// zombiesAndOrphans does not wait for a child that ends, and takes in the child of one that has
// ended.
func zombiesAndOrphans(*contestant.Turn) (f contestant.Finding, err error) {
	child := exec.Command("sh", "-c", "exit 0")
	if err := child.Start(); err != nil {
		return f, err
	}
	state := func(pid int) string {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // "" says that it is gone
		_, rest, _ := strings.Cut(string(b), ") ")
		return rest
	}
	err = eventually("the child is a zombie", func() (bool, error) {
		return strings.HasPrefix(state(child.Process.Pid), "Z"), nil
	})
	if err := errors.Join(err, child.Wait()); err != nil {
		return f, err
	}
	gone := state(child.Process.Pid) == ""
	if err := sys.Subreaper(); err != nil {
		return f, err
	}
	middle := exec.Command("sh", "-c", "sleep 60 >/dev/null & echo $!") // which ends before its child
	out, err := middle.Output()
	if err != nil {
		return f, err
	}
	var orphan, parent int
	if _, err := fmt.Sscan(string(out), &orphan); err != nil {
		return f, fmt.Errorf("sh says %q: %w", out, err)
	}
	p, err := os.FindProcess(orphan)
	if err != nil {
		return f, err
	}
	err = eventually("the orphan has a parent", func() (bool, error) {
		f := strings.Fields(state(orphan)) // its state, its parent, …
		if len(f) < 2 {
			return false, fmt.Errorf("process %d, which was an orphan, has ended", orphan)
		}
		parent, err = strconv.Atoi(f[1])
		return parent == os.Getpid(), err
	})
	_ = p.Kill()
	_, waited := p.Wait() // it is ours now
	return contestant.Finding{
		Yes:  gone && parent == os.Getpid(),
		Text: fmt.Sprintf("a child that had ended was in state Z until it was waited for; one whose parent had ended became a child of the subreaper, %v", parent == os.Getpid()),
	}, errors.Join(err, waited)
}

// passedFileIsSame passes a file to itself, and reads from one descriptor what the other has left.
func passedFileIsSame(t *contestant.Turn) (f contestant.Finding, err error) {
	file, err := os.CreateTemp(t.Text("dir"), "passed-")
	if err != nil {
		return f, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	ours, theirs, err := ipc.Pair(ipc.ConnConfig{})
	if err != nil {
		return f, err
	}
	defer ours.Close()
	other, err := ipc.Inherit(theirs, ipc.ConnConfig{})
	if err != nil {
		return f, err
	}
	defer other.Close()
	if err := ours.Send(ipc.Message{Files: []ipc.File{{Name: "file", File: file}}}); err != nil {
		return f, err
	}
	m, err := other.Receive()
	if err != nil {
		return f, err
	}
	defer m.Close()
	if _, err := file.WriteString("12345"); err != nil {
		return f, err
	}
	at, err := m.Files[0].Seek(0, io.SeekCurrent)
	return contestant.Finding{
		Yes:  at == 5,
		Text: fmt.Sprintf("after 5 bytes were written by one descriptor, the other one stands at %d", at),
	}, err
}
