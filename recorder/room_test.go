package recorder

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/fault"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/recorder/notify"
	"github.com/tallywheel/tallywheel/seglog"
)

// onDisk makes logs that are opened from now on lie in a directory in memory.
func onDisk(t *testing.T) *fault.Dir {
	t.Helper()
	d := fault.New()
	openFiles = func(config.Log, *asyncfile.ChainStats, *slog.Logger) (seglog.FS, error) {
		return simDisk{d, &diskTrouble{}}, nil
	}
	t.Cleanup(func() { openFiles = logFiles })
	return d
}

// sendUntilStalled sends frames to source a, which booked them all when the log began to wait, and
// reports how many.
func sendUntilStalled(t *testing.T, g *Recorder, conn net.Conn) (n uint64) {
	t.Helper()
	testenv.Until(t, time.Minute, "the log waits", func() bool {
		write(t, conn, frames(n, 1000))
		n += 1000
		testenv.Until(t, time.Minute, "they are booked", func() bool { return portOf(g, "a").Frames.OK == n })
		return g.Position().Stalled != nil
	})
	return n
}

// A disk that is full while the source sends stops it, and nothing else: with room again, all that
// waited is stored, and the source is read on, whatever its overflow says.
func TestRoomAgain(t *testing.T) {
	for _, overflow := range []string{config.OverflowBlock, config.OverflowOldest, config.OverflowNewest} {
		d := onDisk(t)
		d.SetFree(2 << 20)
		source := tcp("a")
		source.Overflow = overflow
		g := start(t, t.TempDir(), func(c *config.Config) { c.Log.Reserve = 1 << 20 }, source)
		c := dial(t, address(g, "a"))
		isFull := func() bool {
			return slices.ContainsFunc(g.Sheet().Verdict.Reasons,
				func(r ledger.Reason) bool { return r.Kind == "disk_full" })
		}
		n := uint64(0)
		testenv.Until(t, time.Minute, overflow+": the disk is full, and frames wait or are dropped", func() bool {
			write(t, c, frames(n, 1000))
			n += 1000
			f := portOf(g, "a").Frames
			return isFull() && f.OK > f.Stored
		})
		if s := g.Sheet(); s.Verdict.Level != ledger.Bad || s.Log == nil || !s.Log.Full {
			t.Errorf("%s: %+v, %+v", overflow, s.Log, s.Verdict)
		}
		d.SetFree(-1)
		testenv.Until(t, time.Minute, overflow+": nothing waits", func() bool {
			p := portOf(g, "a")
			return p.Bytes.Read == n*tally128.Size && p.Frames.InFlight == 0 && p.State == ledger.StateOpen && !isFull()
		})
		before := portOf(g, "a").Frames.Stored
		write(t, c, frames(n, 10))
		stored(t, g, "a", before+10)
		c.Close()
		stop(t, g)
	}
}

