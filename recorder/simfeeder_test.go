package recorder

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// feeder is the devices of one source, with their own truth.
type feeder struct {
	id      string
	source  string // the same, but of a caller
	e       *endpoint
	m       maker
	rng     *rand.Rand
	devices int
	next    map[uint32]uint64 // number of a device's next frame
	burst   int               // frames at a time
	pause   time.Duration     // between them, on the average
	harm    int               // damaged or noisy ones of a hundred
	first   uint32            // number of its first device, less 1
	visits  *visits           // of a caller; nil: of no hall
	lag     *lag              // nil: all come in their order
	tempo   tempo             // when they are due

	quit  chan struct{}
	ended sync.WaitGroup

	mu     sync.Mutex
	still  bool // sends nothing
	storm  int  // connections to be made in a row
	more   int  // frames beyond muchSent that it sends at its own rate
	idle   bool // it has noticed that it is to be still
	frames []*sentFrame
	valid  uint64 // frames that were taken whole; of a kernel that keeps only sums
}

// lag holds frames back, which come late: after some that were made after them.
type lag struct {
	rng  *rand.Rand
	held []heldFrame // most a few, and not for long: a book that goes on knows the last gaps of a stream
}

type heldFrame struct {
	*sentFrame
	until int // so many more frames are made
}

// hold reports whether a frame is to come late.
func (l *lag) hold(s *sentFrame) bool {
	if l == nil || len(l.held) == 3 || l.rng.IntN(15) > 0 {
		return false
	}
	l.held = append(l.held, heldFrame{s, 1 + l.rng.IntN(20)})
	return true
}

// due is a frame that comes late now, if there is one: one is asked for behind each that is made.
func (l *lag) due() *sentFrame {
	if l == nil {
		return nil
	}
	for i := range l.held {
		if l.held[i].until--; l.held[i].until <= 0 {
			s := l.held[i].sentFrame
			l.held = slices.Delete(l.held, i, i+1)
			return s
		}
	}
	return nil
}

// sentFrame is a frame, or harm, that was offered to the kernel.
type sentFrame struct {
	w      *wire
	at     uint64 // place in the wire
	data   []byte
	valid  bool
	device uint32
	number uint64
	stored bool
	slot   int64 // in which it was due
	late   bool

	refused   bool // not all of it was taken
	swallowed bool // it came within what passed for a frame
}

func (s *sentFrame) end() uint64   { return s.at + uint64(len(s.data)) }
func (s *sentFrame) certain() bool { return s.w != nil && !s.refused && s.end() <= s.w.accepted }

// batch makes some frames, and adds them to the truth when they are offered to w.
func (f *feeder) batch(n int) (all []*sentFrame, b []byte) {
	for range n {
		device := f.first + uint32(1+f.rng.IntN(f.devices))
		s := &sentFrame{valid: true, device: device, slot: f.tempo.slot, late: f.tempo.behind}
		switch harm := f.rng.IntN(100) < f.harm; {
		case harm && f.rng.IntN(2) == 0 && f.m.kind != "raw" && f.m.kind != "modbus":
			s.valid, s.number = false, f.take(device)
			s.data = f.m.bad(device, s.number)
		case harm && f.m.kind == "tally128" && f.rng.IntN(2) == 0: // made, and never sent
			f.take(device)
			continue
		case harm && f.e.kind != byDatagram && f.tempo.interval == 0 && f.m.junk() != nil:
			s.valid, s.data = false, f.m.junk()
		default:
			s.number = f.take(device)
			s.data = f.m.good(device, s.number)
			if f.lag.hold(s) {
				continue
			}
		}
		all = append(all, s)
		if late := f.lag.due(); late != nil {
			all = append(all, late)
		}
	}
	for _, s := range all {
		b = append(b, s.data...)
	}
	return all, b
}

func (f *feeder) take(device uint32) uint64 {
	n := f.next[device]
	f.next[device] = n + 1
	return n
}

// offer writes frames to a stream.
func (f *feeder) offer(w *wire, all []*sentFrame, b []byte) bool {
	f.e.k.mu.Lock()
	at := w.accepted
	f.e.k.mu.Unlock()
	for _, s := range all {
		s.w, s.at = w, at
		at += uint64(len(s.data))
	}
	f.keep(all)
	for len(b) > 0 { // in pieces of any size
		n := len(b)
		if f.rng.IntN(3) == 0 {
			n = 1 + f.rng.IntN(n)
		}
		if _, ok := w.write(b[:n], f.quit); !ok {
			f.refused(w, all)
			f.count(all)
			return false
		}
		if b = b[n:]; len(b) > 0 && f.rng.IntN(20) == 0 {
			f.sleep(time.Millisecond)
		}
	}
	f.count(all)
	return true
}

