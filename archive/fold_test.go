package archive

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/ledger"
)

// foldingAt makes histories fold at so many bytes, and keep about so many of them; 0: never.
func foldingAt(most, kept int64) (undo func()) {
	m, k := maxHistory, keptHistory
	if maxHistory, keptHistory = most, kept; most == 0 {
		maxHistory = 1 << 40
	}
	return func() { maxHistory, keptHistory = m, k }
}

// twoHistories is the same history twice: one that is folded, and one that never is.
type twoHistories struct {
	t             *testing.T
	rng           *rand.Rand
	folded, whole string
	now           int64
	since         int64 // of the start that runs
	parts         uint64
	identity      string
	missing       uint64 // that may come late
}

// both does something to each history.
func (h *twoHistories) both(f func(dir string) error) {
	h.t.Helper()
	undo := foldingAt(20_000, 8_000)
	err := f(h.folded)
	undo()
	undo = foldingAt(0, 0)
	defer undo()
	if err == nil {
		err = f(h.whole)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// sheet is one of this moment, of a source that has lost something, or not.
func (h *twoHistories) sheet() ledger.Sheet {
	h.now += 1e9
	p := ledger.Port{
		ID: fmt.Sprintf("a%d", h.rng.IntN(100)), State: ledger.StateOpen, Proof: ledger.ProofNumbers,
		Heard: true,
	}
	f := &p.Frames
	switch h.rng.IntN(5) {
	case 0:
		f.Missing = uint64(h.rng.IntN(5))
		f.MissingUnseen = f.Missing
		h.missing += f.Missing
	case 1:
		f.Late = uint64(h.rng.IntN(int(h.missing + 1)))
		h.missing -= f.Late
	case 2:
		f.Dropped = map[string]uint64{"disk_full": 2}
		f.Corrupt = 1
	case 3:
		p.Proof = ledger.ProofChecks
	}
	p.LastLoss = ledger.Time(h.now)
	return ledger.NewSheet(h.now, h.since, []ledger.Port{p})
}

func (h *twoHistories) keep(s StartSheet) {
	h.t.Helper()
	s.Identity = h.identity
	h.both(s.Keep)
}

// step does one thing, and says what.
func (h *twoHistories) step(last *Ack) (what string, ack *Ack) {
	h.t.Helper()
	ack = last
	switch n := h.rng.IntN(20); {
	case n < 3:
		h.parts++
		h.keep(StartSheet{End: "left", Part: true, Parts: h.parts, Sheet: h.sheet()})
		return "part", ack
	case n == 3 && strings.Contains(h.t.Name(), "Torn"):
		h.both(func(dir string) error { return appendTo(filepath.Join(dir, HistoryFile), "torn\n") })
		return "torn", ack
	case n == 4 && strings.Contains(h.t.Name(), "Torn"):
		h.keep(StartSheet{End: causeCut, Part: true, Sheet: ledger.Sheet{At: ledger.Time(h.now)}})
		return "cut", ack
	case n == 5:
		base := h.sheet()
		ack = &Ack{Ack: ledger.Ack{At: base.At}, Sheet: &base}
		h.both(func(dir string) error {
			of := *ack
			defer func() { *ack = of }()
			return of.Save(dir, h.identity)
		})
		h.missing = 0
		h.now += 1e9
		return "ack", ack
	case n == 6 && strings.Contains(h.t.Name(), "Logs"):
		h.identity = fmt.Sprintf("%032x", h.rng.IntN(3))
		h.missing = 0
		return "another log", ack
	default:
		h.keep(StartSheet{End: "stopped", Sheet: h.sheet()})
		h.now += 1e9
		h.since, h.parts = h.now, 0
		return "start", ack
	}
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

// past is what the verdict knows of a history.
func (h *twoHistories) past(dir string) string {
	h.t.Helper()
	ack, err := LoadAck(dir)
	if err != nil {
		h.t.Fatal(err)
	}
	p, _ := PastOf(dir, h.identity, ack, nil)
	if p != nil {
		slices.Sort(p.Unproven)
	}
	b, err := json.Marshal(p)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(b)
}

// What the verdict says of earlier starts is the same whether or not they are folded, at any time,
// and whatever was acknowledged before or behind that; a folded history stays small.
func testFoldedAndWhole(t *testing.T) {
	for seed := range uint64(3) {
		h := &twoHistories{
			t: t, rng: rand.New(rand.NewPCG(seed, 3)), folded: t.TempDir(), whole: t.TempDir(),
			now: 1e18, since: 1e18, identity: strings.Repeat("0", 32),
		}
		var done []string
		var ack *Ack
		marked, folds := StartSheet{}, 0
		for range 100 {
			var what string
			what, ack = h.step(ack)
			done = append(done, what)
			if is, want := h.past(h.folded), h.past(h.whole); is != want {
				t.Fatalf("seed %d: the folded one says %s, want %s; after %v", seed, is, want, done)
			}
			if marked.HistoryGone(h.folded) != nil {
				t.Fatalf("seed %d: the history is called another one; after %v", seed, done)
			}
			marked.History = mark(t, h.folded)
			st, err := os.Stat(filepath.Join(h.folded, HistoryFile))
			if err == nil && st.Size() > 22_000 {
				t.Fatalf("seed %d: it has %d bytes; after %v", seed, st.Size(), done)
			}
			folds += strings.Count(readText(t, h.folded), foldedHead)
		}
		if folds == 0 {
			t.Fatalf("seed %d: nothing was folded", seed)
		}
	}
}

func TestFoldedHistorySaysTheSame(t *testing.T)              { testFoldedAndWhole(t) }
func TestFoldedHistoryOfSeveralLogsSaysTheSame(t *testing.T) { testFoldedAndWhole(t) }
func TestFoldedHistoryWithTornLinesSaysTheSame(t *testing.T) { testFoldedAndWhole(t) }

func mark(t *testing.T, dir string) *HistoryMark {
	t.Helper()
	m, err := MarkHistory(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &m
}

func readText(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, HistoryFile))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

// Whatever a kill or a power cut leaves of a folding, the history says the same, and the next line
// folds it. A cut of a folded history is told as that of any other.
func TestKillWhileTheHistoryIsFolded(t *testing.T) {
	defer foldingAt(20_000, 8_000)()
	dir := t.TempDir()
	path := filepath.Join(dir, HistoryFile)
	before := ""
	for n := 1; !strings.HasPrefix(readText(t, dir), foldedHead); n++ {
		before = readText(t, dir)
		hourlyFrom(t, dir, n)
	}
	after := readText(t, dir)
	marked := StartSheet{}
	for name, c := range map[string]struct{ is, part string }{
		"before it":                 {before, ""},
		"while it is written":       {before, after[:len(after)/2]},
		"before it has its name":    {before, after},
		"once it has its name":      {after, ""},
		"folded, and begun again":   {after, after[:100]},
		"an empty file beside both": {after, "\x00\x00"},
	} {
		write := func(name, text string) {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(path, before)
		marked.History = mark(t, dir)
		if write(path, c.is); c.part != "" {
			write(path+".part", c.part)
		}
		if marked.HistoryGone(dir) != nil {
			t.Errorf("%s: it is called another one", name)
		}
		starts := uint64(strings.Count(before, `"stopped"`))
		if c.is == after {
			starts++
		}
		if p, err := PastOf(dir, "", nil, nil); err != nil || p.Starts != starts || p.LostWire.Frames != starts {
			t.Errorf("%s: %+v, %v; want %d", name, p, err, starts)
		}
		hourlyFrom(t, dir, 1000)
		if p, err := PastOf(dir, "", nil, nil); err != nil || p.Starts != starts+1 ||
			!strings.HasPrefix(readText(t, dir), foldedHead) {
			t.Errorf("%s, and another start: %+v, %v; want %d", name, p, err, starts+1)
		}
		if c.is == after {
			marked.History = mark(t, dir)
			text := readText(t, dir)
			for what, cut := range map[string]string{
				"its fold":      text[strings.IndexByte(text, '\n')+1:],
				"its last line": text[:strings.LastIndexByte(text[:len(text)-1], '\n')+1],
				"a bit":         text[:len(text)-20] + "x" + text[len(text)-19:],
				"all":           "",
			} {
				if write(path, cut); marked.HistoryGone(dir) == nil {
					t.Errorf("%s: %s was taken, and it is not told", name, what)
				}
			}
		}
	}
}

// hourlyFrom adds the start of one hour.
func hourlyFrom(t *testing.T, dir string, hour int) {
	t.Helper()
	p := ledger.Port{ID: "a", State: ledger.StateOpen, Proof: ledger.ProofNumbers, Heard: true}
	p.Frames.Missing, p.Frames.MissingUnseen = 1, 1
	at := int64(1e18) + int64(hour)*3600e9
	s := StartSheet{End: "stopped", Sheet: ledger.NewSheet(at+1e9, at, []ledger.Port{p})}
	if err := s.Keep(dir); err != nil {
		t.Fatal(err)
	}
}
