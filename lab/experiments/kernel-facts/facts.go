package kernelfacts

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/lab/readers"
	"github.com/tallywheel/tallywheel/probe"
	"github.com/tallywheel/tallywheel/serial/serialtest"
	"github.com/tallywheel/tallywheel/uring"
)

// brokenLink asks how those end that stand behind a failed operation in a chain.
func brokenLink(t *contestant.Turn) (f contestant.Finding, err error) {
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
	return contestant.Finding{
		Yes:  ops[0].Err() == nil && ops[1].Err() != nil && errors.Is(ops[2].Err(), syscall.ECANCELED),
		Text: fmt.Sprintf("a chain of three, of which the second reads a file that is open for writing alone: %v, %v, %v", ops[0].Err(), ops[1].Err(), ops[2].Err()),
	}, nil
}

// pollerNeedsThread asks whether a ring with a polling thread stops where its goroutine changes
// threads.
func pollerNeedsThread(*contestant.Turn) (f contestant.Finding, err error) {
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
			return contestant.Finding{
				Yes:  true,
				Text: fmt.Sprintf("operation %d, on thread %d of its life: %v", i+1, len(threads), err),
			}, nil
		}
		if i%50 == 0 {
			time.Sleep(5 * time.Millisecond) // until the polling thread sleeps and must be woken
		}
	}
	return contestant.Finding{
		Yes:  false,
		Text: fmt.Sprintf("%d operations of one ring with SQPOLL, submitted from %d threads, all completed; its thread slept and was woken meanwhile", rounds, len(threads)),
	}, nil
}

// skipTxen asks for a setting of the driver of UARTs.
func skipTxen(*contestant.Turn) (contestant.Finding, error) {
	const dir = "/sys/module/8250/parameters"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return contestant.Finding{}, fmt.Errorf("no driver of UARTs: %w", err)
	}
	var names []string
	there := false
	for _, e := range entries {
		names = append(names, e.Name())
		there = there || e.Name() == "skip_txen"
	}
	return contestant.Finding{Yes: there, Text: "the settings of the 8250 driver are " + strings.Join(names, ", ")}, nil
}

// portHasNoMap asks a serial port of this machine, else a pty, for a map.
func portHasNoMap(t *contestant.Turn) (f contestant.Finding, err error) {
	path := "/dev/ttyS0"
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		path = filepath.Join(t.Text("dir"), "port-map")
		p, err := serialtest.NewPort(path)
		if err != nil {
			return f, err
		}
		defer func() { err = errors.Join(err, p.Close()) }()
		if file, err = readers.OpenPort(path); err != nil {
			return f, err
		}
	}
	defer file.Close()
	_, err = syscall.Mmap(int(file.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_SHARED)
	return contestant.Finding{
		Yes:  errors.Is(err, syscall.ENODEV),
		Text: fmt.Sprintf("mmap of %s: %v", filepath.Base(path), err),
	}, nil
}

// receiveTimes asks how long received bytes wait until they are read, in a ping-pong over loopback.
func receiveTimes(*contestant.Turn) (f contestant.Finding, err error) {
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
	return contestant.Finding{
		Yes: quick > 50,
		Text: fmt.Sprintf("of %.0f receives of a ping-pong over loopback %.0f %% were read within 8 µs, %.0f %% within 131 µs, %.1f %% later", all,
			quick, 100-quick-slow, slow),
	}, nil
}

// fileIsThere asks for a file.
func fileIsThere(path string) contestant.Work {
	return contestant.Asks(func(*contestant.Turn) (contestant.Finding, error) {
		switch _, err := os.Stat(path); {
		case errors.Is(err, fs.ErrNotExist):
			return contestant.Finding{Text: err.Error()}, nil
		case err != nil:
			return contestant.Finding{}, err
		}
		return contestant.Finding{Yes: true, Text: path + " is there"}, nil
	})
}

// ringHas asks for an operation of a ring.
func ringHas(op uring.Opcode, name string) contestant.Work {
	return contestant.Asks(func(*contestant.Turn) (contestant.Finding, error) {
		if err := uring.Probe().HasOp(op); err != nil {
			return contestant.Finding{Text: err.Error()}, nil
		}
		return contestant.Finding{Yes: true, Text: "a ring does " + name}, nil
	})
}
