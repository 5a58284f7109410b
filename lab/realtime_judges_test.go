package lab_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
)

// measured is rows of what contestants had in eight rounds or more.
type measured map[string]map[lab.Metric][]float64

// judged is the verdict of an experiment on a claim, by its number or the begin of its text, where
// contestants had these figures in a cell.
func judged(t *testing.T, name, claim string, cell lab.Params, of measured) lab.Verdict {
	t.Helper()
	r := lab.ExperimentResult{Name: name}
	for who, metrics := range of {
		row := lab.Row{Contestant: who, Params: cell, Metrics: map[string]lab.Figure{}}
		for m, samples := range metrics {
			row.Metrics[m.String()] = lab.Summarise("", samples)
		}
		r.Rows = append(r.Rows, row)
		r.Rounds = 8
	}
	for _, c := range experiment(t, name).Claims {
		if c.Source.ID == claim || strings.HasPrefix(c.Claim, claim) {
			v, ok := c.Judge(lab.View{ExperimentResult: &r})
			if !ok {
				v.Verdict = lab.NotMeasurable
			}
			return v
		}
	}
	t.Fatalf("%s has no claim %q", name, claim)
	return lab.Verdict{}
}

func eightOf(v float64, last ...float64) []float64 {
	return append(slices.Repeat([]float64{v}, 8-len(last)), last...)
}

// TestStopsNeedBothPercentiles: the claim of two percentiles is judged by both or not at all: short
// turns, which lack one, would tell something else than long ones.
func TestStopsNeedBothPercentiles(t *testing.T) {
	small := lab.Params{"heap_MB": "1"}
	of := measured{"garbage": {lab.StoppingP50: eightOf(2), lab.StoppingP90: eightOf(9)}}
	if v := judged(t, "rt-stw", "002-30", small, of); v.Verdict != lab.NotMeasurable {
		t.Errorf("by the median alone: %+v", v)
	}
	for p99, want := range map[float64]string{80: lab.Reproduced, 200: lab.NotReproduced} {
		of["garbage"][lab.StoppingP99] = eightOf(p99)
		if v := judged(t, "rt-stw", "002-30", small, of); v.Verdict != want {
			t.Errorf("2, 9 and %.0f µs: %+v, want %s", p99, v, want)
		}
	}
}

// TestPreemptFailsByTheLongest: the longest wait of each round is what the claim is about, and few
// rounds are nobody's.
func TestPreemptFailsByTheLongest(t *testing.T) {
	for _, c := range []struct {
		rounds, without []float64 // with pre-emption, and without
		want            string
	}{
		{eightOf(12_000), eightOf(12_000), lab.NotReproduced},
		{eightOf(12_000, 42_600), eightOf(12_000), lab.NotMeasurable},
		{eightOf(12_000, 25_000, 42_600), eightOf(12_000), lab.NotMeasurable},
		{eightOf(42_600, 25_000), eightOf(30_000), lab.Reproduced},
		{eightOf(23_000, 21_000), eightOf(52_000), lab.NotReproduced}, // it works: two time slices
	} {
		v := judged(t, "rt-preempt", "002-13", nil, measured{
			"computing":                    {lab.LatencyMax: c.rounds},
			"computing, asyncpreemptoff=1": {lab.LatencyMax: c.without},
		})
		if v.Verdict != c.want {
			t.Errorf("%v: %+v, want %s", c.rounds, v, c.want)
		}
	}
}

// TestOneWakeUpDoesNotFlip: one wake-up of thousands that was not found, or one moment that lay too
// far before another, refutes nothing; many do.
func TestOneWakeUpDoesNotFlip(t *testing.T) {
	timer := lab.Params{"trigger": "timer"}
	of := func(missed, apart []float64) measured {
		m := map[lab.Metric][]float64{
			lab.PathMissed: missed, lab.PathWakeUps: eightOf(750), lab.PathError: apart, lab.LatencyMean: eightOf(4),
			lab.PathTimer: eightOf(1000), lab.PathIRQ: eightOf(1000), lab.PathSwitch: eightOf(1000),
			lab.PathUser: eightOf(1000),
		}
		return measured{"c": m, "go": m}
	}
	const sum = "The stages of a wake-up"
	for _, c := range []struct {
		missed, apart       []float64
		instances, addingUp string
	}{
		{eightOf(0), eightOf(90), lab.Reproduced, lab.Reproduced},
		{eightOf(0, 1), eightOf(90, 900), lab.NotMeasurable, lab.NotMeasurable},
		{eightOf(30), eightOf(900), lab.NotReproduced, lab.NotReproduced},
	} {
		if v := judged(t, "rt-path", "002-35", timer, of(c.missed, c.apart)); v.Verdict != c.instances {
			t.Errorf("%v missed: %+v, want %s", c.missed, v, c.instances)
		}
		if v := judged(t, "rt-path", sum, timer, of(c.missed, c.apart)); v.Verdict != c.addingUp {
			t.Errorf("%v ns apart: %+v, want %s", c.apart, v, c.addingUp)
		}
	}
}

// TestStacksAreJudgedByRounds: the memory of one that waits has a spread, too.
func TestStacksAreJudgedByRounds(t *testing.T) {
	for claim, of := range map[string]struct {
		who           string
		yes, band, no []float64
	}{
		"002-28": {"rust/thread", eightOf(2 << 20), eightOf(1<<20, 900<<10, 900<<10, 900<<10, 2<<20), eightOf(10_000)},
		"002-29": {"rust/async", eightOf(4096), eightOf(2048, 1900, 1900, 1900, 3000), eightOf(120)},
	} {
		for want, figures := range map[string][]float64{
			lab.Reproduced: of.yes, lab.NotMeasurable: of.band, lab.NotReproduced: of.no,
		} {
			v := judged(t, "rt-switch", claim, nil, measured{of.who: {lab.WaitingBytes: figures}})
			if v.Verdict != want {
				t.Errorf("%s, %v: %+v, want %s", claim, figures, v, want)
			}
		}
	}
}
