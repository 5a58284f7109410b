// Package memoryreturn asks what it costs to give memory back to the kernel.
package memoryreturn

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

func init() {
	with := func(name string, env ...string) lab.Contestant {
		c := lab.Ours(name, "give-back")
		c.Env = env
		return c
	}
	lab.Register(&lab.Experiment{
		Name: "memory-return", Plane: lab.Memory,
		Question: "What does it cost to give memory back to the kernel, and does madvdontneed change it?",
		Method:   "64 MiB are made, touched, and given back by debug.FreeOSMemory, again and again: making and touching are part of the time.",
		Metrics:  []lab.Metric{lab.NsPerOp, lab.CPUPerOp, lab.PageFaultsPerOp, lab.RSS}, Base: "as it is", Turn: 500e6,
		Contestants: []lab.Contestant{with("as it is"), with("madvdontneed=1", "GODEBUG=madvdontneed=1"), with("madvdontneed=0", "GODEBUG=madvdontneed=0").But("MADV_FREE: the kernel takes it when it needs some")},
		Advice: func(v lab.View) string {
			m, ok := v.Median("as it is", nil, lab.NsPerOp)
			r, ok2 := v.Ratio("madvdontneed=0", "as it is", nil, lab.NsPerOp)
			if !ok || !ok2 {
				return ""
			}
			return fmt.Sprintf("To make, touch and give back 64 MiB takes %.1f ms; with madvdontneed=0 %v of that, and the memory still counts as the program's.", m/1e6, r)
		},
		Claims: []lab.Claim{
			claims.MadvDontNeed.Judged("madvdontneed=1 and as it is", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio("madvdontneed=1", "as it is", nil, lab.NsPerOp)
				return lab.AtMost(r, 0.95, "It is the default since Go 1.16, and is about Go's heap: what is mapped by mmap it does not touch."), ok
			}),
		},
	})
}
