package recorder

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// Many sources that leave by one reload are in the history once each, also where that cannot be
// written at first, and others leave meanwhile.
func TestManySourcesLeave(t *testing.T) {
	dir := t.TempDir()
	var sources []config.Source
	for i := range 2*farewells + 9 {
		sources = append(sources, tcp(fmt.Sprintf("s%d", i)))
	}
	g := start(t, dir, nil, sources...)
	path := filepath.Join(dir, archive.HistoryFile)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	reload := func(n int) {
		t.Helper()
		c := g.Config()
		c.Sources = sources[:n]
		if err := g.Reload(c); err != nil {
			t.Fatal(err)
		}
	}
	reload(farewells + 9)
	testenv.Until(t, 20*time.Second, "the history cannot be written", func() bool {
		g.saving.Lock()
		defer g.saving.Unlock()
		return g.tried != nil
	})
	reload(1)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, 20*time.Second, "all have left", func() bool { return len(g.departing()) == 0 })
	stop(t, g)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	err = archive.EachStart(bytes.NewReader(b), func(s archive.StartSheet) error {
		if s.Part {
			seen[s.Sheet.Ports[0].ID]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources[1:] {
		if seen[s.ID] != 1 {
			t.Errorf("the history has %d sheets of %s", seen[s.ID], s.ID)
		}
	}
}

// Sources that the history may have by their numbers already keep these: they come first, in the
// order in which they were tried.
func TestSourcesThatWereTriedLeaveFirst(t *testing.T) {
	a, b, c, d := &port{}, &port{}, &port{}, &port{}
	r := &Recorder{leaving: []*port{a, b, c, d}, tried: []*port{d, b}}
	if got, want := r.over(true), []*port{d, b, a, c}; !slices.Equal(got, want) {
		t.Errorf("%p leave, in this order; want %p", got, want)
	}
}
