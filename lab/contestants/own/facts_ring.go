package own

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/probe"
	"github.com/tallywheel/tallywheel/serial/serialtest"
	"github.com/tallywheel/tallywheel/uring"
)

// brokenLink asks how those end that stand behind a failed operation in a chain.
func brokenLink(t *contestant.Turn) (f found, err error) {
	r, err := uring.New(uring.Config{Entries: 8})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	file, err := os.OpenFile(filepath.Join(t.Text("dir"), "broken-link"), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return f, err
	}
	defer file.Close()
	unreadable, err := uring.FileOf(file)
	if err != nil {
		return f, err
	}
	defer unreadable.Close()
	var ops [3]uring.Op
	ops[0].Nop()
	ops[1].Read(unreadable, uring.Wrap(make([]byte, 1)), 0)
	ops[2].Nop()
	if err := r.Chain(&ops[0], &ops[1], &ops[2]); err != nil {
		return f, err
	}
	if err := r.Wait(len(ops)); err != nil {
		return f, err
	}
	for r.Next() != nil {
	}
	return found{
		ops[0].Err() == nil && ops[1].Err() != nil && errors.Is(ops[2].Err(), syscall.ECANCELED),
		fmt.Sprintf("a chain of three, of which the second reads a file that is open for writing alone: %v, %v, %v", ops[0].Err(), ops[1].Err(), ops[2].Err()),
	}, nil
}

// pollerNeedsThread asks whether a ring with a polling thread stops where its goroutine changes
// threads.
func pollerNeedsThread(*contestant.Turn) (f found, err error) {
	r, err := uring.New(uring.Config{Entries: 8, SQPoll: true, SQPollIdle: time.Millisecond})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	threads := map[int]bool{}
	var op uring.Op
	const rounds = 200
	for i := range rounds {
		done := make(chan error)
		go func() { // each on a thread that it has for itself
			runtime.LockOSThread()
			threads[syscall.Gettid()] = true
			op.Nop()
			err := r.Push(&op)
			if err == nil {
				err = r.WaitFor(1, time.Second)
			}
			if err == nil && r.Next() == nil {
				err = errors.New("nothing was complete after a second")
			}
			done <- err
		}()
		if err := <-done; err != nil {
			return found{true, fmt.Sprintf("operation %d, on thread %d of its life: %v", i+1, len(threads), err)}, nil
		}
		if i%50 == 0 {
			time.Sleep(5 * time.Millisecond) // until the polling thread sleeps and must be woken
		}
	}
	return found{false, fmt.Sprintf("%d operations of one ring with SQPOLL, submitted from %d threads, all completed; its thread slept and was woken meanwhile", rounds, len(threads))}, nil
}

// skipTxen asks for a setting of the driver of UARTs.
func skipTxen(*contestant.Turn) (found, error) {
	const dir = "/sys/module/8250/parameters"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return found{}, fmt.Errorf("no driver of UARTs: %w", err)
	}
	var names []string
	there := false
	for _, e := range entries {
		names = append(names, e.Name())
		there = there || e.Name() == "skip_txen"
	}
	return found{there, "the settings of the 8250 driver are " + strings.Join(names, ", ")}, nil
}

// portHasNoMap asks a serial port of this machine, else a pty, for a map.
func portHasNoMap(t *contestant.Turn) (f found, err error) {
	path := "/dev/ttyS0"
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		path = filepath.Join(t.Text("dir"), "port-map")
		p, err := serialtest.NewPort(path)
		if err != nil {
			return f, err
		}
		defer func() { err = errors.Join(err, p.Close()) }()
		if file, err = openPort(path); err != nil {
			return f, err
		}
	}
	defer file.Close()
	_, err = syscall.Mmap(int(file.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_SHARED)
	return found{errors.Is(err, syscall.ENODEV), fmt.Sprintf("mmap of %s: %v", filepath.Base(path), err)}, nil
}

// readBlocked blocks in read until a byte comes.
func readBlocked(read func([]byte) (int, error)) {
	_, _ = read(make([]byte, 1))
}

// stateOf waits until the goroutine in readBlocked waits for something, and names it.
func stateOf() (string, error) {
	buf := make([]byte, 1<<16)
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if _, state, ok := strings.Cut(g, "["); ok && strings.Contains(g, "own.readBlocked(") {
				if state, _, _ = strings.Cut(state, "]"); state == "syscall" || state == "IO wait" {
					return state, nil
				}
			}
		}
	}
	return "", errors.New("a goroutine that reads an empty port does not wait")
}

// blockedInRead asks what becomes of a goroutine that reads an empty port, by a read that blocks
// and by a file that the poller watches, and whether others run on meanwhile on the only processor.
func blockedInRead(t *contestant.Turn) (f found, err error) {
	path := filepath.Join(t.Text("dir"), "blocked")
	p, err := serialtest.NewPort(path)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	file, err := openPort(path)
	if err != nil {
		return f, err
	}
	defer file.Close()
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return f, os.NewSyscallError("open", err)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var states []string
	for _, read := range []func([]byte) (int, error){func(b []byte) (int, error) { return syscall.Read(fd, b) }, file.Read} {
		over := make(chan bool)
		go func() { readBlocked(read); close(over) }()
		state, err := stateOf() // runs on the only P: the reader has given it away
		if err != nil {
			return f, err
		}
		states = append(states, state)
		for more := true; more; { // a byte of another turn may have been taken by the other
			if _, err := p.Write([]byte{1}); err != nil {
				return f, err
			}
			select {
			case <-over:
				more = false
			case <-time.After(blockedLimit):
			}
		}
	}
	return found{
		states[0] == "syscall",
		fmt.Sprintf("with one P, others ran on while syscall.Read blocked (state: %s) and while os.File.Read did (state: %s: no thread is in a system call)", states[0], states[1]),
	}, nil
}

// receiveTimes asks how long received bytes wait until they are read, in a ping-pong over loopback,
// and holds it against what the article says of three classes.
func receiveTimes(*contestant.Turn) (f found, err error) {
	p, err := probe.Start(probe.Net, probe.Options{PID: os.Getpid(), Sample: 1})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return f, err
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(c, c)
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return f, err
	}
	defer c.Close()
	one := make([]byte, 1)
	for until := time.Now().Add(time.Second); time.Now().Before(until); {
		if _, err := c.Write(one); err != nil {
			return f, err
		}
		if _, err := io.ReadFull(c, one); err != nil {
			return f, err
		}
	}
	r, err := p.Read()
	if err != nil {
		return f, err
	}
	var all, quick, slow float64
	for _, h := range r.Latency {
		for i, n := range h.Log2Ns {
			all += float64(n)
			if i < 13 { // below 2¹³ ns
				quick += float64(n)
			} else if i >= 17 {
				slow += float64(n)
			}
		}
	}
	if all == 0 {
		return f, errors.New("the kernel showed no receive")
	}
	quick, slow = 100*quick/all, 100*slow/all
	const near = 10 // points
	return found{math.Abs(quick-68) <= near && math.Abs(slow-5) <= near, fmt.Sprintf("of %.0f receives %.0f %% were read within 8 µs, %.0f %% within 131 µs, %.1f %% later", all, quick, 100-quick-slow, slow)}, nil
}
