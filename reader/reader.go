package reader

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Handler takes the bytes of one port. Its methods are called one at a time.
type Handler interface {
	// Arrived is shown all bytes that it is not done with; the last fresh of them were read just
	// now, at a time in ns since 1970, which datagrams that were read in a row never share. It
	// returns how many, from the front, it is done with, and whether more may be read: false pauses
	// the port until Handle.Resume, which leads to another call with fresh = 0.
	Arrived(view []byte, fresh int, at int64) (done int, more bool)
	// Silent is called when nothing has arrived for Port.Silence and bytes are held, and once more,
	// if some are still held, when nothing has arrived for Port.Patience. at is so much later than
	// that of the last Arrived as nothing has arrived, also where the clock was set meanwhile.
	Silent(view []byte, at int64) (done int)
	// Closed is the last call: the stream ended (io.EOF) or failed, or the port was removed
	// (ErrRemoved). view is what was held. After it returns the descriptor is the owner's to close.
	Closed(view []byte, at int64, err error)
}

// ErrRemoved is given to Handler.Closed when the owner ended the reading.
var ErrRemoved = errors.New("removed")

// Port is a descriptor to read. It must not block (O_NONBLOCK), and must stay open until
// Handler.Closed.
type Port struct {
	FD       int
	Handler  Handler
	Silence  time.Duration // call Silent after so long a pause with bytes held; 0: never
	Patience time.Duration // … and again after so long a one; 0: not again
	Hold     int           // bytes that may be held at once; 0 means 64 KiB
	Messages bool          // every read is a message of its own (datagrams): read until there is none left
	// what an earlier reading of the descriptor held at its end: it counts as read when the port is
	// added
	Before []byte
	Into   Sink // where bytes are read to; nil: to memory of the reader, and Handler is shown them there
}

// Sink is memory that bytes are read to, and that somebody else looks at. A port that has one calls
// Handler.Arrived behind each read, without a view, and Handler.Silent after each pause, whoever
// may hold bytes.
type Sink interface {
	// Read calls read with the place for the next bytes. at is when they were noticed. With more
	// the descriptor may have more than there was place for. With full it has not called read, for
	// there is no room: the port pauses until Handle.Resume.
	Read(at time.Time, fd int, read func(fd int, b []byte) (int, syscall.Errno)) (n int, errno syscall.Errno, more,
		full bool)
	// Last is when bytes came last, and how often Silent was called since, by an earlier reading;
	// zero: there was none.
	Last() (at time.Time, silences int)
}

// Handle is a port being read.
type Handle interface {
	// Resume lets a paused port be read again. It may be called from anywhere, any number of times.
	Resume()
	// Finish ends the reading once everything that the descriptor holds now has been read:
	// Handler.Closed tells when. A port that pauses finishes after it is resumed, and one to which
	// bytes come all the time does not: Remove ends both.
	Finish()
	// Remove ends the reading at once and returns when Handler.Closed has.
	Remove()
}

// Reader reads ports by one strategy.
type Reader interface {
	Add(p Port) (Handle, error)
	// Close removes all ports.
	Close() error
}

// Strategy is a way to read.
type Strategy string

// The strategies.
const (
	Ring     Strategy = "ring"     // one thread, one epoll for all ports
	Blocking Strategy = "blocking" // a goroutine for each port, blocked until there is input
	Polling  Strategy = "polling"  // a goroutine for each port that looks now and then, few of them at a time
)

// Mode is how the strategy ring waits.
type Mode string

// The modes.
const (
	Latency    Mode = "latency"    // wake for every event
	Throughput Mode = "throughput" // look once a tick while data flows: a fraction of the CPU time, up to a tick later
	// look all the time while data flows, sleep when the lines are idle: a CPU for itself
	Hybrid Mode = "hybrid"
)

// Config chooses how ports are read. The zero value is the strategy ring in mode latency.
type Config struct {
	Strategy Strategy
	Mode     Mode
	Tick     time.Duration // throughput: 0 means 5 ms; polling: 0 means 10 ms
	Spin     time.Duration // hybrid: how long to look after the last byte; 0 means 1 ms
	Readers  int           // polling: ports read at a time; 0 means 3
}

func (c Config) check() (Config, error) {
	if c.Strategy == "" {
		c.Strategy = Ring
	}
	if c.Mode == "" {
		c.Mode = Latency
	}
	if c.Strategy != Ring && c.Strategy != Blocking && c.Strategy != Polling {
		return c, fmt.Errorf("strategy %q: want ring, blocking or polling", c.Strategy)
	}
	if c.Mode != Latency && c.Mode != Throughput && c.Mode != Hybrid {
		return c, fmt.Errorf("mode %q: want latency, throughput or hybrid", c.Mode)
	}
	if c.Tick == 0 {
		c.Tick = 5 * time.Millisecond
		if c.Strategy == Polling {
			c.Tick = 10 * time.Millisecond
		}
	}
	if c.Spin == 0 {
		c.Spin = time.Millisecond
	}
	if c.Readers == 0 {
		c.Readers = 3
	}
	if c.Tick < 100*time.Microsecond || c.Tick > time.Second {
		return c, fmt.Errorf("tick %v: want 100µs to 1s", c.Tick)
	}
	if c.Spin < 0 || c.Spin > time.Second {
		return c, fmt.Errorf("spin %v: want up to 1s", c.Spin)
	}
	if c.Readers < 1 || c.Readers > 1024 {
		return c, fmt.Errorf("readers %d: want 1 to 1024", c.Readers)
	}
	return c, nil
}

// Check reports what is wrong with a configuration.
func (c Config) Check() error {
	_, err := c.check()
	return err
}
