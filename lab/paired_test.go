package lab

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestRejects: the critical values of the signed-rank test at 0.8 %, two-sided, by counting all
// signs of the ranks.
func TestRejects(t *testing.T) {
	for n := 1; n <= 14; n++ {
		sums := map[int]int{}
		for signs := range 1 << n {
			sum := 0
			for rank := 1; rank <= n; rank++ {
				sum += rank * (signs >> (rank - 1) & 1)
			}
			sums[sum]++
		}
		want, below := -1, 0
		for sum := 0; ; sum++ {
			if below += sums[sum]; float64(below)/math.Exp2(float64(n)) > alpha/2 {
				break
			}
			want = sum
		}
		if got := rejects(n); got != want {
			t.Errorf("%d values: a sum of up to %d is rare enough, want %d", n, got, want)
		}
	}
	if rejects(MinRounds) != 0 || rejects(MinRounds-1) != -1 {
		t.Errorf("%d rounds are not the fewest by which two can differ", MinRounds)
	}
	if got := rejects(20); got != 35 {
		t.Errorf("20 values: %d, want 35: below the 37 that tables have for 1 %%", got)
	}
}

// TestSignedRank: the estimate and the interval of values whose Walsh averages are easily counted.
func TestSignedRank(t *testing.T) {
	// only one sum of ranks is rare enough: the range
	mid, lo, hi, _ := signedRank([]float64{1, 2, 3, 4, 5, 6, 7, 8}, 0)
	if mid != 4.5 || lo != 1 || hi != 8 {
		t.Errorf("of 1 to 8: %g (%g to %g)", mid, lo, hi)
	}
	// sums to 4 are: of 55, five are left out at either end
	mid, lo, hi, _ = signedRank([]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0)
	if k := rejects(10); k != 2 || mid != 5.5 || lo != 2 || hi != 9 {
		t.Errorf("of 1 to 10, sums to %d: %g (%g to %g)", k, mid, lo, hi)
	}
	inf := math.Inf(1)
	if mid, lo, hi, _ := signedRank([]float64{inf, -inf, inf, -inf, inf, -inf, inf, -inf}, 0); mid != 0 || lo != -inf ||
		hi != inf {
		t.Errorf("of what is never there in both: %g (%g to %g)", mid, lo, hi)
	}
}

func TestCompareTakesRoundsTogether(t *testing.T) {
	// the machine became slower, for both
	a, b := []float64{10, 20, 30, 40, 50, 60, 70, 80}, []float64{5, 10, 15, 20, 25, 30, 35, 40}
	r, ok := Compare(a, b)
	if !ok || r.String() != "2.00× (2.00–2.00)" || !r.Differ() {
		t.Errorf("ratio %+v, want 2 in every round", r)
	}
	if r, ok := Compare(a[:7], b[:7]); !ok || r.Differ() || r.Enough() {
		t.Errorf("seven rounds are enough: %+v", r)
	}
	if r, ok := Compare(b, b); !ok || r.Differ() || r.Unseen() != 0 {
		t.Errorf("the same differs: %+v", r)
	}
	for _, nothing := range [][]float64{{0, 0}, {}, {1, -1}} {
		if r, ok := Compare(a[:len(nothing)], nothing); ok {
			t.Errorf("a ratio to %v: %+v", nothing, r)
		}
	}
	if r, ok := Compare([]float64{0, 1}, []float64{0, 1}); !ok || r.Median != 1 {
		t.Errorf("two that did nothing in a round are not alike in it: %+v", r)
	}
}

// machine is a simulated one. It returns the logarithm of how slow it is in a turn, of so many.
type machine func(turn, turns int) float64

