package recorder

import (
	"slices"

	"github.com/tallywheel/tallywheel/ledger"
)

// The law of the levels, by what was really sent and by what the framing can prove: a sheet is
// never good over anything lost, damaged, absent or unknown, and never bad over nothing. What was
// lost is counted by the other laws; here it is held against the level.

// levels is what the verdicts of all sheets say of one source.
type levels struct {
	good  int
	kinds map[string]int // of reasons, by how many sheets have them
	bad   map[string]int // … those that are bad
}

func (l *levels) add(v ledger.Verdict) {
	if l.kinds == nil {
		l.kinds, l.bad = map[string]int{}, map[string]int{}
	}
	if v.Level == ledger.Good {
		l.good++
	}
	for _, r := range v.Reasons {
		l.kinds[r.Kind]++
		if r.Level == ledger.Bad {
			l.bad[r.Kind]++
		}
	}
}

// levelLaw holds the levels of a source against what its devices did.
func (s *stage) levelLaw(f *feeder, a *books) {
	l := &a.levels
	if f.m.kind != "tally128" {
		if l.good > 0 {
			s.complain("%s: %d verdicts are good, and nobody knows what never arrived", f.id, l.good)
		}
		if l.kinds["unknown"] != a.reach {
			s.complain("%s: %d of %d verdicts say what cannot be known", f.id, l.kinds["unknown"], a.reach)
		}
	}
	harmed, torn := 0, len(s.kills) > 0
	for _, e := range f.frames {
		if e.w == nil {
			continue
		}
		torn = torn || !e.certain() || e.isCut() || e.swallowed
		if e.valid || !e.certain() || e.isCut() {
			continue
		}
		torn = true
		if m, read := e.readBy(); read && !s.dark(e) && !s.isUncounted(m) {
			harmed++
		}
	}
	if harmed > 0 && a.green {
		s.complain("%s: the verdict is green over %d damaged frames or noise", f.id, harmed)
	}
	for kind, why := range map[string]bool{
		"unbalanced": false, "missing_unseen": a.missing > 0, "missing_corrupt": a.missing > 0 && torn,
		"dropped": a.dropped > 0,
		"corrupt": torn, "no_frame": torn, "overrun": a.overrun > 0, "unread": a.unread > 0, "line_errors": false,
	} {
		if l.bad[kind] > 0 && !why {
			s.complain("%s: %d verdicts are bad by %s, over nothing", f.id, l.bad[kind], kind)
		}
	}
	if lossy := a.missing+a.dropped+a.overrun+a.unread+a.corrupt > 0; lossy && len(l.bad) == 0 {
		s.complain("%s: no verdict is bad over %d missing, %d dropped, %d over-run, %d unread, %d corrupt",
			f.id, a.missing, a.dropped, a.overrun, a.unread, a.corrupt)
	}
}

// levelWhileFine holds the verdict of this moment against a log that nothing is in the way of.
func (s *stage) levelWhileFine(after string) {
	for _, r := range s.r.Sheet().Verdict.Reasons {
		if slices.Contains([]string{"log_failed", "disk_full", "log_stalled", "blocked", "unbalanced"}, r.Kind) {
			s.complain("after %s the verdict has %s, and nothing is in the way", after, r.Kind)
		}
	}
}

// levelWhileAway holds the verdict of this moment against lines that are gone.
func (s *stage) levelWhileAway() {
	sheet := s.r.Sheet()
	for _, f := range s.feeders {
		if f.e.kind != byLine || !slices.ContainsFunc(sheet.Ports, func(p ledger.Port) bool { return p.ID == f.id }) {
			continue
		}
		away := func(r ledger.Reason) bool { return r.Source == f.id && (r.Kind == "not_there" || r.Kind == "blocked") }
		if sheet.Verdict.Level == ledger.Good || !slices.ContainsFunc(sheet.Verdict.Reasons, away) {
			s.complain("%s is unplugged, and the verdict is %s: %s", f.id, sheet.Verdict.Level, sheet.Verdict.Text)
		}
	}
}
