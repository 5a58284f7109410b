package recorder

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/recorder/notify"
)

// A trouble that holds while the recorder stops is not over: the next start tells it again, with
// its whole length, or tells its end. Losses are over with the recorder.
func TestTroublesGoOnInTheNextStart(t *testing.T) {
	const day = int64(24 * time.Hour)
	silent := lossy("c", 0)
	silent.SilentSince = 1
	one := newHeard()
	one.look(100, nil, gone("a"), gone("b"), silent, lossy("d", 0))
	one.look(110, nil, gone("a"), gone("b"), silent, lossy("d", 3))
	one.look(112, nil, gone("a"), gone("b"), silent, lossy("d", 4), lossy("e", 1)) // e is not told yet
	killed := one.h.open(day)
	one.events = nil
	one.said.Reset()
	last := ledger.NewSheet(1, 1, []ledger.Port{lossy("a", 0), lossy("b", 0), lossy("c", 0), lossy("d", 4), lossy("e", 1)})
	one.h.look(&last, 113*time.Second, true)
	if got := one.told(); got != "begin missing_unseen 1 [e] 0; end missing_unseen 5 [d e] 2" {
		t.Errorf("told at the end: %s", got)
	}
	if said := one.said.String(); !strings.Contains(said, `"the recorder stops, and this is not over: not there" trouble=not_there sources="a, b"`) {
		t.Errorf("said at the end: %s", said)
	}
	const again = "begin not_there 0 [a] 0; end not_there 0 [b] 900; begin silent 0 [c] 0"
	for how, c := range map[string]struct {
		left []archive.Trouble
		want string
	}{
		"stopped": {one.h.open(day), again},
		"killed":  {killed, "end missing_unseen 4 [d] 2; " + again},
	} {
		brief := newHeard() // stopped before it could look
		brief.h.adopt(c.left, day+int64(500*time.Second))
		brief.h.look(&last, time.Second/2, true)
		if got := strings.TrimPrefix(brief.told(), "end missing_unseen 4 [d] 2"); strings.Contains(got, "not_there") || len(brief.h.open(0)) != 3 {
			t.Errorf("%s: a brief start tells %s and leaves %+v", how, got, brief.h.open(0))
		}
		two := newHeard()
		two.h.adopt(c.left, day+int64(1000*time.Second))
		unheard := lossy("c", 0)
		unheard.Heard = false
		two.look(1, nil, gone("a"), lossy("b", 0), unheard, lossy("d", 0))
		if got := two.told(); got != c.want {
			t.Errorf("%s: the next start tells %s", how, got)
		}
		two.events = nil
		two.look(70, nil, lossy("a", 0), lossy("b", 0), lossy("c", 0), lossy("d", 0))
		if got := two.told(); got != "end not_there 0 [a] 901; end silent 0 [c] 901" {
			t.Errorf("%s: then it tells %s", how, got)
		}
		if left := two.h.open(day); len(left) > 0 {
			t.Errorf("%s: %+v is left", how, left)
		}
	}
}

// Whoever is notified gets the end of a trouble from the start after the one that told it, stopped
// or killed. The history keeps no troubles.
func TestEndIsToldByTheNextStart(t *testing.T) {
	var mu sync.Mutex
	var events []string
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e notify.Event
		_ = json.NewDecoder(r.Body).Decode(&e)
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e.Event+" "+e.Trouble+" "+strings.Join(e.Sources, " "))
	}))
	defer s.Close()
	told := func(want string) {
		t.Helper()
		testenv.Until(t, 30*time.Second, want, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Contains(events, want)
		})
		mu.Lock()
		defer mu.Unlock()
		events = nil
	}
	by := func(c *config.Config) { c.Notify.Webhook = s.URL }
	dir := t.TempDir()
	g := start(t, dir, by, tcp("a"))
	told("begin not_there a")
	testenv.Until(t, 30*time.Second, "the sheet has the trouble", func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "sheet.json"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.Contains(string(b), `"troubles":[{"kind":"not_there"`)
	})
	killed := copyFolder(t, dir)
	stop(t, g)
	for _, dir := range []string{killed, dir} {
		g := start(t, dir, by, tcp("a"))
		told("begin not_there a")
		stop(t, g)
		g = start(t, dir, by, tcp("b"))
		told("end not_there a")
		stop(t, g)
		for _, k := range keptSheets(t, dir) {
			if len(k.Troubles) > 0 {
				t.Errorf("%+v", k.Troubles)
			}
		}
	}
}
