package lab

import (
	"slices"
	"strings"
	"testing"
)

// disturbedRow is a row whose rounds had these figures, and so much of the machine went to others.
func disturbedRow(name string, others []float64, figures map[Metric][]float64) Row {
	row := Row{Contestant: name, Metrics: map[string]Figure{Others.name: Summarise("%", others)}}
	for m, samples := range figures {
		row.Metrics[m.name] = Summarise(Describe(m.name).Unit, samples)
	}
	return row
}

// TestDisturbedRoundsDoNotDecide: where others had the machine in few rounds, the quiet ones judge,
// as if there had been no others; where too few were quiet, none does, and the reader is told why.
// On average the machine was quiet both times.
func TestDisturbedRoundsDoNotDecide(t *testing.T) {
	judges := map[string]func(v View) (Verdict, bool){
		"never": func(v View) (Verdict, bool) { return v.Never(who("a"), nil, LatencyMax, 12, "") },
		"level": func(v View) (Verdict, bool) { return v.AtMost(who("a"), nil, LatencyMax, 12, "") },
		"rate":  func(v View) (Verdict, bool) { return v.RateAtMost(who("a"), nil, LostFrames, SentFrames, 0.01, "") },
		"apart": func(v View) (Verdict, bool) { return v.ApartAtMost(who("a"), who("b"), nil, LatencyMax, 2, "") },
		"counted": func(v View) (Verdict, bool) {
			n, ok := v.Sum(who("a"), nil, LostFrames)
			return Holds(n == 0, "", ""), ok
		},
		"largest": func(v View) (Verdict, bool) {
			x, ok := v.Largest(who("a"), nil, LatencyMax)
			return All(Holds(x <= 12, "", ""), Holds(true, "", "")), ok
		},
		"ratio": func(v View) (Verdict, bool) {
			r, ok := v.Ratio(who("a"), who("b"), nil, LatencyMax)
			return AtMost(r, 1.5, ""), ok
		},
		"across": func(v View) (Verdict, bool) {
			r, ok := v.AcrossFrom(who("a"), nil, who("b"), nil, LatencyMax, 1)
			return AtMost(r, 1.5, ""), ok
		},
	}
	for _, c := range []struct {
		quiet, noisy int
		want         string
	}{{10, 2, Reproduced}, {8, 1, Reproduced}, {7, 2, NotMeasurable}} {
		repeat := func(quiet, noisy float64) []float64 {
			return slices.Concat(slices.Repeat([]float64{noisy}, c.noisy), slices.Repeat([]float64{quiet}, c.quiet))
		}
		for name, judge := range judges {
			e := Experiment{Name: "test", Claims: []Claim{{Judge: judge}}}
			got := e.judge(View{&ExperimentResult{Rows: []Row{
				disturbedRow("a", repeat(1, 50), map[Metric][]float64{
					LatencyMax: repeat(5, 5000), LostFrames: repeat(0, 500), SentFrames: repeat(1000, 999),
				}),
				disturbedRow("b", repeat(1, 1), map[Metric][]float64{LatencyMax: repeat(5, 5)}),
			}}}, Quick())[0]
			if got.Verdict != c.want {
				t.Errorf("%s of %d quiet rounds beside %d: %+v, want %s", name, c.quiet, c.noisy, got, c.want)
			}
			const why = "7 of 9 rounds were quiet, in the others the machine was busy: 50 % of its CPU time"
			if c.want == NotMeasurable && (got.Reason != TooNoisy || !strings.Contains(got.Why, why)) {
				t.Errorf("%s: %s: %q", name, got.Reason, got.Why)
			}
		}
	}
}

// TestCountedHasNoNoise: what is the same in all rounds, or was counted in a turn apart, was not
// disturbed.
func TestCountedHasNoNoise(t *testing.T) {
	busy := slices.Repeat([]float64{60}, 8)
	e := Experiment{Name: "test", Claims: []Claim{{Judge: func(v View) (Verdict, bool) {
		m, ok := v.Median(who("a"), nil, SyscallsPerOp)
		n, ok2 := v.Median(who("a"), nil, BinaryBytes)
		return Holds(m <= 1 && n == 2, "", ""), ok && ok2
	}}}}
	got := e.judge(View{&ExperimentResult{Rows: []Row{disturbedRow("a", busy, map[Metric][]float64{
		SyscallsPerOp: {1}, BinaryBytes: slices.Repeat([]float64{2}, 8),
	})}}}, Quick())[0]
	if got.Verdict != Reproduced {
		t.Errorf("%+v", got)
	}
}

// TestOneTickOfTheHypervisor: of a short turn one tick is 3 % of the time, and no noise yet.
func TestOneTickOfTheHypervisor(t *testing.T) {
	row := Row{Metrics: map[string]Figure{Steal.name: Summarise("%", []float64{0, 3.3, 0, 0, 0, 0, 0, 0, 20, 0})}}
	if noisy := noisyRounds(&row); len(noisy) != 1 || !noisy[8] {
		t.Errorf("noisy are %v", noisy)
	}
}