// simulate lets four contestants take turns until the comparison of the second to the first is as
// sure as is asked for, as a bench does. The second is slower by an effect.
func simulate(rng *rand.Rand, o Options, m machine, noise, effect float64, order func(n int) []int) Ratio {
	const contestants = 4
	var v [2][]float64
	for turn := 0; ; {
		for _, c := range order(contestants) {
			x := m(turn, o.MaxRounds*contestants) + noise*rng.NormFloat64()
			turn++
			if c < len(v) {
				v[c] = append(v[c], math.Exp(x+float64(c)*math.Log1p(effect)))
			}
		}
		if n := len(v[0]); n < o.MaxRounds && n%MinRounds != 0 {
			continue
		}
		if r, _ := Compare(v[1], v[0]); len(v[0]) == o.MaxRounds || o.sure(r) {
			return r
		}
	}
}

// The ways of a machine to be unsteady, from turn to turn.
func steady(int, int) float64          { return 0 }
func slower(turn, turns int) float64   { return 0.2 * float64(turn) / float64(turns) } // by 20 % in the end
func slowInTheEnd(turn, _ int) float64 { return 0.02 * float64(turn%4) }               // of each round
func jumps(rng *rand.Rand) machine {
	return func(int, int) float64 { return math.Ln2 * float64(rng.IntN(10)/9) } // one turn of ten takes twice as long
}

func wanders(rng *rand.Rand) machine {
	at := 0.0
	return func(int, int) float64 { at += 0.01 * rng.NormFloat64(); return at }
}

// TestEqualsDoNotDiffer: of two contestants that are equal, at most 1 % of the runs say that they
// differ, on a machine that drifts at most 2 %. In an order that is always the same it is far more.
func TestEqualsDoNotDiffer(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const trials = 3000
	wrong := func(o Options, m machine, noise float64, order func(int) []int) float64 {
		differ := 0
		for range trials {
			if simulate(rng, o, m, noise, 0, order).Differ() {
				differ++
			}
		}
		return 100 * float64(differ) / trials
	}
	for _, c := range []struct {
		name    string
		machine machine
		noise   float64
		most    float64 // percent
	}{
		{"steady", steady, 0.02, 1},
		{"steady", steady, 0.05, 1},
		{"slower and slower", slower, 0.01, 2},
		{"slow at each round's end", slowInTheEnd, 0.02, 2},
		{"wandering", wanders(rng), 0.02, 2},
		{"jumping", jumps(rng), 0.02, 2},
	} {
		for _, o := range []Options{Quick(), Full()} {
			got := wrong(o, c.machine, c.noise, rng.Perm)
			t.Logf("%s, noise of %g, at most %d rounds: equals differ in %.1f %% of %d runs", c.name, c.noise,
				o.MaxRounds, got, trials)
			if got > c.most {
				t.Errorf("that is more than %g %%", c.most)
			}
		}
	}
	always := func(n int) []int { return []int{0, 1, 2, 3}[:n] }
	if got := wrong(Quick(), slowInTheEnd, 0.02, always); got < 5 {
		t.Errorf("an order that is always the same does no harm: equals differ in %.1f %%", got)
	}
}

// TestDifferencesAreFound: 5 % where each turn varies by 5 %, 3 % while the machine becomes 20 %
// slower, by as many rounds as --full has.
func TestDifferencesAreFound(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	const trials = 300
	for _, c := range []struct {
		name          string
		machine       machine
		noise, effect float64
		percent       int
	}{
		{"steady", steady, 0.05, 0.05, 80},
		{"steady", steady, 0.05, 0.10, 99},
		{"slower and slower", slower, 0.01, 0.03, 80},
		{"wandering", wanders(rng), 0.01, 0.03, 80},
	} {
		found := 0
		for range trials {
			if r := simulate(rng, Full(), c.machine, c.noise, c.effect, rng.Perm); r.Differ() && r.Median > 1 {
				found++
			}
		}
		t.Logf("%s, noise of %g: a difference of %g is found in %d of %d runs", c.name, c.noise, c.effect, found,
			trials)
		if 100*found < c.percent*trials {
			t.Errorf("%s, noise of %g: a difference of %g is found in %d of %d runs, want %d %%", c.name, c.noise,
				c.effect, found, trials, c.percent)
		}
	}
}

