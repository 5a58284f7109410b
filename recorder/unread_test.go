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

// lastWords is a listener of whose connections each is heard once more in the moment in which a
// newer one takes over: speak is called where it is found that nothing has come for long enough.
type lastWords struct {
	*listener
	speak func()
}

func (o lastWords) open(ctx context.Context) (device, error) {
	d, err := o.listener.open(ctx)
	if err != nil {
		return nil, err
	}
	return &lastWord{d, o.speak}, nil
}

type lastWord struct {
	device
	speak func()
}

func (d *lastWord) waiting() bool {
	waits := d.device.waiting()
	if !waits {
		d.speak()
	}
	return waits
}

// What a connection brings while a newer one takes its place is read first: nobody has lost it, for
// its kernel was told that it had arrived.
func TestReplacedConnectionIsReadToItsEnd(t *testing.T) {
	before := openSource
	defer func() { openSource = before }()
	var sender atomic.Pointer[net.Conn]
	var o lastWords
	openSource = func(s config.Source) opener {
		o = lastWords{newListener(s.TCP.Listen, s.TCP.Peers), func() {
			c := sender.Swap(nil)
			if c == nil {
				return
			}
			if _, err := (*c).Write([]byte("last words\n")); err != nil {
				t.Error(err)
				return
			}
			for acknowledged(t, *c) < uint64(len("hello\nlast words\n")) {
				runtime.Gosched()
			}
		}}
		return o
	}
	g := start(t, t.TempDir(), func(c *config.Config) { // its looks are far between: nobody reads the last words by chance
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
	var o talker
	openSource = func(s config.Source) opener {
		o = talker{newListener(s.TCP.Listen, s.TCP.Peers), func() bool { return looks.Add(1) < 3 }}
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

// talker is a listener of whose first connection something is waiting as long as talks says so.
type talker struct {
	*listener
	talks func() bool
}

func (o talker) open(ctx context.Context) (device, error) {
	d, err := o.listener.open(ctx)
	if err != nil {
		return nil, err
	}
	return &talk{d, o.talks}, nil
}

type talk struct {
	device
	talks func() bool
}

func (d *talk) waiting() bool { return d.talks() || d.device.waiting() }

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
	if s := l.sheet(); s.Refused[refusedDescriptors] != 3 || s.Unread[unreadRefused] != tally128.Size || len(s.Unbalanced) > 0 {
		t.Errorf("refused %v, unread %v, unbalanced %v; want 3 connections, and %d bytes of one", s.Refused, s.Unread, s.Unbalanced, tally128.Size)
	}
}
