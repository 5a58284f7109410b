package recorder

import (
	"encoding/json"
	"errors"
	"io"
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
	last := ledger.NewSheet(1, 1,
		[]ledger.Port{lossy("a", 0), lossy("b", 0), lossy("c", 0), lossy("d", 4), lossy("e", 1)})
	one.h.look(&last, 113*time.Second, true)
	if got := one.told(); got != "begin missing_unseen 1 [e] 0; end missing_unseen 5 [d e] 2" {
		t.Errorf("told at the end: %s", got)
	}
	if said := one.said.String(); !strings.Contains(said,
		`"the recorder stops, and this is not over: not there" trouble=not_there sources="a, b"`) {
		t.Errorf("said at the end: %s", said)
	}
	const again = "begin not_there 0 [a] 0; end not_there 0 [b] 901; begin silent 0 [c] 0"
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
		if got := strings.TrimPrefix(brief.told(), "end missing_unseen 4 [d] 2"); strings.Contains(got, "not_there") ||
			len(brief.h.open(0)) != 3 {
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
		if got := two.told(); got != "end not_there 0 [a] 970; end silent 0 [c] 970" {
			t.Errorf("%s: then it tells %s", how, got)
		}
		if left := two.h.open(day); len(left) > 0 {
			t.Errorf("%s: %+v is left", how, left)
		}
	}
}

// receiver is somebody who is notified, and may be away.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	away   bool
	events []string
}

func newReceiver(t *testing.T) *receiver {
	n := &receiver{}
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e notify.Event
		_ = json.NewDecoder(r.Body).Decode(&e)
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.away {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		n.events = append(n.events, strings.TrimSpace(e.Event+" "+e.Trouble+" "+strings.Join(e.Sources, " ")))
	}))
	t.Cleanup(n.Close)
	return n
}

// notified has a recorder notify it.
func (n *receiver) notified(c *config.Config) { c.Notify.Webhook = n.URL }

func (n *receiver) isAway(away bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.away, n.events = away, nil
}

// got waits until it has got an event, and returns all since isAway.
func (n *receiver) got(t *testing.T, want string) []string {
	t.Helper()
	testenv.Until(t, time.Minute, want, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return slices.Contains(n.events, want)
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.events)
}

// sheetHas waits until the sheet on disk has some words.
func sheetHas(t *testing.T, dir, words string) {
	t.Helper()
	testenv.Until(t, time.Minute, "the sheet has "+words, func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "sheet.json"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.Contains(string(b), words)
	})
}

// Events that the receiver had not got when the recorder was stopped, or killed, come from the next
// start: no end comes without its beginning, and what began and ended is told. What earlier starts
// have lost is a trouble until somebody says `ack`.
func TestNextStartSendsWhatWasNotDelivered(t *testing.T) {
	n := newReceiver(t)
	n.isAway(true)
	dir := t.TempDir()
	g := start(t, dir, n.notified, tcp("a"))
	c := dial(t, address(g, "a"))
	defer c.Close()
	write(t, c, append(frames(0, 5), frames(7, 3)...))
	stored(t, g, "a", 8)
	sheetHas(t, dir, `"trouble":"missing_unseen"`)
	killed := copyFolder(t, dir)
	stop(t, g)
	for _, dir := range []string{killed, dir} {
		n.isAway(false)
		g := start(t, dir, n.notified, tcp("a"))
		n.got(t, "begin earlier_starts")
		all := n.got(t, "end missing_unseen a")
		begin, end := slices.Index(all, "begin missing_unseen a"), slices.Index(all, "end missing_unseen a")
		if begin < 0 || end < begin {
			t.Errorf("told %q", all)
		}
		if _, err := g.Ack("a cable"); err != nil {
			t.Error(err)
		}
		n.got(t, "end earlier_starts")
		n.isAway(true)
		stop(t, g)
		for _, k := range keptSheets(t, dir) {
			if len(k.Unsent) > 0 {
				t.Errorf("the history has %s", k.Unsent)
			}
		}
	}
}

