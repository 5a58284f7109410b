// Package filemmapseek asks whether a map reads a large file at random faster than seek and read.
package filemmapseek

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/bigfile"
	"github.com/tallywheel/tallywheel/lab/claims"
)

func init() {
	of := func(name, how, backend string) lab.Contestant {
		return lab.Ours(name, "seek", "how="+how, "backend="+backend)
	}
	lab.Register(&lab.Experiment{
		Name: "file-mmap-seek", Plane: lab.Files,
		Question: "Does a map read a large file at random faster than seek and read?",
		Method: "4 KiB at random offsets of a file of 1 GiB (quick: 256 MiB), all of it in the page cache or none of it at the beginning; copied out in every case. Of a cold file at most one block in 16 is read in a turn, " +
			"and what of it is cached at the end is shown: who reads ahead has more, so its reads are not cold any more.",
		Metrics: []lab.Metric{lab.OpsPerSecond, lab.LatencyP50, lab.LatencyP99, lab.PageFaultsPerOp, lab.MajorFaultsPerOp, lab.CPUPerOp, lab.CachedPercent},
		Base:    "seek+read",
		Cells:   func(lab.Options) []lab.Params { return lab.Cells("state", "cached", "cold") },
		Contestants: []lab.Contestant{
			of("seek+read", "seek", "std"), of("ReadAt", "at", "std"), of("mmap", "at", "mmap").But("MADV_RANDOM"), of("mmap/sequential", "at", "mmap-sequential").But("MADV_SEQUENTIAL: the kernel reads ahead, and much of the file is cached soon"),
		},
		Prepare: bigfile.Large, Scene: bigfile.Scene,
		Advice: func(v lab.View) string {
			a, ok1 := v.Medians(lab.Params{"state": "cached"}, lab.OpsPerSecond, "mmap", "ReadAt")
			b, ok2 := v.Medians(lab.Params{"state": "cold"}, lab.OpsPerSecond, "mmap", "ReadAt")
			if !ok1 || !ok2 {
				return ""
			}
			pays := func(state string) string {
				return lab.Or(v.Beats("mmap", "ReadAt", lab.Params{"state": state}, lab.OpsPerSecond), "pays", "does not pay")
			}
			return fmt.Sprintf("A map %s for cached data (%.2f against %.2f million reads a second), and %s where nothing was cached before (%.0f against %.0f).", pays("cached"), a[0]/1e6, a[1]/1e6, pays("cold"), b[0], b[1])
		},
		Claims: []lab.Claim{
			claims.MapThroughput.Judged("mmap and seek+read at state=cached", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio("mmap", "seek+read", lab.Params{"state": "cached"}, lab.OpsPerSecond)
				return lab.AtLeast(r, 1.15, "Two system calls are spared; page faults come once a page."), ok
			}),
			claims.MapP99.Judged("mmap and seek+read at state=cold", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio("mmap", "seek+read", lab.Params{"state": "cold"}, lab.LatencyP99)
				return lab.AtMost(r, 0.8, "What is not cached waits for the disk either way."), ok
			}),
			claims.MapFaults.Judged("mmap at state=cold", func(v lab.View) (lab.Verdict, bool) {
				a, ok1 := v.Median("mmap", lab.Params{"state": "cold"}, lab.PageFaultsPerOp)
				b, ok2 := v.Median("mmap", lab.Params{"state": "cold"}, lab.MajorFaultsPerOp)
				return lab.Holds(a+b >= 0.7 && a+b <= 1.3, fmt.Sprintf("%.2f faults a read, %.2f of them major", a+b, b), "Until the pages are mapped; then none."), ok1 && ok2
			}),
		},
	})
}
