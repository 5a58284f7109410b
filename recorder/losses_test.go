package recorder

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// told is the list, the oldest entry first.
func told(w *lossWatch) (all []string) {
	for _, l := range w.list {
		all = append(all, fmt.Sprintf("%s %s %d %s %s %d-%d", l.Source, l.Where, l.N, l.Unit, l.Cause, l.From/1e9,
			l.To/1e9))
	}
	return all
}

// account is a port that has lost so many frames by second t.
func account(id string, read, unseen uint64, t int64) ledger.Port {
	return ledger.Port{
		ID: id, Proof: ledger.ProofNumbers, LastLoss: ledger.Time(t * 1e9), Bytes: ledger.Bytes{Read: read},
		Frames: ledger.Frames{Missing: unseen, MissingUnseen: unseen},
	}
}

// The list has each loss once, with the time that the books know; what comes late is taken back,
// and neither new books nor a peer that leaves is a loss.
func TestLossesAreToldOnce(t *testing.T) {
	dropped := account("a", 600, 2, 19)
	dropped.Frames.Dropped = map[string]uint64{"disk_full": 4}
	anew := account("a", 900, 1, 29) // it has read more than the one before, and lost less
	anew.Book = 2
	more := account("a", 950, 3, 39)
	more.Book = 3
	var w lossWatch
	for _, step := range []struct {
		what  string
		at    int64 // s
		ports []ledger.Port
		want  string
	}{
		{"nothing yet", 1, []ledger.Port{account("a", 100, 0, 0)}, "[]"},
		{"a loss", 11, []ledger.Port{account("a", 200, 3, 10)}, "[a wire 3 frame never seen 10-10]"},
		{"more of it", 12, []ledger.Port{account("a", 300, 5, 12)}, "[a wire 5 frame never seen 10-12]"},
		{"one came late", 13, []ledger.Port{account("a", 400, 4, 12)}, "[a wire 4 frame never seen 10-12]"},
		{"two more did", 14, []ledger.Port{account("a", 500, 2, 12)}, "[a wire 2 frame never seen 10-12]"},
		{
			"another cause", 20,
			[]ledger.Port{dropped},
			"[a wire 2 frame never seen 10-12 a here 4 frame dropped: disk full 19-19]",
		},
		{
			"new books", 30,
			[]ledger.Port{anew},
			"[a wire 2 frame never seen 10-12 a here 4 frame dropped: disk full 19-19 a wire 1 frame never seen 29-29]",
		},
		{
			"and again", 40,
			[]ledger.Port{more},
			"[a wire 2 frame never seen 10-12 a here 4 frame dropped: disk full 19-19 a wire 1 frame never seen 29-29 a wire 3 frame never seen 39-39]",
		},
	} {
		w.look(ledger.Sheet{At: ledger.Time(step.at * 1e9), Ports: step.ports})
		if got := fmt.Sprint(told(&w)); got != step.want {
			t.Errorf("%s: %s, want %s", step.what, got, step.want)
		}
	}
}

// A loss has the time of its book, also where that lies before the last look, whose accounts are
// older than its time, or behind this one.
func TestLossesHaveTheTimeOfTheBook(t *testing.T) {
	var w lossWatch
	for _, step := range []struct {
		at    int64 // s
		ports []ledger.Port
		want  string
	}{
		{20, []ledger.Port{account("a", 100, 0, 0)}, "[]"},
		// between the account and second 20
		{40, []ledger.Port{account("a", 200, 3, 19)}, "[a wire 3 frame never seen 19-19]"},
		{
			60,
			[]ledger.Port{account("a", 300, 4, 61)},
			"[a wire 3 frame never seen 19-19 a wire 1 frame never seen 61-61]",
		},
		{
			80,
			[]ledger.Port{account("a", 400, 6, 61)},
			"[a wire 3 frame never seen 19-19 a wire 1 frame never seen 61-61 a wire 2 frame never seen 80-80]",
		},
	} {
		w.look(ledger.Sheet{At: ledger.Time(step.at * 1e9), Ports: step.ports})
		if got := fmt.Sprint(told(&w)); got != step.want {
			t.Errorf("second %d: %s, want %s", step.at, got, step.want)
		}
	}
}

