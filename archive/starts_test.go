package archive

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/ledger"
)

func ends(starts []StartSheet) (all []string) {
	for _, s := range starts {
		all = append(all, s.End)
	}
	return all
}

// The newest starts come first, as many as asked for; a torn line costs itself alone, and a history
// that is longer than what is read begins at a line.
func TestLastStarts(t *testing.T) {
	dir := t.TempDir()
	if starts, more, err := LastStarts(dir, 3); len(starts) != 0 || more || err != nil {
		t.Errorf("no history: %v %v %v", starts, more, err)
	}
	for i := range 5 {
		s := StartSheet{End: fmt.Sprint("end ", i), Sheet: ledger.NewSheet(int64(i+2), int64(i+1), nil)}
		if err := s.Keep(dir); err != nil {
			t.Fatal(err)
		}
	}
	starts, more, err := LastStarts(dir, 3)
	if got := fmt.Sprint(ends(starts)); got != "[end 4 end 3 end 2]" || !more || err != nil {
		t.Errorf("%s %v %v", got, more, err)
	}
	if starts, more, err = LastStarts(dir, 5); len(starts) != 5 || more || err != nil {
		t.Errorf("all: %v %v %v", ends(starts), more, err)
	}

	file := filepath.Join(dir, HistoryFile)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	torn := strings.Replace(string(b), `"end 3"`, `"end `, 1)
	if err := os.WriteFile(file, []byte(torn), 0o600); err != nil {
		t.Fatal(err)
	}
	starts, more, err = LastStarts(dir, 9)
	if got := fmt.Sprint(ends(starts)); got != "[end 4 end 2 end 1 end 0]" || more || err == nil ||
		!strings.Contains(err.Error(), "line 4") {
		t.Errorf("torn: %s %v %v", got, more, err)
	}

	long := strings.Repeat("x", historyTail) + "\n" + string(b)
	if err := os.WriteFile(file, []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}
	starts, more, err = LastStarts(dir, 9)
	if got := fmt.Sprint(ends(starts)); got != "[end 4 end 3 end 2 end 1 end 0]" || !more || err != nil {
		t.Errorf("long: %s %v %v", got, more, err)
	}
}

// The parts of a start are in one with it, whatever stands between them, and so is what was leaving
// when it was killed; those of a start that goes on are one by themselves.
func TestStartsAreWhole(t *testing.T) {
	dir := t.TempDir()
	of := func(id string, missing uint64) ledger.Port {
		return ledger.Port{ID: id, Frames: ledger.Frames{
			Missing: missing, MissingUnseen: missing, Dropped: map[string]uint64{"why": missing},
		}}
	}
	line := func(end string, since int64, isPart bool, ports ...ledger.Port) StartSheet {
		return StartSheet{End: end, Part: isPart, Sheet: ledger.NewSheet(since+1, since, ports)}
	}
	killed := line(CauseKilled, 20, false, of("a", 1))
	killed.Sheet.Leaving = []ledger.Port{of("a", 2), of("b", 4)}
	for n, s := range []StartSheet{
		line("left", 10, true, of("a", 1)), line("left", 10, true, of("b", 2)), line("end", 10, false, of("a", 4)),
		line("left", 20, true, of("a", 8)),
		{End: causeCut, Part: true},
		killed,
		line("end", 30, false, of("a", 0)), line("left", 40, true, of("a", 1)), line("left", 40, true, of("a", 2)),
	} {
		s.Parts = uint64(n)
		if err := s.Keep(dir); err != nil {
			t.Fatal(err)
		}
	}
	starts, more, err := LastStarts(dir, 9)
	var got []string
	for _, s := range starts {
		text := s.End
		for _, p := range s.Sheet.Ports {
			text += fmt.Sprintf(" %s %d", p.ID, p.Frames.Missing)
			if p.Frames.Dropped["why"] != p.Frames.Missing {
				t.Errorf("%s: of %s %v is dropped, want %d", s.End, p.ID, p.Frames.Dropped, p.Frames.Missing)
			}
		}
		got = append(got, text)
	}
	want := []string{"left a 3", "end a 0", CauseKilled + " a 11 b 4", causeCut, "end a 5 b 2"}
	if !slices.Equal(got, want) || more || err != nil {
		t.Errorf("the starts are %q, want %q; %v %v", got, want, more, err)
	}
	if starts, more, err := LastStarts(dir, 3); len(starts) != 3 || !more || err != nil {
		t.Errorf("the last three: %v %v %v", ends(starts), more, err)
	}
}

// What a source lost that left before the clock was set back has no time to come in the whole.
func TestAWholeStartWhoseClockWasSetBack(t *testing.T) {
	of := func(at, lastLoss ledger.Time, isPart bool) *StartSheet {
		return &StartSheet{
			Part: isPart, Parts: uint64(at),
			Sheet: ledger.NewSheet(int64(at), 100, []ledger.Port{{ID: "a", LastLoss: lastLoss}}),
		}
	}
	for set, want := range map[bool]ledger.Time{true: 160, false: 205} {
		dir, end := t.TempDir(), of(190, 160, false)
		if set {
			end.Sheet.Clock = &ledger.Clock{Steps: []ledger.ClockStep{{At: 150, By: -60}}}
		}
		if err := KeepAll(dir, []*StartSheet{of(206, 205, true), end}); err != nil {
			t.Fatal(err)
		}
		starts, _, err := LastStarts(dir, 9)
		if err != nil || len(starts) != 1 || starts[0].Sheet.Ports[0].LastLoss != want {
			t.Errorf("set back: %v: %+v, %v; want %d", set, starts, err, want)
		}
	}
}

// Of a loss that is wider than what was named before only the rest is news.
func TestUntoldIsWhatNobodyNamed(t *testing.T) {
	part := func(from, to uint64) ledger.MissingRecords { return ledger.MissingRecords{From: from, To: to} }
	s := &StartSheet{
		LogMissing: []ledger.MissingRecords{part(1, 4), part(20, 29)},
		Found:      []ledger.MissingRecords{part(40, 40)},
	}
	for _, c := range []struct{ missing, want []ledger.MissingRecords }{
		{[]ledger.MissingRecords{part(20, 29)}, nil},
		{[]ledger.MissingRecords{part(22, 23)}, nil},
		{[]ledger.MissingRecords{part(5, 19), part(30, 39)}, []ledger.MissingRecords{part(5, 19), part(30, 39)}},
		{[]ledger.MissingRecords{part(3, 45)}, []ledger.MissingRecords{part(5, 19), part(30, 39), part(41, 45)}},
		{[]ledger.MissingRecords{part(25, 31)}, []ledger.MissingRecords{part(30, 31)}},
		{[]ledger.MissingRecords{part(15, 20)}, []ledger.MissingRecords{part(15, 19)}},
	} {
		if got := s.Untold(c.missing); !slices.Equal(got, c.want) {
			t.Errorf("of %v untold %v, want %v", c.missing, got, c.want)
		}
	}
}