// While a full disk takes records that should be kept, the verdict watches, and the journal has one
// line when that begins and one when there is room again.
func TestDroppingTheOldestIsTold(t *testing.T) {
	d := onDisk(t)
	d.SetFree(5 << 20)
	g := start(t, t.TempDir(), func(c *config.Config) {
		c.Log.Reserve, c.Log.OnFull = 1<<20, "drop-oldest"
	}, tcp("a"))
	c := dial(t, address(g, "a"))
	defer c.Close()
	n := uint64(0)
	testenv.Until(t, time.Minute, "records make room", func() bool {
		write(t, c, frames(n, 1000))
		n += 1000
		stored(t, g, "a", n)
		return g.Position().First > 1
	})
	s := g.Sheet()
	watched := func(r ledger.Reason) bool { return r.Kind == "dropping_oldest" && r.Level == ledger.Watch }
	if at := g.Position(); s.Log == nil || s.Log.Evicted != at.First-1 ||
		!slices.ContainsFunc(s.Verdict.Reasons, watched) {
		t.Errorf("the log begins with record %d: %+v, %+v", at.First, s.Log, s.Verdict)
	}
	if l := g.LogNow(); !l.Evicting || l.Evicted != s.Log.Evicted {
		t.Errorf("the sample: %+v", l)
	}
	var said bytes.Buffer
	h := newHerald(slog.New(slog.NewTextHandler(&said, nil)), func(notify.Event) {})
	h.look(&s, time.Second, false)
	d.SetFree(-1)
	testenv.Until(t, time.Minute, "there is room",
		func() bool { s := g.Sheet(); return s.Log == nil || !s.Log.Evicting })
	removed := s.Log.Evicted
	if s = g.Sheet(); s.Log == nil || s.Log.Evicted < removed || slices.ContainsFunc(s.Verdict.Reasons, watched) {
		t.Errorf("with room again: %+v, %+v; want the %d records still counted", s.Log, s.Verdict.Reasons, removed)
	}
	h.look(&s, 2*time.Second, false)
	var lines []string
	for line := range strings.Lines(said.String()) {
		if strings.Contains(line, "trouble=dropping_oldest") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 2 || !strings.Contains(lines[0], "begins: ") ||
		!strings.Contains(lines[0], "do=\"what is removed is gone: make room") ||
		!strings.Contains(lines[1], "over: ") || !strings.Contains(lines[1], "now=\"nothing more is removed early") {
		t.Errorf("the journal: %q", lines)
	}
	stop(t, g)
}

// A log that is stalled holds neither a reload up nor a stop, whose sheet says what was lost.
func TestAStalledLogHoldsNobodyUp(t *testing.T) {
	patience := stopPatience
	stopPatience = 100 * time.Millisecond
	defer func() { stopPatience = patience }()
	d := onDisk(t)
	g := start(t, t.TempDir(), nil, tcp("a"), tcp("b"))
	write := func(id string, from, n uint64) {
		c := dial(t, address(g, id))
		defer c.Close()
		write(t, c, frames(from, n))
	}
	write("a", 0, 10)
	stored(t, g, "a", 10)
	d.SetInject(func(op fault.Op, _ string) (int, error) {
		if op == fault.OpCreate || op == fault.OpOpen {
			return 0, syscall.EMFILE
		}
		return 0, nil
	})
	n := uint64(10)
	testenv.Until(t, time.Minute, "the log is stalled", func() bool {
		write("a", n, 1000)
		n += 1000
		return g.Position().Stalled != nil
	})
	write("b", 0, 10)
	testenv.Until(t, time.Minute, "frames of b wait", func() bool { return portOf(g, "b").Frames.InFlight == 10 })
	ended := make(chan error, 1)
	within := func(what string) error {
		select {
		case err := <-ended:
			return err
		case <-time.After(time.Minute):
			t.Fatalf("%s does not end", what)
			return nil
		}
	}
	next := g.Config()
	next.Sources = next.Sources[:1]
	go func() { ended <- g.Reload(next) }()
	if err := within("the reload"); err != nil {
		t.Fatal(err)
	}
	var s ledger.Sheet
	go func() {
		var err error
		s, err = g.Stop("test")
		ended <- err
	}()
	if err := within("the stop"); !errors.Is(err, seglog.ErrStalled) || !errors.Is(err, syscall.EMFILE) {
		t.Errorf("the stop brings %v", err)
	}
	if p := s.Ports[0]; !s.Balanced || p.Frames.InFlight != 0 || p.Frames.Dropped[causeStalled] == 0 ||
		len(p.Frames.Dropped) != 1 {
		t.Errorf("the last sheet: %+v", p)
	}
}

// A stop waits for a log that cannot write, whatever it waits for: what it had taken is stored when
// there is room within that time.
func TestStopWaitsForTheLog(t *testing.T) {
	patience := stopPatience
	stopPatience = time.Minute
	defer func() { stopPatience = patience }()
	for name, c := range map[string]struct {
		ill  func(*fault.Dir)
		well func(*fault.Dir)
	}{
		"the disk is full": {func(d *fault.Dir) { d.SetFree(0) }, func(d *fault.Dir) { d.SetFree(-1) }},
		"no descriptor": {
			func(d *fault.Dir) {
				d.SetInject(func(op fault.Op, _ string) (int, error) {
					if op == fault.OpCreate || op == fault.OpOpen {
						return 0, syscall.EMFILE
					}
					return 0, nil
				})
			},
			func(d *fault.Dir) { d.SetInject(nil) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := onDisk(t)
			g := start(t, t.TempDir(), nil, tcp("a"))
			conn := dial(t, address(g, "a"))
			defer conn.Close()
			c.ill(d)
			n := sendUntilStalled(t, g, conn)
			ended := make(chan error, 1)
			var s ledger.Sheet
			go func() {
				var err error
				s, err = g.Stop("test")
				ended <- err
			}()
			testenv.Until(t, time.Minute, "the source has stopped", func() bool {
				select {
				case err := <-ended:
					t.Fatalf("the stop does not wait: %v, %+v", err, s.Ports)
				default:
				}
				return portOf(g, "a").State == ledger.StateStopped
			})
			c.well(d)
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if f := s.Ports[0].Frames; f.Stored != n || f.Durable != n || len(f.Dropped) > 0 {
				t.Errorf("%+v; want %d frames durable", f, n)
			}
		})
	}
}

// However many sources wait for a slow log at a stop, they wait together, for a bounded time.
func TestManySourcesWaitForASlowLogTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := &diskTrouble{}
		log, err := seglog.Open(seglog.Config{FS: simDisk{fault.New(), bad}, SegmentBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		r := &Recorder{log: log}
		var ports []*port
		for range 20 {
			l, _ := testLane(t, config.OverflowBlock)
			l.Arrived(frames(0, 10), 10*tally128.Size, 1)
			ports = append(ports, &port{lane: l})
		}
		bad.slow(seglog.NoAnswer * 3 / 4) // of each sync: it is no stall
		began := time.Now()
		r.empty(ports, stopPatience)
		if d := time.Since(began); d < stopPatience || d > 2*stopPatience {
			t.Errorf("they wait for %v, want up to %v", d, 2*stopPatience)
		}
		bad.slow(0)
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
}
