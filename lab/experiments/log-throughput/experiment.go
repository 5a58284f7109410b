// Package logthroughput asks how fast a log is that does not wait for the disk.
package logthroughput

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/lab/logs"
)

var (
	ours       = lab.Ours("tallywheel/seglog", logs.Std.Append)
	zap        = lab.Peers("append").As("zap", "zap")
	lumberjack = lab.Peers("append").As("lumberjack", "lumberjack")
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "log-throughput", Plane: lab.Log,
		Question: "How many records a second can be logged when nothing waits for the disk?",
		Method: "1 or 16 goroutines append records of 128 letters. seglog numbers, dates and checks them, which makes 160 bytes of each; zap writes lines of JSON of 128 bytes, in which nothing is escaped. " +
			fmt.Sprintf("Both gather %d KiB before they write: zap in one buffer, while others wait, seglog in one of two; lumberjack has none and writes each record by itself.", contestant.LogBuffer>>10),
		Metrics:     []lab.Metric{lab.OpsPerSecond, lab.CPUPerOp, lab.MBPerSecond, lab.RSS},
		Base:        ours,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("producers", 1, 16) },
		Contestants: []*lab.Contestant{ours, zap, lumberjack},
		Advice: func(v lab.View) string {
			m, ok := v.Medians(lab.Params{"producers": "16"}, lab.OpsPerSecond, ours, zap)
			if !ok {
				return ""
			}
			r, _ := v.Ratio(ours, zap, lab.Params{"producers": "16"}, lab.OpsPerSecond)
			return fmt.Sprintf("Where a power cut may cost the last records, sync: never or interval logs %.1f million records a second, zap %.1f: %s.",
				m[0]/1e6, m[1]/1e6, r.Tell("more", "fewer"))
		},
		Claims: []lab.Claim{{
			Claim:  "A binary log without a sync writes ten million records a second.",
			Source: lab.Goal("≥ 10 M/s, ≤ 0.1 µs of CPU each"), Needs: "tallywheel/seglog at producers=1",
			Judge: func(v lab.View) (lab.Verdict, bool) {
				rate, ok1 := v.Median(ours, lab.Params{"producers": "1"}, lab.OpsPerSecond)
				cpu, ok2 := v.Median(ours, lab.Params{"producers": "1"}, lab.CPUPerOp)
				fast, _ := v.Level(ours, lab.Params{"producers": "1"}, lab.OpsPerSecond, 10e6)
				lean, _ := v.Level(ours, lab.Params{"producers": "1"}, lab.CPUPerOp, 0.1)
				const why = "Records are copied into one of two buffers; whoever fills it writes it."
				return lab.All(lab.AtLeast(fast, 1, why), lab.AtMost(lean, 1, why)).As("%.1f M/s, %.3f µs", rate/1e6,
					cpu), ok1 && ok2
			},
		}},
	})
}
