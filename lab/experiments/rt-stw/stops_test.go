package rtstw

import (
	"math"
	"runtime"
	"runtime/metrics"
	"slices"
	"testing"
	"time"
)

// TestSince lists what came between two looks at a histogram.
func TestSince(t *testing.T) {
	bounds := []float64{math.Inf(-1), 0, 1e-6, 2e-6, math.Inf(1)}
	before := &metrics.Float64Histogram{Counts: []uint64{0, 5, 1, 0}, Buckets: bounds}
	now := &metrics.Float64Histogram{Counts: []uint64{0, 7, 1, 1}, Buckets: bounds}
	if got := since(before, now); !slices.Equal(got, []int64{1000, 1000, 2000}) {
		t.Errorf("%v", got)
	}
}

// TestStopsAreCounted: the runtime has the histograms, and counts a collection in them.
func TestStopsAreCounted(t *testing.T) {
	for _, part := range []string{"total", "stopping"} {
		for by, stop := range map[string]func(){
			byCollector: runtime.GC,
			byOthers:    func() { runtime.ReadMemStats(new(runtime.MemStats)) },
		} {
			before := counted("/sched/pauses/" + part + "/" + by)
			stop()
			if got := since(before, counted("/sched/pauses/"+part+"/"+by)); len(got) == 0 {
				t.Errorf("%s, %s: nothing is counted", part, by)
			}
		}
	}
}

// TestMore: a turn goes on until there are stops enough, and ends by its time if there are none.
func TestMore(t *testing.T) {
	n := 0
	more(time.Now().Add(time.Hour), func() int { n += enough / 2; return n })
	if n != enough {
		t.Errorf("it went on until there were %d stops, want %d", n, enough)
	}
	more(time.Now(), func() int { return 0 })
}
