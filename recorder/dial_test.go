package recorder

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/sockets"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/reader"
)

// stubDevice is a connection.
type stubDevice struct{ device }

func (stubDevice) name() string                { return "stub" }
func (stubDevice) settings() map[string]string { return nil }
func (stubDevice) kernel() *ledger.Kernel      { return nil }
func (stubDevice) deafen()                     {}
func (stubDevice) discard() uint64             { return 0 }
func (stubDevice) close() error                { return nil }

type stubOpener struct{}

func (stubOpener) open(context.Context) (device, error) { return stubDevice{}, nil }
func (stubOpener) dials() string                        { return "stub" }
func (stubOpener) replaced() <-chan struct{}            { return nil }
func (stubOpener) close(bool) ([]device, bool, error)   { return nil, false, nil }

type stubHandle struct{ reader.Handle }

func (stubHandle) Resume() {}
func (stubHandle) Finish() {}
func (stubHandle) Remove() {}

// A device that takes connections and ends them at once, with nothing, is dialled about once a
// second, soon; one that sends on each is dialled again at once.
func TestConnectionsThatEndAtOnceAreNoBusyLoop(t *testing.T) {
	for name, c := range map[string]struct {
		sends       uint64 // frames a connection
		least, most int    // connections in a minute of fake time
	}{
		"nothing":   {0, 50, 70},
		"one frame": {1, 5000, 7000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, _ := testLane(t, config.OverflowBlock)
				opened := 0
				add := func(l *lane, _ device, _ []byte) (reader.Handle, error) {
					opened++
					go func() {
						time.Sleep(10 * time.Millisecond)
						if c.sends > 0 {
							l.Arrived(frames(uint64(opened), c.sends), int(c.sends)*tally128.Size,
								time.Now().UnixNano())
						}
						l.Closed(nil, time.Now().UnixNano(), io.EOF)
					}()
					return stubHandle{}, nil
				}
				before := openSource
				defer func() { openSource = before }()
				openSource = func(config.Source) opener { return stubOpener{} }
				p, ctx := newPort(l, nil, add, slog.New(slog.DiscardHandler))
				go p.keepOpen(ctx, nil)
				time.Sleep(time.Minute)
				p.stop(closeAll)
				if opened < c.least || opened > c.most {
					t.Errorf("%d connections in a minute; want %d to %d", opened, c.least, c.most)
				}
			})
		})
	}
}

// slowOpener dials a device that takes its time, or fails.
type slowOpener struct {
	stubOpener
	takes time.Duration
	err   error
}

func (o *slowOpener) open(ctx context.Context) (device, error) {
	pause(ctx, o.takes)
	if o.err != nil {
		return nil, o.err
	}
	return stubDevice{}, ctx.Err()
}

// A device that does not answer is not there from when it was dialled, and its port says so. One
// that answers soon has no outage.
func TestADialThatLastsIsAnOutage(t *testing.T) {
	const connecting = "connecting to stub"
	synctest.Test(t, func(t *testing.T) {
		l, _ := testLane(t, config.OverflowBlock)
		var absent []string
		l.in.watcher = watchFunc(func(e Event) {
			if e.Kind == PortAbsent {
				absent = append(absent, e.Err.Error())
			}
		})
		o := &slowOpener{takes: 3 * time.Second}
		before := openSource
		defer func() { openSource = before }()
		openSource = func(config.Source) opener { return o }
		add := func(*lane, device, []byte) (reader.Handle, error) { return stubHandle{}, nil }
		p, ctx := newPort(l, nil, add, slog.New(slog.DiscardHandler))
		began := time.Now()
		is := func(at time.Duration, state, why string, outages ...string) {
			t.Helper()
			time.Sleep(time.Until(began.Add(at)))
			synctest.Wait()
			s := l.sheet()
			var causes []string
			for _, o := range s.Outages {
				causes = append(causes, o.Cause)
			}
			if s.State != state || s.Why != why || strings.Join(causes, ", ") != strings.Join(outages, ", ") {
				t.Errorf("%v: %s, why %q, outages %q; want %s, %q, %q", at, s.State, s.Why, causes, state, why, outages)
			}
		}
		ends := func() { l.Closed(nil, time.Now().UnixNano(), io.EOF) }
		go p.keepOpen(ctx, nil)
		is(0, ledger.StateWaiting, connecting)
		is(2*time.Second, ledger.StateWaiting, connecting, connecting)
		is(4*time.Second, ledger.StateOpen, "", connecting)
		from, to := ledger.Time(began.UnixNano()), ledger.Time(began.Add(o.takes).UnixNano())
		if all := l.sheet().Outages; len(all) != 1 || all[0].From != from || all[0].To != to {
			t.Errorf("outages %v; want the time of the dial, %v to %v", all, from, to)
		}
		o.takes = sockets.AnswersAtOnce / 2
		ends()
		is(4*time.Second, ledger.StateWaiting, connecting, connecting, "end of stream")
		is(6*time.Second, ledger.StateOpen, "", connecting, "end of stream")
		o.takes, o.err = 2*time.Second, errors.New("refused")
		ends()
		is(7500*time.Millisecond, ledger.StateWaiting, connecting, connecting, "end of stream", "end of stream")
		is(9*time.Second, ledger.StateWaiting, "refused", connecting, "end of stream", "end of stream")
		if got, want := strings.Join(absent, ", "), connecting+", "+connecting+", refused"; got != want {
			t.Errorf("the watcher heard of %s; want %s", got, want)
		}
		p.stop(closeAll)
	})
	synctest.Test(t, func(t *testing.T) {
		l, _ := testLane(t, config.OverflowBlock)
		before := openSource
		defer func() { openSource = before }()
		openSource = func(config.Source) opener { return &slowOpener{takes: sockets.AnswersAtOnce / 2} }
		add := func(*lane, device, []byte) (reader.Handle, error) { return stubHandle{}, nil }
		p, ctx := newPort(l, nil, add, slog.New(slog.DiscardHandler))
		go p.keepOpen(ctx, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := l.sheet(); s.State != ledger.StateOpen || s.OutageCount != 0 {
			t.Errorf("%s, %d outages; want it open, without", s.State, s.OutageCount)
		}
		go func() { l.Closed(nil, time.Now().UnixNano(), reader.ErrRemoved) }()
		p.stop(closeAll)
	})
}
