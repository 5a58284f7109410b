package ipc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ring"
)

// Errors of the ends of a ring, to be found by errors.Is.
var (
	ErrPeerDied   = errors.New("the process at the other end has ended without closing it")
	ErrPeerClosed = errors.New("the other end is closed")
	ErrReplaced   = errors.New("another process has taken this end")
	ErrCorrupt    = ring.ErrCorrupt // what lies in the shared memory cannot be: the other side is wrong, or hostile
)

// kernel is what an end asks of it. step stands between two steps that another process can see; a
// test ends a side there.
type kernel interface {
	sleep(bell *atomic.Uint32, while uint32, atMost time.Duration)
	wake(bell *atomic.Uint32)
	step()
}

type futex struct{}

func (futex) sleep(bell *atomic.Uint32, while uint32, atMost time.Duration) {
	sys.FutexWait(bell, while, atMost)
}
func (futex) wake(bell *atomic.Uint32) { sys.FutexWake(bell) }
func (futex) step()                    {}

// end is what both ends of a ring have: a life, a bell, and somebody at the other end.
//
// Who sleeps stores how many bytes it sleeps for in its own bell, looks once more, and sleeps while
// the bell says so. Who publishes or releases stores its index, looks at the other's bell, and if
// the sleeper has enough by then sets the bell to 0 and wakes it. These are atomic operations,
// which have one order for all: either the sleeper's last look sees the index, or the other sees
// the bell. Who is killed between index and wake leaves a sleeper, which its own watcher wakes, or
// the next at the other end, when it takes it.
type end struct {
	life, peerLife *atomic.Uint32
	bell, peerBell *atomic.Uint32
	own            uint32        // life as it was taken
	closedErr      error         // what a closed peer means here
	spin           time.Duration // before it sleeps
	kernel         kernel
	gone           *atomic.Bool // of the ring: its memory is released

	dead atomic.Uint32         // the newest life of the peer that is known to have ended; 0: none
	halt atomic.Pointer[error] // of Interrupt

	mu     sync.Mutex // of others than the owner: the memory is there while closed is open
	closed chan struct{}
}

const defaultSpin = 50 * time.Microsecond

func spinFor(d time.Duration) time.Duration {
	switch {
	case d == 0 && runtime.NumCPU() > 1:
		return defaultSpin
	case d < 0:
		return 0
	}
	return d
}

// take takes end i: 0 is the producer's, 1 the consumer's.
func (r *Ring) take(i int) *end {
	e := r.endOf(i, futex{})
	e.attach()
	r.mu.Lock()
	before := r.ends[i]
	r.ends[i] = e
	r.mu.Unlock()
	if before != nil {
		before.close()
	}
	return e
}

func (r *Ring) endOf(i int, k kernel) *end {
	o := r.shared.Owner()
	e := &end{
		life: ring.Uint32(o, livesAt+4*i), peerLife: ring.Uint32(o, livesAt+4*(1-i)),
		bell: ring.Uint32(o, bellsAt+betweenEnds*i), peerBell: ring.Uint32(o, bellsAt+betweenEnds*(1-i)),
		closedErr: ErrPeerClosed, spin: r.spin, kernel: k, gone: &r.gone, closed: make(chan struct{}),
	}
	if i == 1 {
		e.closedErr = io.EOF
	}
	return e
}

// attach begins a generation. The peer looks again, in case its last one was killed before a wake.
func (e *end) attach() {
	for {
		old := e.life.Load()
		e.own = (old + 1) | 1
		if e.life.CompareAndSwap(old, e.own) {
			break
		}
	}
	e.kernel.step()
	e.rouse(e.bell) // of one that was killed asleep, or still sleeps and is replaced
	e.kernel.step()
	e.rouse(e.peerBell)
}

// rouse wakes whoever sleeps at a bell, with or without what it sleeps for.
func (e *end) rouse(bell *atomic.Uint32) {
	bell.Store(0)
	e.kernel.step()
	e.kernel.wake(bell)
}

func (e *end) wakePeer(want uint32) {
	e.kernel.step()
	if e.peerBell.CompareAndSwap(want, 0) {
		e.kernel.step()
		e.kernel.wake(e.peerBell)
	}
}

