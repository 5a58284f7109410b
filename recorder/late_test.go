package recorder

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
)

// onWire is what counts as lost on the wire, of this start and of those before it.
func onWire(s ledger.Sheet) uint64 {
	n := s.Verdict.LostWire.Frames
	if s.Past != nil {
		n += s.Past.LostWire.Frames
	}
	return n
}

// A frame that comes late for a gap of an earlier start, or of the source as it was before a
// reload, is late, once, and nothing is missing any more.
func TestLateFramesFillGapsOfBefore(t *testing.T) {
	for name, turn := range map[string]func(t *testing.T, g *Recorder, dir string) *Recorder{
		"a stop": func(t *testing.T, g *Recorder, dir string) *Recorder {
			stop(t, g)
			return start(t, dir, nil, tcp("a"))
		},
		"a kill": func(t *testing.T, g *Recorder, dir string) *Recorder {
			killed := copyFolder(t, dir)
			stop(t, g)
			return start(t, killed, nil, tcp("a"))
		},
		"another address": func(t *testing.T, g *Recorder, _ string) *Recorder {
			change(t, g, func(s *config.Source) { s.TCP.Listen = "127.0.0.2:0" })
			return g
		},
		"a kill after its last sheet": func(t *testing.T, g *Recorder, dir string) *Recorder {
			sheets := copyFolder(t, dir)
			feed(t, g, 11, 20, 16, 14) // in the log, and in no sheet
			if err := g.log.Sync(); err != nil {
				t.Fatal(err)
			}
			after := copyFolder(t, dir)
			for _, path := range glob(t, sheets, "sheet*") {
				b, err := os.ReadFile(path)
				if err == nil {
					err = os.WriteFile(filepath.Join(after, filepath.Base(path)), b, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			stop(t, g)
			return start(t, after, nil, tcp("a"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			g := start(t, dir, nil, tcp("a"))
			feed(t, g, consecutive(0, 10)...)
			feed(t, g, 13, 14, 15) // 10, 11, 12 are to come
			if err := g.log.Sync(); err != nil {
				t.Fatal(err)
			}
			if err := g.save(); err != nil {
				t.Fatal(err)
			}
			if n := onWire(g.Sheet()); n != 3 {
				t.Fatalf("%d lost", n)
			}
			g = turn(t, g, dir)
			late := []uint64{16, 17, 18, 19, 20, 10, 11, 12, 11, 21}
			if name == "a kill after its last sheet" { // those are there
				late = []uint64{17, 18, 19, 10, 12, 12, 21}
			}
			feed(t, g, late...)
			s := g.Sheet()
			if f := s.Ports[0].Frames; onWire(s) != 0 || s.Verdict.Level == ledger.Bad || f.Restarts != 0 ||
				len(s.Ports[0].Unbalanced) > 0 {
				t.Errorf("%s; past %+v; %+v", s.Verdict.Text, s.Past, f)
			}
			stop(t, g)
		})
	}
}
