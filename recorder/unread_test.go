package recorder

import (
	"context"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// asked is a listener of whose connections a test says whether something waits, each time that the
// port asks: that is when a newer one may take over, and nothing has come for long enough.
type asked struct {
	*listener
	waits func(really bool) bool
}

func (o asked) open(ctx context.Context) (device, error) {
	d, err := o.listener.open(ctx)
	if err != nil {
		return nil, err
	}
	return &askedSocket{d, o.waits}, nil
}

type askedSocket struct {
	device
	waits func(really bool) bool
}

func (d *askedSocket) waiting() bool { return d.waits(d.device.waiting()) }

// What a connection brings while a newer one takes its place is read first: nobody has lost it, for
// its kernel was told that it had arrived.
func TestReplacedConnectionIsReadToItsEnd(t *testing.T) {
	before := openSource
	defer func() { openSource = before }()
	var sender atomic.Pointer[net.Conn]
	var o asked
	openSource = func(s config.Source) opener {
		o = asked{newListener(s.TCP.Listen, s.TCP.Peers), func(really bool) bool {
			c := sender.Load()
			if really || c == nil {
				return really
			}
			sender.Store(nil)
			if _, err := (*c).Write([]byte("last words\n")); err != nil {
				t.Error(err)
				return false
			}
			for acknowledged(t, *c) < uint64(len("hello\nlast words\n")) {
				runtime.Gosched()
			}
			return false
		}}
		return o
	}
	// its looks are far between: nobody reads the last words by chance
	g := start(t, t.TempDir(), func(c *config.Config) {
		c.Read.Strategy, c.Read.Tick, c.Read.Readers = "polling", 400*time.Millisecond, 1
	}, lines("a", config.PeersNewest))
	older := dial(t, o.l.Addr().String())
	defer older.Close()
	write(t, older, []byte("hello\n"))
	stored(t, g, "a", 1)
	sender.Store(&older)
	newer := dial(t, o.l.Addr().String())
	defer newer.Close()
	write(t, newer, []byte("hello\n"))
	stored(t, g, "a", 3)
	if sender.Load() != nil {
		t.Error("the older one was not heard in that moment")
	}
	stop(t, g)
}

// A newer connection does not cut one off that still has something to say, however often it is
// looked whether that has fallen silent.
func TestNewerConnectionWaitsForSilence(t *testing.T) {
	before := openSource
	defer func() { openSource = before }()
	var looks atomic.Int32 // at a connection of which nothing has been read since the last one
	var o asked
	openSource = func(s config.Source) opener {
		o = asked{newListener(s.TCP.Listen, s.TCP.Peers), func(really bool) bool { return looks.Add(1) < 3 || really }}
		return o
	}
	g := start(t, t.TempDir(), nil, lines("a", config.PeersNewest))
	older := dial(t, o.l.Addr().String())
	defer older.Close()
	write(t, older, []byte("one\n"))
	stored(t, g, "a", 1)
	newer := dial(t, o.l.Addr().String())
	defer newer.Close()
	write(t, newer, []byte("two\n"))
	stored(t, g, "a", 2)
	if n := looks.Load(); n != 3 {
		t.Errorf("it was replaced after %d looks, want 3: at the first two something was on its way", n)
	}
	stop(t, g)
}

// What a source that stops cannot take, because there are no descriptors, is in its books: the
// connections, and what had come of the one that was accepted.
func TestWhatAStopCannotTakeIsInTheBooks(t *testing.T) {
	l, _ := testLane(t, config.OverflowBlock)
	o := newListener("127.0.0.1:0", "")
	p := &port{lane: l, opener: o, log: slog.New(slog.DiscardHandler)}
	for range 3 {
		c := dial(t, o.l.Addr().String())
		defer c.Close()
		write(t, c, frames(0, 1))
	}
	testenv.Until(t, time.Minute, "one waits, with what it has sent", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.waiting != nil && waitingIn(o.waiting) == tally128.Size
	})
	takeDescriptors(t, 0)
	p.readRest(nil, time.Now())
	if s := l.sheet(); s.Refused[refusedDescriptors] != 3 || s.Unread[unreadRefused] != tally128.Size ||
		len(s.Unbalanced) > 0 {
		t.Errorf("refused %v, unread %v, unbalanced %v; want 3 connections, and %d bytes of one", s.Refused, s.Unread,
			s.Unbalanced, tally128.Size)
	}
}
