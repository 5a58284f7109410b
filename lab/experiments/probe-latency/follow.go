package probelatency

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/probe"
	"github.com/tallywheel/tallywheel/uring"
)

const (
	late = 200 * time.Microsecond // a byte comes
	rest = 500 * time.Microsecond // of a timer
)

// request makes one kind of request again and again: ready makes an operation ready, and close ends
// it.
type request struct {
	code  uring.Opcode
	ready func(op *uring.Op) *uring.Op
	close func() error
}

// follow is the contestant that makes requests, and has the probe look at each of them.
func follow(make func(dir string) (request, error)) contestant.Work {
	return func(t *contestant.Turn) (err error) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		p, err := probe.Start(probe.Uring, probe.Options{PID: os.Getpid(), Sample: 1, Segments: true})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.Close()) }()
		ring, err := uring.New(uring.Config{Entries: 8, Locked: true})
		if err != nil {
			return err
		}
		asked, err := make(t.Text("dir"))
		if err != nil {
			return errors.Join(err, ring.Close())
		}
		defer func() { err = errors.Join(err, asked.close(), ring.Close()) }()
		until, err := t.Ready()
		if err != nil {
			return err
		}
		var op uring.Op
		var own []int64
		for now := time.Now(); now.Before(until); {
			one := asked.ready(&op)
			began := time.Now()
			if err := errors.Join(ring.Push(one), ring.Wait(1)); err != nil {
				return err
			}
			done := ring.Next()
			now = time.Now()
			if done != one {
				return errors.New("another request is complete than the one that was made")
			}
			if err := done.Err(); err != nil && asked.code != uring.OpTimeout { // which is how timers end
				return err
			}
			own = append(own, int64(now.Sub(began)))
		}
		took, err := t.Done()
		if err != nil {
			return err
		}
		r, err := p.Read()
		if err != nil {
			return err
		}
		return report(t, took, own, r, asked.code)
	}
}

// report says what the program and the probe have seen of the same requests. Were they not the
// same, there is no result.
func report(t *contestant.Turn, took time.Duration, own []int64, r probe.Report, code uring.Opcode) error {
	sum := 0.0
	for _, ns := range own {
		sum += float64(ns)
	}
	for _, h := range r.Latency {
		if h.Op != code.String() {
			continue
		}
		if h.Count != uint64(len(own)) {
			return fmt.Errorf("the probe has seen %d requests of %d", h.Count, len(own))
		}
		seen, n := 0.0, float64(h.Count)
		values := append(contestant.Latencies(own), contestant.Value{Metric: "latency_us_mean", V: sum / n / 1e3})
		for _, s := range h.Segments {
			seen += float64(s.SumNs)
			values = append(values, contestant.Value{Metric: metrics[s.Name], V: float64(s.SumNs) / n})
		}
		values = append(values, contestant.Value{Metric: "probe_share_percent", V: 100 * seen / sum})
		return t.Result(took, uint64(len(own)), values...)
	}
	return errors.New("the probe has seen none of the requests")
}

// metrics are the names of the segments' figures.
var metrics = map[string]string{
	probe.ToQueue: "probe_queue_ns", probe.ToComplete: "probe_complete_ns", probe.AtOnce: "probe_at_once_ns",
	probe.ToReaped: "probe_reaped_ns",
}

// receiving waits for a byte, which a thread sends late µs after it was asked to.
func receiving(string) (request, error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return request{}, os.NewSyscallError("socketpair", err)
	}
	here, buf := uring.NewFile(pair[0]), uring.Wrap(make([]byte, 1))
	ask, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		for range ask {
			sys.Sleep(late)
			if _, err := syscall.Write(pair[1], []byte{1}); err != nil {
				_ = syscall.Shutdown(pair[1], syscall.SHUT_RDWR) // so that nobody waits for it
				ended <- os.NewSyscallError("write", err)
				return
			}
		}
		ended <- nil
	}()
	return request{
		code: uring.OpRecv,
		ready: func(op *uring.Op) *uring.Op {
			select {
			case ask <- struct{}{}:
			default: // it has ended, and the socket is shut
			}
			return op.Recv(here, buf)
		},
		close: func() error {
			close(ask)
			return errors.Join(<-ended, here.Close(), syscall.Close(pair[1]))
		},
	}, nil
}

// syncing makes a page of a file durable that was written before.
func syncing(dir string) (request, error) {
	path := filepath.Join(dir, "synced")
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return request{}, &os.PathError{Op: "open", Path: path, Err: err}
	}
	page, n := make([]byte, 4096), 0
	f := uring.NewFile(fd)
	return request{
		code: uring.OpFsync,
		ready: func(op *uring.Op) *uring.Op {
			n++
			page[0] = byte(n)
			_, _ = syscall.Pwrite(fd, page, 0) // a page that could not be written is nothing to sync
			return op.Fsync(f, true)
		},
		close: func() error { return errors.Join(f.Close(), os.Remove(path)) },
	}, nil
}

// timing waits for a timer.
func timing(string) (request, error) {
	return request{
		code:  uring.OpTimeout,
		ready: func(op *uring.Op) *uring.Op { return op.Timeout(rest, 0) },
		close: func() error { return nil },
	}, nil
}
