package lab

// GrowsAtMost is the verdict on a claim that a figure which may be below 0, as what grows or
// shrinks in a turn, is at most so much: by the interval of its rounds, as [View.AtMost] is of
// those that have ratios.
func (v View) GrowsAtMost(c *Contestant, cell Params, metric Metric, most float64, why string) (Verdict, bool) {
	r, ok := v.roundsOf(c, cell, metric)
	if !ok {
		return Verdict{}, false
	}
	mid, lo, hi, open := signedRank(r.Rounds, r.missing)
	r.open = open
	verdict := decide(r, hi <= most, lo > most, "≤ "+inUnit(metric, most), why)
	return verdict.As("%s (%s–%s)", inUnit(metric, mid), plain(lo, 2), plain(hi, 2)), true
}
