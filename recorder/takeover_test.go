package recorder

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// segments lists the log's segments in a folder, the oldest first.
func segments(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil || len(all) == 0 {
		t.Fatalf("segments: %v, %v", all, err)
	}
	slices.Sort(all)
	return all
}

// recordedFor records n frames of the source a, 0 on, in dir, and returns what a kill leaves, with
// a sheet that knows of all, and what an ordered end leaves.
func recordedFor(t *testing.T, dir string, n uint64) (killed, stopped string) {
	t.Helper()
	g := start(t, dir, nil, tcp("a"))
	c := dial(t, address(g, "a"))
	defer c.Close()
	for i := uint64(0); i < n; i += 100 {
		write(t, c, frames(i, min(100, n-i)))
	}
	stored(t, g, "a", n)
	if err := g.log.Sync(); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, 20*time.Second, "the sheet on disk knows of all",
		func() bool { return archive.Known(dir).Given == n })
	killed = copyFolder(t, dir)
	stop(t, g)
	return killed, dir
}

// zeroAndRepair puts 2000 zeros into a segment, and has the log repaired.
func zeroAndRepair(seg string) error {
	f, err := os.OpenFile(seg, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(make([]byte, 2000), 8192)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return repairLog(filepath.Dir(seg))
}

func repairLog(path string) error {
	dir, err := seglog.Dir(path)
	if err == nil {
		_, err = seglog.Repair(dir)
	}
	return err
}

// A gap between two segments is named by the start that finds it, and not again by the one after
// the repair that closed it.
func TestGapIsNotNamedAgainAfterItsRepair(t *testing.T) {
	_, dir := recordedFor(t, t.TempDir(), 15_000)
	if err := os.Remove(segments(t, dir)[1]); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false, false, false} {
		if i == 2 {
			if err := repairLog(dir); err != nil {
				t.Fatal(err)
			}
		}
		g, _ := startLogged(t, dir, tcp("a"))
		if s := stop(t, g); (s.Recovered != nil) != want {
			t.Errorf("start %d: %+v", i, s.Recovered)
		}
	}
}

// startLogged is start with the errors that it logs.
func startLogged(t *testing.T, dir string, sources ...config.Source) (*Recorder, string) {
	t.Helper()
	return startAt(t, slog.LevelError, dir, sources...)
}

// startWarned is start with the errors and warnings that it logs.
func startWarned(t *testing.T, dir string, sources ...config.Source) (*Recorder, string) {
	t.Helper()
	return startAt(t, slog.LevelWarn, dir, sources...)
}

func startAt(t *testing.T, level slog.Level, dir string, sources ...config.Source) (*Recorder, string) {
	t.Helper()
	var said testenv.Buffer
	g, err := Start(config.Config{
		Log: config.Log{Dir: dir, Segment: 1 << 20, Delay: time.Millisecond}, API: config.API{Listen: "127.0.0.1:0"},
		Sources: sources,
	}, slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: level})))
	if err != nil {
		t.Fatal(err)
	}
	return g, said.String()
}

