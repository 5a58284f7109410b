package recorder

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// lineSource is a source without numbers.
func lineSource() config.Source {
	return config.Source{ID: "a", UDP: &config.Net{Listen: "127.0.0.1:0"}, Frame: config.Frame{Kind: "line"}}
}

// endStart ends a start that runs on a folder, and returns the folder as the next start finds it.
type endStart func(t *testing.T, g *Recorder, dir string) string

func endByStop(t *testing.T, g *Recorder, dir string) string {
	t.Helper()
	stop(t, g)
	return dir
}

// endByKill leaves what a kill would, with a sheet of that moment.
func endByKill(t *testing.T, g *Recorder, dir string) string {
	t.Helper()
	if err := g.save(); err != nil {
		t.Fatal(err)
	}
	killed := copyFolder(t, dir)
	stop(t, g)
	return killed
}

// endByKilledStop leaves what a kill would once the history has the last sheet, and before that is
// in the place of the one before.
func endByKilledStop(t *testing.T, g *Recorder, dir string) string {
	t.Helper()
	if err := g.save(); err != nil {
		t.Fatal(err)
	}
	sheet := filepath.Join(dir, "sheet.json")
	before, err := os.ReadFile(sheet)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, g)
	if err := os.WriteFile(sheet, before, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

var waysToEnd = map[string]endStart{"stopped": endByStop, "killed": endByKill, "killed as it stops": endByKilledStop}

// leftAt is since when a source is not read, of one that has no port.
func leftAt(t *testing.T, g *Recorder, id string) ledger.Time {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	at, ok := g.places[id]
	if !ok {
		t.Fatalf("the source %s has no place", id)
	}
	return ledger.Time(at.at)
}

// hasOneOutage holds the books of a source that is read again to one outage, from when it was read
// last.
func hasOneOutage(t *testing.T, g *Recorder, id string, from ledger.Time, cause string) {
	t.Helper()
	testenv.Until(t, 20*time.Second, "the source is read again", func() bool {
		return portOf(g, id).State == ledger.StateOpen
	})
	if o := portOf(g, id).Outages; len(o) != 1 || o[0].From != from || o[0].To <= from || o[0].Cause != cause {
		t.Errorf("outages %+v; want one from %d on: %s", o, from, cause)
	}
}

// The outage of a source that a reload has taken out begins when it was read last, also where the
// recorder is killed or stopped before it is back, once or again. It began at the kill, so that
// what the device had sent before was in no outage.
func TestOutageOfATakenOutSourceOverStarts(t *testing.T) {
	connections := config.Source{
		ID: "a", TCP: &config.Net{Listen: "127.0.0.1:0", Peers: config.PeersAll}, Frame: config.Frame{Kind: "line"},
	}
	for kind, a := range map[string]config.Source{"tcp": connections, "udp": lineSource()} {
		for how, end := range waysToEnd {
			for _, starts := range []int{0, 1, 2} { // without the source
				t.Run(kind+" "+how, func(t *testing.T) {
					dir := t.TempDir()
					g := start(t, dir, nil, a, tcp("b"))
					testenv.Until(t, 20*time.Second, "the source is open", func() bool {
						return portOf(g, "a").State == ledger.StateOpen
					})
					reloaded(t, g, tcp("b"))
					from := leftAt(t, g, "a")
					dir = end(t, g, dir)
					for range starts {
						g = start(t, dir, nil, tcp("b"))
						dir = end(t, g, dir)
					}
					g = start(t, dir, nil, a, tcp("b"))
					hasOneOutage(t, g, "a", from, outageTakenOut+outageThen+outageNotRunning)
					stop(t, g)
				})
			}
		}
	}
}

// A source that is taken out between two starts is back by a reload: its outage says both.
func TestOutageOfASourceTakenOutBetweenStarts(t *testing.T) {
	for how, end := range waysToEnd {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			dir = end(t, start(t, dir, nil, lineSource(), tcp("b")), dir)
			g := start(t, dir, nil, tcp("b"))
			from := leftAt(t, g, "a")
			dir = end(t, g, dir)
			g = start(t, dir, nil, tcp("b"))
			reloaded(t, g, lineSource(), tcp("b"))
			hasOneOutage(t, g, "a", from, outageNotRunning+outageThen+outageTakenOut)
			stop(t, g)
		})
	}
}

// The outage of a source begins when it was read last, also where the stop is killed before its
// last sheet has taken its place.
func TestOutageBehindAKilledStop(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, lineSource())
	testenv.Until(t, 20*time.Second, "the source is open", func() bool {
		return portOf(g, "a").State == ledger.StateOpen
	})
	l := g.snapshot()[0].lane
	dir = endByKilledStop(t, g, dir)
	g = start(t, dir, nil, lineSource())
	hasOneOutage(t, g, "a", ledger.Time(l.lastRead()), outageNotRunning)
	stop(t, g)
}

// However often a source is out over the end of a start, its outage names each cause once.
func TestCauseOfALongAbsenceHasABound(t *testing.T) {
	why := outageTakenOut
	for range 100 {
		for _, ended := range []string{outageNotRunning, outageRestarted} {
			why = alsoFor(why, ended)
		}
	}
	if want := outageTakenOut + outageThen + outageNotRunning + outageThen + outageRestarted; why != want {
		t.Errorf("%q; want %q", why, want)
	}
}
