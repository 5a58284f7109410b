package recorder

import (
	"net"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
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
