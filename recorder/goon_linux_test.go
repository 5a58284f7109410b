package recorder

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// A source whose books go on leaves nothing of itself in the history when the recorder was killed:
// its frames come out of order, and what is missing at the end of the log waits in its spool.
func TestKillLeavesNothingOfWhatGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		goesOn string
		others []ledger.Port // which have died
		parts  int
	}{
		"alone":                    {"a", nil, 0},
		"a peer, and its hub died": {"a/127.0.0.1", []ledger.Port{{ID: "a", Book: 2, State: ledger.StateOpen}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fs, err := seglog.Dir(dir)
			if err != nil {
				t.Fatal(err)
			}
			log, err := seglog.Open(seglog.Config{FS: fs, SegmentBytes: 1 << 20, MinFree: -1, Sync: seglog.SyncBatch})
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			streams, err := archive.LoadStreams(dir)
			if err != nil {
				t.Fatal(err)
			}
			stream, err := streams.Number(archive.Stream{Source: c.goesOn, Frame: "tally128"})
			if err != nil {
				t.Fatal(err)
			}
			for at, number := range []uint64{0, 1, 2, 5, 8} {
				if _, err := log.TryAppendAt(stream, int64(at)+1, seglog.NoOffset, frames(number, 1)); err != nil {
					t.Fatal(err)
				}
			}
			if err := log.Sync(); err != nil {
				t.Fatal(err)
			}
			r := &Recorder{
				cfg: config.Config{Log: config.Log{Dir: dir}}, log: log, streams: streams,
				slog:   slog.New(slog.DiscardHandler),
				places: map[string]place{}, missed: missed{},
				iso: &isolation{left: map[string]*leftSpool{c.goesOn: {book: 1, lane: isolate.Lane{Book: 1}}}},
			}
			e := &archive.StartSheet{
				LogStored: 3,
				Sheet:     ledger.NewSheet(1, 1, append(c.others, ledger.Port{ID: c.goesOn, Book: 1})),
			}
			for i := range e.Sheet.Ports {
				e.Sheet.Ports[i].Outages = []ledger.Outage{{From: 1, Cause: outageNotConnected}}
			}
			e.Reach(c.goesOn, []ledger.Position{{Device: 1, Epoch: 1, Last: 2}}, nil)
			e.Sheet.Clock = &ledger.Clock{StepCount: maxSteps + 1, Steps: make([]ledger.ClockStep, maxSteps)}
			r.clock.at(1, 0)
			r.clock.at(1e9, 0) // it is set
			e.Sheet.Log = &ledger.LogState{Evicted: 7}
			e.Sheet.Recovered = lostAt(10, 19)
			r.found = lostAt(30, 34)
			e.Reach("a", []ledger.Position{{Device: 1, Epoch: 1, Last: 2}}, nil)
			r.goOn(e)
			if n, _ := r.found.Gone(); n != 15 || r.found.CutBytes != 2 || len(r.found.SetAside) != 2 {
				t.Errorf("the log had lost %+v: want what both recorders found", r.found)
			}
			if c := r.clock.account(); c.StepCount != maxSteps+2 || len(c.Steps) != maxSteps ||
				c.Steps[maxSteps-1].At != 1e9 {
				t.Errorf("the clock was set %d times, and %d are known, want those of both recorders", c.StepCount,
					len(c.Steps))
			}
			if s := r.inTheWay(); s == nil || s.Evicted != 7 {
				t.Errorf("for want of room %+v, want 7 records", s)
			}
			if len(r.owed) != c.parts || len(r.losses.list) != 0 {
				t.Errorf("in the history: %d parts, want %d; lost: %+v, want nothing", len(r.owed), c.parts,
					r.losses.list)
			}
			for _, part := range r.owed {
				for _, p := range part.Sheet.Ports {
					if p.Frames.Missing != 0 || p.ID == c.goesOn {
						t.Errorf("in the history: %s, %+v", p.ID, p.Frames)
					}
					at, ok := r.places[p.ID]
					if o := p.Outages[0]; ok && (o.To == 0 || int64(o.To) != at.at) {
						t.Errorf("in the history: %s, %+v; that until it is read again begins at %d", p.ID, o, at.at)
					}
				}
			}
			if at, ok := r.places[c.goesOn]; ok {
				t.Errorf("it begins at %+v, and it goes on", at)
			}
		})
	}
}

