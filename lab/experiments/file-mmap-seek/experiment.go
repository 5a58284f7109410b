// Package filemmapseek asks whether a map reads a large file at random faster than seek and read.
package filemmapseek

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/bigfile"
	"github.com/tallywheel/tallywheel/lab/claims"
)

var (
	seekRead = lab.Ours("seek+read", bigfile.SeekAndRead)
	readAt   = lab.Ours("ReadAt", bigfile.Std.ReadAt)
	mapped   = lab.Ours("mmap", bigfile.Map.ReadAt).But("MADV_RANDOM")
	ready    = lab.Ours("mmap+populate",
		bigfile.MapReady.ReadAt).For(lab.Params{"state": "cached"}).But("all pages are mapped before the time counts")
	huge = lab.Ours("mmap+huge",
		bigfile.MapHuge.ReadAt).For(lab.Params{"state": "cached"}).But("MADV_HUGEPAGE, which most file systems do not follow")
	inOrder = lab.Ours("mmap/sequential",
		bigfile.MapInOrder.ReadAt).But("MADV_SEQUENTIAL: the kernel reads ahead, and much of the file is cached soon")
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "file-mmap-seek", Plane: lab.Files,
		Question: "Does a map read a large file at random faster than seek and read?",
		Method: "4 KiB at random offsets of a file of 256 MiB, with --full 16 GiB where memory and disk have room for that, else 1 GiB; all of it in the page cache or none of it at the beginning; copied out in every case. " +
			"Of a cold file at most one block in 16 is read in a turn, and at most 100,000, " +
			"and what of it is cached at the end is shown: who reads ahead has more, so its reads are not cold any more.",
		Metrics: []lab.Metric{
			lab.OpsPerSecond, lab.LatencyP50, lab.LatencyP99, lab.PageFaultsPerOp,
			lab.MajorFaultsPerOp, lab.CPUPerOp, lab.CachedPercent,
		},
		Base:        seekRead,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("state", "cached", "cold") },
		Contestants: []*lab.Contestant{seekRead, readAt, mapped, ready, huge, inOrder},
		Prepare:     bigfile.Largest, Scene: bigfile.Scene,
		Advice: func(v lab.View) string {
			a, ok1 := v.Medians(lab.Params{"state": "cached"}, lab.OpsPerSecond, mapped, readAt)
			b, ok2 := v.Medians(lab.Params{"state": "cold"}, lab.OpsPerSecond, mapped, readAt)
			if !ok1 || !ok2 {
				return ""
			}
			pays := func(state string) string {
				return lab.Or(v.Beats(mapped, readAt, lab.Params{"state": state}, lab.OpsPerSecond), "pays",
					"does not pay")
			}
			return fmt.Sprintf("A map %s for cached data (%.2f against %.2f million reads a second), and %s where nothing was cached before (%.0f against %.0f).", pays("cached"), a[0]/1e6, a[1]/1e6, pays("cold"), b[0], b[1])
		},
		Claims: []lab.Claim{
			claims.MapThroughput.Judged("mmap and seek+read at state=cached", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(mapped, seekRead, lab.Params{"state": "cached"}, lab.OpsPerSecond)
				return lab.AtLeast(r, 1.15, "Two system calls are spared; page faults come once a page."), ok
			}),
			claims.MapP99.Judged("mmap and seek+read at state=cold", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(mapped, seekRead, lab.Params{"state": "cold"}, lab.LatencyP99)
				return lab.AtMost(r, 0.8, "What is not cached waits for the disk either way."), ok
			}),
			claims.MapFaults.Judged("mmap at state=cold", func(v lab.View) (lab.Verdict, bool) {
				a, ok1 := v.Median(mapped, lab.Params{"state": "cold"}, lab.PageFaultsPerOp)
				b, ok2 := v.Median(mapped, lab.Params{"state": "cold"}, lab.MajorFaultsPerOp)
				return lab.Holds(a+b >= 0.7 && a+b <= 1.3,
					fmt.Sprintf("%.2f faults a read, %.2f of them major", a+b, b),
					"Until the pages are mapped; then none."), ok1 && ok2
			}),
		},
	})
}
