package recorder

import (
	"io"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/seglog"
)

// reserved is how many descriptors are held back for the log: for its next segments and for syncing
// the directory, while connections to the API or senders have taken all others.
const reserved = 8

// reserve is a directory that has descriptors of its own: a call that finds none to be had gets one
// of them.
type reserve struct {
	seglog.FS

	mu    sync.Mutex
	spare []int     // eventfds: the cheapest thing that has a descriptor
	until time.Time // how long what finds none in the reserve either is tried again; zero: it is not
}

func newReserve(dir seglog.FS) *reserve {
	r := &reserve{FS: dir}
	r.refill()
	return r
}

// refill takes what is missing, as far as it is to be had. mu is held, except by newReserve.
func (r *reserve) refill() {
	for len(r.spare) < reserved {
		fd, err := sys.Eventfd()
		if err != nil {
			return
		}
		r.spare = append(r.spare, fd)
	}
}

// restock takes back what was lent, now and then: a file that was opened with a descriptor of the
// reserve gives it back to the process.
func (r *reserve) restock() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refill()
}

// waitFor has what finds no descriptors tried again from now on, for so long: at a stop, behind
// which nothing tries it again.
func (r *reserve) waitFor(patience time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = time.Now().Add(patience)
}

// patiently calls f again while that finds no descriptors, for as long as waitFor has said.
func (r *reserve) patiently(f func() error) error {
	r.mu.Lock()
	until := r.until
	r.mu.Unlock()
	return patiently(until, f)
}

// lend makes a call that may need a descriptor.
func (r *reserve) lend(call func() error) error {
	return r.patiently(func() error { return r.lendOnce(call) })
}

func (r *reserve) lendOnce(call func() error) error {
	err := call()
	if !noDescriptors(err) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refill()
	if n := len(r.spare); n > 0 {
		_ = sys.CloseFD(r.spare[n-1])
		r.spare = r.spare[:n-1]
		err = call()
	}
	r.refill()
	return err
}

func (r *reserve) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, fd := range r.spare {
		_ = sys.CloseFD(fd)
	}
	r.spare = nil
}

// Create implements seglog.FS.
func (r *reserve) Create(name string) (f seglog.File, err error) {
	err = r.lend(func() error { f, err = r.FS.Create(name); return err })
	return f, err
}

// Open implements seglog.FS.
func (r *reserve) Open(name string) (f seglog.File, err error) {
	err = r.lend(func() error { f, err = r.FS.Open(name); return err })
	return f, err
}

// List implements seglog.FS.
func (r *reserve) List() (names []string, err error) {
	err = r.lend(func() error { names, err = r.FS.List(); return err })
	return names, err
}

// Sync implements seglog.FS.
func (r *reserve) Sync() error { return r.lend(r.FS.Sync) }

// Lock implements seglog.FS.
func (r *reserve) Lock() (c io.Closer, err error) {
	err = r.lend(func() error { c, err = r.FS.Lock(); return err })
	return c, err
}
