package lab

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestResultOfElsewhere: what was measured elsewhere is summarised and judged as on the bench, and
// is a whole result where nothing is claimed.
func TestResultOfElsewhere(t *testing.T) {
	one, base := &Contestant{Name: "one", Note: "a note"}, &Contestant{Name: "base"}
	e := &Experiment{
		Name: "board-test", Base: base, Metrics: []Metric{LatencyMax}, Contestants: []*Contestant{one, base},
		Again: "tallywheel lab board --boots 8",
	}
	turns := func(rounds int) (all []Turns) {
		for i, c := range e.Contestants {
			t := Turns{Contestant: c, Said: "said"}
			for range rounds {
				t.Rounds = append(t.Rounds, Metrics{LatencyMax.String(): float64(12 - 2*i)})
			}
			all = append(all, t)
		}
		return all
	}
	b := &Bench{options: Quick()}
	r := b.Result(e, turns(1))
	text, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(text), `"verdicts":[]`) || r.Rounds != 1 || r.Rows[0].Said != "said" ||
		r.Rows[0].Note != "a note" {
		t.Errorf("%v: %s", err, text)
	}
	e.Claims = []Claim{AllAtMost("claim", Goal("≤ 1.5×"), []*Contestant{one}, base, nil, LatencyMax, 1.5, "why")}
	for rounds, want := range map[int]string{MinRounds: Reproduced, 1: NotMeasurable} {
		v := b.Result(e, turns(rounds)).Verdicts[0]
		if again := "`tallywheel lab board --boots 8` may tell."; v.Verdict != want ||
			strings.Contains(v.Why, again) != (want == NotMeasurable) {
			t.Errorf("%d rounds: %+v", rounds, v)
		}
	}
	missing := b.Result(e, []Turns{{Contestant: one, NotRun: "no compiler"}})
	if got := missing.Rows[0]; got.NotRun != "no compiler" || got.Metrics != nil ||
		missing.Verdicts[0].Verdict != NotMeasurable {
		t.Errorf("%+v", missing)
	}
}