// Durable records that are gone when the next start opens the log are in its sheet, its verdict and
// its journal, and no frame of them is called missing as well.
func TestDurableRecordsGoneBetweenStartsAreNamed(t *testing.T) {
	const n = 15_000 // a little more than two segments
	killed, stopped := recordedFor(t, t.TempDir(), n)
	for name, c := range map[string]struct {
		from  string
		harm  func(segs []string) error
		first bool // the first one harmed is the first segment
	}{
		"stopped, newest cut": {
			stopped, func(segs []string) error { return os.Truncate(segs[len(segs)-1], 10_000) },
			false,
		},
		"stopped, newest gone": {stopped, func(segs []string) error { return os.Remove(segs[len(segs)-1]) }, false},
		"stopped, first gone": {stopped, func(segs []string) error {
			return errors.Join(os.Remove(segs[0]), os.Remove(strings.TrimSuffix(segs[0], ".seg")+".idx"))
		}, true},
		"stopped, all gone": {stopped, func(segs []string) error {
			for _, s := range segs {
				if err := errors.Join(os.Remove(s), os.RemoveAll(strings.TrimSuffix(s, ".seg")+".idx")); err != nil {
					return err
				}
			}
			return nil
		}, true},
		"killed, newest cut": {
			killed,
			func(segs []string) error { return os.Truncate(segs[len(segs)-1], 10_000) }, false,
		},
		"killed, newest gone":      {killed, func(segs []string) error { return os.Remove(segs[len(segs)-1]) }, false},
		"stopped, middle gone":     {stopped, func(segs []string) error { return os.Remove(segs[1]) }, false},
		"stopped, middle repaired": {stopped, func(segs []string) error { return zeroAndRepair(segs[1]) }, false},
		"stopped, newest repaired": {
			stopped, func(segs []string) error { return zeroAndRepair(segs[len(segs)-1]) },
			false,
		},
		"killed, newest repaired": {
			killed, func(segs []string) error { return zeroAndRepair(segs[len(segs)-1]) },
			false,
		},
	} {
		dir := copyFolder(t, c.from)
		if err := c.harm(segments(t, dir)); err != nil {
			t.Fatal(name, err)
		}
		g, said := startLogged(t, dir, tcp("a"))
		s := g.Sheet()
		gone, _ := s.Recovered.Gone()
		if gone == 0 || s.Recovered.Missing[0].From == 1 != c.first {
			t.Errorf("%s: recovered %+v", name, s.Recovered)
		}
		if v := s.Verdict; v.Level != ledger.Bad || v.LostHere.Records != gone ||
			!strings.Contains(v.Text, "gone from the log") {
			t.Errorf("%s: verdict %+v", name, v)
		}
		if !strings.Contains(said, "durable records are gone") || !strings.Contains(said, "`log repair` gives it up") {
			t.Errorf("%s: the journal says %q", name, said)
		}
		con := dial(t, address(g, "a"))
		write(t, con, frames(n, 10))
		stored(t, g, "a", 10)
		con.Close()
		if at := g.log.Position(); at.Stored < n+10 {
			t.Errorf("%s: the log goes on at %d: numbers are given twice", name, at.Stored-10)
		}
		if last := stop(t, g); last.Recovered == nil || last.Ports[0].Frames.Missing != 0 {
			t.Errorf("%s: the last sheet: recovered %+v, %+v", name, last.Recovered, last.Ports[0].Frames)
		}
		g, _ = startLogged(t, dir, tcp("a"))
		if s := g.Sheet(); s.Recovered != nil {
			t.Errorf("%s: the start after that says it again: %+v", name, s.Recovered)
		}
		stop(t, g)
	}
}

// The newest segment is removed while the recorder runs, and the log fails. The next start says of
// how many records it can have been by what the last sheet knows, and not by what a segment could
// hold.
func TestRemovedWhileItRunsIsCountedByTheLastSheet(t *testing.T) {
	const n = 10_000 // a segment, and part of another
	dir := t.TempDir()
	g := start(t, dir, nil, tcp("a"))
	c := dial(t, address(g, "a"))
	defer c.Close()
	write(t, c, frames(0, n))
	stored(t, g, "a", n)
	if err := g.log.Sync(); err != nil {
		t.Fatal(err)
	}
	segs := segments(t, dir)
	newest := segs[len(segs)-1]
	if err := os.Remove(newest); err != nil {
		t.Fatal(err)
	}
	select {
	case <-g.Failed():
	case <-time.After(time.Minute):
		t.Fatal("the log goes on without its segment")
	}
	write(t, c, frames(n, 10)) // which it cannot take
	if _, err := g.Stop("test"); !errors.Is(err, seglog.ErrFailed) {
		t.Fatalf("the stop brings %v", err)
	}
	given := g.log.Position().Next - 1
	known := archive.Known(dir)
	if known.Last != n || known.End != given {
		t.Errorf("the last sheet knows %+v, want up to %d durable, and %d given", known, n, given)
	}
	g, said := startLogged(t, dir, tcp("a"))
	r := g.Sheet().Recovered
	if r == nil || len(r.Missing) != 1 || r.Missing[0].To != given || r.Missing[0].AtMost != (given > n) ||
		len(segs) < 2 {
		t.Errorf("%+v missing of %d segments, want up to record %d", r, len(segs), given)
	}
	if at := g.log.Position(); at.Stored < given || !strings.Contains(said, "durable records are gone") {
		t.Errorf("the log goes on at %d, want behind %d; the journal says %q", at.Stored, given, said)
	}
	if known := archive.Known(dir); known.First != 1 || known.End != 0 {
		t.Errorf("while a start goes on, its sheet says %+v: records may be added", known)
	}
	stop(t, g)
}

