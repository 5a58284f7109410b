package readers

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/ring"
	"github.com/tallywheel/tallywheel/serial"
)

// The articles' two ways to read a port into a ring.

const (
	ringSize = 64 << 10 // bytes

	// The reader looks whether the turn is over so often.
	ringLook = 10 * time.Millisecond

	// Above so much of the ring and so many bytes a second the oldest frame is given up.
	dropFill = 70 // percent
	dropRate = 450_000
	// The rate is that of such a time at least.
	dropOver = 10 * time.Millisecond
)

// ringed is a port that is read into a ring.
type ringed struct {
	port *serial.Port
	ring *ring.Ring
	lane Lane
	over atomic.Bool // the turn is
}

func openRinged(t *contestant.Turn) (*ringed, error) {
	p, err := serial.Open(t.Paths()[0], serial.Config{})
	if err != nil {
		return nil, err
	}
	r, err := ring.New(ringSize)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return &ringed{port: p, ring: r}, nil
}

func (r *ringed) Close() error { return errors.Join(r.port.Close(), r.ring.Close()) }

// fill waits for input and reads it into the ring; 0: there was none, or no room.
func (r *ringed) fill() (n int, err error) {
	space := r.ring.Space()
	if len(space) == 0 {
		return 0, nil
	}
	if ready, _, err := sys.PollIn(r.port.FD(), -1, ringLook); err != nil || !ready {
		return 0, err
	}
	n, err = syscall.Read(r.port.FD(), space)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read: %w", err)
	}
	r.ring.Publish(n)
	return n, nil
}

// take decodes what is in the ring.
func (r *ringed) take() {
	view := r.ring.View()
	done, _ := r.lane.Arrived(view, len(view), 0)
	r.ring.Release(done)
}

// ToldSettings is what Poll says where the port has answered its ioctl.
const ToldSettings = "ioctl TIOCGSERIAL: it says how a UART is set"

// Poll asks ioctl(TIOCGSERIAL), waits in poll(2) and reads into a ring, again and again: what the
// article on ports has instead of a map. It says what the ioctl answers.
func Poll(t *contestant.Turn) error {
	r, err := openRinged(t)
	if err != nil {
		return err
	}
	defer r.Close()
	answer := ""
	var failed error
	var done sync.WaitGroup
	done.Go(func() {
		for failed == nil && !r.over.Load() {
			if _, err := sys.GetSerial(r.port.FD()); err == nil {
				answer = ToldSettings
			} else {
				answer = err.Error()
			}
			if _, failed = r.fill(); failed == nil {
				r.take()
			}
		}
	})
	took, err := r.turn(t, &done, &failed)
	if err == nil {
		err = t.Found("%s", answer)
	}
	if err != nil {
		return err
	}
	return framesResult(t, took, &r.lane.found)
}

// turn is ready, and lets the goroutines work until the turn ends; it takes so long. What failed
// may be looked at once they are done.
func (r *ringed) turn(t *contestant.Turn, done *sync.WaitGroup, failed *error) (took time.Duration, err error) {
	if _, err := t.Ready(); err != nil {
		return 0, err
	}
	t.End()
	took = t.Elapsed()
	r.over.Store(true)
	done.Wait()
	return took, *failed
}

// Oldest reads into a ring by one goroutine and takes frames out by another, which gives up the
// oldest one while the ring is fuller than 70 % and more than 450 KB/s come, as the article on
// ports has it.
func Oldest(t *contestant.Turn) error {
	r, err := openRinged(t)
	if err != nil {
		return err
	}
	defer r.Close()
	var failed error
	var came atomic.Uint64 // bytes; the first goroutine's
	filled := make(chan struct{}, 1)
	var done sync.WaitGroup
	done.Go(func() {
		defer close(filled)
		for failed == nil && !r.over.Load() {
			var n int
			if n, failed = r.fill(); n == 0 {
				if len(r.ring.Space()) == 0 {
					time.Sleep(time.Millisecond) // it waits for the other
				}
				continue
			}
			came.Add(uint64(n))
			select {
			case filled <- struct{}{}:
			default:
			}
		}
	})
	done.Go(func() {
		at, had, rate := time.Now(), uint64(0), 0.0
		for more := true; more; {
			_, more = <-filled
			if took := time.Since(at); took >= dropOver {
				n := came.Load()
				at, had, rate = at.Add(took), n, float64(n-had)/took.Seconds()
			}
			for rate > dropRate && r.ring.Len() > ringSize*dropFill/100 {
				r.ring.Release(tally128.Size)
			}
			r.take()
		}
	})
	took, err := r.turn(t, &done, &failed)
	if err != nil {
		return err
	}
	return framesResult(t, took, &r.lane.found)
}
