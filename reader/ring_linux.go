package reader

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

const (
	wakeTag = -1 // tag of the eventfd in the epoll set

	// maxEvents is the most events of one wait; the next brings the others.
	maxEvents = 128

	// idleAfter is how long without input the thread keeps its P.
	idleAfter = 20 * time.Millisecond
	// maxWait bounds waits, so that a lost wake-up cannot hang a stop for ever; but for forever.
	maxWait = 10 * time.Second
)

// forever is a wait without a limit: see [sys.Interrupts].
const forever = -time.Millisecond

// ringReader is the strategy ring: everything but commands is the thread's alone.
type ringReader struct {
	cfg   Config
	epoll *sys.Epoll
	wake  int // eventfd
	ports []*feed
	free  []int32 // unused places in ports
	done  chan struct{}
	// withSilence counts the ports for which pauses matter.
	withSilence int
	now         moment    // when the events at hand were noticed
	spare       []int32   // memory for the next again
	again       []int32   // ports that had more than a burst: no event will tell of it
	pressed     bool      // throughput: a port brought so much that a tick would be too long
	quietSince  time.Time // of the first wait in vain since the last input
	beat        *beat     // nil: the thread does not keep time
	procs       int       // GOMAXPROCS before Alone; 0: that was not called

	mu       sync.Mutex
	commands []func()
	stopping bool
	closed   bool
}

func newRingReader(cfg Config) (*ringReader, error) {
	ep, err := sys.NewEpoll(maxEvents)
	if err != nil {
		return nil, err
	}
	wake, err := sys.Eventfd()
	r := &ringReader{cfg: cfg, epoll: ep, wake: wake, done: make(chan struct{})}
	if err == nil {
		err = r.watch(wake, wakeTag)
	}
	if err != nil {
		_ = sys.CloseFD(wake)
		return nil, errors.Join(err, ep.Close())
	}
	sys.AddProcs(1)
	go r.loop()
	return r, nil
}

// Alone tells a reader that its process does next to nothing else, and sets GOMAXPROCS to 2 until
// Close: one for the thread that reads, and one for all else. Go's scheduler asks each goroutine
// that has run for 10 ms to let others run, and a wait in a raw call is running, for it. One that
// is locked to its thread is given back to that by another thread: some six context switches, 40
// times a second. Where nobody else computes it need not be locked to stay where its caches are.
// This changes nothing of other strategies, and is not for a thread that keeps time.
func Alone(r Reader) {
	if ring, ok := r.(*ringReader); ok {
		ring.do(func() {
			ring.procs = runtime.GOMAXPROCS(2)
			runtime.UnlockOSThread()
		})
	}
}

// watch has events that carry tag tell when a descriptor has got input since the last of them.
func (r *ringReader) watch(fd int, tag int32) error {
	return r.epoll.Add(fd, sys.Readable|sys.Urgent|sys.Edges, uint64(uint32(tag)))
}

// do runs f on the thread and returns when it has; false if the reader is closed.
func (r *ringReader) do(f func()) bool {
	ran := make(chan struct{})
	if !r.post(func() { f(); close(ran) }) {
		return false
	}
	<-ran
	return true
}

// post has f run on the thread soon.
func (r *ringReader) post(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.commands = append(r.commands, f)
	sys.EventfdSignal(r.wake)
	return true
}

