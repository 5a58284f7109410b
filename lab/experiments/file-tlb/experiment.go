// Package filetlb asks whether a touch of a mapped file costs more, the larger the file is.
package filetlb

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/bigfile"
	"github.com/tallywheel/tallywheel/lab/claims"
)

var mapped = lab.Ours("mmap", touchAtRandom)

func init() {
	lab.Register(&lab.Experiment{
		Name: "file-tlb", Plane: lab.Files,
		Question: "Does a touch of a mapped file cost more, the larger the file is?",
		Method: "One byte at a random place of the first so many MiB of a cached file that is mapped and was touched before: no page faults, but caches and the TLB know less of it, the larger it is. " +
			"Which of the two costs what only the CPU's counters would tell.",
		Metrics: []lab.Metric{lab.NsPerOp, lab.PageFaultsPerOp}, Chart: lab.Chart{Over: "mib"}, Turn: 300e6,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("mib", 1, 16, 256) },
		Contestants: []*lab.Contestant{mapped},
		Prepare:     bigfile.Binary(256),
		Scene:       bigfile.Scene,
		Advice: func(v lab.View) string {
			small, ok1 := v.Median(mapped, cell("1"), lab.NsPerOp)
			large, ok2 := v.Median(mapped, cell("256"), lab.NsPerOp)
			if !ok1 || !ok2 {
				return ""
			}
			r, _ := v.Across(mapped, cell("256"), mapped, cell("1"), lab.NsPerOp)
			return fmt.Sprintf("A random touch of a map takes %.1f ns in 1 MiB and %.1f ns in 256 MiB: %s.", small, large,
				r.Tell("keep together what is read together", "less in the larger one"))
		},
		Claims: []lab.Claim{
			claims.TLB.Judged("mmap at mib=1 and mib=256", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Across(mapped, cell("256"), mapped, cell("1"), lab.NsPerOp)
				return lab.AtLeast(r, 1.2,
					"The caches are part of it; a read has to take the bytes from the same memory.").
					IfNot("What misses in the TLB and in the caches costs less than the fifth that is asked for here."), ok
			}),
		},
	})
}

func cell(mib string) lab.Params { return lab.Params{"mib": mib} }
