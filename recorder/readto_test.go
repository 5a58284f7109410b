package recorder

import (
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// From when the sources stop nobody takes what comes, and a stop may wait for the log for long
// after that, as on a full disk: the outage in the next sheet begins when each source was read
// last. It began at the end of the stop.
func TestOutageBeginsWhenTheReadingEnds(t *testing.T) {
	patience := stopPatience
	stopPatience = time.Minute
	defer func() { stopPatience = patience }()
	d, dir := onDisk(t), t.TempDir()
	line, err := serialtest.NewPort(filepath.Join(t.TempDir(), "line"))
	if err != nil {
		t.Fatal(err)
	}
	defer line.Close()
	sources := []config.Source{
		tcp("a"), all("all", 4),
		{ID: "udp", UDP: &config.Net{Listen: freeUDP(t)}, Frame: config.Frame{Kind: "raw"}},
		{ID: "line", Serial: &config.Serial{Port: line.Link}, Frame: config.Frame{Kind: "tally128"}},
	}
	names := []string{"a", "all", peer("all", 2), "udp", "line"}
	are := func(g *Recorder, state string) bool {
		for _, name := range names {
			if portOf(g, name).State != state {
				return false
			}
		}
		return true
	}
	g := start(t, dir, nil, sources...)
	conn := dial(t, address(g, "a"))
	defer conn.Close()
	device := dialFrom(t, 2, address(g, "all"))
	defer device.Close()
	testenv.Until(t, time.Minute, "all sources are read", func() bool { return are(g, ledger.StateOpen) })
	read := ledger.Time(time.Now().UnixNano())
	d.SetFree(0)
	sendUntilStalled(t, g, conn)
	ended := make(chan error, 1)
	go func() {
		_, err := g.Stop("test")
		ended <- err
	}()
	testenv.Until(t, time.Minute, "all sources have stopped", func() bool { return are(g, ledger.StateStopped) })
	left := ledger.Time(time.Now().UnixNano())
	select {
	case err := <-ended:
		t.Fatalf("the stop does not wait: %v", err)
	default:
	}
	// Behind a kill, too, once a sheet knows of it.
	testenv.Until(t, time.Minute, "the sheet on disk is of after that", func() bool {
		s, err := archive.LoadStart(dir, slog.New(slog.DiscardHandler))
		return err == nil && s != nil && s.Sheet.At > left
	})
	killed := copyOf(t, dir)
	d.SetFree(-1)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, dir := range []string{killed, dir} {
		g := start(t, dir, nil, sources...)
		for _, name := range names {
			p := portOf(g, name)
			if len(p.Outages) != 1 || p.Outages[0].From < read || p.Outages[0].From > left {
				t.Errorf("%s: %+v; want one that begins between %v and %v", name, p.Outages, read, left)
			}
		}
		stop(t, g)
	}
}

// A source that a reload takes out, or changes, waits for the log, too: its outage begins when it
// was read last.
func TestOutageOfAReloadBeginsWhenTheReadingEnds(t *testing.T) {
	before := finishPatience
	finishPatience = time.Minute
	defer func() { finishPatience = before }()
	source := tcp("a")
	source.Overflow, source.Buffer = config.OverflowBlock, 64<<10
	g, release := stalled(t, t.TempDir(), source, 0)
	c := dial(t, address(g, "a"))
	defer c.Close()
	n := uint64(10)
	testenv.Until(t, time.Minute, "the source is blocked", func() bool {
		write(t, c, frames(n, 100))
		n += 100
		return portOf(g, "a").State == ledger.StateBlocked
	})
	old := g.snapshot()[0].lane
	moved := source
	moved.TCP = &config.Net{Listen: "127.0.0.2:0"}
	cfg := g.Config()
	cfg.Sources = []config.Source{moved}
	done := make(chan error, 1)
	go func() { done <- g.Reload(cfg) }()
	testenv.Until(t, time.Minute, "the source stops", func() bool { return old.lastRead() > 0 })
	left := ledger.Time(time.Now().UnixNano())
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	p := portOf(g, "a")
	if len(p.Outages) != 1 || p.Outages[0].From > left || int64(p.Outages[0].From) != old.lastRead() {
		t.Errorf("%+v; want one that begins before %v", p.Outages, left)
	}
	stop(t, g)
}

// A source that is not read for want of room as the recorder stops is not read at all from then on:
// the one outage ends where that of the next start begins.
func TestWantOfRoomEndsWhereNobodyReads(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, tcp("a"))
	c := dial(t, address(g, "a"))
	defer c.Close()
	testenv.Until(t, time.Minute, "the source is read", func() bool { return portOf(g, "a").State == ledger.StateOpen })
	l := g.snapshot()[0].lane
	began := time.Now().UnixNano()
	l.mu.Lock()
	l.in.book.Outage(began, 0, outageNoMemory)
	l.mu.Unlock()
	last := stop(t, g)
	history := past(t, dir)
	at := ledger.Time(l.lastRead())
	want := []ledger.Outage{{From: ledger.Time(began), To: at, Cause: outageNoMemory}}
	for where, s := range map[string]ledger.Sheet{
		"the last sheet": last, "the history": history[len(history)-1].Sheet,
	} {
		var got []ledger.Outage
		for _, o := range s.Ports[0].Outages {
			if isWantOfRoom(o) {
				got = append(got, o)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", where, got, want)
		}
	}
	g = start(t, dir, nil, tcp("a"))
	if p := portOf(g, "a"); len(p.Outages) != 1 || p.Outages[0].From != at {
		t.Errorf("the next start: %+v; want one that begins at %v", p.Outages, at)
	}
	stop(t, g)
}

// What is known of outages, and what becomes of them where a source was read up to a time, or to
// the end of its start.
func TestEndOfOutages(t *testing.T) {
	out := func(from, to ledger.Time, cause string) ledger.Outage {
		return ledger.Outage{From: from, To: to, Cause: cause}
	}
	back := "; " + ledger.ClockSet
	of := func(id string, all ...ledger.Outage) ledger.Port {
		return ledger.Port{ID: id, OutageCount: 9, Outages: slices.Clone(all)}
	}
	all := []ledger.Outage{
		out(1, 2, outageNoMemory), out(3, 8, outageSpillFull), out(4, 0, outageSpillFailed),
		out(6, 7, outageNoMemory), out(2, 8, outageChanged), out(3, 0, outageNotConnected),
	}
	s := ledger.Sheet{At: 10, Ports: []ledger.Port{
		of("read to 5", all...), of("away", all...), of("read to 20", out(3, 0, outageNotConnected)),
		// a peer that goes while its source stops
		of("gone late", out(7, 0, outageNotConnected)),
		of("set back", out(30, 31, outageNoMemory), out(20, 21, outageChanged), out(30, 0, outageNotConnected)),
	}}
	endOutages(&s, map[string]ledger.Time{"read to 5": 5, "read to 20": 20, "gone late": 5}, 12)
	for i, want := range []ledger.Port{
		{OutageCount: 8, Outages: []ledger.Outage{
			out(1, 2, outageNoMemory), out(3, 5, outageSpillFull), out(4, 5, outageSpillFailed),
			out(2, 8, outageChanged), out(3, 5, outageNotConnected),
		}},
		{OutageCount: 9, Outages: []ledger.Outage{
			out(1, 2, outageNoMemory), out(3, 8, outageSpillFull), out(4, 12, outageSpillFailed),
			out(6, 7, outageNoMemory), out(2, 8, outageChanged), out(3, 12, outageNotConnected),
		}},
		{OutageCount: 9, Outages: []ledger.Outage{out(3, 12, outageNotConnected)}},
		{OutageCount: 9, Outages: []ledger.Outage{out(5, 5, outageNotConnected)}},
		{OutageCount: 9, Outages: []ledger.Outage{
			out(30, 31, outageNoMemory), out(20, 21, outageChanged), out(12, 12, outageNotConnected+back),
		}},
	} {
		if p := s.Ports[i]; !slices.Equal(p.Outages, want.Outages) || p.OutageCount != want.OutageCount {
			t.Errorf("%s: %d outages: %+v; want %d: %+v", p.ID, p.OutageCount, p.Outages, want.OutageCount,
				want.Outages)
		}
	}
}

// A source that is away when its start ends is so until then, in that start's sheet: its outage
// ends where that of the next begins, behind a stop, and behind a kill.
func TestOutageEndsWithItsStart(t *testing.T) {
	dir, a := t.TempDir(), tcp("a")
	g := start(t, dir, nil, a, tcp("b"))
	b := dial(t, address(g, "b"))
	defer b.Close()
	testenv.Until(t, time.Minute, "a is away, and b is read", func() bool {
		return portOf(g, "a").State == ledger.StateWaiting && portOf(g, "b").State == ledger.StateOpen
	})
	if err := g.save(); err != nil {
		t.Fatal(err)
	}
	l := g.snapshot()[0].lane
	l.mu.Lock()
	began := time.Now().UnixNano()
	l.in.book.Outage(began, 0, outageNoMemory)
	l.touched = true
	l.mu.Unlock()
	write(t, b, frames(1, 1))
	stored(t, g, "b", 1)
	if err := g.save(); err != nil {
		t.Fatal(err)
	}
	killed := copyOf(t, dir)
	stop(t, g)
	for what, dir := range map[string]string{"a stop": dir, "a kill": killed} {
		g := start(t, dir, nil, a, tcp("b"))
		history := past(t, dir)
		before := find(history[len(history)-1].Sheet, "a")
		next := portOf(g, "a").Outages
		if len(next) != 1 || len(before.Outages) != 2 {
			t.Fatalf("%s: %+v; then: %+v", what, before, next)
		}
		for _, o := range before.Outages {
			if o.To != next[0].From || o.From >= o.To {
				t.Errorf("%s: %+v; then: %+v", what, o, next)
			}
		}
		stop(t, g)
	}
}

// So does one of a source that a reload changes, or takes out, also while it is leaving, and where
// the other goes on with its device: that is away for both.
func TestOutageEndsWithItsSource(t *testing.T) {
	for what, change := range map[string]func(*config.Source){
		"another device":  func(s *config.Source) { s.TCP = &config.Net{Listen: "127.0.0.2:0"} },
		"another framing": func(s *config.Source) { s.Frame.Kind = "line" },
	} {
		dir, a := t.TempDir(), tcp("a")
		g := start(t, dir, nil, a)
		testenv.Until(t, time.Minute, "it is away", func() bool { return portOf(g, "a").Why == outageNotConnected })
		cfg := g.Config()
		changed := cfg.Sources[0]
		change(&changed)
		cfg.Sources = []config.Source{changed}
		if err := g.Reload(cfg); err != nil {
			t.Fatal(err)
		}
		next := portOf(g, "a").Outages
		stop(t, g)
		before := find(past(t, dir)[0].Sheet, "a").Outages
		if len(before) != 1 || len(next) != 1 || before[0].To != next[0].From || before[0].From >= before[0].To {
			t.Errorf("%s: %+v; then: %+v", what, before, next)
		}
	}
}
