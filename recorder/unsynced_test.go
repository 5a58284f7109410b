package recorder

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
)

// A recorder that does not sync each batch is killed, with a sheet of a second before, and somebody
// cuts the newest segment. The log's own note says what numbers it had given: none is given again,
// and what is gone is counted once, of unnumbered sources, too.
func TestNumbersThatWereNotSyncedAreNotGivenAgain(t *testing.T) {
	for _, policy := range []string{"interval", "never"} {
		dir := t.TempDir()
		slow := func(c *config.Config) { c.Log.Sync, c.Log.Interval = policy, time.Hour }
		g := start(t, dir, slow, lines("b", ""))
		con := dial(t, address(g, "b"))
		send := func(upTo uint64) {
			for n := portOf(g, "b").Frames.Stored; n < upTo; n += 10 {
				write(t, con, []byte("1 line\n2 line\n3 line\n4 line\n5 line\n6 line\n7 line\n8 line\n9 line\n0 line\n"))
			}
			stored(t, g, "b", upTo)
		}
		send(100)
		early := copyFolder(t, dir)
		send(300)
		killed := copyFolder(t, dir)
		con.Close()
		stop(t, g)
		// as the segment was, and the sheet: the note alone is of the end
		old := append(segments(t, early), glob(t, early, "sheet.json*")...)
		for _, path := range old {
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(filepath.Join(killed, filepath.Base(path)), b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		v := checked(t, killed)
		if n := len(v.Problems); v.Clean() || v.Last < 100 || v.Last >= 300 || v.Problems[n-1].To != 300 {
			t.Fatalf("%s: verify: %+v", policy, v)
		}
		for _, when := range []string{"the next start", "the one after that"} {
			g := start(t, killed, slow, lines("b", ""))
			if next := g.log.Position().Next; next != 301 {
				t.Errorf("%s, %s: record %d is next; 300 were given", policy, when, next)
			}
			s := stop(t, g)
			want := 300 - v.Last
			if when != "the next start" {
				want = 0
			}
			if s.Recovered == nil {
				s.Recovered = &ledger.Recovered{}
			}
			if r := s.Recovered; r.Unsynced != want || len(r.Missing) > 0 || s.Past == nil && want == 0 {
				t.Errorf("%s, %s: %+v, %+v; want %d not synced", policy, when, r, s.Past, want)
			}
		}
		if after := checked(t, killed); !after.Clean() || after.Lost != 300-v.Last {
			t.Errorf("%s: verify behind it: %+v; want %d lost", policy, after, 300-v.Last)
		}
	}
}

// Numbered devices go on where the last sheet has them: what was lost behind that, not synced, is
// missing by their numbers, and they are not new.
func TestNumbersBehindWhatWasNotSyncedAreMissed(t *testing.T) {
	dir := t.TempDir()
	slow := func(c *config.Config) { c.Log.Sync, c.Log.Interval = "interval", time.Hour }
	g := start(t, dir, slow, tcp("a"))
	con := dial(t, address(g, "a"))
	write(t, con, frames(0, 100))
	stored(t, g, "a", 100)
	if err := g.save(); err != nil {
		t.Fatal(err)
	}
	early := copyFolder(t, dir)
	write(t, con, frames(100, 200))
	stored(t, g, "a", 300)
	killed := copyFolder(t, dir)
	con.Close()
	stop(t, g)
	for _, path := range append(segments(t, early), glob(t, early, "sheet.json*")...) {
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(killed, filepath.Base(path)), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	g = start(t, killed, slow, tcp("a"))
	con = dial(t, address(g, "a"))
	write(t, con, frames(300, 50))
	stored(t, g, "a", 50)
	con.Close()
	s := stop(t, g)
	if f := s.Ports[0].Frames; f.Missing != 200 || f.Joined > 0 {
		t.Errorf("%d numbers are missing, %d devices are new; want the 200 that were lost behind the sheet", f.Missing, f.Joined)
	}
}