// ratioOf is a ratio of rounds to 1.
func ratioOf(v ...float64) Ratio {
	ones := make([]float64, len(v))
	for i := range ones {
		ones[i] = 1
	}
	r, _ := Compare(v, ones)
	return r
}

// TestVerdicts: a claim is judged by the whole interval, if there are rounds enough and the machine
// was quiet.
func TestVerdicts(t *testing.T) {
	busy := ratioOf(2.1, 2.2, 2.3, 2.1, 2.4, 2.2, 2.1, 2.3)
	busy.disturbed = "the machine was busy"
	for _, c := range []struct {
		got           Verdict
		want, because string
	}{
		{AtLeast(ratioOf(2.1, 2.2, 2.3, 2.0, 2.4, 2.2, 2.1, 2.3), 2, ""), Reproduced, ""},
		{AtLeast(ratioOf(2.1, 2.2, 2.3, 1.9, 2.4, 2.2, 2.1, 2.3), 2, ""), NotMeasurable, TooNoisy}, // seven of eight
		{AtLeast(ratioOf(1.1, 1.2, 1.3, 1.0, 1.4, 1.2, 1.1, 1.3), 2, ""), NotReproduced, ""},
		{AtLeast(ratioOf(2.1, 2.2, 2.3, 2.0, 2.4, 2.2, 2.1), 2, ""), NotMeasurable, TooFewRounds},
		{AtLeast(busy, 2, ""), NotMeasurable, TooNoisy},
		{AtMost(ratioOf(0.3, 0.4, 0.2, 0.3, 0.3, 0.3, 0.4, 0.2), 0.5, ""), Reproduced, ""},
		{AtMost(ratioOf(1, 1, 1, 1, 1, 1, 1, 1), 1, ""), Reproduced, ""},
		{AtMost(ratioOf(1.1, 1.2, 1.3, 1.1, 1.4, 1.2, 1.1, 1.3), 1, ""), NotReproduced, ""},
		{Within(ratioOf(1.1, 1.2, 1.3, 1.1, 1.4, 1.2, 1.1, 1.3), 0.5, 1.5, ""), Reproduced, ""},
		{Within(ratioOf(1.1, 1.2, 1.3, 1.1, 1.6, 1.2, 1.1, 1.3), 0.5, 1.5, ""), NotMeasurable, TooNoisy},
		{Within(ratioOf(2.1, 2.2, 2.3, 2.0, 2.4, 2.2, 2.1, 2.3), 0.5, 1.5, ""), NotReproduced, ""},
		{Alike(ratioOf(1.01, 0.99, 1, 1, 1.01, 0.98, 1, 1), 0.05, ""), Reproduced, ""},
		{Alike(ratioOf(1.21, 0.79, 1, 1, 1.01, 0.98, 1, 1), 0.05, ""), NotMeasurable, TooNoisy},
		// they differ, by less
		{Alike(ratioOf(1.01, 1.02, 1.01, 1.02, 1.01, 1.02, 1.03, 1.02), 0.05, ""), Reproduced, ""},
		{Alike(ratioOf(1.04, 1.06, 1.04, 1.06, 1.04, 1.06, 1.04, 1.06), 0.05, ""), NotMeasurable, TooNoisy},
		{Alike(ratioOf(1.11, 1.12, 1.11, 1.12, 1.11, 1.12, 1.13, 1.12), 0.05, ""), NotReproduced, ""},
		{All(Verdict{Verdict: Reproduced}, Verdict{Verdict: NotMeasurable}), NotMeasurable, ""},
		{All(Verdict{Verdict: NotMeasurable}, Verdict{Verdict: NotReproduced}), NotReproduced, ""},
		{All(Verdict{Verdict: Reproduced}, Verdict{}), NotMeasurable, ""}, // a part was not measured
		{All(Verdict{}, Verdict{Verdict: Reproduced}), NotMeasurable, ""},
		{All(Holds(true, "", ""), AtLeast(busy, 2, "")), NotMeasurable, TooNoisy},
		{All(Holds(false, "", ""), AtLeast(busy, 2, "")), NotReproduced, ""},
	} {
		if c.got.Verdict != c.want || c.got.Reason != c.because {
			t.Errorf("%s: %s (%s: %s), want %s (%s)", c.got.Here, c.got.Verdict, c.got.Reason, c.got.Why, c.want,
				c.because)
		}
	}
}

