package reader

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ring"
)

// New starts a reader.
func New(cfg Config) (Reader, error) {
	cfg, err := cfg.check()
	if err != nil {
		return nil, err
	}
	if cfg.Strategy == Ring {
		return newRingReader(cfg)
	}
	return newGoroutines(cfg), nil
}

const (
	defaultHold = 64 << 10
	// burst bounds the reads of one port in a row, so that a fast one does not starve the others.
	burst = 16
	// fullRead is a read after which a tty may hold more at once: its own buffer gives up to 4095
	// bytes.
	fullRead = 2048
	// lookAgain is how soon a pause is looked at again that ends with bytes to read, which end the
	// wait at once.
	lookAgain = time.Millisecond
	// pressing is what one visit to a port may bring before a tick is too long: all that the line
	// discipline of a tty holds.
	pressing = 4095
)

// feed is what every strategy does with one port: read into the ring, show the handler what is
// there.
type feed struct {
	Port
	ring   *ring.Ring
	paused bool
	atEnd  bool   // the stream has ended behind what there is to read
	urgent bool   // a read may end at an urgent byte of TCP, with more behind it
	finish bool   // the port ends as soon as there is nothing to read
	filled bool   // the last read took all that the sink had place for: there may be more
	told   int    // calls of Silent since bytes last arrived
	last   moment // when bytes last arrived
}

// moment is one reading of the clock: wall is what handlers are told, in ns since 1970, and may be
// set at any time, so the length of a silence is taken from steady, which nobody sets.
type moment struct {
	wall   int64
	steady time.Duration // since the program started
	both   time.Time
}

// next is a moment for what was noticed at the same time and came behind.
func (m moment) next() moment {
	return moment{m.wall + 1, m.steady + 1, m.both.Add(1)}
}

var programStart = time.Now()

func clock() moment {
	t := time.Now()
	return moment{t.UnixNano(), t.Sub(programStart), t}
}

func newFeed(p Port) (*feed, error) {
	if p.Into != nil {
		f := &feed{Port: p, told: len(silences{})} // before the first byte no silence is told
		if at, told := p.Into.Last(); !at.IsZero() {
			f.last, f.told = moment{at.UnixNano(), at.Sub(programStart), at}, told
		}
		return f, nil
	}
	if p.Hold == 0 {
		p.Hold = defaultHold
	}
	r, err := ring.New(max(p.Hold, len(p.Before)))
	if err != nil {
		return nil, err
	}
	return &feed{Port: p, ring: r}, nil
}

// begin shows what an earlier reading held.
func (f *feed) begin() {
	if f.Into != nil {
		return
	}
	if n := copy(f.ring.Space(), f.Before); n > 0 {
		f.last = clock()
		f.arrived(f.ring.Space(), n)
	}
	f.Before = nil
}

// visit is what one pull found.
type visit struct {
	bytes int
	more  bool // the burst is over and there may be more at once
}

// pull reads what there is, up to a burst, by the given system call. A short read of a stream means
// that there is no more for now, unless the stream has ended behind it, or a byte in it is urgent:
// then it reads on until there is nothing. now is the time at which the input was noticed.
func (f *feed) pull(read func(int, []byte) (int, syscall.Errno), now moment) (v visit, err error) {
	if f.Into == nil {
		f.ring.Rewind()
	}
	for range burst {
		n, errno, space, err := f.read(read, now)
		switch {
		case err != nil || f.paused:
			return v, err
		case errno == syscall.EAGAIN:
			f.urgent = false
			return v, nil
		case errno == syscall.EINTR:
			continue
		case errno == syscall.ECONNREFUSED && f.Messages: // an answer to a datagram of ours: not of interest
			continue
		case errno != 0:
			return v, os.NewSyscallError("read", errno)
		case n == 0 && !f.Messages:
			return v, io.EOF
		}
		v.bytes += n
		f.last, f.told = now, 0
		f.arrived(space, n)
		if f.Messages {
			now = now.next()
		}
		if f.paused || n < fullRead && !f.filled && !f.Messages && !f.atEnd && !f.urgent && !f.finish {
			return v, nil
		}
	}
	v.more = true
	return v, nil
}

