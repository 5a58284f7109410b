package recorder

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
)

// lose has a start lose so many frames between others, and returns its last sheet.
func lose(t *testing.T, g *Recorder, next *uint64, n uint64) ledger.Sheet {
	t.Helper()
	c := dial(t, address(g, "a"))
	defer c.Close()
	before := portOf(g, "a").Frames.OK
	write(t, c, append(frames(*next, 5), frames(*next+5+n, 5)...))
	*next += 10 + n
	stored(t, g, "a", before+10)
	return g.Sheet()
}

// Losses count over all starts until somebody acknowledges them; the books stay, and the word
// survives starts, also those that are killed.
func TestAckSurvivesStarts(t *testing.T) {
	dir, next := t.TempDir(), uint64(0)
	for _, n := range []uint64{2, 0, 3} {
		g := start(t, dir, nil, tcp("a"))
		lose(t, g, &next, n)
		stop(t, g)
	}
	g := start(t, dir, nil, tcp("a"))
	s := lose(t, g, &next, 4)
	if p := s.Past; s.Verdict.Level != ledger.Bad || p == nil || p.Starts != 2 || p.LostWire.Frames != 5 ||
		s.Verdict.LostWire.Frames != 4 {
		t.Fatalf("%+v; past %+v", s.Verdict, p)
	}
	if !strings.Contains(s.Verdict.Text, "earlier: 5 frames lost in 2 starts since ") {
		t.Errorf("%s", s.Verdict.Text)
	}
	a, err := g.Ack("a cable was changed")
	if err != nil {
		t.Fatal(err)
	}
	after := g.Sheet()
	if v := after.Verdict; v.Level == ledger.Bad || v.Since != a.At || after.Ack.Note != "a cable was changed" ||
		after.Past != nil {
		t.Errorf("%+v; %+v", v, after.Ack)
	}
	if f := after.Ports[0].Frames; f.Missing != 4 {
		t.Errorf("the books have changed: %+v", f)
	}
	s = lose(t, g, &next, 6)
	if v := s.Verdict; v.Level != ledger.Bad || v.LostWire.Frames != 6 || v.LastLoss < a.At {
		t.Errorf("%+v", v)
	}
	killed := copyFolder(t, dir)
	stop(t, g)
	for name, dir := range map[string]string{"stopped": dir, "killed": killed} {
		g := start(t, dir, nil, tcp("a"))
		if p := g.Sheet().Past; p == nil || p.Starts != 1 || p.LostWire.Frames != 6 && name == "stopped" {
			t.Errorf("%s: %+v", name, p)
		}
		if _, err := g.Ack(""); err != nil {
			t.Error(err)
		}
		stop(t, g)
		g = start(t, dir, nil, tcp("a"))
		if s := g.Sheet(); s.Past != nil || s.Verdict.Level == ledger.Bad {
			t.Errorf("%s: %+v, %+v", name, s.Verdict, s.Past)
		}
		stop(t, g)
	}
}

