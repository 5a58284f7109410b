package archive

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/ledger"
)

// Only the end of a long history is read, from where a line begins.
func TestPastOfALongHistory(t *testing.T) {
	dir := t.TempDir()
	old := maxPast
	maxPast = 2000
	defer func() { maxPast = old }()
	for i := range 20 {
		p := ledger.Port{ID: "a", State: ledger.StateOpen, Proof: ledger.ProofNumbers, Heard: true}
		p.Frames.Missing, p.Frames.MissingUnseen = 1, 1
		s := StartSheet{End: "stopped", Sheet: ledger.NewSheet(int64(i)*1e9+1, int64(i)*1e9, []ledger.Port{p})}
		if err := s.Keep(dir); err != nil {
			t.Fatal(err)
		}
	}
	p, err := PastOf(dir, "", nil, nil)
	if err != nil || p == nil || p.Starts < 1 || p.Starts > 5 || p.LostWire.Frames != p.Starts {
		t.Errorf("%+v, %v", p, err)
	}
	maxPast = old
	if p, err := PastOf(dir, "", nil, nil); err != nil || p.Starts != 20 {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := PastOf(dir, "", &Ack{Ack: ledger.Ack{At: 15e9}}, nil); err != nil || p.Starts != 5 {
		t.Errorf("%+v, %v", p, err)
	}
}

// writeHistory puts text behind what the history in dir has.
func writeHistory(t *testing.T, dir, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, HistoryFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// What cannot be read of earlier starts is told until it is acknowledged, and no longer.
func TestUnreadableHistory(t *testing.T) {
	defer func(old int) { maxSheetLine = old }(maxSheetLine)
	maxSheetLine = 100 << 10
	for name, line := range map[string]string{
		"torn": `{"end":"x","she` + "\n", "zeros": "\x00\x00\x00\n", "no end": "spoilt",
		"long": strings.Repeat("x", maxSheetLine+10) + "\n", "rebuilt": "",
	} {
		dir := t.TempDir()
		spoil := func() {
			t.Helper()
			if writeHistory(t, dir, line); line == "" {
				if err := Rebuilt(1, 10).Keep(dir); err != nil {
					t.Fatal(err)
				}
			}
			lost := ledger.Port{
				ID: "a", Proof: ledger.ProofNumbers, Heard: true,
				Frames: ledger.Frames{MissingUnseen: 1},
			}
			if err := (&StartSheet{
				End:   "stopped",
				Sheet: ledger.NewSheet(7, 6, []ledger.Port{lost}),
			}).Keep(dir); err != nil {
				t.Fatal(err)
			}
		}
		unreadable := func(want bool, starts uint64) {
			t.Helper()
			a, err := LoadAck(dir)
			if err != nil {
				t.Fatal(err)
			}
			p, err := PastOf(dir, "", a, nil)
			if p == nil {
				p = &ledger.Past{}
			}
			if p.Unreadable != want || (err != nil) != (want && line != "") || p.Starts != starts {
				t.Errorf("%s: %+v, %v; want unreadable: %v, and %d starts", name, p, err, want, starts)
			}
		}
		unreadable(false, 0)
		spoil()
		unreadable(true, 1)
		if err := (&Ack{Ack: ledger.Ack{At: 10}}).Save(dir, ""); err != nil {
			t.Fatal(err)
		}
		unreadable(false, 0)
		spoil()
		unreadable(true, 0)
		if err := os.Truncate(filepath.Join(dir, HistoryFile), 0); err != nil { // somebody begins another
			t.Fatal(err)
		}
		unreadable(false, 0)
		writeHistory(t, dir, line)
		if line != "" {
			unreadable(true, 0)
		}
	}
	if p, err := PastOf(t.TempDir(), "", nil, []*StartSheet{Rebuilt(1, 10)}); err != nil || p == nil || !p.Unreadable {
		t.Errorf("%+v, %v", p, err)
	}
}

// A last line that was torn while it was written hides nothing, for its start is told again: it is
// no unreadable history, and goes when that sheet is kept. Any other torn line is one, and stays.
func TestLastLineTornWhileItWasWritten(t *testing.T) {
	sheet := func(since int64, end string) *StartSheet {
		lost := ledger.Port{ID: "a", Proof: ledger.ProofNumbers, Heard: true, Frames: ledger.Frames{MissingUnseen: 1}}
		return &StartSheet{End: end, Sheet: ledger.NewSheet(since+1e9, since, []ledger.Port{lost})}
	}
	first, second := t.TempDir(), t.TempDir()
	if err := sheet(1e9, "stopped").Keep(first); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(first, HistoryFile))
	if err == nil {
		err = sheet(5e9, "stopped").Keep(second)
	}
	line, readErr := os.ReadFile(filepath.Join(second, HistoryFile))
	if err != nil || readErr != nil {
		t.Fatal(err, readErr)
	}
	zeros := strings.Repeat("\x00", 50)
	for name, c := range map[string]struct {
		left  string
		start int64 // whose sheet is told
		gone  bool
	}{
		"half of it":            {string(line[:len(line)/2]), 5e9, true},
		"its beginning":         {string(line[:3]), 5e9, true},
		"half, and zeros":       {string(line[:len(line)/2]) + zeros, 5e9, true},
		"a hole in it":          {string(line[:len(line)/2]) + zeros + string(line[len(line)/2:]), 5e9, true},
		"zeros":                 {zeros, 5e9, true},
		"of another start":      {string(line[:len(line)/2]), 9e9, false},
		"another, whole length": {string(line[:len(line)/2]) + "\n", 9e9, false},
		"something else":        {"spoilt", 5e9, false},
		"something else, ended": {"spoilt\n", 5e9, false},
	} {
		dir := t.TempDir()
		writeHistory(t, dir, string(whole)+c.left)
		left := sheet(c.start, CauseKilled)
		for _, when := range []string{"before", "after"} {
			p, err := PastOf(dir, "", nil, []*StartSheet{left})
			if p == nil || p.Starts != 2 || p.LostWire.Frames != 2 || p.Unreadable == c.gone || (err == nil) != c.gone {
				t.Errorf("%s: %s it is kept: %+v, %v", name, when, p, err)
			}
			if err := left.Keep(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
}