// lostAt is what a log had lost, one segment and one byte of a torn tail beside those records.
func lostAt(from, to uint64) *ledger.Recovered {
	return &ledger.Recovered{
		Missing: []ledger.MissingRecords{{From: from, To: to}}, CutBytes: 1,
		SetAside: []string{"x"},
	}
}

// What needs a restart is that isolate goes: all else another recorder would take up.
func TestReloadOutOfIsolationNamesThatAlone(t *testing.T) {
	now := config.Config{Isolate: "process"}
	next := config.Config{Isolate: "none", Server: config.Server{Loops: 2}}
	r := &Recorder{iso: &isolation{}, cfg: now}
	const want = "isolate has changed: that needs a restart; nothing was changed"
	if err := r.mayChange(next); err == nil || err.Error() != want {
		t.Errorf("the reload says %v, want %s", err, want)
	}
}

// What the log has removed for want of room behind the last sheet of a recorder that was killed is
// counted by the next one, which goes on with the start.
func TestKillForgetsNothingThatWasRemovedForRoom(t *testing.T) {
	path := t.TempDir()
	dir, err := seglog.Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	open := func() *seglog.Log {
		t.Helper()
		log, err := seglog.Open(seglog.Config{FS: dir, SegmentBytes: 64 << 10, MinFree: -1})
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	log := open()
	for at := range int64(1000) {
		if _, err := log.Append(1, at+1, make([]byte, 128)); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	segments, err := seglog.Segments(dir)
	if err != nil || len(segments) < 2 {
		t.Fatalf("%d segments, %v, want several", len(segments), err)
	}
	if err := os.Remove(filepath.Join(path, segments[0].Name)); err != nil {
		t.Fatal(err)
	}
	log = open()
	defer log.Close()
	removed := segments[1].First - 1
	for name, c := range map[string]struct {
		log  config.Log
		want uint64
	}{
		"it removes for room alone": {config.Log{OnFull: "drop-oldest"}, removed},
		"and by age":                {config.Log{OnFull: "drop-oldest", Keep: config.Keep{Age: 1}}, 2},
		"it removes nothing":        {config.Log{OnFull: "stop"}, 2},
	} {
		r := &Recorder{cfg: config.Config{Log: c.log}, log: log}
		e := &archive.StartSheet{LogOldest: 1}
		e.Sheet.Log = &ledger.LogState{Evicted: 2}
		if r.takeEvicted(e); r.evicted != c.want {
			t.Errorf("%s: %d records were removed, want %d", name, r.evicted, c.want)
		}
	}
}

// The same with log.keep: the log itself knows how many a full disk took.
func TestKillForgetsNothingThatWasRemovedForRoomBesideKeep(t *testing.T) {
	dir, err := seglog.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	open := func(free int64) *seglog.Log {
		t.Helper()
		log, err := seglog.Open(seglog.Config{
			FS: dir, SegmentBytes: 64 << 10, MinFree: free, KeepBytes: 1 << 40, OnFull: seglog.DropOldest,
		})
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	fill := func(log *seglog.Log, until func() bool) {
		for at := int64(1); !until(); at++ {
			if _, err := log.Append(1, at, make([]byte, 128)); err != nil {
				t.Fatal(err)
			}
		}
	}
	log := open(-1)
	fill(log, func() bool { return log.Position().Next > 2000 })
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	before := open(1 << 60) // no disk has so much room
	fill(before, func() bool { return before.Position().Evicted > 0 })
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	log = open(-1)
	defer log.Close()
	cfg := config.Log{OnFull: "drop-oldest", Keep: config.Keep{Size: 1 << 40}}
	r := &Recorder{cfg: config.Config{Log: cfg}, log: log}
	e := &archive.StartSheet{LogEvicted: new(uint64)} // of before anything was removed
	if r.takeEvicted(e); r.evicted == 0 || r.evicted != log.Position().First-1 {
		t.Errorf("%d records were removed, and the log begins with %d", r.evicted, log.Position().First)
	}
}
