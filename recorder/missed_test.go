package recorder

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// notThere lists the ports of a sheet that wait for somebody.
func notThere(s ledger.Sheet) (ids []string) {
	for _, p := range s.Ports {
		if p.State == ledger.StateWaiting {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

func waitsFor(t *testing.T, g *Recorder, want ...string) {
	t.Helper()
	level := ledger.Good
	if len(want) > 0 {
		level = ledger.Watch
	}
	var s ledger.Sheet
	defer func() {
		if t.Failed() {
			t.Logf("not there: %v; %s", notThere(s), s.Verdict.Text)
		}
	}()
	testenv.Until(t, 20*time.Second, fmt.Sprintf("missed: %v, level %s", want, level), func() bool {
		s = g.Sheet()
		return slices.Equal(notThere(s), want) && s.Verdict.Level == level
	})
}

// A peer that was there is missed until it comes again: over a reload, a stop and a kill, and over
// those that follow at once. Who comes goes on with its numbers. An acknowledgement ends it.
func TestPeersAreMissedUntilTheyCome(t *testing.T) {
	dir, source := t.TempDir(), all("a", 8)
	g := start(t, dir, nil, source)
	conns := map[int]net.Conn{}
	come := func(g *Recorder, from uint64, peers ...int) {
		t.Helper()
		for _, n := range peers {
			conns[n] = dialFrom(t, n, address(g, "a"))
			before := uint64(0)
			if p := find(g.Sheet(), peer("a", n)); p != nil {
				before = p.Frames.Stored
			}
			write(t, conns[n], of(uint32(n), from, 10))
			stored(t, g, peer("a", n), before+10)
		}
	}
	t.Cleanup(func() {
		for _, c := range conns {
			c.Close()
		}
	})
	come(g, 0, 2, 3, 4)
	waitsFor(t, g)

	// A reload that hands connections on: only who was gone is missed.
	conns[4].Close()
	waitsFor(t, g, peer("a", 4))
	next := g.Config()
	next.Sources[0].TCP = &config.Net{Listen: source.TCP.Listen, Peers: config.PeersAll, MaxPeers: 7}
	if err := g.Reload(next); err != nil {
		t.Fatal(err)
	}
	waitsFor(t, g, peer("a", 4))
	write(t, conns[2], of(2, 10, 10))
	stored(t, g, peer("a", 2), 10)

	// A kill, after a sheet of all of them.
	testenv.Until(t, 20*time.Second, "the sheet on disk has all peers", func() bool {
		s, err := os.ReadFile(filepath.Join(dir, "sheet.json"))
		return err == nil && bytes.Contains(s, []byte(`"`+peer("a", 4)+`"`))
	})
	killed := copyOf(t, dir)
	k := start(t, killed, nil, source)
	waitsFor(t, k, peer("a", 2), peer("a", 3), peer("a", 4))
	stop(t, k)

	// A stop: all of them are missed, and those that come go on.
	stop(t, g)
	g = start(t, dir, nil, source)
	waitsFor(t, g, peer("a", 2), peer("a", 3), peer("a", 4))
	come(g, 20, 2)
	waitsFor(t, g, peer("a", 3), peer("a", 4))
	if f := portOf(g, peer("a", 2)).Frames; f.Missing != 0 || f.Duplicate != 0 {
		t.Errorf("the peer does not go on with its numbers: %+v", f)
	}
	stop(t, g)

	// A start of which nobody came: they are missed all the same.
	g = start(t, dir, nil, source)
	stop(t, g)
	g = start(t, dir, nil, source)
	waitsFor(t, g, peer("a", 2), peer("a", 3), peer("a", 4))
	come(g, 10, 3)
	come(g, 30, 2)
	waitsFor(t, g, peer("a", 4))
	if _, err := g.Ack("4 is retired"); err != nil {
		t.Fatal(err)
	}
	waitsFor(t, g)
	stop(t, g)
	g = start(t, dir, nil, source)
	waitsFor(t, g, peer("a", 2), peer("a", 3))
	come(g, 13, 4) // three frames that it sent nobody has
	if f := portOf(g, peer("a", 4)).Frames; f.Missing != 3 {
		t.Errorf("who was let go does not go on with its numbers: %+v", f)
	}
	stop(t, g)
}

// The peers of a source that a reload has taken out are missed once it is back, also where the
// recorder is stopped or killed before that, once or again; but not those whose absence somebody
// has acknowledged.
func TestPeersOfATakenOutSourceAreMissedOverStarts(t *testing.T) {
	for how, end := range waysToEnd {
		for _, starts := range []int{0, 1} { // without the source
			t.Run(how, func(t *testing.T) {
				dir := t.TempDir()
				g := start(t, dir, nil, all("a", 8), tcp("b"))
				b := dial(t, address(g, "b"))
				defer b.Close()
				for _, n := range []int{2, 3} {
					c := dialFrom(t, n, address(g, "a"))
					defer c.Close()
					write(t, c, of(uint32(n), 0, 1))
					stored(t, g, peer("a", n), 1)
					if n == 3 { // this one is gone before
						c.Close()
						waitsFor(t, g, peer("a", 3))
					}
				}
				reloaded(t, g, tcp("b"))
				dir = end(t, g, dir)
				for range starts {
					g = start(t, dir, nil, tcp("b"))
					dir = end(t, g, dir)
				}
				g = start(t, dir, nil, tcp("b"))
				if starts > 0 {
					if _, err := g.Ack("3 is retired"); err != nil {
						t.Fatal(err)
					}
				}
				reloaded(t, g, all("a", 8))
				want := []string{peer("a", 2), peer("a", 3)}
				if starts > 0 {
					want = want[:1]
				}
				testenv.Until(t, 20*time.Second, fmt.Sprintf("missed: %v", want), func() bool {
					ids := slices.Sorted(slices.Values(notThere(g.Sheet())))
					return slices.Equal(ids, want)
				})
				stop(t, g)
			})
		}
	}
}

func find(s ledger.Sheet, id string) *ledger.Port {
	for i := range s.Ports {
		if s.Ports[i].ID == id {
			return &s.Ports[i]
		}
	}
	return nil
}

// Of more peers than have a place, those are missed that were there last, and somebody new takes
// the place of one of them.
func TestSomebodyNewTakesThePlaceOfAPeerThatIsMissed(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, all("a", 4))
	for n := 2; n <= 5; n++ {
		c := dialFrom(t, n, address(g, "a"))
		write(t, c, of(uint32(n), 0, 1))
		stored(t, g, peer("a", n), 1)
		c.Close()
		testenv.Until(t, 20*time.Second, "it is gone", func() bool {
			return slices.Contains(notThere(g.Sheet()), peer("a", n))
		})
	}
	stop(t, g)
	g = start(t, dir, nil, all("a", 2))
	waitsFor(t, g, peer("a", 5), peer("a", 4))
	c := dialFrom(t, 6, address(g, "a"))
	defer c.Close()
	write(t, c, of(6, 0, 1))
	stored(t, g, peer("a", 6), 1)
	waitsFor(t, g, peer("a", 5))
	stop(t, g)
}

// A reload that leaves fewer places than peers: one that is missed makes room for one whose
// connection is handed on.
func TestAReloadWithFewerPlacesThanPeers(t *testing.T) {
	g := start(t, t.TempDir(), nil, all("a", 3))
	var conns []net.Conn
	for n := 2; n <= 4; n++ {
		conns = append(conns, dialFrom(t, n, address(g, "a")))
		write(t, conns[n-2], of(uint32(n), 0, 1))
		stored(t, g, peer("a", n), 1)
	}
	conns[1].Close()
	conns[2].Close()
	defer conns[0].Close()
	waitsFor(t, g, peer("a", 3), peer("a", 4))
	next := g.Config()
	next.Sources[0].TCP = &config.Net{Listen: next.Sources[0].TCP.Listen, Peers: config.PeersAll, MaxPeers: 1}
	if err := g.Reload(next); err != nil {
		t.Fatal(err)
	}
	write(t, conns[0], of(2, 1, 1))
	stored(t, g, peer("a", 2), 1)
	waitsFor(t, g)
	stop(t, g)
}

// A peer that is gone, and whose next connection a stop has found, makes no room for another one:
// what that has sent is in its books.
func TestAStopKeepsThePlaceOfAPeerThatIsToBeRead(t *testing.T) {
	g := start(t, t.TempDir(), nil, all("a", 2))
	first := dialFrom(t, 9, address(g, "a")) // it has the place that the source has in any case
	defer first.Close()
	write(t, first, of(9, 0, 1))
	stored(t, g, peer("a", 9), 1)
	send := func(n int, from, frames uint64) {
		c := dialFrom(t, n, address(g, "a"))
		defer c.Close()
		write(t, c, of(uint32(n), from, frames))
	}
	send(2, 0, 10)
	waitsFor(t, g, peer("a", 2))
	stored(t, g, peer("a", 2), 10)
	g.allotted.mu.Lock()
	g.allotted.most = 0 // what comes now waits until the stop
	g.allotted.mu.Unlock()
	send(2, 10, 500)
	send(3, 0, 10)
	send(2, 510, 500)
	s := stop(t, g)
	f, _, unread := total(t, s, "a")
	if f.OK != 1011 || f.Stored != 1011 || f.Durable != 1011 || unread != 10*tally128.Size || !s.Balanced {
		t.Errorf("%+v, %d bytes unread; balanced: %v", f, unread, s.Balanced)
	}
}

// A peer that is gone is let go by a word, also where the clock says that it went later: it was set
// back between two starts.
func TestWhoIsGoneIsLetGoWhenTheClockIsSetBack(t *testing.T) {
	dir, source := t.TempDir(), all("a", 8)
	g := start(t, dir, nil, source)
	c := dialFrom(t, 2, address(g, "a"))
	write(t, c, of(2, 0, 10))
	stored(t, g, peer("a", 2), 10)
	c.Close()
	waitsFor(t, g, peer("a", 2))
	stop(t, g)
	now, ahead := time.Now(), time.Now().AddDate(1, 0, 0) // the clock is set back by a year
	for _, name := range []string{"sheet.json", "sheet.json.before"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		b = bytes.ReplaceAll(b, now.UTC().AppendFormat(nil, `"2006-`), ahead.UTC().AppendFormat(nil, `"2006-`))
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g = start(t, dir, nil, source)
	other := dialFrom(t, 3, address(g, "a"))
	defer other.Close()
	write(t, other, of(3, 0, 10))
	stored(t, g, peer("a", 3), 10)
	waitsFor(t, g, peer("a", 2))
	if _, err := g.Ack("2 is retired"); err != nil {
		t.Fatal(err)
	}
	waitsFor(t, g)
	stop(t, g)
}
