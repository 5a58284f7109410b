package recorder

import (
	"errors"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/seglog"
)

// spilling is a source whose frames run over into a folder of its own, which is waited for.
func spilling(t *testing.T) config.Source {
	spillPatience = time.Minute
	t.Cleanup(func() { spillPatience = 50 * time.Millisecond })
	s := tcp("a")
	s.Overflow, s.Spill = config.OverflowSpill, &config.Spill{Path: t.TempDir()}
	return s
}

// logged is the numbers that a log has, in the order of its records.
func logged(g *Recorder) (all []uint64) {
	log := g.log.NewReader(0)
	defer log.Close()
	for rec, err := log.Next(); err == nil; rec, err = log.Next() {
		h, _ := tally128.Parse(rec.Data)
		all = append(all, h.Seq)
	}
	return all
}

// A recorder whose log stands still for a while loses nothing of a source with a file, and stores
// all of it in order: also where the source is changed meanwhile, to another policy or from one, or
// the recorder is stopped as soon as the log goes on.
func TestRecorderSpills(t *testing.T) {
	const n = 30_000 // several times what the log's own buffers and that of the source hold
	moved := tcp("a")
	moved.TCP.Listen = "127.0.0.2:0"
	for name, then := range map[string]func(g *Recorder, a config.Source){
		"it goes on": func(*Recorder, config.Source) {},
		"it gets another policy": func(g *Recorder, a config.Source) {
			a.Overflow, a.Spill = config.OverflowBlock, nil
			reloaded(t, g, a)
		},
		"it gets another file": func(g *Recorder, a config.Source) {
			a.Spill = &config.Spill{Path: a.Spill.Path, Max: 1 << 30}
			reloaded(t, g, a)
		},
		"it gets another buffer": func(g *Recorder, a config.Source) {
			a.Buffer = 1 << 20
			reloaded(t, g, a)
		},
		"it gets another address": func(g *Recorder, _ config.Source) { reloaded(t, g, moved) },
	} {
		t.Run(name, func(t *testing.T) {
			a := spilling(t)
			g, release := stalled(t, t.TempDir(), a, n)
			testenv.Until(t, time.Minute, "most are in the file",
				func() bool { return portOf(g, "a").Spilled > n/2*tally128.Size })
			if f := portOf(g, "a").Frames; len(f.Dropped) > 0 || f.InFlight < n/2 {
				t.Errorf("while the log stands still: %+v", f)
			}
			if files, err := os.ReadDir(a.Spill.Path); err != nil || len(files) > 0 {
				t.Errorf("the folder has %v, %v", files, err)
			}
			then(g, a)
			release()
			s := stop(t, g)
			for _, p := range slices.Concat(s.Ports, s.Leaving) {
				if f := p.Frames; len(f.Dropped) > 0 || f.Missing+f.Duplicate > 0 || p.Spilled > 0 {
					t.Errorf("the last sheet has %+v", p)
				}
			}
			if got := logged(g); !slices.Equal(got, consecutive(0, n+10)) {
				t.Errorf("the log has %d frames, want %d in order", len(got), n+10)
			}
		})
	}
}

// A stop that the log is too slow for says how much is lost, and why.
func TestStopCountsWhatIsSpilled(t *testing.T) {
	const n = 30_000
	patience := stopPatience
	stopPatience = 0
	ill, wait := &atomic.Bool{}, make(chan struct{})
	openFiles = func(c config.Log, chains *asyncfile.ChainStats, log *slog.Logger) (seglog.FS, error) {
		fs, err := logFiles(c, chains, log)
		return illDisk{fs, ill, wait}, err
	}
	defer func() { stopPatience, openFiles = patience, logFiles }()
	g := start(t, t.TempDir(), nil, spilling(t))
	ill.Store(true)
	c := dial(t, address(g, "a"))
	defer c.Close()
	write(t, c, frames(0, n))
	testenv.Until(t, time.Minute, "all are read, and most are in the file", func() bool {
		p := portOf(g, "a")
		return p.Frames.OK == n && p.Spilled > n/2*tally128.Size
	})
	go func() {
		defer close(wait) // once it is closed the log takes nothing more
		for late := time.Now().Add(time.Minute); !isClosed(g.log) && time.Now().Before(late); {
			runtime.Gosched()
		}
	}()
	s, err := g.Stop("test")
	f := s.Ports[0].Frames
	if err == nil || !strings.Contains(err.Error(), "did not take all") {
		t.Errorf("the stop says %v", err)
	}
	if f.InFlight != 0 || f.Dropped[causeStopped] < n/2 || f.Stored+f.Dropped[causeStopped] != n ||
		s.Ports[0].Spilled != 0 {
		t.Errorf("the last sheet has %+v", f)
	}
}

// isClosed reports whether a log, whose buffer is full, is closed.
func isClosed(l *seglog.Log) bool {
	_, err := l.TryAppendAt(1, 0, seglog.NoOffset, nil)
	return errors.Is(err, seglog.ErrClosed)
}

// A folder in which no file can be made is told of at the start, and no reason not to record.
func TestSpillFolderIsLookedAt(t *testing.T) {
	a, told := spilling(t), &testenv.Buffer{}
	a.Spill.Path += "/gone"
	g := startTelling(t, slog.New(slog.NewTextHandler(told, nil)), t.TempDir(), nil, a)
	feed(t, g, consecutive(0, 10)...)
	testenv.Until(t, time.Minute, "it is told",
		func() bool { return strings.Contains(told.String(), "no file can be made for frames that run over") })
	stop(t, g)
}