// TestVerdictSaysWhatWouldTell: a claim that could not be judged names the command that may do it.
func TestVerdictSaysWhatWouldTell(t *testing.T) {
	e := Experiment{
		Name: "crc",
		Claims: []Claim{{
			Claim: "a is quick",
			Judge: func(View) (Verdict, bool) { return AtLeast(ratioOf(1, 2), 1, ""), true },
		}},
	}
	want := "Too few rounds: 2, a verdict needs 8. `tallywheel lab run crc --full --out lab-results-crc` may tell, on a machine that does nothing else."
	if got := e.judge(View{&ExperimentResult{}}, Quick()); got[0].Why != want {
		t.Errorf("%q, want %q", got[0].Why, want)
	}
	// who has run --full is not told to run it, but what is more than that, if there is something
	want = "Too few rounds: 2, a verdict needs 8. `tallywheel lab run crc --full --budget 20m --out lab-results-crc` may tell, on a machine that does nothing else."
	if got := e.judge(View{&ExperimentResult{Rounds: 2}}, Full()); got[0].Why != want {
		t.Errorf("%q, want %q", got[0].Why, want)
	}
	elsewhere := Full()
	elsewhere.Dir, elsewhere.CPU = "/mnt/a disk", 1
	want = "`tallywheel lab run crc --full --budget 20m --dir '/mnt/a disk' --cpu 1 --out lab-results-crc`"
	if got := e.judge(View{&ExperimentResult{Rounds: 2}}, elsewhere); !strings.Contains(got[0].Why, want) {
		t.Errorf("%q of a run elsewhere, want %q", got[0].Why, want)
	}
	if got := e.judge(View{&ExperimentResult{Rounds: 40}}, Full()); strings.Contains(got[0].Why, "lab run") {
		t.Errorf("%q after all the rounds of --full", got[0].Why)
	}
}

// who is a contestant of a name.
func who(name string) *Contestant { return &Contestant{Name: name} }

// TestBusyMachineJudgesNothing: of a row in whose rounds others had the machine, nothing is said.
func TestBusyMachineJudgesNothing(t *testing.T) {
	row := func(name, disturbs string, amount float64, v ...float64) Row {
		m := map[string]Figure{"ns_per_op": Summarise("ns", v)}
		if disturbs != "" {
			m[disturbs] = Summarise("", []float64{amount, amount})
		}
		return Row{Contestant: name, Metrics: m}
	}
	slow, quick := []float64{2, 2, 2, 2, 2, 2, 2, 2}, []float64{1, 1, 1, 1, 1, 1, 1, 1}
	for _, c := range []struct {
		disturbs string
		amount   float64
		judged   bool
	}{
		{"", 0, true},
		{"others_percent", 14, true},
		{"others_percent", 16, false},
		{"steal_percent", 2, true},
		{"steal_percent", 4, false},
		{"throttled", 1, false},
	} {
		v := View{&ExperimentResult{Rows: []Row{
			row("slow", c.disturbs, c.amount, slow...),
			row("quick", "", 0, quick...),
		}}}
		r, ok := v.Ratio(who("slow"), who("quick"), nil, NsPerOp)
		if verdict := AtLeast(r, 2, ""); !ok || (verdict.Verdict == Reproduced) != c.judged {
			t.Errorf("%s %g: %+v", c.disturbs, c.amount, verdict)
		}
		level, ok := v.Level(who("quick"), nil, NsPerOp, 2)
		if verdict := AtMost(level, 0.5, ""); !ok || verdict.Verdict != Reproduced {
			t.Errorf("%s %g, on one that was not disturbed: %+v", c.disturbs, c.amount, verdict)
		}
	}
}

