// Package filemisuse asks what the usual misuse of bufio costs.
package filemisuse

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/bigfile"
	"github.com/tallywheel/tallywheel/lab/claims"
)

var (
	scans  = lab.Ours("Scanner", bigfile.Whole(scanner))
	alone  = lab.Ours("tiny reads", bigfile.Whole(reads(record)))
	small  = lab.Ours("bufio 4 KiB", bigfile.Whole(buffered()))
	read64 = lab.Ours("read 64 KiB", bigfile.Whole(reads(64<<10))).But("the article's remedy: records taken in place")
	chunk  = lab.Ours("chunk", bigfile.Whole(reads(256<<10)))
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "file-misuse", Plane: lab.Files,
		Question: "What do a Scanner over binary data, and reads of one record, cost?",
		Method: "Records of 128 bytes in a cached binary file of 8 MiB: a Scanner that takes them for lines, a read for each record, bufio.Reader with its 4 KiB, and chunks of " +
			"64 and 256 KiB whose records are taken in place. A buffer is one for the whole turn. An operation is a record, or what the Scanner takes for a line.",
		Metrics: []lab.Metric{lab.MBPerSecond, lab.SyscallsPerMB, lab.AllocsPerMB, lab.CPUPerMB, lab.GCCycles},
		Base:    chunk, Calls: true,
		Contestants: []*lab.Contestant{scans, alone, small, read64, chunk},
		Prepare:     bigfile.Binary(8), Scene: bigfile.Scene,
		Advice: func(v lab.View) string {
			m, ok := v.Medians(nil, lab.MBPerSecond, chunk, scans, alone)
			scan, _ := v.Ratio(chunk, scans, nil, lab.MBPerSecond)
			one, _ := v.Ratio(chunk, alone, nil, lab.MBPerSecond)
			if !ok {
				return ""
			}
			return fmt.Sprintf("Binary records in chunks, at %.1f GB/s, against a Scanner, at %.1f: %s; against a read for each record, at %.2f: %s.",
				m[0]/1e3, m[1]/1e3, scan.Tell("quicker", "slower"), m[2]/1e3, one.Tell("quicker", "slower")) +
				lab.Or(scan.Sure() || one.Sure(), " asyncfile.Detect finds such readers in a running program.", "")
		},
		Claims: []lab.Claim{
			claims.ScannerThroughput.Judged("read 64 KiB and Scanner", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(read64, scans, lab.Params{}, lab.MBPerSecond)
				return lab.AtLeast(r, 3, "A Scanner looks at every byte, and Text makes a string of each piece.").
					IfNot("A Scanner looks at every byte, and Text makes a string of each piece; that costs less than two thirds of its time."), ok
			}),
			claims.ScannerGC.Judged("read 64 KiB and Scanner", func(v lab.View) (lab.Verdict, bool) {
				m, ok := v.Medians(nil, lab.GCCycles, scans, read64)
				r, ok2 := v.Ratio(read64, scans, nil, lab.GCCycles) // that of none to many
				if !ok || !ok2 {
					return lab.Verdict{}, false
				}
				return lab.AtMost(r, 1.0/9, "Text makes garbage of every piece; what is taken in place is none.").
					IfNot("Text makes garbage of every piece, but the Reader's turns have more than a ninth of the Scanner's collections here.").
					As("%.0f against %.0f in a turn: the Reader has %v of the Scanner's", m[0], m[1], r), true
			}),
			claims.ScannerCPU.Judged("read 64 KiB and Scanner", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(scans, read64, lab.Params{}, lab.CPUPerMB)
				return lab.AtLeast(r, 1.37, "Counted for each megabyte."), ok
			}),
			claims.ScannerCalls.Judged("the system calls of read 64 KiB and bufio 4 KiB",
				func(v lab.View) (lab.Verdict, bool) {
					m, ok := v.Medians(lab.Params{}, lab.SyscallsPerMB, read64, small)
					if !ok {
						return lab.Verdict{}, false
					}
					fewer := 100 * (1 - m[0]/m[1])
					return lab.Holds(fewer >= 85,
						fmt.Sprintf("%.0f %% fewer: %.1f against %.0f a megabyte", fewer, m[0], m[1]),
						"The number of calls is the bytes divided by the buffer."), true
				}),
		},
	})
}
