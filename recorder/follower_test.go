package recorder

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// ends says how a start ends in a test.
type ends string

const (
	stops ends = "stops"
	dies  ends = "dies"
)

// left is the folder of a start that has sent frames, and has ended so.
func left(t *testing.T, g *Recorder, dir string, how ends) string {
	t.Helper()
	if how == stops {
		_, _ = g.Stop("test") // its sheet may not be written
		return dir
	}
	t.Cleanup(func() { _, _ = g.Stop("test") })
	return copyOf(t, dir) // the folder in the way, too
}

// copyOf copies the folder of a recorder that runs: what it has there may go meanwhile.
func copyOf(t *testing.T, dir string) (copied string) {
	t.Helper()
	testenv.Until(t, time.Minute, "the folder is copied", func() bool {
		copied = t.TempDir()
		err := os.CopyFS(copied, os.DirFS(dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil
	})
	return copied
}

// sendTo has a device bring the frames from..from+n-1, until they are durable.
func sendTo(t *testing.T, g *Recorder, from, n uint64) {
	t.Helper()
	c := dial(t, address(g, "a"))
	defer c.Close()
	before := portOf(g, "a").Frames.Durable
	write(t, c, frames(from, n))
	testenv.Until(t, 20*time.Second, "the frames are durable",
		func() bool { return portOf(g, "a").Frames.Durable == before+n })
}

// What a start lost that could not write its sheet is counted, once, by what the log has of it, and
// the verdict says that more may be lost; one that has told the history is not told again.
func TestAStartThatLeavesNoSheet(t *testing.T) {
	for _, c := range []struct {
		first, second ends
		hole          string // where 16 frames are missing
	}{
		{stops, dies, "before"},
		{stops, dies, "within"},
		{stops, stops, "before"},
		{stops, stops, "within"},
		{dies, dies, "before"},
		{dies, dies, "within"},
		{dies, stops, "before"},
		{dies, stops, "within"},
		{stops, dies, "none"},
	} {
		t.Run(string(c.first+" "+c.second+" ")+c.hole, func(t *testing.T) {
			dir, next := t.TempDir(), uint64(0)
			send := func(g *Recorder, n uint64) {
				t.Helper()
				sendTo(t, g, next, n)
				next += n
			}
			g := start(t, dir, nil, tcp("a"))
			send(g, 100)
			dir = left(t, g, dir, c.first)

			inTheWay := filepath.Join(dir, "sheet.json.part")
			if err := os.Mkdir(inTheWay, 0o700); err != nil {
				t.Fatal(err)
			}
			g = start(t, dir, nil, tcp("a"))
			lost := uint64(16)
			switch c.hole {
			case "before":
				next += lost
				send(g, 50)
			case "within":
				send(g, 20)
				next += lost
				send(g, 30)
			case "none":
				send(g, 50)
				lost = 0
			}
			dir = left(t, g, dir, c.second)
			if err := os.RemoveAll(filepath.Join(dir, "sheet.json.part")); err != nil {
				t.Fatal(err)
			}
			for i := range 3 { // it stays so
				g = start(t, dir, nil, tcp("a"))
				send(g, 1)
				s := g.Sheet()
				if f := s.Ports[0].Frames; f.Missing+f.Duplicate+f.Restarts != 0 {
					t.Errorf("start %d: %+v", i, f)
				}
				past := ledger.Past{}
				if s.Past != nil {
					past = *s.Past
				}
				if past.LostWire.Frames != lost || past.Unreadable != (c.second == dies) ||
					s.Verdict.Level == ledger.Good {
					t.Errorf("start %d: %s: %s; past %+v; want %d lost", i, s.Verdict.Level, s.Verdict.Text, past, lost)
				}
				stop(t, g)
			}
		})
	}
}

// A device that is new behind a kill, and begins amid its numbers, may have lost what the kernel
// held then: the verdict is watch, until that is acknowledged. Behind a stop nothing is held.
func TestADeviceThatIsNewBehindAKill(t *testing.T) {
	for _, how := range []ends{stops, dies} {
		dir := t.TempDir()
		g := start(t, dir, nil, tcp("a"))
		sendTo(t, g, 0, 10)
		g = start(t, left(t, g, dir, how), nil, tcp("a"))
		c := dial(t, address(g, "a"))
		defer c.Close()
		write(t, c, frames(10, 5))
		stored(t, g, "a", 5)
		if v := g.Sheet().Verdict; v.Level != ledger.Good {
			t.Errorf("%s: behind it the device that was there goes on: %s, %s", how, v.Level, v.Text)
		}
		write(t, c, of(7, 100, 5))
		stored(t, g, "a", 10)
		want, joined := ledger.Good, uint64(0)
		if how == dies {
			want, joined = ledger.Watch, 1
		}
		if s := g.Sheet(); s.Verdict.Level != want || s.Ports[0].Frames.Joined != joined {
			t.Errorf("%s: %s, %s; %d joined", how, s.Verdict.Level, s.Verdict.Text, s.Ports[0].Frames.Joined)
		}
		if _, err := g.Ack("it is new"); err != nil {
			t.Fatal(err)
		}
		if v := g.Sheet().Verdict; v.Level != ledger.Good {
			t.Errorf("%s: acknowledged: %s, %s", how, v.Level, v.Text)
		}
		stop(t, g)
	}
}

// Records that the log has removed, by its keep, before a sheet knew of them are no missing frames.
// What was lost among them nobody knows, nor where devices are that only they have.
func TestRecordsThatWereRemovedBehindTheSheet(t *testing.T) {
	dir := t.TempDir()
	keep := func(c *config.Config) { c.Log.Segment, c.Log.Keep.Size = 1<<20, 3<<20 }
	g := start(t, dir, keep, tcp("a"))
	c := dial(t, address(g, "a"))
	defer c.Close()
	write(t, c, of(1, 0, 10))
	write(t, c, of(7, 0, 10))
	stored(t, g, "a", 20)
	testenv.Until(t, 20*time.Second, "the sheet knows of them",
		func() bool { return archive.Known(dir).Given == 20 })
	if err := os.Mkdir(filepath.Join(dir, "sheet.json.part"), 0o700); err != nil {
		t.Fatal(err)
	}
	const n = 60_000
	write(t, c, of(7, 10, 5))
	write(t, c, of(1, 10, n))
	testenv.Until(t, time.Minute, "the oldest records are gone", func() bool {
		at := g.Position()
		return at.Durable == n+25 && at.First > 100
	})
	dir = left(t, g, dir, dies)
	if err := os.RemoveAll(filepath.Join(dir, "sheet.json.part")); err != nil {
		t.Fatal(err)
	}
	g = start(t, dir, keep, tcp("a"))
	next := dial(t, address(g, "a"))
	defer next.Close()
	write(t, next, of(1, n+10, 5))
	stored(t, g, "a", 5)
	s := g.Sheet()
	if f := s.Ports[0].Frames; f.Missing+f.Joined != 0 || s.Past == nil || !s.Past.Unreadable ||
		s.Past.LostWire.Frames != 0 || s.Verdict.Level != ledger.Watch {
		t.Errorf("%s: %s; %+v; past %+v", s.Verdict.Level, s.Verdict.Text, f, s.Past)
	}
	write(t, next, of(7, 20, 5)) // five of it are lost, or are where the others were
	stored(t, g, "a", 10)
	if f := portOf(g, "a").Frames; f.Missing != 0 || f.Joined != 1 {
		t.Errorf("of a device that was not seen since: %+v", f)
	}
	stop(t, g)
}
