// Package memoryreturn asks what it costs to give memory back to the kernel.
package memoryreturn

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

var (
	asItIs   = lab.Ours("as it is", giveBack)
	dontNeed = lab.Ours("madvdontneed=1", giveBack).With("GODEBUG=madvdontneed=1")
	free     = lab.Ours("madvdontneed=0",
		giveBack).With("GODEBUG=madvdontneed=0").But("MADV_FREE: the kernel takes it when it needs some")
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "memory-return", Plane: lab.Memory,
		Question: "What does it cost to give memory back to the kernel, and does madvdontneed change it?",
		Method:   "64 MiB are made, touched, and given back by debug.FreeOSMemory, again and again: making and touching are part of the time.",
		Metrics:  []lab.Metric{lab.NsPerOp, lab.CPUPerOp, lab.PageFaultsPerOp, lab.RSS}, Base: asItIs, Turn: 500e6,
		Contestants: []*lab.Contestant{asItIs, dontNeed, free},
		Advice: func(v lab.View) string {
			m, ok := v.Median(asItIs, nil, lab.NsPerOp)
			r, ok2 := v.Ratio(free, asItIs, nil, lab.NsPerOp)
			held, ok3 := v.Ratio(free, asItIs, nil, lab.RSS)
			if !ok || !ok2 || !ok3 {
				return ""
			}
			return fmt.Sprintf("To make, touch and give back 64 MiB takes %.1f ms; with madvdontneed=0: %s, %v; memory that counts as the program's: %s, %v.",
				m/1e6, r.Tell("longer", "quicker"), r, held.Tell("more", "less"), held)
		},
		Claims: []lab.Claim{
			claims.MadvDontNeed.Judged("madvdontneed=1 and as it is", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(dontNeed, asItIs, nil, lab.NsPerOp)
				return lab.AtMost(r, 0.95, "Not by what it does, for it is the default since Go 1.16.").
					IfNot("It is the default since Go 1.16, and is about Go's heap: what is mapped by mmap it does not touch."), ok
			}),
		},
	})
}
