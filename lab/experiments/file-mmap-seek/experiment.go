// Package filemmapseek asks whether a map reads a large file at random faster than seek and read.
package filemmapseek

import (
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/bigfile"
	"github.com/tallywheel/tallywheel/lab/claims"
)

var (
	seekRead = lab.Ours("seek+read", bigfile.SeekAndRead)
	readAt   = lab.Ours("ReadAt", bigfile.Std.ReadAt)
	plain    = lab.Ours("mmap/plain", bigfile.PlainMap).But("no advice: a fault reads what is around it, too")
	mapped   = lab.Ours("mmap", bigfile.Map.ReadAt).But("MADV_RANDOM: a fault reads its page alone")
	ready    = lab.Ours("mmap+populate",
		bigfile.MapReady.ReadAt).For(lab.Params{"state": "cached"}).But("all pages are mapped before the time counts")
	huge = lab.Ours("mmap+huge",
		bigfile.MapHuge.ReadAt).For(lab.Params{"state": "cached"}).But("MADV_HUGEPAGE, which most file systems do not follow")
	inOrder = lab.Ours("mmap/sequential",
		bigfile.MapInOrder.ReadAt).For(lab.Params{"state": "cached"}).But("MADV_SEQUENTIAL: no way to read a cold file at random")
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "file-mmap-seek", Plane: lab.Files,
		Question: "Does a map read a large file at random faster than seek and read?",
		Method: "4 KiB at random offsets of a file of 1 GiB, with --full 16 GiB where memory and disk have room for that (quick: 256 MiB where they have none for 1 GiB, or the disk takes more than a second to write " +
			"256 MiB; file_bytes says which); all of it in the page cache or none of it at the beginning; copied out in every case. Of a cold file one block in 40 is read in a turn, at most 100,000, however long that " +
			"takes, up to fifteen times the time of a turn, and what of it is cached at the end is shown: who reads ahead has more, so its reads are not cold any more.",
		Metrics: []lab.Metric{
			lab.OpsPerSecond, lab.LatencyP50, lab.LatencyP99, lab.AllFaultsPerOp, lab.CachedPercent,
			lab.MajorFaultsPerOp, lab.CPUPerOp, lab.FileBytes,
		},
		Derive: func(_ lab.Params, _ time.Duration, m lab.Metrics) {
			m[lab.AllFaultsPerOp.String()] = m[lab.PageFaultsPerOp.String()] + m[lab.MajorFaultsPerOp.String()]
		},
		Base: seekRead, Turn: 3 * time.Second,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("state", "cached", "cold") },
		Contestants: []*lab.Contestant{seekRead, readAt, plain, mapped, ready, huge, inOrder},
		Prepare:     bigfile.Largest, Scene: bigfile.Scene,
		Advice: func(v lab.View) string {
			a, ok1 := v.Medians(cached, lab.OpsPerSecond, mapped, readAt)
			b, ok2 := v.Medians(cold, lab.OpsPerSecond, mapped, readAt)
			warm, ok3 := v.Ratio(mapped, readAt, cached, lab.OpsPerSecond)
			disk, ok4 := v.Ratio(mapped, readAt, cold, lab.OpsPerSecond)
			told, ok5 := v.Ratio(mapped, plain, cold, lab.OpsPerSecond)
			if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 {
				return ""
			}
			return fmt.Sprintf("A map with MADV_RANDOM against ReadAt: of cached data %s (%.2f and %.2f million reads a second), where nothing was cached before %s (%.0f and %.0f); against a map without advice there: %s.",
				warm.Tell("quicker", "slower"), a[0]/1e6, a[1]/1e6, disk.Tell("quicker", "slower"), b[0], b[1],
				told.Tell("quicker", "slower"))
		},
		Claims: []lab.Claim{
			ofMaps(claims.MapThroughput, cached, lab.OpsPerSecond, func(r lab.Ratio) lab.Verdict {
				return lab.AtLeast(r, 1.15, "Two system calls are spared; page faults come once a page.")
			}),
			ofMaps(claims.MapP99, cold, lab.LatencyP99, func(r lab.Ratio) lab.Verdict {
				return lab.AtMost(r, 0.8, "A fault reads what is around it, so that many of the later reads find their page.").
					IfNot("What is not cached waits for the disk either way.")
			}),
			claims.MapFaults.Judged(lab.Needs(cold, plain, mapped), func(v lab.View) (lab.Verdict, bool) {
				r, ok1 := v.Level(plain, cold, lab.AllFaultsPerOp, 98_700.0/100_000)
				m, ok2 := v.Medians(cold, lab.AllFaultsPerOp, plain, mapped)
				if !ok1 || !ok2 {
					return lab.Verdict{}, false
				}
				return lab.Within(r, 0.7, 1.3, "Each page is another one, and none of them is mapped.").
					IfNot("A fault maps pages around its own that are cached, and reads them where they are not: later reads need none.").
					As("%.2f faults a read, %.2f with MADV_RANDOM", m[0], m[1]), true
			}),
		},
	})
}

var cached, cold = lab.Params{"state": "cached"}, lab.Params{"state": "cold"}

// ofMaps is a claim of a map against seek and read. It is judged by the article's map, which has no
// advice; what one with MADV_RANDOM does is said beside.
func ofMaps(p lab.Published, cell lab.Params, metric lab.Metric, judge func(lab.Ratio) lab.Verdict) lab.Claim {
	return p.Judged(lab.Needs(cell, plain, mapped, seekRead), func(v lab.View) (lab.Verdict, bool) {
		r, ok1 := v.Ratio(plain, seekRead, cell, metric)
		advised, ok2 := v.Ratio(mapped, seekRead, cell, metric)
		return judge(r).As("%v; with MADV_RANDOM %v", r, advised), ok1 && ok2
	})
}