// A word that cannot be kept is an error and changes nothing; one that cannot be read is told, and
// all counts.
func TestAckThatCannotBeKept(t *testing.T) {
	dir, next := t.TempDir(), uint64(0)
	g := start(t, dir, nil, tcp("a"))
	lose(t, g, &next, 2)
	for _, note := range []string{strings.Repeat("x", MaxNote+1), "two\nlines", "\xff"} {
		if _, err := g.Ack(note); !errors.Is(err, ErrNote) {
			t.Errorf("%.10q: %v", note, err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, archive.AckFile, "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Ack("x"); err == nil || g.Sheet().Verdict.LostWire.Frames != 2 || g.Sheet().Ack != nil {
		t.Errorf("%v, %+v", err, g.Sheet().Verdict)
	}
	stop(t, g)
	if err := os.RemoveAll(filepath.Join(dir, archive.AckFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, archive.AckFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	g, said := startLogged(t, dir, tcp("a"))
	if p := g.Sheet().Past; p == nil || p.LostWire.Frames != 2 || !strings.Contains(said, "acknowledge it again") {
		t.Errorf("%+v; %s", p, said)
	}
	stop(t, g)
}

// A pipe under the name of a file beside the log keeps no start waiting: it is told, and recording
// goes on, for each of those files can be done without, or is there twice.
func TestPipeBesideTheLog(t *testing.T) {
	for _, name := range []string{"sheet.json", archive.HistoryFile, archive.AckFile, "streams.json"} {
		dir := t.TempDir()
		stop(t, start(t, dir, nil, tcp("a")))
		if err := errors.Join(os.Remove(filepath.Join(dir, name)),
			syscall.Mkfifo(filepath.Join(dir, name), 0o600)); err != nil &&
			!errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		g, said := startWarned(t, dir, tcp("a"))
		if !strings.Contains(said, name+" is no ordinary file: move it away") {
			t.Errorf("%s: %s", name, said)
		}
		if name != "streams.json" { // that was set aside, and is there again
			os.Remove(filepath.Join(dir, name)) // moved away: the end can be kept
		}
		stop(t, g)
	}
}

// A source that leaves takes nothing out of the verdict: what it lost counts until somebody
// acknowledges it, at every moment, and comes back with no source of the same name.
func TestWhatASourceLostCountsWhenItIsGone(t *testing.T) {
	dir, next := t.TempDir(), uint64(0)
	other := tcp("b") // which listens at another port than a
	g := start(t, dir, nil, tcp("a"))
	lose(t, g, &next, 3)
	for _, s := range []ledger.Sheet{reloaded(t, g, other), reloaded(t, g, tcp("a"), other)} {
		if p := s.Past; s.Verdict.Level != ledger.Bad || p == nil || p.Starts != 1 || p.LostWire.Frames != 3 {
			t.Errorf("%+v; past %+v", s.Verdict, p)
		}
	}
	lose(t, g, &next, 2)
	if _, err := g.Ack(""); err != nil {
		t.Fatal(err)
	}
	if s := reloaded(t, g, other); s.Past != nil || s.Verdict.Level == ledger.Bad {
		t.Errorf("what was acknowledged counts again: %+v; past %+v", s.Verdict, s.Past)
	}
	reloaded(t, g, tcp("a"))
	lose(t, g, &next, 4)
	stop(t, g)
	g = start(t, dir, nil, tcp("a"))
	if p := g.Sheet().Past; p == nil || p.Starts != 1 || p.LostWire.Frames != 4 {
		t.Errorf("past %+v", p)
	}
	stop(t, g)
}

// The verdict on the sheet of a start that was killed counts from the word that was given in it,
// and its amounts do, too; without that word both are of the whole start.
func TestVerdictOnAKilledStartAfterItsAck(t *testing.T) {
	const hour = int64(time.Hour)
	now := time.Now().UnixNano()
	account := func(missing uint64) []ledger.Port {
		f := ledger.Frames{Missing: missing, MissingUnseen: missing}
		return []ledger.Port{{ID: "a", Proof: ledger.ProofNumbers, Heard: true, Frames: f}}
	}
	since, at := now-2*hour, now-hour
	base := ledger.NewSheet(at, since, account(7))
	word := archive.Ack{Ack: ledger.Ack{At: ledger.Time(at)}, Sheet: &base}
	for _, c := range []struct {
		known  bool
		frames uint64
		since  int64
	}{{true, 2, at}, {false, 9, since}} {
		dir := t.TempDir()
		left := archive.StartSheet{Sheet: ledger.NewSheet(now, since, account(9))}
		left.Sheet.Ack = &word.Ack
		if err := left.Save(dir, false); err != nil {
			t.Fatal(err)
		}
		if c.known {
			if err := word.Save(dir, ""); err != nil {
				t.Fatal(err)
			}
		}
		stop(t, start(t, dir, nil))
		v := lastKept(t, dir, archive.CauseKilled).Sheet.Verdict
		if v == nil || v.LostWire.Frames != c.frames || int64(v.Since) != c.since {
			t.Errorf("the word is known: %v: %+v", c.known, v)
		}
	}
}

// ackScene is a device whose frames are lost, come late and come twice, its recorder, and what of
// the losses somebody knows.
type ackScene struct {
	t      *testing.T
	dir    string
	g      *Recorder
	next   uint64          // the next number
	hidden []uint64        // lost, and nothing behind them has come yet
	lost   map[uint64]bool // … and known
	newest bool            // how the source is configured
}

func (s *ackScene) source() config.Source {
	a := tcp("a")
	if a.TCP.Peers = config.PeersFirst; s.newest {
		a.TCP.Peers = config.PeersNewest
	}
	return a
}

func (s *ackScene) send(numbers ...uint64) {
	s.t.Helper()
	c := dial(s.t, address(s.g, "a"))
	defer c.Close()
	before := portOf(s.g, "a").Frames.OK
	for _, n := range numbers {
		write(s.t, c, frames(n, 1))
		delete(s.lost, n)
	}
	stored(s.t, s.g, "a", before+uint64(len(numbers)))
	if err := s.g.save(); err != nil {
		s.t.Error(err)
	}
}

func (s *ackScene) later(rng *rand.Rand) {
	var numbers []uint64
	for range 1 + rng.IntN(3) {
		numbers = append(numbers, s.next)
		s.next++
	}
	s.send(numbers...)
	for _, n := range s.hidden {
		s.lost[n] = false
	}
	s.hidden = nil
}

// step does one thing, and says what.
func (s *ackScene) step(rng *rand.Rand) string {
	s.t.Helper()
	switch what := rng.IntN(12); what {
	case 0, 1, 2:
		for range min(rng.IntN(5), ledger.MaxRestingGaps-len(s.lost)) { // each may become a gap, and be carried
			s.hidden = append(s.hidden, s.next)
			s.next++
		}
		s.later(rng)
		return "a loss"
	case 3, 4, 5:
		var numbers []uint64
		for n := range s.lost {
			if len(numbers) < 3 {
				numbers = append(numbers, n)
			}
		}
		if len(numbers) > 0 {
			s.send(numbers...)
		}
		return "late frames"
	case 6, 7:
		if _, err := s.g.Ack("known"); err != nil {
			s.t.Error(err)
		}
		for n := range s.lost {
			s.lost[n] = true
		}
		return "an acknowledgement"
	case 8:
		s.newest = !s.newest
		reloaded(s.t, s.g, s.source())
		return "a reload"
	case 11:
		s.newest = !s.newest
		killed := beforeItsSheet(s.t, s.g, s.dir, nil, s.source())
		stop(s.t, s.g)
		s.dir = killed
		s.g = start(s.t, s.dir, nil, s.source())
		return "a reload, and a kill before the next sheet"
	case 9:
		killed := copyFolder(s.t, s.dir)
		stop(s.t, s.g)
		s.dir = killed
	default:
		stop(s.t, s.g)
	}
	s.g = start(s.t, s.dir, nil, s.source())
	return "a start"
}

// Losses, late frames, acknowledgements, reloads, stops and kills in any order: what counts is what
// is lost and is not known, to the frame, and the level says so.
func TestAcknowledgedFramesThatComeLate(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 21))
		s := &ackScene{t: t, dir: t.TempDir(), lost: map[uint64]bool{}}
		s.g = start(t, s.dir, nil, s.source())
		s.later(rng)
		var done []string
		for range 40 {
			done = append(done, s.step(rng))
			news := uint64(0)
			for _, known := range s.lost {
				if !known {
					news++
				}
			}
			v, past := s.g.Sheet().Verdict, s.g.Sheet().Past
			found := v.LostWire.Frames
			if past != nil {
				found += past.LostWire.Frames
			}
			if found != news || (v.Level == ledger.Bad) != (news > 0) {
				t.Fatalf("seed %d: %d frames are lost and not known, the verdict is %s; after %s", seed, news, v.Text,
					strings.Join(done, ", "))
			}
		}
		stop(t, s.g)
	}
}
