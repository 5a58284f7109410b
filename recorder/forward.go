package recorder

import (
	"io/fs"
	"math"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
)

// Forwarder is whoever brings the log to destinations; package forward has one. Books and Hold wait
// for nobody, and are called on any goroutine.
type Forwarder interface {
	Books() []ledger.Forwarding
	// Hold is the first record that retention must leave in the log.
	Hold() uint64
	// Finish brings away what is durable, within a bound of a few seconds, and ends. Stop calls it
	// once nothing more comes, before it closes the log.
	Finish()
}

// forwarding is what the recorder has of the forwarder. The zero value has none.
type forwarding struct {
	by   atomic.Pointer[Forwarder]
	wait bool // one is configured, and what it has not brought away is to be kept
}

// Forwards makes a forwarder known, whose books the sheets then have, and whose records retention
// leaves in the log. Until then it leaves all of them, if the configuration has destinations.
func (r *Recorder) Forwards(f Forwarder) { r.forward.by.Store(&f) }

// finishForward has the forwarder bring away the rest, of which as much as may be is durable.
func (r *Recorder) finishForward() {
	if by := r.forward.by.Load(); by != nil {
		r.syncUntil(time.Now().Add(stopPatience))
		(*by).Finish()
	}
}

// hold is the first record that retention must leave in the log.
func (f *forwarding) hold() uint64 {
	if !f.wait {
		return math.MaxUint64
	}
	if by := f.by.Load(); by != nil {
		return (*by).Hold()
	}
	return 0
}

// accountForwards brings the destinations into a sheet.
func (r *Recorder) accountForwards(s *ledger.Sheet) {
	by := r.forward.by.Load()
	if by == nil {
		return
	}
	books := (*by).Books()
	at := r.log.Position() // after the books: what they have was durable then
	for i := range books {
		books[i].Holding = at.Held && books[i].Through < at.Durable
	}
	s.Forwards(books, at.Durable)
}

// beside is how many bytes lie in the log's folder that a destination within this process keeps
// there.
func beside(c config.Config) func() int64 {
	for _, f := range c.Forward {
		if f.Embedded() {
			return func() int64 { return bytesBelow(archive.ForwardStore(c.Log.Dir)) }
		}
	}
	return nil
}

// bytesBelow is the size of all files in a folder, as far as they can be seen.
func bytesBelow(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		if st, err := e.Info(); err == nil {
			n += st.Size()
		}
		return nil
	})
	return n
}
