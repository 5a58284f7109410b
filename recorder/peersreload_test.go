package recorder

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// A source that is changed while its peers send goes on with what is open, and settles what it had;
// one that is taken out is read to its end.
func TestPeersAllReload(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, all("plant", 8))
	addr := address(g, "plant")
	conns := make([]net.Conn, 5)
	send := func(round uint64) {
		for d := range conns {
			write(t, conns[d], of(uint32(d+1), round*50, 50))
		}
	}
	for d := range conns {
		conns[d] = dialFrom(t, d+1, addr)
		defer conns[d].Close()
	}
	sum := func() (n uint64) {
		f, _, _ := total(t, g.Sheet(), "plant")
		n = f.Stored
		for _, s := range past(t, dir) {
			f, _, _ := total(t, s.Sheet, "plant")
			if n += f.Stored; f.InFlight != 0 {
				t.Errorf("%d in flight for ever", f.InFlight)
			}
		}
		return n
	}
	all := func(n uint64) {
		testenv.Until(t, 10*time.Second, fmt.Sprintf("%d frames", n), func() bool { return sum() == n })
	}
	send(0)
	all(250)
	for i, edit := range []func(*config.Source){
		func(s *config.Source) { s.Overflow, s.Quarantine = config.OverflowNewest, true }, // the books go on
		func(s *config.Source) { s.TCP.MaxPeers = 20 },                                    // what is open goes on
	} {
		change(t, g, edit)
		send(uint64(i + 1))
		all(250 * uint64(i+2))
	}
	if f, _, _ := total(t, g.Sheet(), "plant"); f.Missing != 0 || f.Duplicate != 0 {
		t.Errorf("%+v; want nothing missing", f)
	}
	send(3)
	next := g.cfg
	next.Sources = nil
	if err := g.Reload(next); err != nil {
		t.Fatal(err)
	}
	all(1000)
	stop(t, g)
}

// A source that reads all peers, one by one, and all again, takes no number for lost that another
// of its lanes has, and misses those that none has.
func TestPeersAllAndBack(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, all("plant", 4))
	missing := func() (n uint64) {
		f, _, _ := total(t, g.Sheet(), "plant")
		n = f.Missing
		for _, s := range past(t, dir) {
			f, _, _ := total(t, s.Sheet, "plant")
			n += f.Missing
		}
		return n
	}
	next := uint64(0)
	for round, peers := range []string{
		config.PeersAll, config.PeersFirst, config.PeersAll, config.PeersNewest, config.PeersFirst, config.PeersAll,
	} {
		if round > 0 {
			change(t, g, func(s *config.Source) {
				if s.TCP.Peers = peers; peers != config.PeersAll {
					s.TCP.MaxPeers = 0
				}
			})
		}
		before, _, _ := total(t, g.Sheet(), "plant")
		testenv.Until(t, 20*time.Second, "it listens", func() bool { return address(g, "plant") != "" })
		c := dialFrom(t, 1, address(g, "plant"))
		write(t, c, of(1, next, 10))
		c.Close()
		storedInAll(t, g, "plant", before.Stored+10)
		if next += 10; round > 1 {
			next += 2 // which are lost
		}
		if want := 2 * uint64(max(0, round-2)); missing() != want {
			t.Errorf("round %d, %s: %d are missing, want %d", round, peers, missing(), want)
		}
	}
	stop(t, g)
}