// refused notes that the wire took no more: what comes next begins where this ended.
func (f *feeder) refused(w *wire, all []*sentFrame) {
	f.e.k.mu.Lock()
	defer f.e.k.mu.Unlock()
	for _, s := range all {
		s.refused = s.end() > w.accepted
	}
}

// muchSent is how many frames a source sends at its own rate.
const muchSent = 6000

// run sends until quit is closed.
func (f *feeder) run() {
	var w *wire
	defer func() {
		if w != nil && w.kind != byLine {
			w.end()
		}
		f.visits.endAll()
	}()
	for !f.over() {
		if f.tempo.interval > 0 {
			if f.keepTime(); f.over() {
				break
			}
		}
		f.mu.Lock()
		still, storm := f.still, f.storm
		f.idle = still
		f.storm = 0
		f.mu.Unlock()
		switch {
		case still:
			f.sleep(5 * time.Millisecond)
			continue
		case f.e.kind == byDatagram:
			f.datagrams()
		default:
			if storm > 0 && f.visits != nil { // what comes next comes behind what was sent
				w = f.visits.leave(w)
			}
			for range storm {
				if f.visits != nil && f.isStill() {
					break
				}
				if f.e.kind == byListener {
					if c := f.e.connect(); c != nil {
						all, b := f.batch(1 + f.rng.IntN(20))
						f.offer(c, all, b)
						c.end()
					}
				}
			}
			if w = f.keepConnected(w); w == nil {
				f.sleep(20 * time.Millisecond)
				continue
			}
			all, b := f.batch(1 + f.rng.IntN(f.burst))
			if !f.offer(w, all, b) {
				w = nil
			}
		}
		if f.tempo.interval > 0 {
			continue
		}
		pause := f.pause
		f.mu.Lock()
		if len(f.frames) > muchSent+f.more { // enough for the log's buffers
			pause *= 20
		}
		f.mu.Unlock()
		f.sleep(time.Duration(f.rng.Int64N(int64(2 * pause))))
		if f.rng.IntN(100) == 0 {
			f.sleep(time.Duration(f.rng.IntN(1200)) * time.Millisecond)
		}
	}
}

// keepConnected has a wire to send on, now and then another.
func (f *feeder) keepConnected(w *wire) *wire {
	if f.visits != nil {
		return f.visits.keepConnected(f, w)
	}
	if w != nil && w.kind != byLine && f.rng.IntN(30) == 0 {
		w.end()
		w = nil
	}
	if w == nil {
		w = f.e.connect()
	}
	return w
}

func (f *feeder) datagrams() {
	for range 1 + f.rng.IntN(f.burst/2+1) {
		all, b := f.batch(1 + f.rng.IntN(min(4, f.burst)))
		if len(b) == 0 {
			continue
		}
		f.e.k.mu.Lock()
		w := f.e.sock
		at := uint64(0)
		if w != nil {
			at = w.accepted
		}
		f.e.k.mu.Unlock()
		if w != nil && w.send(b) {
			for _, s := range all {
				s.w, s.at = w, at
				at += uint64(len(s.data))
			}
		}
		f.keep(all)
		f.count(all)
	}
}

// keep adds frames to the truth.
func (f *feeder) keep(all []*sentFrame) {
	if f.e.k.brief {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frames = append(f.frames, all...)
}

// count adds frames that have been offered to the sum of those that were taken.
func (f *feeder) count(all []*sentFrame) {
	f.e.k.mu.Lock()
	defer f.e.k.mu.Unlock()
	for _, s := range all {
		if s.valid && s.certain() {
			f.valid++
		}
	}
}

func (f *feeder) over() bool {
	select {
	case <-f.quit:
		return true
	default:
		return false
	}
}

func (f *feeder) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-f.quit:
	case <-t.C:
	}
}

// calm has the feeder send nothing, or go on.
func (f *feeder) calm(still bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.still, f.idle = still, false
}

func (f *feeder) isStill() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.still
}

func (f *feeder) begin() {
	f.quit = make(chan struct{})
	f.ended.Go(f.run)
}

func (f *feeder) end() {
	close(f.quit)
	f.ended.Wait()
}

// readBy is when the last byte of a frame was read, and by which process; ok is false if nobody
// did.
func (s *sentFrame) readBy() (m readMark, ok bool) {
	i, _ := slices.BinarySearchFunc(s.w.reads, s.end(), func(m readMark, end uint64) int {
		if m.end < end {
			return -1
		}
		return 1
	})
	if i == len(s.w.reads) {
		return readMark{}, false
	}
	return s.w.reads[i], true
}

// isCut reports whether a reading ended within the frame.
func (s *sentFrame) isCut() bool {
	return slices.ContainsFunc(s.w.cuts, func(c uint64) bool { return s.at < c && c < s.end() })
}
