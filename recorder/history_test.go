package recorder

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// A clock that is set makes no rate of a sample negative, nor one that JSON has no number for.
func TestRatesAfterAClockStep(t *testing.T) {
	g := start(t, t.TempDir(), nil, lines("a", ""))
	defer stop(t, g)
	c := dial(t, address(g, "a"))
	defer c.Close()
	write(t, c, []byte("one\ntwo\n"))
	stored(t, g, "a", 2)
	for _, step := range []time.Duration{-time.Hour, 0, time.Hour} { // since the sample before
		testenv.Calm(t, func() error { // the recorder's own sample may come in between
			now := time.Now()
			g.history.add(Sample{At: now.Add(-step).UnixMilli(), taken: now.Add(-time.Second)})
			g.sample(g.Sheet().Ports)
			s, _ := g.history.last()
			if _, err := json.Marshal(s); err != nil {
				return fmt.Errorf("set by %v: %w", step, err)
			}
			if r := s.Ports[0]; r.Bytes <= 0 || r.Bytes > 8 || s.Log.Growth < 0 {
				return fmt.Errorf("set by %v: %+v, growth %v; want 8 bytes of a second or a little more", step, r,
					s.Log.Growth)
			}
			return nil
		})
	}
}

// tightDisk is a folder on a disk that has so many bytes left.
type tightDisk struct {
	seglog.FS
	free int64
}

func (d tightDisk) FreeBytes() (int64, error) { return d.free, nil }

// What the log cannot take, because of its reserve or of a part of a segment, is no room; and a
// disk is full when there is none.
func TestHoursUntilFullKnowTheReserve(t *testing.T) {
	defer func() { openFiles = logFiles }()
	for _, c := range []struct{ free, want int64 }{
		{64 << 20, 48 << 20}, {17 << 20, 1 << 20}, // beside the reserve of 16 MiB
	} {
		openFiles = func(l config.Log, chains *asyncfile.ChainStats, log *slog.Logger) (seglog.FS, error) {
			fs, err := logFiles(l, chains, log)
			return tightDisk{fs, c.free}, err
		}
		g := start(t, t.TempDir(), func(c *config.Config) { c.Log.Segment = 1 << 20 }, lines("a", ""))
		conn := dial(t, address(g, "a"))
		write(t, conn, []byte("one\n"))
		stored(t, g, "a", 1)
		g.history.add(Sample{taken: time.Now().Add(-10 * time.Second), Ports: []PortSample{{ID: "a", Bytes: 1e6}}})
		l := g.LogNow()
		room, err := g.log.Room()
		if err != nil || l.Room < c.want-(2<<20) || l.Room > c.want+(2<<20) || l.HoursLeft == nil {
			t.Errorf("%d bytes are free: %+v, %v; want room for about %d", c.free, l, err, c.want)
		} else if want := float64(room) / l.Growth / 3600; *l.HoursLeft < want/2 || *l.HoursLeft > 2*want {
			t.Errorf("%d bytes are free: full in %v h, want %v", c.free, *l.HoursLeft, want)
		}
		conn.Close()
		stop(t, g)
	}
}

// A disk that is too small for what is configured is told of when the recorder starts, not when the
// first frame has nowhere to go.
func TestDiskTooSmallIsToldAtStart(t *testing.T) {
	defer func() { openFiles = logFiles }()
	for free, want := range map[int64]bool{6 << 20: true, 80<<20 - 1: true, 80 << 20: false} {
		openFiles = func(l config.Log, chains *asyncfile.ChainStats, log *slog.Logger) (seglog.FS, error) {
			fs, err := logFiles(l, chains, log)
			return tightDisk{fs, free}, err
		}
		var journal bytes.Buffer
		g, err := Start(config.Config{Log: config.Log{Dir: t.TempDir()}, API: config.API{Listen: "off"}},
			slog.New(slog.NewTextHandler(&journal, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Stop("test"); err != nil {
			t.Error(err)
		}
		if told := strings.Contains(journal.String(), "set log.segment and log.reserve lower"); told != want {
			t.Errorf("with %d bytes free the journal says %s", free, journal.String())
		}
	}
}

// counting is a device whose driver's counts every account asks for.
type counting struct {
	device
	asked func()
}

func (d counting) kernel() *ledger.Kernel {
	d.asked()
	return d.device.kernel()
}

// One sheet a second serves the list of losses, the charts, the journal, and what is kept on disk.
func TestASecondTakesOneSheet(t *testing.T) {
	g := start(t, t.TempDir(), nil, lines("a", ""))
	defer stop(t, g)
	c := dial(t, address(g, "a"))
	defer c.Close()
	write(t, c, []byte("one\n"))
	stored(t, g, "a", 1)
	sheets := map[int64]int{} // by the sample before; guarded by the lane's lock
	l := g.snapshot()[0].lane
	l.mu.Lock()
	l.device = counting{l.device, func() {
		before, _ := g.history.last()
		sheets[before.taken.UnixNano()]++
	}}
	l.mu.Unlock()
	var newest Sample
	for range 4 {
		<-g.history.next()
		newest, _ = g.history.last()
	}
	all := g.history.all()
	for i, s := range all {
		if i < len(all)-1 && s.readings != nil {
			t.Errorf("sample %d of %d holds what its ports had read, which only the newest needs", i, len(all))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	first := slices.Min(slices.Collect(maps.Keys(sheets)))
	for at, n := range sheets {
		// the device may have been there for a part of the first
		if at != first && at < newest.taken.UnixNano() && n != 1 {
			t.Errorf("%d sheets were drawn between two samples, want one", n)
		}
	}
	if len(sheets) < 3 {
		t.Errorf("sheets were drawn in %d seconds, want 3 at least", len(sheets))
	}
}

// A disk of 6 MB is enough where segments and the reserve are set to fit.
func TestSmallDiskRecords(t *testing.T) {
	defer func() { openFiles = logFiles }()
	openFiles = func(l config.Log, chains *asyncfile.ChainStats, log *slog.Logger) (seglog.FS, error) {
		fs, err := logFiles(l, chains, log)
		return tightDisk{fs, 6 << 20}, err
	}
	g := start(t, t.TempDir(), func(c *config.Config) { c.Log.Segment, c.Log.Reserve = 1<<20, 1<<20 }, tcp("a"))
	defer stop(t, g)
	feed(t, g, consecutive(0, 10)...)
	if s := g.Sheet(); s.Log != nil || s.Ports[0].Frames.Stored != 10 {
		t.Errorf("%+v, %+v; want 10 frames stored", s.Log, s.Ports[0].Frames)
	}
}