// What a peer had lost is in the book of its source when it is gone, and no loss of that.
func TestLossesOfAPeerThatLeaves(t *testing.T) {
	var w lossWatch
	w.look(ledger.Sheet{At: 2e9, Ports: []ledger.Port{account("hub", 0, 0, 0), account("hub/10.0.0.7", 100, 3, 1)}})
	if n := w.grown[Grown{"hub/10.0.0.7", ledger.WhereWire, "frame"}]; n != 3 {
		t.Errorf("the peer has lost %d", n)
	}
	w.look(ledger.Sheet{At: 3e9, Ports: []ledger.Port{account("hub", 100, 4, 3)}})
	if n := w.grown[Grown{"hub", ledger.WhereWire, "frame"}]; n != 1 || len(w.grown) != 1 {
		t.Errorf("what was lost: %v", w.grown)
	}
	want := "[hub/10.0.0.7 wire 3 frame never seen 1-1 hub wire 1 frame never seen 3-3]"
	if got := fmt.Sprint(told(&w)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A peer that is gone and back within a second has another book, and what the first one had lost is
// in that of its source; where the source is started anew, with its peers, it is in none.
func TestLossesOfAPeerThatComesAgain(t *testing.T) {
	peer := func(book, hub, unseen uint64, at int64) ledger.Port {
		p := account("hub/10.0.0.7", 100, unseen, at)
		p.Book, p.Hub = book, hub
		return p
	}
	var w lossWatch
	w.look(ledger.Sheet{At: 20e9, Ports: []ledger.Port{booked("hub", 1, 4, 10), peer(2, 1, 3, 19)}})
	w.look(ledger.Sheet{At: 30e9, Ports: []ledger.Port{booked("hub", 1, 7, 19), peer(3, 1, 5, 29)}})
	w.look(ledger.Sheet{At: 40e9, Ports: []ledger.Port{booked("hub", 4, 0, 0), peer(5, 4, 1, 39)}})
	want := "[hub wire 4 frame never seen 10-10 hub/10.0.0.7 wire 3 frame never seen 19-19 " +
		"hub/10.0.0.7 wire 5 frame never seen 29-29 hub/10.0.0.7 wire 1 frame never seen 39-39]"
	if got := fmt.Sprint(told(&w)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// booked is account of a book that is known.
func booked(id string, book, unseen uint64, at int64) ledger.Port {
	p := account(id, 100, unseen, at)
	p.Book = book
	return p
}

// farApart is a list of so many losses of a frame each, too far apart for one entry.
func farApart(n int) *lossWatch {
	var w lossWatch
	for i := range int64(n) {
		w.look(ledger.Sheet{
			At:    ledger.Time(100 * (i + 1) * 1e9),
			Ports: []ledger.Port{account("a", 1, uint64(i+1), 100*(i+1)-1)},
		})
	}
	return &w
}

// Books that are leaving and those that follow them are told apart, and the last account of the
// former counts.
func TestLossesOfBooksThatLeave(t *testing.T) {
	var w lossWatch
	w.look(ledger.Sheet{At: 20e9, Ports: []ledger.Port{booked("a", 1, 3, 19), booked("b", 2, 1, 18)}})
	w.look(ledger.Sheet{
		At: 30e9, Ports: []ledger.Port{booked("a", 3, 1, 29), booked("b", 2, 1, 18)},
		Leaving: []ledger.Port{booked("a", 1, 5, 26)},
	})
	w.close(ledger.Sheet{At: 40e9, Ports: []ledger.Port{booked("a", 1, 9, 39)}})
	w.look(ledger.Sheet{At: 50e9, Ports: []ledger.Port{booked("a", 3, 1, 29), booked("b", 2, 1, 18)}})
	want := "[a wire 3 frame never seen 19-19 b wire 1 frame never seen 18-18 a wire 1 frame never seen 29-29 " +
		"a wire 2 frame never seen 26-26 a wire 4 frame never seen 39-39]"
	if got := fmt.Sprint(told(&w)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The list is bounded, and says what it has not kept.
func TestLossesAreBounded(t *testing.T) {
	w := farApart(maxLosses + 3)
	if len(w.list) != maxLosses || w.forgotten != 3 {
		t.Errorf("%d entries, %d forgotten; want %d and 3", len(w.list), w.forgotten, maxLosses)
	}
}

// What earlier starts have lost is listed with the start that it is of, after an order to stop and
// after a kill, also what a killed one had not written down; once, however many starts follow.
func TestLossesOfEarlierStarts(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, tcp("a"))
	c := dial(t, address(g, "a"))
	defer c.Close()
	write(t, c, append(frames(0, 3), frames(10, 3)...))
	stored(t, g, "a", 6)
	testenv.Until(t, time.Minute, "the loss is listed", func() bool {
		all, _, err := g.Losses("a")
		return err == nil && len(all) == 1 && all[0].Start == 0
	})
	if err := g.save(); err != nil {
		t.Fatal(err)
	}
	first := ledger.Time(g.since)
	copied := func() string { // not while the sheet is replaced
		g.saving.Lock()
		defer g.saving.Unlock()
		return copyFolder(t, dir)
	}
	killed := copied()
	write(t, c, frames(20, 3))
	stored(t, g, "a", 9)
	late := copied() // the sheet is older than the log
	for _, name := range []string{"sheet.json", "sheet.json.before"} {
		b, err := os.ReadFile(filepath.Join(killed, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(late, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	stop(t, g)
	unlisted := copyFolder(t, dir) // as a program left it that kept no list
	history := filepath.Join(unlisted, archive.HistoryFile)
	b, err := os.ReadFile(history)
	if err != nil || !bytes.Contains(b, []byte(`,"losses":[`)) {
		t.Fatalf("%v; the history has no list of losses: %s", err, b)
	}
	if err := os.WriteFile(history, regexp.MustCompile(`,"(losses|books)":\[[^\]]*\]`).ReplaceAll(b, nil),
		0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dir  string
		want uint64
	}{
		"stopped": {dir, 14}, "killed": {killed, 7}, "killed, and its sheet is old": {late, 14},
		"without a list": {unlisted, 14},
	} {
		for n := range 3 {
			g := start(t, c.dir, nil, tcp("a"))
			all, more, err := g.Losses("a")
			var lost uint64
			for _, l := range all {
				if lost += l.N; l.Start != first || l.Cause != "never seen" || l.OtherLog || l.To < first {
					t.Errorf("%s, start %d: %+v; want frames of the start at %d", name, n, l, first)
				}
			}
			if lost != c.want || more != 0 || err != nil {
				t.Errorf("%s, start %d: %d frames are listed, %d more, %v; want %d", name, n, lost, more, err, c.want)
			}
			if none, _, _ := g.Losses("b"); len(none) != 0 {
				t.Errorf("%s: of another source: %+v", name, none)
			}
			stop(t, g)
		}
	}
}

// Frames that come late are taken out of the list, whichever start or book had lost them, and how
// ever that start ended: what is listed is what the verdict counts.
func TestLossesThatComeLate(t *testing.T) {
	dir, next := t.TempDir(), uint64(0)
	first := tcp("a")
	first.TCP.Peers = config.PeersFirst
	g := start(t, dir, nil, tcp("a"))
	check := func(what string, want uint64) {
		t.Helper()
		if err := g.save(); err != nil { // and the list is of now
			t.Fatal(err)
		}
		testenv.Until(t, time.Minute, what, func() bool {
			all, _, err := g.Losses("")
			listed := uint64(0)
			for _, l := range all {
				listed += l.N
			}
			s := g.Sheet()
			lost := s.Verdict.LostWire.Frames
			if s.Past != nil {
				lost += s.Past.LostWire.Frames
			}
			return err == nil && listed == want && lost == want
		})
	}
	again := func(kill bool) {
		t.Helper()
		if err := errors.Join(g.save(), g.log.Sync()); err != nil {
			t.Fatal(err)
		}
		killed := copyFolder(t, dir)
		if stop(t, g); kill {
			dir = killed
		}
		g = start(t, dir, nil, tcp("a"))
	}
	lose(t, g, &next, 3) // 5, 6 and 7
	again(false)
	lose(t, g, &next, 2) // 18 and 19
	check("both starts", 5)
	feed(t, g, 6)
	check("one of the start before", 4)
	feed(t, g, 18)
	check("one of this one", 3)
	again(true)
	check("killed, and nothing came", 3)
	reloaded(t, g, first)
	lose(t, g, &next, 2)
	reloaded(t, g, tcp("a"))
	feed(t, g, next-6)
	check("one of the book before", 4)
	feed(t, g, 5)
	check("one of the first start", 3)
	again(true)
	again(false)
	check("over two starts", 3)
	stop(t, g)
}

// What a start leaves of its list is bounded, and so is what is listed of all; how many are missing
// is told.
func TestLossesOfEarlierStartsAreBounded(t *testing.T) {
	dir := t.TempDir()
	w := farApart(archive.KeptLosses + 5)
	const starts = 12
	for n := range int64(starts) {
		s := archive.StartSheet{End: "stopped", Sheet: ledger.NewSheet(1e15, 1e12+n, nil)}
		if w.leave(&s); len(s.Losses) != archive.KeptLosses || s.LossesBefore != 5 {
			t.Fatalf("%d entries are kept, %d before; want %d and 5", len(s.Losses), s.LossesBefore, archive.KeptLosses)
		}
		if err := s.Keep(dir); err != nil {
			t.Fatal(err)
		}
	}
	g := start(t, dir, nil)
	defer stop(t, g)
	all, more, err := g.Losses("")
	if want := uint64(starts*(archive.KeptLosses+5) - maxLosses); len(all) != maxLosses || more != want || err != nil {
		t.Errorf("%d entries, %d more, %v; want %d and %d", len(all), more, err, maxLosses, want)
	}
}
