package lab

import (
	"math"
	"slices"
)

const (
	confidence = 0.95 // of the interval of a single figure
	// two contestants differ if chance makes such rounds less often than this: 1 %, less what
	// looking after each round costs
	alpha = 0.008
)

// Figure summarises the rounds of one metric: the median, an interval of order statistics that
// holds the true median at 95 % or, of five rounds or fewer, their range; and the rounds
// themselves. Rounds are their numbers, from 0, where a round before them has no such figure, as a
// percentile of too few values; else nil: sample i is of round i.
type Figure struct {
	Unit    string    `json:"unit"`
	Median  float64   `json:"median"`
	Lo      float64   `json:"lo"`
	Hi      float64   `json:"hi"`
	N       int       `json:"n"`
	Samples []float64 `json:"samples,omitempty"`
	Rounds  []int     `json:"rounds,omitempty"`
	// of what was lost or went wrong, over all rounds: what is lost in few of them has a median
	// of 0
	Total *float64 `json:"total,omitempty"`
}

// Round is the number, from 0, of the round that a sample is of.
func (f Figure) Round(sample int) int {
	if f.Rounds == nil {
		return sample
	}
	return f.Rounds[sample]
}

// together are the samples of the rounds that both figures have, in the order of the rounds.
func together(f, g Figure) (a, b []float64) {
	for i, j := 0, 0; i < len(f.Samples) && j < len(g.Samples); {
		switch r, s := f.Round(i), g.Round(j); {
		case r < s:
			i++
		case r > s:
			j++
		default:
			a, b = append(a, f.Samples[i]), append(b, g.Samples[j])
			i, j = i+1, j+1
		}
	}
	return a, b
}

// Summarise makes a figure of at least one sample, in the order of the rounds.
func Summarise(unit string, samples []float64) Figure {
	v := slices.Clone(samples)
	slices.Sort(v)
	lo, hi := medianInterval(len(v))
	return Figure{Unit: unit, Median: Median(v), Lo: v[lo], Hi: v[hi], N: len(v), Samples: samples}
}

// figureOf summarises a metric of rounds, some of which may lack it; false if all do.
func figureOf(rounds []Metrics, name string) (f Figure, ok bool) {
	var samples []float64
	var numbers []int
	for i, m := range rounds {
		if x, ok := m[name]; ok {
			samples, numbers = append(samples, x), append(numbers, i)
		}
	}
	if len(samples) == 0 {
		return f, false
	}
	f = Summarise(Describe(name).Unit, samples)
	if numbers[len(numbers)-1] != len(numbers)-1 {
		f.Rounds = numbers
	}
	return f, true
}

// Median of at least one value.
func Median(values []float64) float64 {
	v := slices.Clone(values)
	slices.Sort(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

func sum(values []float64) (s float64) {
	for _, v := range values {
		s += v
	}
	return s
}

func mean(values []float64) float64 { return sum(values) / float64(max(1, len(values))) }

// medianInterval returns the ranks, from 0, of the narrowest symmetric interval that holds the
// median with the confidence, whatever the distribution: the number of values below the median is
// binomial (n, ½). If there are too few values the whole range is as good as it gets.
func medianInterval(n int) (lo, hi int) {
	below := math.Pow(0.5, float64(n)) // P(at most k values below), k = 0
	term := below
	for k := 0; k < n/2; k++ {
		if 2*below > 1-confidence {
			break
		}
		lo = k
		term *= float64(n-k) / float64(k+1)
		below += term
	}
	return lo, n - 1 - lo
}
