package rtsuite

import (
	"slices"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/lab/suite"
)

// parts reports what each part of a measurement took.
func parts() suite.Observer { return observer{} }

type observer struct{}

func (observer) Begin(int) error { return nil }

func (observer) Report(t *contestant.Turn, took time.Duration, ticksPerNs float64, all []suite.Sample) error {
	var late []int64
	var stamp, aggregate, push []float64
	for _, s := range all {
		late = append(late, int64(s.Woke-s.Due))
		stamp, aggregate, push = append(stamp, s.Stamp), append(aggregate, s.Aggregate), append(push, s.Push)
	}
	if err := t.Found("%.3f ticks are a ns", ticksPerNs); err != nil {
		return err
	}
	values := append(contestant.Latencies(late), contestant.Value{Metric: "stamp_ns_p50", V: middle(stamp)},
		// the first had none before it
		contestant.Value{Metric: "aggregate_ns_p50", V: middle(aggregate)},
		contestant.Value{Metric: "push_ns_p50", V: middle(push[1:])})
	return t.Result(took, uint64(len(late)), values...)
}

func middle(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
