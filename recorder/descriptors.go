package recorder

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/reader"
)

// What is needed of descriptors at a time, beside those that are open when a recorder starts.
const (
	// its folder, lock and segment, how far it is durable, the reader's two, one for a file beside
	// the log, and the prover's two
	ofLog     = 9
	ofMoments = 3 // while a device is opened, or a program is told
	ofClients = 6 // of the API, with what they read, at least

	usual = 10 // are open before: three of every program, and those of Go's runtime

	mostClients = 6144 // more than that the API does not serve
)

// allotment shares out what the process may have, so that those who connect from outside take
// none that the log, a source or the API needs: each source has what it needs in any case, what is
// left goes to clients of the API and to peers beyond the first of a source, half to each where
// both want more, and a quarter to sources to come in any case.
type allotment struct {
	all     int // for sources and their peers
	clients int // for clients of the API

	mu   sync.Mutex
	most int // for peers beyond the first of a source
	used int // … which they have
	each int // which one of them takes
}

// ErrDescriptors: the process may have too few descriptors for its configuration.
var ErrDescriptors = errors.New("too few file descriptors")

// newAllotment shares out what a process that may have limit has left, beside those that are
// open.
func newAllotment(c config.Config, limit, open int) (*allotment, error) {
	own := ofItself(c)
	least := leastOf(c)
	left := limit - open - own - least
	if left < 0 {
		return nil,
			fmt.Errorf("%w: the process may have %d, and needs %d for %d sources: LimitNOFILE=1024 in the unit, or `ulimit -n 1024` "+
				"before the start, or fewer sources", ErrDescriptors, limit, limit-left, len(c.Sources))
	}
	d := &allotment{all: least + left}
	if !c.API.Off() {
		share := max(min(mostOf(c)-least, left/2), left/4, left-mostClients) // a reload may bring sources
		d.clients, d.all = ofClients+left-share, least+share
	}
	d.fit(c)
	return d, nil
}

// ofItself is what a recorder takes beside its sources.
func ofItself(c config.Config) int {
	own := ofLog + reserved + ofMoments
	if !c.API.Off() {
		own += ofAPI(c) + ofClients
	}
	if c.Log.Engine == string(asyncfile.Uring) { // each file has a ring
		own += ofLog
	}
	return own
}

// Descriptors is how many a process needs that records what a configuration says, which has its
// defaults: with one device of each source, without which it does not start, and with all peers.
func Descriptors(c config.Config) (least, most int) {
	own := usual + ofItself(c)
	return own + leastOf(c), own + mostOf(c)
}

// check is an error if there are too few for other sources.
func (d *allotment) check(c config.Config) error {
	least := leastOf(c)
	if least > d.all {
		return fmt.Errorf("%w: the process may have %d more for sources, and %d sources need %d: a restart with LimitNOFILE=1024 in the unit, "+
			"or `ulimit -n 1024` before, takes them all", ErrDescriptors, d.all, len(c.Sources), least)
	}
	return nil
}

// fit gives to peers what the sources leave.
func (d *allotment) fit(c config.Config) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.most, d.each = d.all-leastOf(c), ofPeer(c)
}

// take takes one for a peer beyond the first of a source; false: there is none.
func (d *allotment) take() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.used+d.each > d.most {
		return false
	}
	d.used += d.each
	return true
}

func (d *allotment) giveBack() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used -= d.each
}

// place is what a connection of a source takes that reads every one: the place that the source has
// in any case, else one that all sources share. nil: there is none. The function gives it back.
func (d *allotment) place(first *atomic.Bool) (giveBack func()) {
	switch {
	case first.CompareAndSwap(false, true):
		return func() { first.Store(false) }
	case d.take():
		return d.giveBack
	}
	return nil
}

// ofAPI is what the API needs before anybody connects: where it listens, and two for each loop.
func ofAPI(c config.Config) int {
	loops := c.Server.Loops
	if loops == 0 {
		loops = max(1, runtime.GOMAXPROCS(0)/2)
	}
	return 1 + 2*loops
}

// ofDevice is what one takes that is open: its own, and one to wake whoever reads it, where each is
// read by a goroutine of its own.
func ofDevice(c config.Config) int {
	if c.Read.Strategy == string(reader.Ring) {
		return 1
	}
	return 2
}

// ofPeer is what a peer takes beyond the first of a source: its device. Where another process reads
// that, three have the same limit, and the keeper takes most for a peer: what it is read to, its
// device, and the connection that is about to be it; two more where it may run over into a file.
func ofPeer(c config.Config) int {
	if !c.Isolated() {
		return ofDevice(c)
	}
	runsOver := func(s config.Source) bool { return s.Overflow == config.OverflowSpill && s.TCP.All() }
	if slices.ContainsFunc(c.Sources, runsOver) {
		return 5
	}
	return 3
}

// leastOf is what the sources need when of each one device is open.
func leastOf(c config.Config) (n int) {
	for _, s := range c.Sources {
		n += ofDevice(c)
		if s.TCP != nil && s.TCP.Listen != "" {
			n += 2 // the listener, and a connection that waits
		}
		if s.Overflow == config.OverflowSpill {
			if n++; c.Isolated() { // the near spool
				n++
			}
		}
	}
	return n
}

// mostOf is what they may need, with all their peers and those that wait to become one.
func mostOf(c config.Config) int {
	n := leastOf(c)
	for _, s := range c.Sources {
		if s.TCP.All() {
			n += (s.TCP.MaxPeers + maxArrivals) * ofPeer(c)
		}
	}
	return n
}

// measure is how many descriptors the process may have, and how many are open. Where that is not
// known there is no bound.
func measure() (limit, open int) {
	l, err := sys.LimitOf(sys.LimitFiles)
	if err != nil {
		return math.MaxInt32, 0
	}
	limit = int(min(l.Soft, math.MaxInt32))
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return limit, usual
	}
	return limit, len(entries) - 1 // one is of the look
}

// patiently calls f again while that finds no descriptors, until the deadline.
func patiently(deadline time.Time, f func() error) error {
	for {
		err := f()
		if !noDescriptors(err) || !time.Now().Before(deadline) {
			return err
		}
		time.Sleep(drainRest)
	}
}

func noDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// shortage says whether connections of a listener wait for descriptors, as whoever takes them has
// found.
type shortage struct {
	accept atomic.Bool // the kernel gives none
	share  atomic.Bool // the share of the peers is taken
}

func (s *shortage) is() bool { return s.accept.Load() || s.share.Load() }
