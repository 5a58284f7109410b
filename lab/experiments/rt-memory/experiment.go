// Package rtmemory asks what hours of allocation leave of a bounded memory.
package rtmemory

import (
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

const bulk = "what others keep is let go at once when it is as much"

var (
	ofHeap  = lab.Ours("go/heap", churn(newHeap)).But("GOMEMLIMIT is the bound; nothing is refused")
	ofArena = lab.Ours("go/arena", churn(newArena)).But(bulk)
	ofList  = lab.Ours("go/arena with pointers",
		churn(newList)).But(bulk + "; each block hangs on a node of a typed slab, whose room is no block's")
	malloc   = lab.C("memory.c", "apt install gcc").As("c/malloc", "memory")
	jemalloc = lab.C("memory.c", "apt install libjemalloc-dev", "-ljemalloc").As("c/jemalloc", "memory")
	mimalloc = lab.C("memory.c", "apt install libmimalloc-dev", "-lmimalloc").As("c/mimalloc", "memory")
	bumpalo  = lab.Cargo("memory").As("rust/bumpalo", "memory").But(bulk)
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "rt-memory", Plane: lab.RealTime,
		Question: "What do hours of allocation leave of a bounded memory, by a heap and by an arena?",
		Method: "The allocations of a device, 100 a second of 16 bytes to 8 KiB whose sizes change each quarter of an hour, are made as fast as they go: simulated_hours says how many hours of the device a turn has. 32 of 64 MiB live at most; each allocation " +
			"replaces one drawn by chance. At the end blocks of 2 MiB are asked for: fragmentation_percent is 1 − those to be had ÷ those that there should be, the formula of tallywheel memfrag, within the bound (in C RLIMIT_DATA). dead_percent is the " +
			"share of the resident memory in which nothing lives that was asked for. The arenas keep nothing beyond a reset: they do not solve the same problem. In the one with pointers an eighth of the bound is for nodes, which the collector looks into; huge pages are not to be had from that.",
		Metrics: []lab.Metric{
			lab.FragmentationPercent, lab.FailedAllocations, lab.DeadPercent, lab.NsPerOp,
			lab.SimulatedHours,
		},
		Base: malloc, Turn: 2 * time.Second,
		Contestants: []*lab.Contestant{ofHeap, ofArena, ofList, malloc, jemalloc, mimalloc, bumpalo},
		Chart:       lab.Chart{Metric: lab.DeadPercent.String()},
		Advice: func(v lab.View) string {
			m, ok := v.Beside(nil, lab.FragmentationPercent, "%.0f %%", 1, ofHeap, malloc, ofArena, ofList)
			n, ok2 := v.Medians(nil, lab.SimulatedHours, ofHeap, malloc, ofArena, ofList)
			if !ok || !ok2 {
				return ""
			}
			text := fmt.Sprintf("After %.0f hours of a device Go's heap lacked %s of the huge pages that there should have been, malloc after %.0f hours %s, an arena in Go after %.0f hours %s, one with pointers after %.0f hours %s.",
				n[0], m[0], n[1], m[1], n[2], m[2], n[3], m[3])
			if v.Beats(ofArena, ofHeap, nil, lab.FragmentationPercent) {
				text += " Where all ends with a piece of work, take an arena."
			}
			return text
		},
		Claims: []lab.Claim{
			claims.ArenaFragments.Judged(lab.Needs(nil, malloc, bumpalo), func(v lab.View) (lab.Verdict, bool) {
				const why = "The article's hours are not told apart from its sizes. From half to twice its fragmentation is let pass here, and any failure of malloc."
				r, ok := v.Level(malloc, nil, lab.FragmentationPercent, 38.7)
				m, ok2 := v.Median(malloc, nil, lab.FragmentationPercent)
				refused, ok3 := v.Sum(malloc, nil, lab.FailedAllocations)
				arena, ok4 := v.Largest(bumpalo, nil, lab.FragmentationPercent)
				failed, ok5 := v.Sum(bumpalo, nil, lab.FailedAllocations)
				return lab.All(
					lab.Within(r, 0.5, 2, why).As("malloc %.1f %% at the median", m),
					lab.Holds(refused > 0, fmt.Sprintf("%.0f failures", refused), why),
					lab.Holds(arena == 0 && failed == 0, fmt.Sprintf("the arena in Rust at most %.1f %% in a round, and %.0f", arena, failed), why),
				), ok && ok2 && ok3 && ok4 && ok5
			}),
		},
	})
}