// read reads once: to the ring, behind which space is, or to the sink, which may have no room.
func (f *feed) read(read func(int, []byte) (int, syscall.Errno), now moment) (n int, errno syscall.Errno, space []byte,
	err error,
) {
	if f.Into != nil {
		n, errno, f.filled, f.paused = f.Into.Read(now.both, f.FD, read)
		return n, errno, nil, nil
	}
	if space = f.ring.Space(); len(space) == 0 {
		return 0, 0, nil, fmt.Errorf("handler holds all %d bytes of the buffer", f.ring.Size())
	}
	n, errno = read(f.FD, space)
	return n, errno, space, nil
}

// finished reports whether a visit that ended without an error was the last one of a port that
// finishes.
func (f *feed) finished(v visit) bool { return f.finish && !f.paused && !v.more }

// arrived shows the n bytes that were just read into the ring's space. When nothing was held before
// and the handler is done with all of it, which is the common case, the ring need not know.
func (f *feed) arrived(space []byte, n int) {
	if f.Into != nil {
		f.show(n)
		return
	}
	if f.ring.Len() > 0 {
		f.ring.Publish(n)
		f.show(n)
		return
	}
	done, more := f.Handler.Arrived(space[:n:n], n, f.last.wall)
	f.paused = !more
	if done < n {
		f.ring.Publish(n)
		f.ring.Release(done)
	}
}

// show presents what is held to the handler.
func (f *feed) show(fresh int) {
	done, more := f.Handler.Arrived(f.view(), fresh, f.last.wall)
	f.release(done)
	f.paused = !more
}

// view is what the handler holds; nil where others look at it.
func (f *feed) view() []byte {
	if f.Into != nil {
		return nil
	}
	return f.ring.View()
}

func (f *feed) release(n int) {
	if f.Into == nil {
		f.ring.Release(n)
	}
}

// isQuiet reports whether nothing is held that a silence could end.
func (f *feed) isQuiet() bool { return f.Into == nil && f.ring.Len() == 0 }

// silences is the pauses of a port after which Silent is called.
type silences [2]time.Duration

// silence calls the handler if the pause has been long enough, and returns how long it still has to
// be; < 0 if no call is due. A line whose bytes wait to be read is not silent: a reader that is
// late, or had no room for a while, would cut a frame in two.
func (f *feed) silence(now moment) time.Duration {
	if f.Silence == 0 || f.paused || f.isQuiet() {
		return -1
	}
	due, silent := silences{f.Silence, f.Patience}, now.steady-f.last.steady
	for f.told < len(due) && due[f.told] > 0 && !f.isQuiet() {
		if left := due[f.told] - silent; left > 0 {
			return left
		}
		if n, err := sys.Waiting(f.FD); err == nil && n > 0 {
			return lookAgain
		}
		f.told++
		f.release(f.Handler.Silent(f.view(), f.last.wall+int64(silent)))
	}
	return -1
}

// end gives the port back to its owner.
func (f *feed) end(err error) {
	if f.finish && err == io.EOF {
		err = ErrRemoved
	}
	f.Handler.Closed(f.view(), time.Now().UnixNano(), err)
	f.close()
}

func (f *feed) close() {
	if f.Into == nil {
		_ = f.ring.Close() // unmapping memory that we mapped cannot fail
	}
}

// clockMs rounds a wait up to the milliseconds that epoll takes; a negative one has no end.
func clockMs(d time.Duration) int {
	if d < 0 {
		return -1
	}
	return int((d + time.Millisecond - 1) / time.Millisecond)
}

// rawRead is the read of the strategy ring, plainRead that of the others.
var (
	rawRead   = sys.ReadRaw
	plainRead = sys.ReadBlocking
)
