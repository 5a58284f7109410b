package recorder

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
	"github.com/tallywheel/tallywheel/serial/serialtest"
	"github.com/tallywheel/tallywheel/uring/uringtest"
)

func TestMain(m *testing.M) {
	uringtest.Prepare()
	testenv.NoLeaks(m)
}

func start(t *testing.T, dir string, edit func(*config.Config), sources ...config.Source) *Recorder {
	t.Helper()
	return startTelling(t, slog.New(slog.DiscardHandler), dir, edit, sources...)
}

func startTelling(t *testing.T, log *slog.Logger, dir string, edit func(*config.Config),
	sources ...config.Source,
) *Recorder {
	t.Helper()
	cfg := config.Config{
		Log: config.Log{Dir: dir, Segment: 1 << 20, Delay: time.Millisecond},
		API: config.API{Listen: "127.0.0.1:0"}, Sources: sources,
	}
	if edit != nil {
		edit(&cfg)
	}
	g, err := Start(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func stop(t *testing.T, g *Recorder) ledger.Sheet {
	t.Helper()
	s, err := g.Stop("test")
	if err != nil {
		t.Error(err)
	}
	for _, p := range s.Ports {
		if len(p.Unbalanced) > 0 || p.Frames.InFlight != 0 || p.Bytes.Partial != 0 {
			t.Errorf("the last sheet: %+v", p)
		}
	}
	return s
}

func tcp(id string) config.Source {
	return config.Source{ID: id, TCP: &config.Net{Listen: "127.0.0.1:0"}, Frame: config.Frame{Kind: "tally128"}}
}

// address is where a listening source can be reached.
func address(g *Recorder, id string) string {
	for _, p := range g.snapshot() {
		if o, ok := p.opener.(*listener); ok && p.lane.cfg.ID == id {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.l != nil {
				return o.l.Addr().String()
			}
		}
	}
	return ""
}

func portOf(g *Recorder, id string) ledger.Port {
	for _, p := range g.Sheet().Ports {
		if p.ID == id {
			return p
		}
	}
	return ledger.Port{}
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func write(t *testing.T, w io.Writer, b []byte) {
	t.Helper()
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
}

func stored(t *testing.T, g *Recorder, id string, n uint64) {
	t.Helper()
	testenv.Until(t, 20*time.Second, fmt.Sprintf("%d frames of %s stored", n, id),
		func() bool { return portOf(g, id).Frames.Stored >= n })
}

var strategies = []string{"ring", "blocking", "polling", config.Pipeline}

func TestReloadTouchesOnlyWhatChanged(t *testing.T) {
	g := start(t, t.TempDir(), nil, tcp("stays"), tcp("goes"))
	c := dial(t, address(g, "stays"))
	defer c.Close()
	write(t, c, frames(0, 5))
	stored(t, g, "stays", 5)
	next := g.cfg
	next.Sources = []config.Source{g.cfg.Sources[0], tcp("comes")}
	if err := g.Reload(next); err != nil {
		t.Fatal(err)
	}
	write(t, c, frames(5, 5))
	stored(t, g, "stays", 10)
	var ids []string
	for _, p := range g.Sheet().Ports {
		ids = append(ids, p.ID)
	}
	if strings.Join(ids, " ") != "stays comes" {
		t.Errorf("sources after the reload: %v", ids)
	}
	bad := g.cfg
	bad.Log.Sync = "never"
	if err := g.Reload(bad); err == nil || !strings.Contains(err.Error(), "needs a restart") {
		t.Errorf("a change of the log gives %v", err)
	}
	stop(t, g)
}

func TestSecondRecorderIsRefused(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil)
	defer stop(t, g)
	if _, err := Start(config.Config{Log: config.Log{Dir: dir}}, slog.New(slog.DiscardHandler)); !errors.Is(err,
		seglog.ErrLocked) || strings.Contains(err.Error(), "\n") {
		t.Errorf("the second recorder gets %v, want ErrLocked in one line", err)
	}
}

func TestNextStartNamesTheGap(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, tcp("a"))
	c := dial(t, address(g, "a"))
	write(t, c, frames(0, 50))
	stored(t, g, "a", 50)
	c.Close()
	stop(t, g)
	g = start(t, dir, nil, tcp("a"))
	c = dial(t, address(g, "a"))
	write(t, c, frames(57, 10))
	stored(t, g, "a", 10)
	c.Close()
	p := stop(t, g).Ports[0]
	if p.Frames.MissingUnseen != 7 || p.Outages[0].Cause != "the recorder was not running; then: not connected" {
		t.Errorf("%+v, %+v; want 7 unseen while nobody recorded", p.Frames, p.Outages)
	}
	b, err := os.ReadFile(filepath.Join(dir, archive.HistoryFile))
	if err != nil || bytes.Count(b, []byte("\n")) != 2 {
		t.Errorf("history: %v, %s; want two lines", err, b)
	}
}

// descriptors counts the descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// After a stop no descriptor is left, whatever the strategy; goroutines are TestMain's affair.
func TestStopLeavesNothingOpen(t *testing.T) {
	dir := t.TempDir()
	port, err := serialtest.NewPort(filepath.Join(dir, "line"))
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	before := 0
	for i, strategy := range append([]string{"ring"}, strategies...) {
		g := start(t, dir, func(c *config.Config) { c.Read.Strategy = strategy }, tcp("a"),
			config.Source{ID: "u", UDP: &config.Net{Listen: "127.0.0.1:0"}, Frame: config.Frame{Kind: "raw"}},
			config.Source{ID: "s", Serial: &config.Serial{Port: port.Link}, Frame: config.Frame{Kind: "tally128"}},
			config.Source{
				ID: "absent", Serial: &config.Serial{Port: dir + "/absent"},
				Frame: config.Frame{Kind: "line"},
			})
		c := dial(t, address(g, "a"))
		write(t, c, frames(0, 3))
		stored(t, g, "a", 3)
		c.Close()
		stop(t, g)
		if i == 0 { // the first round opens what the runtime keeps for good
			before = descriptors(t)
			continue
		}
		testenv.Until(t, 5*time.Second, strategy+": all descriptors closed",
			func() bool { return descriptors(t) <= before })
	}
}
