package recorder

import (
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
)

// A peer that is gone, which somebody has acknowledged, is not missed when its source is taken out
// of the configuration and brought back, whether the word came before that or meanwhile. It is
// missed when it was seen since, as is one that was there when its source was taken out.
func TestWhoIsLetGoIsNotMissedWhenItsSourceIsBack(t *testing.T) {
	for _, when := range []string{"before", "meanwhile"} {
		t.Run(when, func(t *testing.T) {
			g := start(t, t.TempDir(), nil, all("a", 8), tcp("b"))
			defer stop(t, g)
			b := dial(t, address(g, "b"))
			defer b.Close()
			write(t, b, of(9, 0, 1))
			stored(t, g, "b", 1)
			come := func(n int, from uint64) func() error {
				c := dialFrom(t, n, address(g, "a"))
				t.Cleanup(func() { c.Close() })
				before := uint64(0)
				if p := find(g.Sheet(), peer("a", n)); p != nil {
					before = p.Frames.Stored
				}
				write(t, c, of(uint32(n), from, 10))
				stored(t, g, peer("a", n), before+10)
				return c.Close
			}
			ack := func() {
				t.Helper()
				if _, err := g.Ack("2 is retired"); err != nil {
					t.Fatal(err)
				}
			}
			both := g.Config()
			out := both
			out.Sources = []config.Source{both.Sources[1]}
			reload := func(c config.Config) {
				t.Helper()
				if err := g.Reload(c); err != nil {
					t.Fatal(err)
				}
			}
			leave := come(2, 0)
			come(3, 0)
			if err := leave(); err != nil {
				t.Fatal(err)
			}
			waitsFor(t, g, peer("a", 2))
			if when == "before" {
				ack()
				waitsFor(t, g)
			}
			reload(out)
			if when == "meanwhile" {
				ack()
			}
			reload(both)
			waitsFor(t, g, peer("a", 3))
			leave = come(2, 10)
			if err := leave(); err != nil {
				t.Fatal(err)
			}
			waitsFor(t, g, peer("a", 3), peer("a", 2))
			reload(out)
			reload(both)
			waitsFor(t, g, peer("a", 2), peer("a", 3))
		})
	}
}

// The books say that a peer is not there before its connection is closed, and its seat is free. A
// word between the two is about its absence, too: it is let go. It was passed over, and was not
// there until the next word. Who is there is not let go.
func TestAckBeforeTheSeatIsFree(t *testing.T) {
	g := start(t, t.TempDir(), nil, all("a", 8))
	defer stop(t, g)
	conns := map[int]net.Conn{}
	for n := 2; n <= 3; n++ {
		conns[n] = dialFrom(t, n, address(g, "a"))
		defer conns[n].Close()
		write(t, conns[n], of(uint32(n), 0, 10))
		stored(t, g, peer("a", n), 10)
	}
	g.mu.Lock()
	peers := g.ports[0].peers
	g.mu.Unlock()
	i := slices.IndexFunc(peers, func(p *port) bool { return p.lane.cfg.ID == peer("a", 2) })
	seated, _ := peers[i].opener.(*seat).taken()
	seated.mu.Lock() // nobody closes it meanwhile
	release := sync.OnceFunc(seated.mu.Unlock)
	defer release()
	err := conns[2].Close()
	if err == nil {
		waitsFor(t, g, peer("a", 2))
		_, err = g.Ack("2 is retired")
	}
	guest, _ := peers[i].opener.(*seat).taken()
	release()
	if err != nil || guest != seated {
		t.Fatalf("%v; the seat is free: %v", err, guest != seated)
	}
	waitsFor(t, g)
	if find(g.Sheet(), peer("a", 3)) == nil {
		t.Error("who is there was let go")
	}
}

// A source that is left just then knows of such a peer that it was gone, too.
func TestWhoIsNotThereIsGoneWhenItsSourceIsLeft(t *testing.T) {
	peerIs := func(n int, g *guest, out bool) *port {
		l, err := newLane(tcp(peer("a", n)), nil, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		if out {
			l.outage(5, outageNotConnected)
		}
		return &port{lane: l, opener: newSeat(make(chan struct{}, 1), g, time.Unix(0, 6))}
	}
	p, m := &port{peers: []*port{peerIs(2, &guest{}, true), peerIs(3, &guest{}, false), peerIs(4, nil, true)}}, missed{}
	m.leave(p, nil, 9)
	want := missed{
		peer("a", 2): {time.Unix(0, 5), true}, peer("a", 3): {time.Unix(0, 9), false},
		peer("a", 4): {time.Unix(0, 6), true},
	}
	if !maps.Equal(m, want) {
		t.Errorf("missed are %+v, want %+v", m, want)
	}
}
