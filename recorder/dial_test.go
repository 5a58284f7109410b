package recorder

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame/tally128"
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
func (stubOpener) redials() bool                        { return true }
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
							l.Arrived(frames(uint64(opened), c.sends), int(c.sends)*tally128.Size, time.Now().UnixNano())
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
