package recorder

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// A bit of an old segment changes. The next start finds it by itself, its verdict is bad, and a
// start after that knows it from the beginning. Once it is repaired, what was given up is counted,
// and the damage is over.
func TestDamageToWhatIsStoredIsInTheVerdict(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, tcp("a"))
	c := dial(t, address(g, "a"))
	write(t, c, frames(0, 20_000))
	stored(t, g, "a", 20_000)
	c.Close()
	if s := stop(t, g); s.LogDamage != nil {
		t.Errorf("%+v", s.LogDamage)
	}
	segs, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil || len(segs) < 3 {
		t.Fatalf("%v, %v", segs, err)
	}
	b, err := os.ReadFile(segs[1])
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b[500_000:], frames(0, 1)[:3]) // in a record: damage to a commit frame is another
	if at < 0 {
		t.Fatal("no frame begins there")
	}
	b[500_000+at] ^= 4
	if err := os.WriteFile(segs[1], b, 0o600); err != nil {
		t.Fatal(err)
	}

	g = start(t, dir, nil, tcp("a"))
	testenv.Until(t, time.Minute, "the damage is found", func() bool { return g.Sheet().LogDamage != nil })
	s := g.Sheet()
	if d := s.LogDamage; d.Places != 1 || d.First[0].Segment != filepath.Base(segs[1]) || d.Records == 0 ||
		d.Records > 10_000 ||
		d.First[0].Bytes == 0 || d.First[0].Bytes > 1<<20 {
		t.Errorf("%+v", d)
	}
	if s.Verdict.Level != ledger.Bad || !strings.Contains(s.Verdict.Text, "stored that cannot be read") ||
		s.Verdict.LostHere != (ledger.Amount{}) {
		t.Errorf("%+v", s.Verdict)
	}
	testenv.Until(t, time.Minute, "a pass is over", func() bool { _, whole := g.Checked(); return !whole.IsZero() })
	if bytes, _ := g.Checked(); bytes < 3<<20 {
		t.Errorf("%d bytes were checked", bytes)
	}
	last := stop(t, g)

	g = start(t, dir, func(c *config.Config) { c.Log.Scrub = "off" }, tcp("a"))
	if d := g.Sheet().LogDamage; d == nil || d.Records != last.LogDamage.Records {
		t.Errorf("the next start knows of %+v", d)
	}
	stop(t, g)
	fs, err := seglog.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := seglog.Repair(fs); err != nil {
		t.Fatal(err)
	}
	g = start(t, dir, nil, tcp("a"))
	testenv.Until(t, time.Minute, "the damage is over", func() bool { return g.Sheet().LogDamage == nil })
	s = g.Sheet()
	if n := s.Verdict.LostHere.Records; n == 0 || n > last.LogDamage.Records || s.Verdict.Level != ledger.Bad {
		t.Errorf("%d records are given up of %d: %+v", n, last.LogDamage.Records, s.Verdict)
	}
	stop(t, g)
}