// The oldest segment is removed together with its index, which leaves no trace in the folder. Where
// the log keeps everything the sheet knows where it began, after a kill, too; the next start names
// what is gone, once.
func TestOldestSegmentRemovedAfterAKill(t *testing.T) {
	killed, stopped := recordedFor(t, t.TempDir(), 15_000)
	for name, dir := range map[string]string{"killed": killed, "stopped": stopped} {
		segs := segments(t, dir)
		oldest := strings.TrimSuffix(segs[0], ".seg")
		files := glob(t, dir, filepath.Base(oldest)+".*")
		if len(segs) < 2 || len(files) != 2 {
			t.Fatalf("%s: %v, %v; want a segment with its index, and another", name, segs, files)
		}
		for _, file := range files {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 2 {
			g, said := startLogged(t, dir, tcp("a"))
			r := g.Sheet().Recovered
			if i == 0 {
				if first := g.Position().First; r == nil || len(r.Missing) != 1 || r.Missing[0].From != 1 ||
					r.Missing[0].To != first-1 {
					t.Errorf("%s: %+v; want that records 1 to %d are missing", name, r, first-1)
				}
			} else if r != nil {
				t.Errorf("%s, and again: %+v, %q", name, r, said)
			}
			stop(t, g)
		}
	}
}

// So it is after a kill of a recorder that removes old records by itself.
func TestOldestSegmentRemovedBesideRetention(t *testing.T) {
	dir := t.TempDir()
	keep := func(c *config.Config) { c.Log.Keep.Size = 3 << 20 }
	g := start(t, dir, keep, tcp("a"))
	c := dial(t, address(g, "a"))
	defer c.Close()
	const n = 15_000
	for i := uint64(0); i < n; i += 100 {
		write(t, c, frames(i, 100))
	}
	stored(t, g, "a", n)
	testenv.Until(t, time.Minute, "the first segment is dropped", func() bool { return g.log.Position().First > 1 })
	if err := g.save(); err != nil {
		t.Fatal(err)
	}
	killed := copyFolder(t, dir)
	stop(t, g)
	segs := segments(t, killed)
	oldest := strings.TrimSuffix(filepath.Base(segs[0]), ".seg")
	for _, file := range glob(t, killed, oldest+".*") {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		g := start(t, killed, keep, tcp("a"))
		gone, _ := g.Sheet().Recovered.Gone()
		first := strings.TrimSuffix(filepath.Base(segs[1]), ".seg")
		if i == 0 && (gone == 0 || fmt.Sprintf("%020d", g.Sheet().Recovered.Missing[0].To+1) != first) ||
			i > 0 && gone > 0 {
			t.Errorf("start %d: %+v; want that what was before record %s is gone, once", i, g.Sheet().Recovered, first)
		}
		stop(t, g)
	}
}

// What retention drops is not called gone, also by a start whose sheet is older than the drop.
func TestRetentionIsNoLossForTheNextStart(t *testing.T) {
	_, dir := recordedFor(t, t.TempDir(), 15_000)
	asItWas := copyFolder(t, dir)
	g := start(t, dir, func(c *config.Config) { c.Log.Keep.Size = 3 << 20 }, tcp("a"))
	testenv.Until(t, 20*time.Second, "the first segment is dropped", func() bool { return g.log.Position().First > 1 })
	killed := copyFolder(t, dir) // perhaps before the first sheet: then this is what is there
	stop(t, g)
	for name, dir := range map[string]string{"stopped": dir, "killed": killed} {
		g := start(t, dir, nil, tcp("a"))
		if r := g.Sheet().Recovered; r != nil {
			t.Errorf("%s: %+v", name, r)
		}
		stop(t, g)
	}
	left, err := archive.LoadStart(asItWas, slog.New(slog.DiscardHandler))
	if err != nil || left.LogFirst != 1 || left.LogEnd != 15_000 {
		t.Fatalf("%+v, %v; want the log's first record and its end", left, err)
	}
	g = &Recorder{cfg: config.Config{Log: config.Log{Dir: asItWas}}, slog: slog.New(slog.DiscardHandler)}
	g.hold(left, seglog.Recovery{})
	if left, err := archive.LoadStart(asItWas, g.slog); err != nil || left.LogFirst != 0 || left.LogEnd != 0 {
		t.Errorf("%+v, %v; a start that got no further has left the log's first record to be missed, or its end to be believed", left, err)
	}
}

// A start that finds everything has nothing to say of it.
func TestNothingRecoveredIsNotInTheSheet(t *testing.T) {
	killed, stopped := recordedFor(t, t.TempDir(), 100)
	for _, dir := range []string{killed, stopped} {
		g, said := startLogged(t, dir)
		if s := g.Sheet(); s.Recovered != nil || said != "" {
			t.Errorf("%+v, %q", s.Recovered, said)
		}
		stop(t, g)
	}
	if n, atMost := (*ledger.Recovered)(nil).Gone(); n != 0 || atMost {
		t.Error("nothing is something")
	}
}

// A power cut takes what was stored and not synced, though the sheet, which is synced, knows of it:
// the next start names it, in one place, and the sheet that is kept counts it as stored no longer.
func TestPowerCutOfUnsyncedRecordsIsNamedOnce(t *testing.T) {
	for _, policy := range []string{"interval", "never"} {
		dir := t.TempDir()
		slow := func(c *config.Config) { c.Log.Sync, c.Log.Interval = policy, time.Hour }
		g := start(t, dir, slow, tcp("a"), lines("b", ""))
		a, b := dial(t, address(g, "a")), dial(t, address(g, "b"))
		send := func(from, n uint64) {
			write(t, a, frames(from, n))
			write(t, b, bytes.Repeat([]byte("a line\n"), int(n)))
			stored(t, g, "a", from+n)
			stored(t, g, "b", from+n)
			testenv.Until(t, 20*time.Second, "the sheet knows of all",
				func() bool { return archive.Known(dir).Given == 2*(from+n) })
		}
		send(0, 100)
		if err := g.log.Sync(); err != nil {
			t.Fatal(err)
		}
		synced := copyFolder(t, dir)
		send(100, 50)
		killed := copyFolder(t, dir)
		a.Close()
		b.Close()
		stop(t, g)
		cut := copyFolder(t, killed)
		for _, seg := range segments(t, synced) {
			text, err := os.ReadFile(seg)
			if err == nil {
				err = os.WriteFile(filepath.Join(cut, filepath.Base(seg)), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			dir           string
			missing, lost uint64
		}{{killed, 3, 0}, {cut, 3, 100}} {
			g := start(t, c.dir, slow, tcp("a"), lines("b", ""))
			if next := g.log.Position().Next; next != 301 {
				t.Errorf("%s, %d lost: record %d is next; 300 were given", policy, c.lost, next)
			}
			con := dial(t, address(g, "a"))
			write(t, con, frames(153, 10)) // 3 were sent while nobody recorded
			stored(t, g, "a", 10)
			con.Close()
			good := g.Sheet().Verdict.Level == ledger.Good
			s := stop(t, g)
			if f := s.Ports[0].Frames; f.Missing != c.missing || f.Duplicate != 0 {
				t.Errorf("%s, %d lost: %+v", policy, c.lost, f)
			}
			named := s.Recovered != nil && s.Recovered.Unsynced == c.lost
			told := strings.Contains(s.Ports[1].Outages[0].Cause, "lost its last 100 records")
			for _, p := range lastKept(t, c.dir, archive.CauseKilled).Sheet.Ports {
				if f := p.Frames; f.Stored != 150-c.lost/2 || f.InFlight != c.lost/2 || f.OK != 150 ||
					len(p.Unbalanced) > 0 {
					t.Errorf("%s, %d lost: the sheet that is kept: %+v", policy, c.lost, f)
				}
			}
			if want := c.lost > 0; named != want || told != want || good {
				t.Errorf("%s, %d lost: recovered %+v, outages %+v, good: %v", policy, c.lost, s.Recovered,
					s.Ports[1].Outages, good)
			}
			g = start(t, c.dir, slow, tcp("a"), lines("b", ""))
			if s := stop(t, g); s.Recovered != nil {
				t.Errorf("%s: the start after that says it again: %+v", policy, s.Recovered)
			}
		}
	}
}

// A commit that ends within frames that were read together: what the sheet says of the log ends
// with the frames whose numbers are in the positions.
func TestSheetKnowsNoRecordWhosePositionItLacks(t *testing.T) {
	var s staged
	for seq := uint64(1); seq <= 9; seq++ {
		s.add(seq, int64(seq/5), &frame.Frame{Sequenced: true, Device: 1, Seq: 100 + seq})
	}
	var highest uint64
	for _, stored := range []uint64{0, 3, 6} {
		s.settle(stored, stored, func(r run) { highest = r.highest() }, func(int) {})
		if got := s.reaches(9); got != stored || stored > 0 && highest != 100+stored {
			t.Errorf("%d stored: reaches %d, up to number %d", stored, got, highest)
		}
	}
	if _, n := s.abandon(); n != 3 || s.reaches(9) != 6 {
		t.Errorf("%d given up, reaches %d", n, s.reaches(9))
	}
}

// What a full disk took behind the last sheet of a start that was killed is in the sheet that is
// kept of it; of one that has left none, in the line that stands for it. The sums of all starts are
// what the log has lost so.
func TestKillForgetsNothingThatAFullDiskTookInTheLastSecond(t *testing.T) {
	killed, stopped := recordedFor(t, t.TempDir(), 300)
	for _, dir := range []string{killed, stopped} {
		fs, err := seglog.Dir(dir)
		if err != nil {
			t.Fatal(err)
		}
		n, took := uint64(300), uint64(0)
		fill := func(free int64, until func(seglog.Position) bool) { // as the start goes on
			log, err := seglog.Open(seglog.Config{
				FS: fs, SegmentBytes: 64 << 10, MinFree: free, KeepBytes: 1 << 40, OnFull: seglog.DropOldest,
			})
			if err != nil {
				t.Fatal(err)
			}
			for ; !until(log.Position()); n++ {
				if _, err := log.Append(1, time.Now().UnixNano(), frames(n, 1)); err != nil {
					t.Fatal(err)
				}
			}
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
			took = log.Position().EverGone // until then it may take one more, to have a spare
		}
		fill(-1, func(at seglog.Position) bool { return at.Next > 9000 }) // beyond a segment of 1 MiB
		fill(1<<60, func(at seglog.Position) bool { return at.Evicted > 0 })
		keeps := func(c *config.Config) { c.Log.OnFull, c.Log.Keep.Size = "drop-oldest", 1<<40 }
		s := stop(t, start(t, dir, keeps, tcp("a")))
		if s.Log != nil {
			t.Errorf("the start behind it has %+v", s.Log)
		}
		var sum uint64
		kept := keptSheets(t, dir)
		for i := range kept {
			if log := kept[i].Sheet.Log; log != nil {
				sum += log.Evicted
			}
		}
		if sum != took || took == 0 {
			t.Errorf("the sheets of %d starts have %d records that a full disk took, the log %d", len(kept), sum, took)
		}
	}
}

// swapLog puts the log of another folder in the place of that of dir.
func swapLog(t *testing.T, dir, other string) {
	t.Helper()
	for _, seg := range segments(t, dir) {
		if err := os.Remove(seg); err != nil {
			t.Fatal(err)
		}
	}
	for _, seg := range segments(t, other) {
		b, err := os.ReadFile(seg)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(seg)), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A folder that holds another log than the last sheet says: that is told, and nothing is compared.
func TestAnotherLogInTheFolder(t *testing.T) {
	killed, _ := recordedFor(t, t.TempDir(), 200)
	other := t.TempDir()
	g := start(t, other, nil, tcp("a"))
	c := dial(t, address(g, "a"))
	write(t, c, frames(0, 100))
	stored(t, g, "a", 100)
	c.Close()
	stop(t, g)
	swapLog(t, killed, other)
	g, said := startLogged(t, killed, tcp("a"))
	if !strings.Contains(said, "is not the one that was recorded last") {
		t.Errorf("the journal says %q", said)
	}
	c = dial(t, address(g, "a"))
	write(t, c, frames(103, 10)) // the log has 100, and three are missing
	stored(t, g, "a", 10)
	c.Close()
	if s := stop(t, g); s.Recovered != nil || s.Ports[0].Frames.Missing != 3 {
		t.Errorf("recovered %+v, %+v", s.Recovered, s.Ports[0].Frames)
	}
	if k := lastKept(t, killed, archive.CauseKilled); k.Sheet.Ports[0].Frames.Stored != 200 {
		t.Errorf("the sheet of the start before: %+v", k.Sheet.Ports)
	}
	g, said = startLogged(t, killed, tcp("a"))
	if stop(t, g); said != "" {
		t.Errorf("the start after that says %q", said)
	}
}

// The journal has times for people, as the verdict has them.
func TestJournalHasTimesForPeople(t *testing.T) {
	killed, _ := recordedFor(t, t.TempDir(), 10)
	left, err := archive.LoadStart(killed, quiet())
	if err != nil {
		t.Fatal(err)
	}
	g, said := startWarned(t, killed, tcp("a"))
	stop(t, g)
	want := `"the start before this one left no end: it was killed, the power was cut, or the disk took no more; its last sheet is kept" at="` + left.Sheet.At.String() + `"`
	if !strings.Contains(said, want) {
		t.Errorf("%s; want %s", said, want)
	}
}