// errClosed is the error of an end of a ring that this process has closed.
var errClosed = fmt.Errorf("ipc: the ring: %w", os.ErrClosed)

// mustBeThere panics where the memory is released: to touch it would end the process.
func (e *end) mustBeThere() {
	if e.gone.Load() {
		panic(errClosed)
	}
}

// current is an error if the memory is released, or another has taken this end.
func (e *end) current() error {
	if e.gone.Load() {
		return errClosed
	}
	if life := e.life.Load(); life != e.own {
		return fmt.Errorf("ipc: %w (generation %d, this is %d)", ErrReplaced, (life+1)/2, e.Generation())
	}
	return nil
}

// Generation counts who has had this end since the ring was made, from 1.
func (e *end) Generation() uint32 { return (e.own + 1) / 2 }

// peer says why nothing more comes from the other end, or nil.
func (e *end) peer() error {
	life := e.peerLife.Load()
	switch {
	case life&1 == 1 && e.dead.Load() == life:
		return fmt.Errorf("ipc: %w (generation %d)", ErrPeerDied, (life+1)/2)
	case life == 0 || life&1 == 1:
		return nil
	default:
		return e.closedErr
	}
}

// slice is the longest sleep: then it looks whether it was forgotten, by a peer that is wrong, or
// one that nobody watches.
const slice = time.Second

// wait waits until ready says so, or fails; for n bytes.
func (e *end) wait(n int, within time.Duration, ready func() (bool, error)) error {
	start, spinning := time.Now(), e.spin
	if within >= 0 {
		spinning = min(spinning, within)
	}
	for spinning > 0 {
		for range 64 {
			if ok, err := ready(); ok || err != nil {
				return err
			}
		}
		if time.Since(start) >= spinning {
			break
		}
	}
	for {
		e.bell.Store(uint32(n))
		e.kernel.step()
		why := e.why() // before the last look: what was published before the end counts
		ok, err := ready()
		if ok || err != nil {
			why = err
		}
		left := slice
		if within >= 0 && why == nil && !ok {
			if left = min(left, within-time.Since(start)); left <= 0 {
				why = os.ErrDeadlineExceeded
			}
		}
		if ok || why != nil {
			e.bell.Store(0)
			return why
		}
		e.kernel.step()
		e.kernel.sleep(e.bell, uint32(n), left)
	}
}

// why says why waiting makes no sense.
func (e *end) why() error {
	if halt := e.halt.Load(); halt != nil {
		return *halt
	}
	return e.peer()
}

// Interrupt makes Wait return err from now on, the one that waits now, too, unless there is what it
// waits for. Any goroutine may call it; nil takes it back.
func (e *end) Interrupt(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		e.halt.Store(nil)
		return
	}
	e.halt.Store(&err)
	e.again()
}

// again makes the owner look again; under mu.
func (e *end) again() {
	select {
	case <-e.closed:
	default:
		e.rouse(e.bell)
	}
}

// Watch makes Wait return [ErrPeerDied] once p has ended without closing the other end, which it
// has as that generation, and all that it published has been taken. The generation is what
// Generation says there: p has to tell it, by a [Conn]. A process that ends before it has the end
// is told by [Process.Done] alone. Watch does not close p, which may be closed once it has ended.
func (e *end) Watch(p *Process, generation uint32) {
	go func() {
		select {
		case <-p.Done():
			e.mu.Lock()
			defer e.mu.Unlock()
			e.died(2*generation - 1)
		case <-e.closed:
		}
	}()
}

// died notes that who had a life of the other end has ended; under mu.
func (e *end) died(life uint32) {
	if int32(life-e.dead.Load()) > 0 { // the newest
		e.dead.Store(life)
	}
	e.again()
}

// close ends the generation, unless another has begun, and wakes the peer to see it.
func (e *end) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.closed:
		return
	default:
		close(e.closed)
	}
	if e.life.CompareAndSwap(e.own, e.own+1) {
		e.kernel.step()
		e.rouse(e.peerBell)
	}
}
