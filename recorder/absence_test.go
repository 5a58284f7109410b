package recorder

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// A source that is not there says what keeps it from being open now, on the first start and on a
// later one, however its outage began.
func TestWhyASourceIsNotThere(t *testing.T) {
	dir := t.TempDir()
	datagrams, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := refused.Addr().String()
	refused.Close()
	framing := tcp("a").Frame
	sources := []config.Source{
		{ID: "udp", UDP: &config.Net{Listen: datagrams.LocalAddr().String()}, Frame: framing},
		{ID: "tcp", TCP: &config.Net{Listen: stranger.Addr().String()}, Frame: framing},
		{ID: "serial", Serial: &config.Serial{Port: filepath.Join(dir, "tty"), Baud: 9600}, Frame: framing},
		{ID: "dial", TCP: &config.Net{Dial: closed}, Frame: framing},
	}
	all := config.Source{
		ID: "all", TCP: &config.Net{Listen: stranger.Addr().String(), Peers: config.PeersAll},
		Frame: framing,
	}
	want := map[string]string{
		"udp": "address already in use", "tcp": "address already in use", "serial": "no such file",
		"dial": "connection refused",
	}
	says := func(g *Recorder, id, want string) {
		t.Helper()
		testenv.Until(t, 20*time.Second, id+" says "+want, func() bool {
			info := ""
			for _, i := range g.Ports() {
				if i.ID == id {
					info = i.Why
				}
			}
			s, p := g.Sheet(), portOf(g, id)
			return strings.Contains(p.Why, want) && strings.Contains(info, want) &&
				strings.Contains(why(&s, ledger.Reason{Kind: "not_there", Source: id}), want)
		})
	}
	for range 2 {
		g := start(t, dir, nil, sources...)
		for id, want := range want {
			says(g, id, want)
		}
		reloaded(t, g, sources[0], all)
		says(g, "all", "address already in use")
		reloaded(t, g, sources...)
		says(g, "tcp", "address already in use")
		stop(t, g)
	}
	datagrams.Close()
	stranger.Close()
	g := start(t, dir, nil, sources...)
	defer stop(t, g)
	testenv.Until(t, 20*time.Second, "the addresses are free", func() bool {
		return portOf(g, "udp").Why == "" && portOf(g, "tcp").Why == outageNotConnected
	})
}

// A cause that is known already is not said again: of a peer that is gone, and comes back, an
// outage had "not connected; then: not connected".
func TestOutageNamesACauseOnce(t *testing.T) {
	for was, want := range map[string]string{
		outageNotConnected: outageNotConnected,
		outageNotRunning + outageThen + outageNotConnected: outageNotRunning + outageThen + outageNotConnected,
		outageNotRunning: outageNotRunning + outageThen + outageNotConnected,
	} {
		l, err := newLane(tcp("a"), nil, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		l.resume(place{at: 1, why: was})
		l.outage(2, outageNotConnected)
		if at := l.sheet().Outages; len(at) != 1 || at[0].Cause != want {
			t.Errorf("an outage of cause %q is %+v; want %q", was, at, want)
		}
	}
}
