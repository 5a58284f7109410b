package lab

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestMedianIntervalHoldsTheMedian: of intervals of so many random values, at least 95 % hold the
// true median, if there are enough of them.
func TestMedianIntervalHoldsTheMedian(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{6, 7, 9, 12, 21, 40} {
		const trials = 4000
		held := 0
		for range trials {
			v := make([]float64, n)
			for i := range v {
				v[i] = math.Exp(rng.NormFloat64()) // a skewed distribution whose median is 1
			}
			if f := Summarise("", v); f.Lo <= 1 && 1 <= f.Hi {
				held++
			}
		}
		if share := float64(held) / trials; share < 0.945 {
			t.Errorf("%d values: the interval holds the median in %.1f %% of the trials", n, 100*share)
		}
	}
	if lo, hi := medianInterval(12); lo != 2 || hi != 9 {
		t.Errorf("of 12 values the 95 %% interval is that of ranks %d to %d, want 2 to 9 (tables of order statistics)", lo, hi)
	}
	if lo, hi := medianInterval(5); lo != 0 || hi != 4 {
		t.Errorf("of 5 values: ranks %d to %d, want all", lo, hi)
	}
}

// TestDiffer: noise of 3 % that drifts. A slowdown of 10 % is found, two alike are not told apart
// in at least 98 % of the trials.
func TestDiffer(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	rounds := func(n int, factor float64) (a, b []float64) {
		drift := 1.0
		for range n {
			drift *= 1 + 0.01*rng.NormFloat64()
			a = append(a, drift*(1+0.02*rng.NormFloat64()))
			b = append(b, drift*factor*(1+0.02*rng.NormFloat64()))
		}
		return a, b
	}
	const trials = 1000
	for _, n := range []int{5, 7, 15} {
		alike, found := 0, 0
		for range trials {
			a, b := rounds(n, 1)
			if differ, _ := Differ(a, b); differ {
				alike++
			}
			a, b = rounds(n, 1.10)
			if differ, p := Differ(b, a); differ && p < 0.01 {
				found++
			}
		}
		if alike > trials/50 {
			t.Errorf("%d rounds: two alike differ in %d of %d trials", n, alike, trials)
		}
		if want := trials * 6 / 10; n >= 7 && found < trials*95/100 || found < want {
			t.Errorf("%d rounds: 10 %% is found in %d of %d trials", n, found, trials)
		}
	}
	if differ, _ := Differ([]float64{1, 1, 1, 1}, []float64{9, 9, 9, 9}); differ {
		t.Error("four rounds are enough to tell")
	}
}

func TestCompareTakesRoundsTogether(t *testing.T) {
	a, b := []float64{10, 20, 30, 40, 50}, []float64{5, 10, 15, 20, 25} // the machine became slower, for both
	r, ok := Compare(a, b)
	if !ok || r.Median != 2 || r.Lo != 2 || r.Hi != 2 {
		t.Errorf("ratio %+v, want 2 in every round", r)
	}
	if _, ok := Compare(a, []float64{0, 0}); ok {
		t.Error("a ratio to nothing")
	}
}

func TestVerdictsNeedAgreement(t *testing.T) {
	of := func(v ...float64) Ratio { r, _ := Compare(v, []float64{1, 1, 1, 1, 1}); return r }
	for _, c := range []struct {
		r    Ratio
		want string
	}{
		{of(2.1, 2.2, 2.3, 2.0, 2.4), Reproduced},
		{of(2.1, 2.2, 2.3, 1.0, 2.4), Reproduced}, // four of five
		{of(2.1, 1.2, 2.3, 1.0, 2.4), NotMeasurable},
		{of(1.1, 1.2, 1.3, 1.0, 2.4), NotReproduced},
	} {
		if v := AtLeast(c.r, 2, ""); v.Verdict != c.want {
			t.Errorf("rounds %v, at least 2: %s, want %s", c.r.Rounds, v.Verdict, c.want)
		}
	}
	if v := AtMost(of(0.3, 0.4, 0.2, 0.3, 0.3), 0.5, ""); v.Verdict != Reproduced {
		t.Errorf("at most: %s", v.Verdict)
	}
}

// TestAllAtMost: the verdict on several is that on the worst of them, which it names, and none if
// one was not measured.
func TestAllAtMost(t *testing.T) {
	row := func(name string, v ...float64) Row {
		return Row{Contestant: name, Metrics: map[string]Figure{"ns_per_op": Summarise("ns", v)}}
	}
	v := View{&ExperimentResult{Rows: []Row{row("base", 10, 10, 10, 10, 10), row("good", 5, 5, 5, 5, 5), row("bad", 20, 21, 22, 23, 24)}}}
	claim := func(of ...string) Claim { return AllAtMost("", "", of, "base", nil, "ns_per_op", 1, "why") }
	if got, ok := claim("good", "bad").Judge(v); !ok || got.Verdict != NotReproduced || got.Here != "2.20× (2.00–2.40), the worst: bad" {
		t.Errorf("%+v, %v", got, ok)
	}
	if got, ok := claim("good").Judge(v); !ok || got.Verdict != Reproduced || got.Here != "0.50× (0.50–0.50)" {
		t.Errorf("%+v, %v", got, ok)
	}
	if got, ok := claim("good", "absent").Judge(v); ok {
		t.Errorf("%+v of one that was not measured", got)
	}
}
