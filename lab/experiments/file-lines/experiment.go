// Package filelines asks how to read lines.
package filelines

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/bigfile"
	"github.com/tallywheel/tallywheel/lab/claims"
)

var (
	text   = lab.Ours("Scanner.Text", bigfile.Whole(scannerText))
	bytes  = lab.Ours("Scanner.Bytes", bigfile.Whole(scannerBytes))
	slice  = lab.Ours("ReadSlice", bigfile.Whole(readSlice)).But("bufio.Reader of 64 KiB")
	ours   = lab.Ours("tallywheel/lines", byLines(bigfile.Std))
	mapped = lab.Ours("tallywheel/lines mmap", byLines(bigfile.MapInOrder))
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "file-lines", Plane: lab.Files,
		Question: "How fast can lines be read, and what do they allocate?",
		Method:   "A cached text of 128 MiB, lines of some 100 bytes; a turn reads it whole, at least once.",
		Metrics:  []lab.Metric{lab.MBPerSecond, lab.AllocsPerOp, lab.NsPerOp, lab.RSS},
		Base:     slice, Calls: true,
		Contestants: []*lab.Contestant{text, bytes, slice, ours, mapped},
		Prepare:     bigfile.Text(128), Scene: bigfile.Scene,
		Advice: func(v lab.View) string {
			m, ok := v.Medians(lab.Params{}, lab.MBPerSecond, text, ours)
			if !ok {
				return ""
			}
			a, _ := v.Ratio(ours, text, nil, lab.MBPerSecond)
			b, _ := v.Ratio(slice, text, nil, lab.MBPerSecond)
			return fmt.Sprintf("Against Scanner.Text, which reads lines at %.1f GB/s: asyncfile.Lines %s, at %.1f GB/s, bufio.Reader.ReadSlice %s.",
				m[0]/1e3, a.Tell("quicker", "slower"), m[1]/1e3, b.Tell("quicker", "slower"))
		},
		Claims: []lab.Claim{
			claims.ReadSlice.Judged("ReadSlice and Scanner.Text", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(slice, text, lab.Params{}, lab.MBPerSecond)
				m, ok2 := v.Medians(lab.Params{}, lab.AllocsPerOp, slice, text)
				if !ok || !ok2 {
					return lab.Verdict{}, false
				}
				const why = "It is the string that Text makes of each line which costs; Scanner.Bytes makes none."
				lean, _ := v.AtMost(slice, nil, lab.AllocsPerOp, 0.01, why)
				return lab.All(lab.AtLeast(r, 1.8, why),
					lean.As("%.4f against %.2f allocations a line", m[0], m[1])).
					IfNot("Text makes a string of each line; that costs less here than what is asked for, or ReadSlice allocates, too."), true
			}),
			{
				Claim:  "asyncfile.Lines is as fast as a loop of ReadSlice written by hand.",
				Source: lab.Goal("≥ 0.95×, no allocation a line"), Needs: "tallywheel/lines and ReadSlice",
				Judge: func(v lab.View) (lab.Verdict, bool) {
					r, ok := v.Ratio(ours, slice, lab.Params{}, lab.MBPerSecond)
					return lab.AtLeast(r, 0.95, "It looks for the ends of lines in large chunks."), ok
				},
			},
		},
	})
}
