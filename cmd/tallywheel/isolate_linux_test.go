package main

import (
	"testing"

	"github.com/tallywheel/tallywheel/config"
)

// A keeper has descriptors for all peers of all sources, or reading is not isolated.
func TestWhatAKeeperTakes(t *testing.T) {
	listen := func(peers string, most int, overflow string) config.Source {
		return config.Source{TCP: &config.Net{Listen: "x", Peers: peers, MaxPeers: most}, Overflow: overflow}
	}
	for _, c := range []struct {
		sources []config.Source
		want    int
	}{
		{nil, keeperNeeds},
		{[]config.Source{{Serial: &config.Serial{}}, listen(config.PeersFirst, 0, "")}, keeperNeeds + 2*4},
		{[]config.Source{listen(config.PeersAll, 8, "")}, keeperNeeds + 9*4},
		{[]config.Source{listen(config.PeersAll, 8, config.OverflowSpill)}, keeperNeeds + 9*6},
	} {
		if got := keeperTakes(config.Config{Sources: c.sources}); got != c.want {
			t.Errorf("%+v: %d, want %d", c.sources, got, c.want)
		}
	}
}