// Add implements Reader.
func (r *ringReader) Add(p Port) (Handle, error) {
	f, err := newFeed(p)
	if err != nil {
		return nil, err
	}
	h := &ringHandle{r: r, f: f, ended: make(chan struct{})}
	if !r.do(func() { err = r.add(f, h) }) {
		err = fmt.Errorf("reader is closed")
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return h, nil
}

func (r *ringReader) add(f *feed, h *ringHandle) error {
	if n := len(r.free); n > 0 {
		h.tag, r.free = r.free[n-1], r.free[:n-1]
	} else {
		h.tag = int32(len(r.ports))
		r.ports = append(r.ports, nil)
	}
	if err := r.watch(f.FD, h.tag); err != nil {
		r.free = append(r.free, h.tag)
		return err
	}
	r.ports[h.tag] = f
	if f.Silence > 0 {
		r.withSilence++
	}
	f.Handler = &endNotice{f.Handler, h.ended}
	if f.begin(); f.paused {
		_ = r.epoll.Remove(f.FD)
	}
	return nil
}

// endNotice tells the handle when the port has ended.
type endNotice struct {
	Handler
	ended chan struct{}
}

func (e *endNotice) Closed(view []byte, at int64, err error) {
	e.Handler.Closed(view, at, err)
	close(e.ended)
}

type ringHandle struct {
	r     *ringReader
	f     *feed
	tag   int32
	ended chan struct{}
}

// Resume implements Handle.
func (h *ringHandle) Resume() {
	h.r.post(func() {
		if h.r.ports[h.tag] != h.f || !h.f.paused {
			return
		}
		if h.f.show(0); h.f.paused {
			return
		}
		if err := h.r.watch(h.f.FD, h.tag); err != nil {
			h.r.drop(h.tag, err)
			return
		}
		if h.f.finish { // there may be nothing more to read, which is no event
			h.r.visit(h.tag)
		}
	})
}

// Finish implements Handle.
func (h *ringHandle) Finish() {
	h.r.post(func() {
		if h.r.ports[h.tag] == h.f {
			h.f.finish = true
			h.r.visit(h.tag)
		}
	})
}

// Remove implements Handle.
func (h *ringHandle) Remove() {
	h.r.do(func() {
		if h.r.ports[h.tag] == h.f {
			h.r.drop(h.tag, ErrRemoved)
		}
	})
	<-h.ended
}

// drop ends a port.
func (r *ringReader) drop(tag int32, err error) {
	f := r.ports[tag]
	r.ports[tag] = nil
	r.free = append(r.free, tag)
	if f.Silence > 0 {
		r.withSilence--
	}
	if !f.paused {
		_ = r.epoll.Remove(f.FD) // a reload may hand the descriptor on; where it is closed it leaves by itself
	}
	f.end(err)
}

// Close implements Reader.
func (r *ringReader) Close() error {
	if !r.post(func() { r.stopping = true }) {
		return nil
	}
	<-r.done
	return nil
}

// loop is the thread. It stays one thread: a goroutine that is pre-empted goes on on any other,
// with cold caches. See Alone.
func (r *ringReader) loop() {
	runtime.LockOSThread()
	defer close(r.done)
	for !r.stopping {
		n, err := r.wait()
		if err != nil { // only a bug in this file can cause it
			panic(fmt.Sprintf("reader: %v", err))
		}
		again := r.again
		r.again, r.spare = r.spare[:0], again
		if n+len(again) > 0 {
			r.now = clock() // one reading of the clock for all that came at once
		}
		for i := range n {
			events, id := r.epoll.Event(i)
			r.event(int32(uint32(id)), events)
		}
		for _, tag := range again {
			r.visit(tag)
		}
		if r.beat != nil {
			r.beat.yield()
		}
	}
	r.shut()
}

func (r *ringReader) shut() {
	for tag, f := range r.ports {
		if f != nil {
			r.drop(int32(tag), ErrRemoved)
		}
	}
	r.mu.Lock()
	r.closed = true
	rest := r.commands
	r.commands = nil
	r.mu.Unlock()
	for _, f := range rest {
		f()
	}
	for tag, f := range r.ports { // added by a command that came too late
		if f != nil {
			r.drop(int32(tag), ErrRemoved)
		}
	}
	_ = sys.CloseFD(r.wake)
	_ = r.epoll.Close()
	if r.procs > 0 {
		runtime.GOMAXPROCS(r.procs)
	}
	if r.beat == nil {
		sys.AddProcs(-1)
	}
}

// event serves one descriptor. It is not inlined: a loop of raw system calls needs one real call a
// turn, or the garbage collector could never stop the thread.
//
//go:noinline
func (r *ringReader) event(tag int32, events uint32) {
	if tag == wakeTag {
		sys.EventfdDrain(r.wake)
		r.mu.Lock()
		commands := r.commands
		r.commands = nil
		r.mu.Unlock()
		for _, f := range commands {
			f()
		}
		return
	}
	if f := r.ports[tag]; f != nil {
		f.atEnd = f.atEnd || events&sys.Ended != 0
		f.urgent = f.urgent || events&sys.Urgent != 0
		r.visit(tag)
	}
}

// visit reads what a port holds, up to a burst.
func (r *ringReader) visit(tag int32) {
	f := r.ports[tag]
	if f == nil || f.paused {
		return
	}
	v, err := f.pull(rawRead, r.now)
	r.pressed = r.pressed || v.bytes >= pressing
	switch {
	case err != nil:
		r.drop(tag, err)
	case f.paused:
		_ = r.epoll.Remove(f.FD) // Resume adds it again, which brings an event if there is anything to read
	case v.more:
		r.again = append(r.again, tag)
	case f.finished(v):
		r.drop(tag, ErrRemoved)
	}
}

// wait waits for events as the mode has it, and sees to pauses on the line.
func (r *ringReader) wait() (int, error) {
	limit := maxWait
	if r.withSilence > 0 {
		limit = min(limit, r.silences())
	}
	var quiet time.Duration // time since the first wait in vain; while data flows no clock is read
	if !r.quietSince.IsZero() {
		quiet = time.Since(r.quietSince)
	}
	wait := r.epoll.WaitRaw
	switch {
	case len(r.again) > 0:
		limit = 0
	case r.beat != nil: // it holds its place always: to have it back it would wait for others
		limit = min(limit, yieldAfter)
	case quiet > idleAfter: // wait as everybody does, and hold nothing
		wait = r.epoll.Wait
	case r.cfg.Mode == Throughput && !r.pressed: // else a buffer below us would be full before the tick is over
		sys.SleepRaw(min(r.cfg.Tick, limit))
		limit = 0
	case r.cfg.Mode == Hybrid && quiet < r.cfg.Spin:
		limit = 0
	case !sys.Interrupts:
		limit = min(limit, idleAfter)
	case limit == maxWait:
		limit = forever
	}
	r.pressed = false
	n, err := wait(clockMs(limit))
	if n > 0 {
		r.quietSince = time.Time{}
	} else if r.quietSince.IsZero() {
		r.quietSince = time.Now()
	}
	return n, err
}

// silences calls the handlers whose pause is over and returns the time to the next such moment.
func (r *ringReader) silences() time.Duration {
	now, next := clock(), maxWait
	for _, f := range r.ports {
		if f == nil {
			continue
		}
		if left := f.silence(now); left > 0 {
			next = min(next, left)
		}
	}
	return next
}
