package recorder

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// feed sends frames of device 1 to source a, and waits until they are booked.
func feed(t *testing.T, g *Recorder, numbers ...uint64) {
	t.Helper()
	var b []byte
	for _, n := range numbers {
		b = append(b, frames(n, 1)...)
	}
	before := portOf(g, "a").Bytes.Read
	c := dial(t, address(g, "a"))
	write(t, c, b)
	c.Close()
	testenv.Until(t, 10*time.Second, "the bytes are read", func() bool {
		p := portOf(g, "a")
		return p.Bytes.Read == before+uint64(len(b)) && p.Bytes.Partial == 0 && p.Frames.InFlight == 0
	})
}

// consecutive is n numbers from the first one on.
func consecutive(from, n uint64) (all []uint64) {
	for i := range n {
		all = append(all, from+i)
	}
	return all
}

// A time under a framing without numbers forgets none: what the device sent then and nobody knows
// of is missing once its numbers are read again. That time itself could not prove anything.
func TestNumbersOutliveAnotherFraming(t *testing.T) {
	for name, turn := range map[string]func(t *testing.T, g *Recorder, dir, kind string) *Recorder{
		"reload": func(t *testing.T, g *Recorder, _, kind string) *Recorder {
			change(t, g, func(s *config.Source) { s.Frame.Kind = kind })
			return g
		},
		"restart": func(t *testing.T, g *Recorder, dir, kind string) *Recorder {
			stop(t, g)
			s := tcp("a")
			s.Frame.Kind = kind
			return start(t, dir, nil, s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			g := start(t, dir, nil, tcp("a"))
			feed(t, g, consecutive(0, 100)...)
			for _, kind := range []string{"raw", "line", "tally128"} { // 100–149 are never sent
				g = turn(t, g, dir, kind)
			}
			feed(t, g, consecutive(150, 100)...)
			if f := portOf(g, "a").Frames; f.MissingUnseen != 50 || f.Duplicate != 0 {
				t.Errorf("%+v; want 50 never seen", f)
			}
			s := g.Sheet()
			if s.Verdict.Level != ledger.Bad || !hasReason(s.Verdict, "unproven") {
				t.Errorf("%s: %q", s.Verdict.Level, s.Verdict.Text)
			}
			if _, err := g.Ack("known"); err != nil {
				t.Fatal(err)
			}
			feed(t, g, 250)
			if v := g.Sheet().Verdict; v.Level == ledger.Bad || hasReason(v, "unproven") {
				t.Errorf("acknowledged: %s: %q", v.Level, v.Text)
			}
			g = turn(t, g, dir, "raw")
			g = turn(t, g, dir, "tally128")
			feed(t, g, 251)
			if v := g.Sheet().Verdict; v.Level != ledger.Watch || !hasReason(v, "unproven") {
				t.Errorf("raw since: %s: %q", v.Level, v.Text)
			}
			stop(t, g)
		})
	}
}

// A device whose counter begins anew while nobody records, without a new epoch, does not look as
// if it sent old frames: what it loses from then on shows, also over the starts behind it.
func TestCounterThatBeginsAnewBetweenStarts(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, tcp("a"))
	feed(t, g, consecutive(0, 1000)...)
	stop(t, g)
	g = start(t, dir, nil, tcp("a"))
	feed(t, g, consecutive(0, 20)...)
	if f := portOf(g, "a").Frames; f.Restarts != 1 || f.Unique != 20 || f.Duplicate != 0 || f.Missing != 0 {
		t.Errorf("%+v; want a restart", f)
	}
	if v := g.Sheet().Verdict; v.Level != ledger.Watch || !hasReason(v, "restarts") {
		t.Errorf("%s: %q", v.Level, v.Text)
	}
	if err := g.log.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := g.save(); err != nil {
		t.Fatal(err)
	}
	killed := copyFolder(t, dir)
	stop(t, g)
	for name, dir := range map[string]string{"stopped": dir, "killed": killed} {
		g = start(t, dir, nil, tcp("a"))
		feed(t, g, 20, 23)
		if f := portOf(g, "a").Frames; f.Missing != 2 || f.Duplicate != 0 || f.Restarts != 0 {
			t.Errorf("%s: %+v; want 2 missing", name, f)
		}
		if v := g.Sheet().Verdict; !hasReason(v, "earlier_doubts") || !strings.Contains(v.Text, "earlier: restarts") {
			t.Errorf("%s: a restart before this start: %q", name, v.Text)
		}
		if _, err := g.Ack("known"); err != nil {
			t.Fatal(err)
		}
		stop(t, g)
		g = start(t, dir, nil, tcp("a"))
		if v := g.Sheet().Verdict; hasReason(v, "earlier_doubts") {
			t.Errorf("%s: a restart that was acknowledged: %q", name, v.Text)
		}
		stop(t, g)
	}
}

// Where the sheets are gone, and the log's last records with them, nobody knows which numbers those
// had: they are lost as records, and not as frames on the wire, too.
func TestRecordsThatAreGoneAreNoLossOnTheWire(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, tcp("a"))
	feed(t, g, consecutive(0, 20000)...) // several segments
	stop(t, g)
	segments := glob(t, dir, "*.seg")
	if len(segments) < 2 {
		t.Fatal(segments)
	}
	for _, path := range append(glob(t, dir, "sheet*"), segments[len(segments)-1]) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	g = start(t, dir, nil, tcp("a"))
	feed(t, g, 20000, 20002)
	s := g.Sheet()
	if n, _ := s.Recovered.Gone(); n == 0 || portOf(g, "a").Frames.Missing != 1 || s.Verdict.LostHere.Records != n {
		t.Errorf("%d records gone, %+v: %q", n, portOf(g, "a").Frames, s.Verdict.Text)
	}
	stop(t, g)
}

// A source goes on where it was left, however long ago that was, or seems to be by a clock that was
// wrong: the time in which nobody recorded is an outage, and what the device sent then is missing.
func TestLongPauseIsAnOutage(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for name, ago := range map[string]time.Duration{
		"yesterday": 24 * time.Hour, "40 days": 40 * 24 * time.Hour, "years": 20 * year, "the future": -year,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			g := start(t, dir, nil, tcp("a"), lines("b", ""))
			feed(t, g, consecutive(0, 100)...)
			stop(t, g)
			s, err := archive.LoadStart(dir, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			s.Sheet.At -= ledger.Time(ago)
			if err := s.Save(dir, true); err != nil {
				t.Fatal(err)
			}
			g = start(t, dir, nil, tcp("a"), lines("b", ""))
			defer stop(t, g)
			feed(t, g, consecutive(150, 100)...)
			if f := portOf(g, "a").Frames; f.MissingUnseen != 50 {
				t.Errorf("%+v; want 50 never seen", f)
			}
			for _, p := range g.Sheet().Ports {
				if len(p.Outages) == 0 || !strings.HasPrefix(p.Outages[0].Cause, outageNotRunning) {
					t.Errorf("%s: %+v; want an outage since %v", p.ID, p.Outages, s.Sheet.At)
					continue
				}
				o, isBack := p.Outages[0], ago < 0
				if since := s.Sheet.At; !isBack && o.From != since ||
					o.To != 0 && isBack != strings.HasSuffix(o.Cause, ledger.ClockSet) ||
					o.To != 0 && isBack && o.From != o.To ||
					o.To == 0 && o.From != since {
					t.Errorf("%s: %+v; want an outage since %v, or until now where that is to come", p.ID, o, since)
				}
			}
		})
	}
}