// TestAllAtMost: the verdict on several is that on the worst of them, which are named, and none if
// one was not measured.
func TestAllAtMost(t *testing.T) {
	row := func(name string, v float64) Row {
		var rounds []float64
		for i := range MinRounds {
			rounds = append(rounds, v*(1+float64(i)/100))
		}
		return Row{Contestant: name, Metrics: map[string]Figure{"ns_per_op": Summarise("ns", rounds)}}
	}
	v := View{&ExperimentResult{Rows: []Row{row("base", 10), row("good", 5), row("bad", 20)}}}
	claim := func(of ...string) Claim {
		var all []*Contestant
		for _, name := range of {
			all = append(all, who(name))
		}
		return AllAtMost("", Goal("≤ 1×"), all, who("base"), nil, NsPerOp, 1, "why")
	}
	for _, c := range []struct {
		of         []string
		want, here string
	}{
		{[]string{"good", "bad"}, NotReproduced, "good 0.50× (0.50–0.50); bad 2.00× (2.00–2.00)"},
		{[]string{"good"}, Reproduced, "0.50× (0.50–0.50)"},
	} {
		if got, ok := claim(c.of...).Judge(v); !ok || got.Verdict != c.want || got.Here != c.here {
			t.Errorf("%v: %+v, %v", c.of, got, ok)
		}
	}
	if got, ok := claim("good", "absent").Judge(v); ok {
		t.Errorf("%+v of one that was not measured", got)
	}
}

// TestBest: who is best is said if it beats all others by more than chance, be more better or less.
func TestBest(t *testing.T) {
	row := func(name string, v ...float64) Row {
		return Row{
			Contestant: name,
			Metrics:    map[string]Figure{"ns_per_op": Summarise("ns", v), "ops_per_s": Summarise("1/s", v)},
		}
	}
	v := View{&ExperimentResult{Rows: []Row{
		row("low", 1, 1.1, 1, 1.1, 1, 1.1, 1, 1.1), row("same", 1.1, 1, 1.1, 1, 1.1, 1, 1.1, 1),
		row("high", 2, 2.1, 2, 2.1, 2, 2.1, 2, 2.1), row("few", 9, 9, 9),
	}}}
	for _, c := range []struct {
		metric string
		of     []string
		best   string
		sure   bool
	}{
		{"ops_per_s", []string{"low", "same", "high"}, "high", true},
		{"ns_per_op", []string{"high", "low"}, "low", true},
		{"ns_per_op", []string{"same", "low", "high"}, "same", false},
		{"ops_per_s", []string{"high", "few"}, "high", false},
		{"ops_per_s", []string{"high", "absent"}, "high", false},
	} {
		var of []*Contestant
		for _, name := range c.of {
			of = append(of, who(name))
		}
		if best, sure := v.Best(nil, Named(c.metric), of...); best.Name != c.best || sure != c.sure {
			t.Errorf("%s of %v: %s, %v", c.metric, c.of, best.Name, sure)
		}
	}
}

// ExampleRatio shows what is said of two that do not differ.
func ExampleRatio() {
	a, b := []float64{10, 11, 12, 10, 9, 10, 11, 10}, []float64{10.1, 10.9, 12.2, 9.9, 9, 10.1, 10.8, 10.1}
	r, _ := Compare(a, b)
	fmt.Printf("%v, differ: %v, no difference above %.0f %%\n", r, r.Differ(), 100*r.Unseen())
	// Output: 1.00× (0.98–1.02), differ: false, no difference above 2 %
}
