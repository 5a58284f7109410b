package archive

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

const day = int64(24 * 3600e9)

// startThatLost is a start that began at a time, by its clock, and lost so many frames.
func startThatLost(since int64, n uint64) *StartSheet {
	p := ledger.Port{ID: "a", State: ledger.StateStopped, Proof: ledger.ProofNumbers, Heard: true}
	p.Frames.Missing, p.Frames.MissingUnseen, p.LastLoss = n, n, ledger.Time(since+1e9)
	return &StartSheet{End: "stopped", Sheet: ledger.NewSheet(since+2e9, since, []ledger.Port{p})}
}

func keepAll(t *testing.T, dir string, sheets ...*StartSheet) {
	t.Helper()
	for _, s := range sheets {
		if err := s.Keep(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// lostSince is what the verdict says that the starts in dir have lost since the last word.
func lostSince(t *testing.T, dir string, owed ...*StartSheet) (n uint64) {
	t.Helper()
	a, err := LoadAck(dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := PastOf(dir, "", a, owed)
	if err != nil {
		t.Fatal(err)
	}
	if p != nil {
		n = p.LostWire.Frames
	}
	return n
}

// A word speaks of the starts whose lines were there when it was given, and of no other, whatever
// the clock was in them and at the word, and whether or not they are folded.
func TestAckHoldsWhateverTheClockWas(t *testing.T) {
	const now = int64(1e18)
	for _, folds := range []bool{false, true} {
		for _, before := range []int64{-365 * day, 0, 365 * day} {
			for _, at := range []int64{-day, 0, day} {
				for _, behind := range []int64{-365 * day, 1e10, 365 * day} {
					name := fmt.Sprintf("folds %v, clock %d, %d, %d", folds, before/day, at/day, behind/day)
					dir := t.TempDir()
					own := startThatLost(now, 7)
					keepAll(t, dir, startThatLost(now+before-1e10, 2))
					word := &Ack{Ack: ledger.Ack{At: ledger.Time(now + at)}, Sheet: own.Sheet.Copy()}
					if err := word.Save(dir, "ab"); err != nil {
						t.Fatal(err)
					}
					keepAll(t, dir, own, startThatLost(now+behind, 20))
					if folds {
						undo := foldingAt(1, 1)
						keepAll(t, dir, startThatLost(now+behind+1e11, 0), startThatLost(now+behind+2e11, 0))
						undo()
						if !strings.HasPrefix(readText(t, dir), foldedHead) {
							t.Fatal("nothing was folded")
						}
					}
					if n := lostSince(t, dir); n != 20 {
						t.Errorf("%s: %d frames are told, want the 20 of the start behind the word", name, n)
					}
					word = &Ack{Ack: ledger.Ack{At: ledger.Time(now + at + 5)}}
					if err := word.Save(dir, "ab"); err != nil {
						t.Fatal(err)
					}
					keepAll(t, dir, startThatLost(now+4e11, 0))
					if n := lostSince(t, dir); n != 0 {
						t.Errorf("%s: %d frames are told behind a word that knew them", name, n)
					}
				}
			}
		}
	}
}

// A word of a program before this has no mark of the history, but says how long it was. What it
// cannot say, as of a start that had left no line, is told by its time.
func TestAckOfAProgramBefore(t *testing.T) {
	const now = int64(1e18)
	word := func(dir string, a Ack) {
		t.Helper()
		st, err := os.Stat(filepath.Join(dir, HistoryFile))
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf(`{"at":%s,"note":"","history":%d`, jsonTime(t, a.At), st.Size())
		if a.Sheet != nil {
			text += fmt.Sprintf(`,"sheet":{"at":%s,"since":%[1]s,"ports":[]}`, jsonTime(t, a.Sheet.Since))
		}
		if err := os.WriteFile(filepath.Join(dir, AckFile), []byte(text+"}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	keepAll(t, dir, startThatLost(now+day, 2))
	base := ledger.NewSheet(now, now, nil)
	word(dir, Ack{Ack: ledger.Ack{At: ledger.Time(now)}, Sheet: &base})
	if n := lostSince(t, dir); n != 0 {
		t.Errorf("%d frames are told that were known", n)
	}
	keepAll(t, dir, startThatLost(now-day, 20))
	if n := lostSince(t, dir); n != 20 {
		t.Errorf("%d frames are told, want 20", n)
	}
	dir = t.TempDir()
	keepAll(t, dir, startThatLost(now-day, 0))
	word(dir, Ack{Ack: ledger.Ack{At: ledger.Time(now + 1e11)}}) // no recorder ran
	keepAll(t, dir, startThatLost(now, 2), startThatLost(now+2e11, 20))
	if n := lostSince(t, dir); n != 20 {
		t.Errorf("%d frames are told, want 20", n)
	}
}

func jsonTime(t *testing.T, at ledger.Time) string {
	t.Helper()
	b, err := at.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A history that is not the one which somebody knew has nothing that was known: its lines may be
// younger than the word, though they stand where older ones stood.
func TestAckOfAnotherHistory(t *testing.T) {
	const now = int64(1e18)
	dir := t.TempDir()
	keepAll(t, dir, startThatLost(now, 2))
	word := &Ack{Ack: ledger.Ack{At: ledger.Time(now + 2*day)}}
	if err := word.Save(dir, "ab"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, HistoryFile)); err != nil {
		t.Fatal(err)
	}
	keepAll(t, dir, startThatLost(now+day, 20), startThatLost(now+3*day, 0))
	if n := lostSince(t, dir); n != 20 {
		t.Errorf("%d frames are told, want 20", n)
	}
}

// A word that was given while no recorder ran speaks of the start before it, whose sheet is not in
// the history yet, and of what the log has behind that sheet, whatever the clock was. What came
// behind the word, in a start that left no sheet, is told.
func TestAckBehindTheLastSheet(t *testing.T) {
	for name, c := range map[string]struct {
		clock int64 // at the word
		more  bool  // records came behind it
		told  uint64
	}{
		"right": {1e9, false, 0}, "behind": {1, false, 0},
		"right, and more came": {1e9, true, 4}, "behind, and more came": {1, true, 4},
		"ahead, and more came": {1e18, true, 4},
	} {
		dir := t.TempDir()
		folder, err := seglog.Dir(dir)
		if err != nil {
			t.Fatal(err)
		}
		log, streams := logOf(t, illFolder{folder, &atomic.Int64{}, &atomic.Int64{}, &atomic.Int64{}}, 1, 2, 3, 5)
		id := log.Identity()
		killed := &StartSheet{Identity: hex.EncodeToString(id[:]), LogStored: 2}
		killed.Positions = map[string][]ledger.Position{"a": {{Device: 1, Epoch: 1, Last: 2}}}
		killed.Sheet = ledger.NewSheet(1e8, 1e7, []ledger.Port{{ID: "a", Proof: ledger.ProofNumbers, Heard: true}})
		killed.Sheet.Ports[0].Frames.Missing, killed.Sheet.Ports[0].Frames.MissingUnseen = 3, 3
		if err := killed.Save(dir, false); err != nil {
			t.Fatal(err)
		}
		word := &Ack{Ack: ledger.Ack{At: ledger.Time(c.clock)}}
		if err := word.Save(dir, ""); err != nil {
			t.Fatal(err)
		}
		late := word.Behind(killed, killed.Identity)
		if late == nil || late.Next != 5 {
			t.Fatalf("%s: %+v", name, late)
		}
		if c.more {
			late.Next = 4 // the last one came behind the word
		}
		if _, err := killed.Replay(log, streams, late); err != nil {
			t.Fatal(err)
		}
		if n := lostSince(t, dir, killed); n != c.told {
			t.Errorf("%s: %d frames are told, want %d", name, n, c.told)
		}
	}
}
