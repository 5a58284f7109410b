package rtcyclic

import (
	"context"
	"time"

	"github.com/tallywheel/tallywheel/cell/cyclic"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/lab/load"
)

// priority is in SCHED_FIFO, of every contestant, where that is allowed.
const priority = 80

// patience is how much longer than its time a turn may take: a cell is a process, which has to
// start.
const patience = 20 * time.Second

// wait is a contestant that wakes up each period by a style of ours.
func wait(style cyclic.Style) contestant.Work {
	return func(t *contestant.Turn) error {
		if t.Text("load") == load.SameGC { // in this process; the others are the laboratory's
			defer load.Burden(load.GC)()
		}
		if _, err := t.Ready(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), t.Seconds()+patience)
		defer cancel()
		every := time.Duration(t.Int("interval_us", 1000)) * time.Microsecond
		r, err := cyclic.Run(ctx,
			cyclic.Config{Style: style, Interval: every, Count: max(1, uint64(t.Seconds()/every)), Priority: priority})
		if err != nil {
			return err
		}
		took, err := t.Done()
		if err != nil {
			return err
		}
		for _, l := range r.Lacking {
			if err := t.Found("not as it should be: %s", l); err != nil {
				return err
			}
		}
		return t.Result(took, r.Cycles, values(style, r)...)
	}
}

// values are the figures of a result; a percentile is left out that has fewer than five beyond it.
func values(style cyclic.Style, r cyclic.Result) []contestant.Value {
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	v := []contestant.Value{
		{Metric: "missed_releases", V: float64(r.Missed)},
		{Metric: "period_stddev_us", V: us(r.PeriodStddev)},
		{Metric: "latency_us_max", V: us(r.Latency.Max)},
	}
	for _, p := range []struct {
		name  string
		share float64
	}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}, {"p9999", 0.9999}} {
		if beyond := float64(r.Latency.Count) * (1 - p.share); p.share < 0.99 || beyond >= 5 {
			v = append(v, contestant.Value{Metric: "latency_us_" + p.name, V: us(r.Latency.Quantile(p.share))})
		}
	}
	if style == cyclic.Cell {
		v = append(v, contestant.Value{Metric: "faults_after_setup", V: float64(r.MinorFaults + r.MajorFaults)},
			contestant.Value{Metric: "allocs_after_setup", V: float64(r.Allocs)})
	}
	return v
}
