package board

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tallywheel/tallywheel/lab"
)

// results makes of what boards have said what the laboratory writes.
func results(b *lab.Bench, c Config, began time.Time, all []boots) *lab.Results {
	r := &lab.Results{Schema: lab.Schema, Started: began.UTC().Truncate(time.Second)}
	r.Machine = *all[0].same[0].lines[0].Machine
	experiments := []*lab.Experiment{cyclic(all), switches()}
	if c.Target == nil {
		r.Machine.Virtual = "QEMU virt, one Cortex-A7, its time by instructions, 8 ns each"
		experiments = append(experiments, starts(all))
	}
	for _, e := range experiments {
		result := b.Result(e, turnsOf(c, e, all))
		for _, of := range all {
			result.Rounds = max(result.Rounds, len(of.same))
		}
		r.Experiments = append(r.Experiments, result)
	}
	r.Experiments[0].Seconds = time.Since(began).Seconds() // of all of them
	return r
}

// turnsOf are the rounds of an experiment: one a boot.
func turnsOf(c Config, e *lab.Experiment, all []boots) (turns []lab.Turns) {
	for _, of := range all {
		if slices.Contains(e.Contestants, asInit) {
			turns = append(turns, of.starts(of.same, "one"), of.starts(of.seeded, "its own"))
			continue
		}
		for _, t := range tasks {
			if !slices.Contains(e.Contestants, t.c) {
				continue
			}
			cell := lab.Params{"kernel": of.kernel}
			if t.periodic {
				cell["interval_us"] = fmt.Sprint(c.Interval.Microseconds())
			}
			one := lab.Turns{Contestant: t.c, Cell: cell, NotRun: of.notRun[t.c.Name]}
			for _, h := range of.same {
				add(&one, h)
			}
			turns = append(turns, one)
		}
	}
	return turns
}

// add adds what a boot has said of a contestant.
func add(to *lab.Turns, h heard) {
	for _, l := range h.lines {
		if l.What != turn || l.Contestant != to.Contestant.Name || to.NotRun != "" {
			continue
		}
		if to.Said, to.NotRun = l.Said, l.NotRun; l.NotRun == "" {
			to.Rounds = append(to.Rounds, l.Metrics)
		}
	}
}

// starts are the times from the kernel's start to the first line, and how they scatter.
func (of boots) starts(some []heard, seed string) lab.Turns {
	t := lab.Turns{Contestant: asInit, Cell: lab.Params{"kernel": of.kernel, "seed": seed}}
	var up []float64
	for _, h := range some {
		up = append(up, time.Duration(h.lines[0].Up).Seconds())
		t.Rounds = append(t.Rounds, lab.Metrics{lab.FirstLine.String(): up[len(up)-1]})
	}
	mean, deviation, p95 := spread(up)
	t.Rounds[0][lab.Stddev.String()] = deviation * 1e6 // of all of them
	t.Said = fmt.Sprintf("mean %.6f s, standard deviation %.6f, 95 %% within %.6f", mean, deviation, p95)
	return t
}

// spread is the mean, the standard deviation and the value at 95 % of some, of which there is one.
func spread(v []float64) (mean, deviation, p95 float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		deviation += (x - mean) * (x - mean) / float64(max(1, len(v)-1))
	}
	sorted := slices.Sorted(slices.Values(v))
	if sorted[0] == sorted[len(v)-1] {
		return sorted[0], 0, sorted[0] // the sum above is rounded
	}
	return mean, math.Sqrt(deviation), sorted[len(v)*95/100]
}

func cyclic(all []boots) *lab.Experiment {
	return &lab.Experiment{
		Name: "board-cyclic", Plane: lab.RealTime,
		Question: "How late does a program wake up that does something each period, on a board?",
		Method: "As rt-cyclic, on a board with nothing else to do; a round is a boot. Where the board is emulated and its time goes by instructions, the figures are how many instructions it takes, and not how " +
			"long a real Cortex-A7 takes for them: there are no caches and no waiting for memory.",
		Metrics: []lab.Metric{
			lab.LatencyMax, lab.LatencyP50, lab.LatencyP99, lab.PeriodStddev, lab.MissedReleases,
			lab.FaultsAfterSetUp, lab.AllocsAfterSetUp,
		},
		Base: inC, Contestants: []*lab.Contestant{ofCell, ticker, inC, inRust},
		Claims: []lab.Claim{
			lab.AllAtMost("On a board, a cell's longest wake-up takes as long as that of a program in C.", lab.Goal("≤ 1.5×"),
				[]*lab.Contestant{ofCell}, inC, nil, lab.LatencyMax, 1.5, "The same call, on a thread of its own."),
			{Claim: "The recorder has each line of a board, and its books balance.", Source: lab.Goal("all lines, balanced"), Judge: func(lab.View) (lab.Verdict, bool) {
				return ofAll(all, "%d of %d on %s", "A terminal waits until it is read.",
					func(_ boots, h heard) string { return h.whole() }, true)
			}},
		},
		Again: fmt.Sprintf("tallywheel lab board --boots %d", lab.MinRounds),
	}
}

func switches() *lab.Experiment {
	return &lab.Experiment{
		Name: "board-switch", Plane: lab.RealTime,
		Question: "What does it cost to go from one task to the next, on a board?",
		Method:   "As rt-switch; a round is a boot. On the emulated board an instruction takes 8 ns, so time ÷ 8 ns is how many instructions a switch has.",
		Metrics:  []lab.Metric{lab.NsPerOp}, Base: threads,
		Contestants: []*lab.Contestant{routines, threads},
	}
}

func starts(all []boots) *lab.Experiment {
	return &lab.Experiment{
		Name: "board-start", Plane: lab.RealTime,
		Question: "How long does it take from the kernel's start to the first line of a program of Go that is /init, and is it the same each time?",
		Method: "By the kernel's clock, which begins early in its start. seed=one: the boots of the other experiments; with its own each boot has other random numbers, and other places of programs in memory. " +
			"Boots are alike if all that they print is, to the last byte.",
		Metrics: []lab.Metric{lab.FirstLine, lab.Stddev}, Contestants: []*lab.Contestant{asInit},
		Claims: []lab.Claim{
			{Claim: "Boots of a board whose time goes by instructions are alike, to the last byte that they print.", Source: lab.Goal("10 of 10 boots"), Judge: func(lab.View) (lab.Verdict, bool) {
				return ofAll(all, "%d of %d boots of %s", "Nothing of the host is in its time, and nothing reaches it from outside.",
					func(of boots, h heard) string {
						return lab.Or(h.sum == of.same[0].sum, "", "it differs from the first")
					}, false)
			}},
		},
	}
}

// ofAll judges what must be so of each boot; wrong says why it is not.
func ofAll(all []boots, form, why string, wrong func(boots, heard) string, seeded bool) (lab.Verdict, bool) {
	var parts []lab.Verdict
	for _, of := range all {
		some := of.same
		if seeded {
			some = slices.Concat(some, of.seeded)
		}
		n, reason := 0, why
		for i, h := range some {
			if said := wrong(of, h); said == "" {
				n++
			} else if reason == why {
				reason = fmt.Sprintf("Boot %d: %s.", i+1, said)
			}
		}
		part := lab.Holds(n == len(some), fmt.Sprintf(form, n, len(some), of.kernel), why)
		if n < len(some) {
			part = part.IfNot(reason)
		}
		parts = append(parts, part)
	}
	return lab.All(parts...), true
}
