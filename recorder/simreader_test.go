package recorder

import (
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/reader"
)

// simReader reads the wires of a kernel, as package reader does descriptors: the same calls in the
// same order, on a goroutine for each port, which waits in fake time.
type simReader struct {
	k    *kernel
	life *life
	rng  *rand.Rand
	most int              // bytes of a read
	wall func() time.Time // the clock of the machine, which may be set
	mu   sync.Mutex       // guards rng and live
	live map[*simHandle]bool
}

type simHandle struct {
	reader.Port
	r                    *simReader
	w                    *wire
	resume, finish, stop chan struct{}
	once                 sync.Once
	ended                chan struct{}

	view   []byte
	paused bool
	told   int
	last   int64     // when bytes came, as the handler is told
	heard  time.Time // … and by the clock that nobody sets
}

const simHold = 64 << 10

func (r *simReader) Add(p reader.Port) (reader.Handle, error) {
	r.k.mu.Lock()
	w := r.k.fds[p.FD]
	if w.e.by != nil { // it may have waited
		if w.opened(); !w.shown {
			w.begun = time.Now()
		}
	}
	w.shown = true
	r.k.mu.Unlock()
	if p.Hold == 0 {
		p.Hold = simHold
	}
	h := &simHandle{
		Port: p, r: r, w: w, resume: make(chan struct{}, 1), finish: make(chan struct{}, 1),
		stop: make(chan struct{}), ended: make(chan struct{}),
	}
	r.mu.Lock()
	r.live[h] = true
	r.mu.Unlock()
	go h.run()
	return h, nil
}

func (r *simReader) Close() error {
	r.mu.Lock()
	var all []*simHandle
	for h := range r.live {
		all = append(all, h)
	}
	r.mu.Unlock()
	for _, h := range all {
		h.Remove()
	}
	return nil
}

func (r *simReader) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rng.IntN(4) == 0 {
		return r.most
	}
	return 1 + r.rng.IntN(r.most)
}

func (h *simHandle) Resume() { poke(h.resume) }
func (h *simHandle) Finish() { poke(h.finish) }

func (h *simHandle) Remove() {
	h.once.Do(func() { close(h.stop) })
	<-h.ended
}

func (h *simHandle) run() {
	if len(h.Before) > 0 {
		h.last, h.heard = h.r.wall().UnixNano(), time.Now()
		h.show(h.Before)
	}
	err := h.read()
	h.w.rest(h.r.life, err == reader.ErrRemoved)
	h.Handler.Closed(h.view, h.r.wall().UnixNano(), err)
	h.r.mu.Lock()
	delete(h.r.live, h)
	h.r.mu.Unlock()
	close(h.ended)
}

func (h *simHandle) read() error {
	finishing := false
	for {
		select {
		case <-h.stop:
			return reader.ErrRemoved
		case <-h.finish:
			finishing = true
		default:
		}
		if h.paused {
			select {
			case <-h.stop:
				return reader.ErrRemoved
			case <-h.finish:
				finishing = true
			case <-h.resume:
				h.show(nil)
			}
			continue
		}
		b, err := h.w.read(h.r.life, min(h.r.size(), h.Hold-len(h.view)))
		switch {
		case err == nil:
			h.last, h.heard, h.told = h.r.wall().UnixNano(), time.Now(), 0
			h.show(b)
		case finishing && (err == io.EOF || err == errNothing):
			return reader.ErrRemoved
		case err != errNothing:
			return err
		default:
			if h.wait() {
				finishing = true
			}
		}
	}
}

// show presents what is held, with what has just come, in memory that is not there afterwards.
func (h *simHandle) show(fresh []byte) {
	view := append(append([]byte(nil), h.view...), fresh...)
	done, more := h.Handler.Arrived(view, len(fresh), h.last)
	h.keep(view, done)
	h.paused = !more
}

func (h *simHandle) keep(view []byte, done int) {
	h.view = append([]byte(nil), view[done:]...)
	for i := range view {
		view[i] = 0xAA
	}
}

// wait waits for input, the end of a silence, or a command; it reports whether that is to finish.
func (h *simHandle) wait() (finish bool) {
	left := time.Duration(-1)
	due := [2]time.Duration{h.Silence, h.Patience}
	for h.Silence > 0 && len(h.view) > 0 && h.told < len(due) && due[h.told] > 0 {
		silent := time.Since(h.heard)
		if left = due[h.told] - silent; left > 0 {
			break
		}
		left = -1
		h.told++
		view := append([]byte(nil), h.view...)
		h.keep(view, h.Handler.Silent(view, h.last+int64(silent)))
	}
	var silent <-chan time.Time
	if left > 0 {
		t := time.NewTimer(left)
		defer t.Stop()
		silent = t.C
	}
	select {
	case <-h.w.news:
	case <-silent:
	case <-h.stop:
	case <-h.resume:
	case <-h.finish:
		return true
	}
	return false
}
