package recorder

import (
	"net"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// at is a source that listens at an address of its own.
func at(id, address string) config.Source {
	s := tcp(id)
	s.TCP = &config.Net{Listen: address}
	return s
}

// freeTCP is an address of a host at which nobody listens.
func freeTCP(t *testing.T, host string) string {
	t.Helper()
	free, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	return free.Addr().String()
}

// Two sources swap their names by a reload, and swap them back, and one gets a third name. Their
// devices have the same number. What each loses on the way is missing once, and nothing else is.
func TestNumbersGoOnUnderAnotherName(t *testing.T) {
	one, other := freeTCP(t, "127.0.0.2"), freeTCP(t, "127.0.0.3")
	g := start(t, t.TempDir(), nil, at("a", one), at("b", other))
	next := map[string]uint64{one: 0, other: 5000}
	lost := uint64(0)
	send := func(names map[string]string, n uint64) {
		t.Helper()
		for host, id := range names {
			address := func() string { return address(g, id) }
			testenv.Until(t, 10*time.Second, id+" listens", func() bool { return address() != "" })
			before := portOf(g, id).Frames.Stored
			c := dial(t, address())
			write(t, c, frames(next[host], n))
			next[host] += n
			c.Close()
			testenv.Until(t, 10*time.Second, "the frames are stored", func() bool {
				return portOf(g, id).Frames.Stored == before+n
			})
		}
	}
	send(map[string]string{one: "a", other: "b"}, 100)
	for _, names := range []map[string]string{
		{one: "b", other: "a"},
		{one: "a", other: "b"},
		{one: "c", other: "b"},
		{one: "a", other: "b"},
		{one: "b", other: "d"},
	} {
		if names[other] == "d" { // a name between under which nothing comes
			reloaded(t, g, at("x", one), at("b", other))
		}
		reloaded(t, g, at(names[one], one), at(names[other], other))
		next[one], lost = next[one]+30, lost+30 // nobody gets those
		send(names, 100)
		s := g.Sheet()
		found := uint64(0)
		for _, p := range s.Ports {
			found += p.Frames.Missing
			if f := p.Frames; f.Restarts+f.Duplicate+f.Reordered > 0 {
				t.Errorf("%v: %s: %+v", names, p.ID, f)
			}
		}
		for _, p := range s.Leaving {
			found += p.Frames.Missing
		}
		if s.Past != nil {
			found += s.Past.LostWire.Frames
		}
		if found != lost {
			t.Errorf("%v: %d frames are missing, want %d", names, found, lost)
		}
	}
	stop(t, g)
}

// Two reloads give a name from one source to the other, by way of a third name under which nothing
// comes, and the recorder is stopped, or killed, between the two or behind them: numbers go on from
// what each device had. With another device the third name hands nothing on.
func TestNumbersGoOnOverAStart(t *testing.T) {
	one, other, third := freeTCP(t, "127.0.0.2"), freeTCP(t, "127.0.0.3"), freeTCP(t, "127.0.0.4")
	ends := func(killed bool) func(*testing.T, *string, *Recorder, ...config.Source) *Recorder {
		return func(t *testing.T, dir *string, g *Recorder, sources ...config.Source) *Recorder {
			t.Helper()
			at := *dir
			if killed {
				at = copyOf(t, *dir)
			}
			stop(t, g)
			*dir = at
			return start(t, at, nil, sources...)
		}
	}
	goesOn := func(_ *testing.T, _ *string, g *Recorder, _ ...config.Source) *Recorder { return g }
	send := func(t *testing.T, g *Recorder, id string, from, n uint64) ledger.Frames {
		t.Helper()
		testenv.Until(t, 10*time.Second, id+" listens", func() bool { return address(g, id) != "" })
		c := dial(t, address(g, id))
		defer c.Close()
		before := portOf(g, id).Frames.Stored
		write(t, c, frames(from, n))
		stored(t, g, id, before+n)
		return portOf(g, id).Frames
	}
	for name, c := range map[string]struct {
		between, behind func(*testing.T, *string, *Recorder, ...config.Source) *Recorder
	}{
		"stopped between":     {ends(false), goesOn},
		"killed between":      {ends(true), goesOn},
		"stopped behind":      {goesOn, ends(false)},
		"killed behind":       {goesOn, ends(true)},
		"stopped, and killed": {ends(false), ends(true)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			g := start(t, dir, nil, at("a", one), at("b", other))
			send(t, g, "a", 0, 100)
			send(t, g, "b", 5000, 100)
			reloaded(t, g, at("x", one), at("b", other))
			g = c.between(t, &dir, g, at("x", one), at("b", other))
			reloaded(t, g, at("b", one), at("y", other))
			g = c.behind(t, &dir, g, at("b", one), at("y", other))
			for id, lost := range map[string]uint64{"b": 10, "y": 3} {
				from := map[string]uint64{"b": 100, "y": 5100}[id] + lost
				if f := send(t, g, id, from, 5); f.Missing != lost || f.Restarts+f.Duplicate+f.Reordered > 0 {
					t.Errorf("%s: %+v; want %d missing", id, f, lost)
				}
			}
			stop(t, g)
		})
	}

	dir := t.TempDir()
	g := start(t, dir, nil, at("a", one), at("b", other))
	send(t, g, "a", 0, 100)
	send(t, g, "b", 5000, 100)
	reloaded(t, g, at("x", one), at("b", other))
	stop(t, g)
	g = start(t, dir, nil, at("x", third), at("b", other))
	reloaded(t, g, at("b", third), at("y", other))
	if ps := g.snapshot()[0].lane.seen(); len(ps) != 1 || ps[0].Last != 5099 {
		t.Errorf("b goes on at %+v, and x had got its numbers with another device", ps)
	}
	stop(t, g)
}

// Two sources listen at ports that the kernel chooses. One of them, and another that takes its
// place, have two ports, and two devices: the second begins with its own numbers.
func TestPortThatTheKernelChoosesIsNoDevice(t *testing.T) {
	g := start(t, t.TempDir(), nil, tcp("a"), tcp("b"))
	send := func(id string, from uint64) {
		t.Helper()
		c := dial(t, address(g, id))
		defer c.Close()
		write(t, c, frames(from, 100))
		stored(t, g, id, 100)
	}
	send("a", 700)
	send("b", 5000)
	reloaded(t, g, tcp("a"), tcp("c"))
	testenv.Until(t, 10*time.Second, "c listens", func() bool { return address(g, "c") != "" })
	send("c", 0)
	if f := portOf(g, "c").Frames; f.Unique != 100 || f.Missing+f.Duplicate+f.Restarts != 0 {
		t.Errorf("%+v; want 100, and nothing of what b had", f)
	}
	stop(t, g)
}
