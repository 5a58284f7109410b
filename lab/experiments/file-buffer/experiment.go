// Package filebuffer asks how large a buffer for a file should be, and what it does to the garbage
// collector.
package filebuffer

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/bigfile"
	"github.com/tallywheel/tallywheel/lab/claims"
)

var (
	kept  = lab.Ours("kept", reading(false))
	fresh = lab.Ours("fresh", reading(true))
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "file-buffer", Plane: lab.Files,
		Question: "How large should the buffer be for reading a file, and what does it cost the garbage collector?",
		Method:   "A cached file of 64 MiB is read again and again with a buffer that is kept, or made anew for each read.",
		Metrics:  []lab.Metric{lab.MBPerSecond, lab.SyscallsPerMB, lab.AllocsPerMB, lab.GCCycles, lab.GCPause},
		Base:     kept, Chart: lab.Chart{Over: "bytes"}, Turn: 500e6,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("bytes", 1<<10, 8<<10, 64<<10, 256<<10) },
		Contestants: []*lab.Contestant{kept, fresh},
		Prepare:     bigfile.Text(64), Scene: bigfile.Scene,
		Advice: func(v lab.View) string {
			a, ok1 := v.Median(kept, lab.Params{"bytes": "65536"}, lab.MBPerSecond)
			b, ok2 := v.Median(kept, lab.Params{"bytes": "1024"}, lab.MBPerSecond)
			if !ok1 || !ok2 {
				return ""
			}
			r, _ := v.Across(kept, lab.Params{"bytes": "65536"}, kept, lab.Params{"bytes": "1024"}, lab.MBPerSecond)
			return fmt.Sprintf("Cached data is read at %.1f GB/s with a buffer of 64 KiB, at %.1f GB/s with one of 1 KiB: %s.",
				a/1e3, b/1e3, r.Tell("take the larger one", "take the smaller one"))
		},
		Claims: append(sizes(),
			claims.GCBySize.Judged("kept and fresh at 1024 and 65536 bytes", func(v lab.View) (lab.Verdict, bool) {
				few, many := lab.Params{"bytes": "65536"}, lab.Params{"bytes": "1024"}
				held, ok1 := v.Median(kept, many, lab.GCCycles)
				small, ok2 := v.Median(fresh, many, lab.GCCycles)
				large, ok3 := v.Median(fresh, few, lab.GCCycles)
				r, ok4 := v.Across(fresh, many, fresh, few, lab.GCCycles)
				return lab.AtLeast(r, 2,
					"Made anew for each read, small buffers make more garbage than large ones here. A buffer that is kept costs no collection whatever its size.").
					IfNot("Go has no young generation. A buffer that is kept costs no collection whatever its size; made anew, what counts is the bytes a second, of which large ones bring no fewer.").
					As("kept: %.0f; new for each read: %.0f with 1 KiB, %.0f with 64 KiB a turn, %v", held, small,
						large,
						r), ok1 && ok2 && ok3 && ok4
			})),
	})
}

// sizes is the claims on what size is best.
func sizes() []lab.Claim {
	bytes := func(n string) lab.Params { return lab.Params{"bytes": n} }
	return []lab.Claim{
		claims.GoldenBuffer.Judged("kept at 1024, 8192, 65536 and 262144 bytes", func(v lab.View) (lab.Verdict, bool) {
			over, ok1 := v.Across(kept, bytes("8192"), kept, bytes("1024"), lab.MBPerSecond)
			under, ok2 := v.Across(kept, bytes("8192"), kept, bytes("65536"), lab.MBPerSecond)
			far, ok3 := v.Across(kept, bytes("8192"), kept, bytes("262144"), lab.MBPerSecond)
			const why = "A larger buffer saves calls, which are next to nothing beside copying here."
			return lab.All(lab.AtLeast(over, 1, why), lab.AtLeast(under, 0.95, why), lab.AtLeast(far, 0.95, why)).
					IfNot("A larger buffer saves calls until copying is all that is left.").
					As("%v of 1 KiB's throughput, %v of that of 64 KiB, %v of that of 256 KiB", over, under, far),
				ok1 && ok2 && ok3
		}),
		claims.SmallBufferGC.Judged("fresh at 1024 and 8192 bytes", func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Across(fresh, bytes("1024"), fresh, bytes("8192"), lab.GCCycles)
			return lab.AtLeast(r, 1.2,
				"Made anew for each read, small buffers make more garbage than larger ones here; a buffer that is kept costs no collection.").
				IfNot("Made anew for each read, what counts is the bytes a second; a buffer that is kept costs no collection."), ok
		}),
	}
}
