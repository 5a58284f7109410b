package probelatency

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
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

// request is one kind of request of a ring, or one multishot request: wait waits for what it does
// once, and says how long the program waited; close ends it.
type request struct {
	code      uring.Opcode
	multishot bool
	wait      func(ring *uring.Ring) (time.Duration, error)
	close     func() error
}

// again makes a request again and again, which ready makes ready, and times it from before it is
// pushed.
func again(ready func(op *uring.Op) *uring.Op) func(*uring.Ring) (time.Duration, error) {
	var op uring.Op
	return func(ring *uring.Ring) (time.Duration, error) {
		one := ready(&op)
		began := time.Now()
		if err := errors.Join(ring.Push(one), ring.Wait(1)); err != nil {
			return 0, err
		}
		done := ring.Next()
		took := time.Since(began)
		if done != one {
			return 0, errors.New("another request is complete than the one that was made")
		}
		if err := done.Err(); err != nil && done.Code() != uring.OpTimeout { // which is how timers end
			return 0, err
		}
		return took, nil
	}
}

// follow is the contestant that makes requests, and has the probe look at each of them.
func follow(make func(ring *uring.Ring, dir string) (request, error)) contestant.Work {
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
		asked, err := make(ring, t.Text("dir"))
		if err != nil {
			return errors.Join(err, ring.Close())
		}
		defer func() { err = errors.Join(err, asked.close(), ring.Close()) }()
		until, err := t.Ready()
		if err != nil {
			return err
		}
		var own []int64
		for time.Now().Before(until) {
			took, err := asked.wait(ring)
			if err != nil {
				return err
			}
			own = append(own, int64(took))
		}
		took, err := t.Done()
		if err != nil {
			return err
		}
		r, err := p.Read()
		if err != nil {
			return err
		}
		return report(t, took, own, r, asked)
	}
}

// report says what the program and the probe have seen of the same requests. Were they not the
// same, there is no result.
func report(t *contestant.Turn, took time.Duration, own []int64, r probe.Report, asked request) error {
	sum := 0.0
	for _, ns := range own {
		sum += float64(ns)
	}
	for _, h := range r.Latency {
		if h.Op != asked.code.String() || h.Multishot != asked.multishot {
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
	probe.ToReaped: "probe_reaped_ns", probe.FromReady: "probe_ready_ns",
}

// sender is a thread that sends a byte late µs after it was asked to.
type sender struct {
	here  *uring.File // where it arrives
	there int
	ask   chan struct{}
	sent  atomic.Int64 // when the thread began to send the last one, since began
	began time.Time
	ended chan error
}

func newSender() (*sender, error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	s := &sender{
		here: uring.NewFile(pair[0]), there: pair[1], ask: make(chan struct{}, 1), ended: make(chan error, 1),
		began: time.Now(),
	}
	go func() {
		for range s.ask {
			sys.Sleep(late)
			s.sent.Store(int64(time.Since(s.began)))
			if _, err := syscall.Write(s.there, []byte{1}); err != nil {
				_ = syscall.Shutdown(s.there, syscall.SHUT_RDWR) // so that nobody waits for it
				s.ended <- os.NewSyscallError("write", err)
				return
			}
		}
		s.ended <- nil
	}()
	return s, nil
}

// one asks for a byte.
func (s *sender) one() {
	select {
	case s.ask <- struct{}{}:
	default: // it has ended, and the socket is shut
	}
}

// close comes when no request uses the socket any more.
func (s *sender) close() error {
	close(s.ask)
	return errors.Join(<-s.ended, s.here.Close(), syscall.Close(s.there))
}

// receiving waits for a byte, by a request for each.
func receiving(*uring.Ring, string) (request, error) {
	s, err := newSender()
	if err != nil {
		return request{}, err
	}
	buf := uring.Wrap(make([]byte, 1))
	return request{
		code: uring.OpRecv, close: s.close,
		wait: again(func(op *uring.Op) *uring.Op {
			s.one()
			return op.Recv(s.here, buf)
		}),
	}, nil
}

// arriving waits for bytes by one request, which is complete with each of them. The program's wait
// begins when the other thread sends.
func arriving(ring *uring.Ring, _ string) (request, error) {
	bufs, err := ring.NewBufferRing(8, 64, false)
	if err != nil {
		return request{}, err
	}
	s, err := newSender()
	if err != nil {
		return request{}, err
	}
	each := new(uring.Op).RecvEach(s.here, bufs)
	if err := errors.Join(ring.Push(each), ring.Submit()); err != nil {
		return request{}, errors.Join(err, s.close())
	}
	return request{
		code: uring.OpRecv, multishot: true,
		close: func() error {
			_ = syscall.Shutdown(s.there, syscall.SHUT_RDWR) // the end of what arrives is that of the request
			for each.InFlight() {
				if err := ring.WaitFor(1, time.Second); err != nil {
					return err
				}
				ring.Next()
			}
			return s.close()
		},
		wait: func(ring *uring.Ring) (time.Duration, error) {
			s.one()
			if err := ring.Wait(1); err != nil {
				return 0, err
			}
			done := ring.Next()
			took := time.Since(s.began) - time.Duration(s.sent.Load())
			if done != each || !done.More() {
				return 0, errors.New("another request is complete than the one that was made, or it has ended")
			}
			piece, ok := done.Picked()
			if !ok {
				return 0, errors.Join(errors.New("nothing was received"), done.Err())
			}
			piece.Give()
			return took, nil
		},
	}, nil
}

// syncing makes a page of a file durable that was written before.
func syncing(_ *uring.Ring, dir string) (request, error) {
	path := filepath.Join(dir, "synced")
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return request{}, &os.PathError{Op: "open", Path: path, Err: err}
	}
	page, n := make([]byte, 4096), 0
	f := uring.NewFile(fd)
	return request{
		code: uring.OpFsync,
		wait: again(func(op *uring.Op) *uring.Op {
			n++
			page[0] = byte(n)
			_, _ = syscall.Pwrite(fd, page, 0) // a page that could not be written is nothing to sync
			return op.Fsync(f, true)
		}),
		close: func() error { return errors.Join(f.Close(), os.Remove(path)) },
	}, nil
}

// timing waits for a timer.
func timing(*uring.Ring, string) (request, error) {
	return request{
		code:  uring.OpTimeout,
		wait:  again(func(op *uring.Op) *uring.Op { return op.Timeout(rest, 0) }),
		close: func() error { return nil },
	}, nil
}
