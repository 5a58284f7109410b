package recorder

import (
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
)

// A source that leaves, and one that has its address already, are both on the shelf: what waits of
// the first is recorded, and it does not take the address from the other.
func TestTwoSourcesOfOneAddressOnTheShelf(t *testing.T) {
	cfg := config.Config{Log: config.Log{Dir: "x"}, Isolate: "process", API: config.API{Listen: "127.0.0.1:7003"}}
	source := func(id, addr, peers string) config.Source {
		cfg.Sources = []config.Source{{
			ID: id, TCP: &config.Net{Listen: addr, Peers: peers},
			Frame: config.Frame{Kind: "tally128"},
		}}
		return cfg.WithDefaults().Sources[0]
	}
	leaves, has := source("old", "127.0.0.1:7001", "all"), source("new", "127.0.0.1:7001", "all")
	fromAPI := source("api", "127.0.0.1:7003", "newest")
	peer := leaves
	peer.ID = "old/127.0.0.2"
	by := time.Now()
	cfg.Sources = []config.Source{has}
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	i := &isolation{
		log: slog.New(slog.DiscardHandler), gated: map[string]config.Source{"new": has},
		left: map[string]*leftSpool{
			"api":           {source: fromAPI},
			"old/127.0.0.2": {source: peer, lane: isolate.Lane{GiveUp: &by}},
		},
	}
	was := i.before(cfg)
	if want := []config.Source{fromAPI, leaves, has}; !reflect.DeepEqual(was.Sources, want) {
		t.Errorf("recorded first: %+v", was.Sources)
	}
	if len(i.left) != 2 || i.lost {
		t.Errorf("spools were given up; left: %v", i.sources())
	}
	if !i.ends["old"] || i.ends["new"] || i.ends["api"] || !reflect.DeepEqual(i.file, cfg.Sources) {
		t.Errorf("played to their ends: %v; the file: %+v", i.ends, i.file)
	}
}

// A peer had begun to make room when the recorder was killed: its source stays as it is, and no
// connection is ended.
func TestPeerThatMakesRoomOnTheShelf(t *testing.T) {
	cfg := config.Config{Log: config.Log{Dir: "x"}, Isolate: "process", Sources: []config.Source{all("a", 2)}}
	cfg.Sources[0].TCP.Listen = "127.0.0.1:7001"
	cfg = cfg.WithDefaults()
	by := time.Now()
	for _, makesRoom := range []bool{true, false} {
		s := cfg.Sources[0]
		s.ID = "a/127.0.0.2"
		i := &isolation{
			log: slog.New(slog.DiscardHandler), gated: map[string]config.Source{"a": cfg.Sources[0]},
			left: map[string]*leftSpool{s.ID: {source: s, lane: isolate.Lane{GiveUp: &by, MakesRoom: makesRoom}}},
		}
		if i.before(cfg); (i.file == nil) != makesRoom {
			t.Errorf("it makes room: %v; behind it the source is begun anew: %v", makesRoom, i.file != nil)
		}
	}
}

// The recorder was killed while it stopped. The next one records what was left, under what was
// recorded with, and begins nothing anew behind it: nobody changed anything.
func TestKilledInAStopBeginsNothingAnew(t *testing.T) {
	cfg := config.Config{Log: config.Log{Dir: "x"}, Isolate: "process"}
	cfg.Sources = []config.Source{all("a", 2), all("b", 2)}
	cfg.Sources[0].TCP.Listen, cfg.Sources[1].TCP.Listen = "127.0.0.1:7001", "127.0.0.1:7002"
	cfg = cfg.WithDefaults()
	by := time.Now()
	peer := cfg.Sources[0]
	peer.ID = "a/127.0.0.2"
	i := &isolation{
		stops: true, log: slog.New(slog.DiscardHandler), gated: map[string]config.Source{"b": cfg.Sources[1]},
		left: map[string]*leftSpool{peer.ID: {source: peer, lane: isolate.Lane{GiveUp: &by}}},
	}
	if was := i.before(cfg); !reflect.DeepEqual(was.Sources, cfg.Sources) || i.file != nil {
		t.Errorf("recorded first: %+v; and then %+v", was.Sources, i.file)
	}
}

// A gate that is newer than the spools of its name comes before the file, without what has its
// address.
func TestGateBetweenSpoolsAndFile(t *testing.T) {
	cfg := config.Config{Log: config.Log{Dir: "x"}, Isolate: "process"}
	for id, addr := range map[string]string{"a": "127.0.0.1:7001", "b": "127.0.0.1:7002", "c": "127.0.0.1:7004"} {
		cfg.Sources = append(cfg.Sources,
			config.Source{ID: id, TCP: &config.Net{Listen: addr, Peers: "all"}, Frame: config.Frame{Kind: "tally128"}})
	}
	cfg = cfg.WithDefaults()
	var newer config.Source
	for _, s := range cfg.Sources {
		if s.ID == "b" {
			newer = s
			newer.ID = "a"
		}
	}
	i := &isolation{between: []config.Source{newer}}
	then := i.then(cfg)
	if len(then.Sources) != 2 || !reflect.DeepEqual(then.Sources[0], newer) || then.Sources[1].ID != "c" {
		t.Errorf("%+v", then.Sources)
	}
}
