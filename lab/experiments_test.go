package lab_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

// TestExperiments: each folder has registered its experiment, and its claims are its own: each is a
// sentence that stands alone, has a source, and is judged once, not without figures.
func TestExperiments(t *testing.T) {
	folders, err := filepath.Glob("experiments/*/experiment.go")
	if err != nil || len(folders) != len(lab.Experiments()) {
		t.Errorf("%d folders, %d experiments registered: %v", len(folders), len(lab.Experiments()), err)
	}
	judged := map[any]string{}
	empty := lab.View{ExperimentResult: &lab.ExperimentResult{}}
	for _, e := range lab.Experiments() {
		if !slices.Contains(folders, "experiments/"+e.Name+"/experiment.go") {
			t.Errorf("%s has no folder of its name", e.Name)
		}
		if text := e.Advice(empty); text != "" {
			t.Errorf("%s advises without figures: %s", e.Name, text)
		}
		for _, c := range e.Claims {
			if first, _, _ := strings.Cut(c.Claim, " "); slices.Contains([]string{"…", "It", "They", "Against", ""},
				first) || !strings.HasSuffix(c.Claim, ".") {
				t.Errorf("%s: %q is no sentence that stands alone", e.Name, c.Claim)
			}
			if c.Source == (lab.Source{}) || c.Source.Number != "" && c.Source.Chapter == "" {
				t.Errorf("%s: nobody knows where %q is from", e.Name, c.Claim)
			}
			for _, once := range []any{c.Claim, c.Source} {
				if other, ok := judged[once]; ok && (c.Source.Number != "" || once == c.Claim) {
					t.Errorf("%s and %s judge the same: %v", other, e.Name, once)
				}
				judged[once] = e.Name
			}
			if v, ok := c.Judge(empty); ok && v.Verdict != lab.NotMeasurable {
				t.Errorf("%s judges %q without figures: %s", e.Name, c.Claim, v.Verdict)
			} else if !ok && c.Needs == "" {
				t.Errorf("%s does not say what %q needs", e.Name, c.Claim)
			}
		}
	}
}

// TestEveryClaimIsJudged: each claim of the list has one judge; of the documents that the list has,
// nothing else is judged; and no two have one number.
func TestEveryClaimIsJudged(t *testing.T) {
	judges, numbers, documents := map[lab.Source]int{}, map[string]bool{}, map[string]bool{}
	for _, e := range lab.Experiments() {
		for _, c := range e.Claims {
			judges[c.Source]++
		}
	}
	for _, p := range claims.All() {
		if n := judges[p.Source]; n != 1 {
			t.Errorf("claim %s has %d judges: %s", p.Source.ID, n, p.Text)
		}
		if numbers[p.Source.ID] {
			t.Errorf("two claims are %s", p.Source.ID)
		}
		numbers[p.Source.ID], documents[p.Source.Number] = true, true
	}
	for s := range judges {
		if documents[s.Number] && !numbers[s.ID] {
			t.Errorf("a claim of %s is judged that is not in the list: package claims", s)
		}
	}
}

// TestClaimsAskForWhatIsMeasured: where everything was measured every claim is judged and advice is
// given, so none asks for a contestant or a cell that there is not.
func TestClaimsAskForWhatIsMeasured(t *testing.T) {
	for _, e := range lab.Experiments() {
		if why := e.AsksWrongly(); why != "" {
			t.Errorf("%s: %s", e.Name, why)
		}
	}
}

// TestMisspeltDoesNotStart: an experiment whose claim or advice asks for a contestant or a setting
// that it has not is an error before anything is measured. It would read "not measurable here" for
// ever.
func TestMisspeltDoesNotStart(t *testing.T) {
	crc := our("crc16")
	for what, spoil := range map[string]func(e *lab.Experiment){
		`the claim "c." asks`: func(e *lab.Experiment) {
			e.Claims[0].Judge = func(v lab.View) (lab.Verdict, bool) {
				_, ok := v.Median(our("crc61"), nil, lab.NsPerOp)
				return lab.Verdict{}, ok
			}
		},
		`the claim "c." asks for`: func(e *lab.Experiment) {
			e.Claims[0].Judge = func(v lab.View) (lab.Verdict, bool) {
				_, ok := v.Median(crc, lab.Params{"bites": "1"}, lab.NsPerOp)
				return lab.Verdict{}, ok
			}
		},
		"its advice asks": func(e *lab.Experiment) { e.Advice = func(lab.View) string { return "" } },
	} {
		e := &lab.Experiment{
			Name: "test", Metrics: []lab.Metric{lab.NsPerOp}, Contestants: []*lab.Contestant{crc},
			Advice: func(lab.View) string { return "take it" },
			Claims: []lab.Claim{{Claim: "c.", Judge: func(v lab.View) (lab.Verdict, bool) {
				_, ok := v.Median(crc, nil, lab.NsPerOp)
				return lab.Verdict{}, ok
			}}},
		}
		spoil(e)
		if r, err := run(t, t.Context(), quickly(t), e); err == nil || !strings.Contains(err.Error(), what) ||
			len(r.Rows) > 0 {
			t.Errorf("it starts: %v, want %q", err, what)
		}
	}
}

// TestContestantsAreThere: what our contestants are called with, and the sources of the others,
// exist.
func TestContestantsAreThere(t *testing.T) {
	for _, e := range lab.Experiments() {
		for _, c := range e.Contestants {
			if err := c.Program.Exists(); err != nil {
				t.Errorf("%s, %s: %v", e.Name, c.Name, err)
			}
			if (c.Program == lab.Own()) != (c.Work != nil) {
				t.Errorf("%s, %s: a contestant of ours does something, others are programs", e.Name, c.Name)
			}
		}
	}
	for _, p := range []lab.Program{
		lab.C("crc61.c", ""), lab.Rust("serail.rs"), lab.Python("reader.py", "serial", ""),
		lab.Peers("crc61"),
	} {
		if p.Exists() == nil {
			t.Errorf("%v exists", p)
		}
	}
}

// TestRegisterRefuses: an experiment that cannot be what was meant ends the program at its start.
func TestRegisterRefuses(t *testing.T) {
	whole := lab.Experiment{
		Name: "new", Plane: lab.Files, Question: "?", Method: ".", Metrics: []lab.Metric{lab.NsPerOp},
		Contestants: []*lab.Contestant{our("a")},
		Claims:      make([]lab.Claim, 1), Advice: func(lab.View) string { return "" },
	}
	for want, spoil := range map[string]func(e *lab.Experiment){
		`"crc" is there already`:        func(e *lab.Experiment) { e.Name = "crc" },
		"is of no plane":                func(e *lab.Experiment) { e.Plane = lab.Plane{} },
		"is not whole":                  func(e *lab.Experiment) { e.Claims = nil },
		"compares to b, which does not": func(e *lab.Experiment) { e.Base = our("b") },
		"has two contestants a": func(e *lab.Experiment) {
			e.Contestants = append(e.Contestants, e.Contestants...)
		},
	} {
		e := whole
		spoil(&e)
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, want) {
					t.Errorf("%q, want %q", said, want)
				}
			}()
			lab.Register(&e)
		}()
	}
}
