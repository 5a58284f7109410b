package load

import (
	"testing"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/loadgen"
)

// TestLatenciesOfFew: of too few requests there is no percentile.
func TestLatenciesOfFew(t *testing.T) {
	for n, want := range map[uint64][2]bool{16: {}, 499: {}, 500: {true}, 4999: {true}, 5000: {true, true}} {
		m := lab.Metrics{}
		latencies(m, loadgen.Latency{P50: 1, P90: 2, P99: 3, P999: 4, Max: 5}, n)
		_, p99 := m[lab.LatencyP99.String()]
		_, p999 := m[lab.LatencyP999.String()]
		if p99 != want[0] || p999 != want[1] || m[lab.LatencyMax.String()] != 5 {
			t.Errorf("of %d: %v, want 99 %% and 99.9 %%: %v", n, m, want)
		}
	}
}
