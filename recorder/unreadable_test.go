package recorder

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
)

// hasReason reports whether a verdict has a reason of that kind.
func hasReason(v *ledger.Verdict, kind string) bool {
	return slices.ContainsFunc(v.Reasons, func(r ledger.Reason) bool { return r.Kind == kind })
}

// What was known as lost and cannot be read any more keeps the verdict from being good, over starts
// and reloads, until somebody acknowledges it. A line that is torn and told again does not.
func TestForgottenLossesAreNeverGood(t *testing.T) {
	dir, next := t.TempDir(), uint64(0)
	g := start(t, dir, nil, tcp("a"))
	lose(t, g, &next, 2)
	if err := g.save(); err != nil {
		t.Fatal(err)
	}
	first := copyFolder(t, dir)
	stop(t, g)
	g = start(t, dir, nil, tcp("a"))
	lose(t, g, &next, 3)
	if err := g.log.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := g.save(); err != nil {
		t.Fatal(err)
	}
	killed := copyFolder(t, dir)
	stop(t, g)
	sheets := []string{"sheet.json", "sheet.json.before"}
	each := func(dir string, names []string, harm func(b []byte) []byte) error {
		for _, name := range names {
			path := filepath.Join(dir, name)
			b, err := os.ReadFile(path)
			if err = errors.Join(err, os.WriteFile(path, harm(b), 0o600)); err != nil {
				return err
			}
		}
		return nil
	}
	for name, c := range map[string]struct {
		from   string
		harm   func(dir string) error
		want   bool
		starts uint64 // with losses that are still known
	}{
		"nothing": {killed, func(string) error { return nil }, false, 2},
		"both sheets": {
			killed, func(dir string) error { return each(dir, sheets, func([]byte) []byte { return nil }) },
			true, 1,
		},
		"both sheets of the first start": {first, func(dir string) error {
			return each(dir, sheets, func([]byte) []byte { return make([]byte, 100) })
		}, true, 0},
		"both sheets, and an empty log": {killed, func(dir string) error {
			for _, s := range append(segments(t, dir), filepath.Join(dir, "durable")) {
				if err := os.Remove(s); err != nil {
					return err
				}
			}
			return each(dir, sheets, func([]byte) []byte { return []byte("{") })
		}, true, 1},
		"the last sheet": {
			killed,
			func(dir string) error { return each(dir, sheets[:1], func([]byte) []byte { return nil }) }, false, 2,
		},
		"a line": {dir, func(dir string) error {
			return each(dir, []string{archive.HistoryFile},
				func(b []byte) []byte { return append([]byte("spoilt"), b...) })
		}, true, 1},
		"all lines": {
			dir, func(dir string) error { return os.Remove(filepath.Join(dir, archive.HistoryFile)) }, true,
			1,
		},
		"the last line": {dir, func(dir string) error {
			return each(dir, []string{archive.HistoryFile},
				func(b []byte) []byte { return b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1] })
		}, true, 2},
		"a line that is told again": {killed, func(dir string) error {
			return each(dir, []string{archive.HistoryFile}, func(b []byte) []byte {
				left, err := os.ReadFile(filepath.Join(dir, "sheet.json"))
				if err != nil {
					t.Fatal(err)
				}
				return append(b, left[:len(left)/2]...)
			})
		}, false, 2},
		"the line before the last": {killed, func(dir string) error {
			return each(dir, []string{archive.HistoryFile}, func(b []byte) []byte { return bytes.TrimRight(b, "}\n") })
		}, true, 1},
	} {
		dir := copyFolder(t, c.from)
		if err := c.harm(dir); err != nil {
			t.Fatal(name, err)
		}
		check := func(when string, want bool, starts uint64) {
			t.Helper()
			g := start(t, dir, nil, tcp("a"))
			defer stop(t, g)
			for _, s := range []ledger.Sheet{g.Sheet(), reloaded(t, g, tcp("a"), tcp("b")), reloaded(t, g, tcp("a"))} {
				p := s.Past
				if p == nil {
					p = &ledger.Past{}
				}
				if hasReason(s.Verdict, "history_unreadable") != want || p.Starts != starts ||
					want && s.Verdict.Level == ledger.Good {
					t.Errorf("%s, %s: %+v, past %+v", name, when, s.Verdict, s.Past)
				}
			}
			if when == "and once more" {
				if _, err := g.Ack("known"); err != nil {
					t.Fatal(err)
				}
				if s := g.Sheet(); s.Past != nil || hasReason(s.Verdict, "history_unreadable") {
					t.Errorf("%s: acknowledged: %+v", name, s.Past)
				}
			}
		}
		check("at once", c.want, c.starts)
		check("and once more", c.want, c.starts)
		check("acknowledged", false, 0)
	}
}

// reloaded is the sheet after a reload with other sources.
func reloaded(t *testing.T, g *Recorder, sources ...config.Source) ledger.Sheet {
	t.Helper()
	cfg := g.Config()
	cfg.Sources = sources
	if err := g.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	return g.Sheet()
}
