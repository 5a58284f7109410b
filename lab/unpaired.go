package lab

import (
	"math"
	"slices"
)

// apart is the fewest rounds of each of two runs by which they can be told apart: of four a side,
// even the clearest order comes by chance once in 35.
const apart = 5

// CompareRuns makes a ratio of the rounds of one run to those of another, which nothing pairs: the
// Hodges-Lehmann estimate, and the interval of the Mann-Whitney test at 99 %, of the logarithms.
// They differ if 1 is outside the interval. It returns false if there are too few rounds, or a
// figure is below 0. What went on on either machine meanwhile is part of the difference. The rounds
// of one run are compared by [Compare].
func CompareRuns(a, b []float64) (r Ratio, ok bool) {
	if len(a) < apart || len(b) < apart || slices.Min(a) < 0 || slices.Min(b) < 0 {
		return Ratio{}, false
	}
	all := make([]float64, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			d := math.Log(x) - math.Log(y)
			if x == y { // both may be 0
				d = 0
			}
			all = append(all, d)
		}
	}
	slices.Sort(all)
	k := outside(len(a), len(b))
	return Ratio{Median: math.Exp(Median(all)), Lo: math.Exp(all[k]), Hi: math.Exp(all[len(all)-1-k])}, true
}

// outside returns how many of the differences between n and m values may be of one sign, and the
// two come by chance from the same source in at most alpha ÷ 2 of cases: the lower quantile of the
// Mann-Whitney statistic (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 4.1 to
// 4.3). There are as many orders of the values with so many as the power of q has in the Gaussian
// binomial coefficient, the product of (1 − q^(m+i)) ÷ (1 − q^i) for i from 1 to n.
func outside(n, m int) int {
	orders := make([]float64, n*m+1)
	orders[0] = 1
	for i := 1; i <= n; i++ {
		for u := len(orders) - 1; u >= m+i; u-- {
			orders[u] -= orders[u-m-i]
		}
		for u := i; u < len(orders); u++ {
			orders[u] += orders[u-i]
		}
	}
	total := sum(orders)
	below := 0.0
	for u, count := range orders {
		if below += count / total; below > alpha/2 {
			return max(0, u-1)
		}
	}
	return 0
}