// Whoever is notified gets the end of a trouble from the start after the one that told it, stopped
// or killed. The history keeps no troubles.
func TestEndIsToldByTheNextStart(t *testing.T) {
	n := newReceiver(t)
	told := func(want string) {
		t.Helper()
		n.got(t, want)
		n.isAway(false)
	}
	dir := t.TempDir()
	g := start(t, dir, n.notified, tcp("a"))
	told("begin not_there a")
	sheetHas(t, dir, `"troubles":[{"kind":"not_there"`)
	killed := copyFolder(t, dir)
	stop(t, g)
	for _, dir := range []string{killed, dir} {
		g := start(t, dir, n.notified, tcp("a"))
		told("begin not_there a")
		stop(t, g)
		g = start(t, dir, n.notified, tcp("b"))
		told("end not_there a")
		stop(t, g)
		if b, err := os.ReadFile(filepath.Join(dir, "sheet.json")); err != nil ||
			strings.Contains(string(b), `"unsent"`) {
			t.Errorf("all is delivered, and the sheet has %s, %v", b, err)
		}
		for _, k := range keptSheets(t, dir) {
			if len(k.Troubles) > 0 {
				t.Errorf("%+v", k.Troubles)
			}
		}
	}
}

// A log that fails tells so, and the disk that failed keeps nothing of it. The next start finds no
// end, and tells that it is over, once it is, and whether or not it was told. It says nothing of it
// behind a start that was stopped.
func TestEndOfAFailureThatTheDiskCouldNotKeep(t *testing.T) {
	n := newReceiver(t)
	by := func(c *config.Config) { c.Notify.Webhook = n.URL }
	ill, dir := onIllDisk(t), t.TempDir()
	g := start(t, dir, by, tcp("a"))
	c := dial(t, address(g, "a"))
	defer c.Close()
	write(t, c, frames(0, 10))
	stored(t, g, "a", 10)
	sheetHas(t, dir, `"heard":true`)
	disk := copyFolder(t, dir) // as the disk is left: nothing is written from now on
	ill.Store(true)
	write(t, c, frames(10, 10))
	<-g.Failed()
	_, _ = g.Stop("test")
	n.got(t, "begin log_failed")
	n.isAway(false)
	if g.LastEnd() != EndFirst {
		t.Errorf("the first start says that one before it has ended: %q", g.LastEnd())
	}
	ill.Store(false)
	g = start(t, disk, by, tcp("a"))
	n.got(t, "end log_failed")
	if g.LastEnd() != EndUnknown {
		t.Errorf("the start before ended: %q", g.LastEnd())
	}
	stop(t, g)
	n.isAway(false)
	g = start(t, disk, by, tcp("a"))
	n.got(t, "begin not_there a")
	if all := n.got(t, "begin not_there a"); slices.Contains(all, "end log_failed") || g.LastEnd() != EndStopped {
		t.Errorf("behind a stop: %q, told %q", g.LastEnd(), all)
	}
	stop(t, g)
	g = start(t, dir, by, tcp("a")) // whose disk has kept that the log failed
	if g.LastEnd() != EndFailed {
		t.Errorf("behind a failure: %q", g.LastEnd())
	}
	n.got(t, "end log_failed")
	stop(t, g)
}

// A stop writes its last sheet before it waits for whoever is notified: one who takes long, and a
// kill meanwhile, cost no sheet. What was not delivered then is in the sheet in the end.
func TestLastSheetIsWrittenBeforeTheLastEvents(t *testing.T) {
	dir := t.TempDir()
	late := make(chan bool, 16) // of each event that was given up: whether the sheet was there by then
	n := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done() // the stop waits no longer
		s, err := archive.LoadStart(dir, quiet())
		late <- err == nil && s != nil && s.End == "test" && len(s.Unsent) > 0
	}))
	defer n.Close()
	g := start(t, dir, func(c *config.Config) { c.Notify.Webhook, c.Notify.Timeout = n.URL, time.Minute }, tcp("a"))
	sheetHas(t, dir, `"troubles":[{"kind":"not_there"`)
	stop(t, g)
	if !<-late {
		t.Error("the last events were waited for before the last sheet was written")
	}
	if s, err := archive.LoadStart(dir, quiet()); err != nil || s.End != "test" || len(s.Unsent) == 0 {
		t.Errorf("the last sheet: %+v, %v", s, err)
	}
}
