package rtevent

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/rt"
)

// Events are made so long behind the moment at which the one before was heard, when who waits for
// them is asleep; a timerfd expires so often by itself.
const every = 200 * time.Microsecond

// priority is that of the thread that waits, in SCHED_FIFO, where it is one thread and that is
// allowed. It has the last CPU then, and the thread that makes the events the first.
const priority = 80

// source is where events come from, and how one waits for them.
type source struct {
	wait  func() (expired uint64, err error) // the number is that of a timer's expirations
	event func() error                       // nil: they come by themselves, each every
	close func() error
}

// begin opens a source whose first event, if it makes them itself, is at that time.
type begin func(kind string, first time.Duration) (source, error)

// hear hears of events and says how late. fifo: on a thread of its own, before all others.
func hear(open begin, fifo bool) contestant.Work {
	return func(t *contestant.Turn) error {
		cpus, err := rt.Affinity(0)
		if err != nil {
			return err
		}
		if _, err := t.Ready(); err != nil {
			return err
		}
		var late []int64
		result := make(chan error, 1)
		go func() {
			if fifo {
				runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
				if _, err := rt.Pin(cpus[len(cpus)-1:]); err != nil {
					result <- err
					return
				}
				if err := rt.SetScheduling(rt.Scheduling{
					Policy: rt.FIFO, Priority: priority,
					ResetOnFork: true,
				}); err == nil {
					// the first thread does not end
					defer func() { _ = rt.SetScheduling(rt.Scheduling{ResetOnFork: true}) }()
				}
			}
			var err error
			late, err = hearAll(open, t.Text("event"), t.Seconds(), cpus[:1])
			result <- err
		}()
		if err := <-result; err != nil {
			return err
		}
		took, err := t.Done()
		if err != nil {
			return err
		}
		return t.Result(took, uint64(len(late)), contestant.Latencies(late)...)
	}
}

// hearAll is how late each event was heard, in ns. cpu is that of who makes them.
func hearAll(open begin, kind string, length time.Duration, cpu rt.CPUs) (late []int64, err error) {
	began := rt.Now()
	s, err := open(kind, began+every)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := s.close(); err == nil {
			err = e
		}
	}()
	late = make([]int64, 0, length/every+1)
	if s.event == nil {
		for next := began + every; next < began+length; { // an event a read: the first expiration that it tells
			n, err := s.wait()
			if err != nil {
				return nil, err
			}
			late = append(late, int64(rt.Now()-next))
			next += time.Duration(n) * every
		}
		return late, nil
	}
	m := &maker{event: s.event, until: began + length}
	ended := make(chan error, 1)
	go func() { ended <- m.run(cpu) }()
	for !m.over.Load() { // the last event ends the wait
		if _, err := s.wait(); err != nil {
			return nil, err
		}
		late = append(late, int64(rt.Now())-m.made.Load())
		m.heard.Store(int64(len(late)))
	}
	return late, <-ended
}

// maker makes events on a thread of its own. It stores made and then makes the event; who waits
// stores heard behind it.
type maker struct {
	event       func() error
	until       time.Duration
	made, heard atomic.Int64
	over        atomic.Bool
}

func (m *maker) run(cpu rt.CPUs) error {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if _, err := rt.Pin(cpu); err != nil {
		return err
	}
	for n := int64(0); ; n++ {
		if err := rt.SleepUntil(rt.Now() + every); err != nil {
			return err
		}
		last := rt.Now() >= m.until
		m.over.Store(last)
		m.made.Store(int64(rt.Now()))
		if err := m.event(); last || err != nil {
			return err
		}
		for m.heard.Load() <= n {
			sys.Sleep(20 * time.Microsecond)
		}
	}
}

// byPoller waits as Go's own library does: for a file by the runtime's poller, for a signal by
// os/signal.
func byPoller(kind string, first time.Duration) (source, error) {
	if kind == "signal" {
		heard := make(chan os.Signal, 1)
		signal.Notify(heard, syscall.SIGUSR1)
		return source{
			wait:  func() (uint64, error) { <-heard; return 1, nil },
			event: func() error { return syscall.Kill(os.Getpid(), syscall.SIGUSR1) },
			close: func() error { signal.Stop(heard); return nil },
		}, nil
	}
	in, out, err := descriptors(kind, first)
	if err != nil {
		return source{}, err
	}
	b := make([]byte, 8)
	f := os.NewFile(uintptr(in), kind) // it does not block, so the poller has it
	return source{
		wait: func() (uint64, error) {
			_, err := f.Read(b)
			return binary.NativeEndian.Uint64(b), err
		},
		event: events(out),
		close: func() error {
			if out >= 0 && out != in {
				_ = sys.CloseFD(out) // nobody reads any more
			}
			return f.Close()
		},
	}, nil
}

// byThread waits in read(2), on a thread that has nothing else to do.
func byThread(kind string, first time.Duration) (source, error) {
	in, out, err := descriptors(kind, first)
	if err != nil {
		return source{}, err
	}
	if err := syscall.SetNonblock(in, false); err != nil {
		return source{}, err
	}
	b := make([]byte, 8)
	return source{
		wait: func() (uint64, error) {
			for {
				if _, errno := sys.ReadBlocking(in, b); errno == syscall.EINTR {
					continue
				} else if errno != 0 {
					return 0, os.NewSyscallError("read", errno)
				}
				return binary.NativeEndian.Uint64(b), nil
			}
		},
		event: events(out),
		close: func() error {
			if out >= 0 && out != in {
				_ = sys.CloseFD(out) // nobody reads any more
			}
			return sys.CloseFD(in)
		},
	}, nil
}

// descriptors is where events of a kind are read, and where they are made: -1 if they come by
// themselves.
func descriptors(kind string, first time.Duration) (in, out int, err error) {
	switch kind {
	case "eventfd":
		in, err = sys.Eventfd()
		return in, in, err
	case "pipe":
		var p [2]int
		err = os.NewSyscallError("pipe2", syscall.Pipe2(p[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK))
		return p[0], p[1], err
	case "timerfd":
		in, err = sys.Timerfd(first, every)
		return in, -1, err
	}
	return -1, -1, fmt.Errorf("event=%s: want eventfd, pipe, timerfd or signal", kind)
}

// events makes events of a descriptor; nil if they come by themselves.
func events(out int) func() error {
	if out < 0 {
		return nil
	}
	one := make([]byte, 8)
	binary.NativeEndian.PutUint64(one, 1)
	return func() error {
		_, err := sys.Write(out, one)
		return err
	}
}
