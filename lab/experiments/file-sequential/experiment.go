// Package filesequential asks for the article's table of sequential reads, sequential writes and
// random reads.
package filesequential

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/bigfile"
	"github.com/tallywheel/tallywheel/lab/claims"
)

var (
	std        = lab.Ours("std", by(bigfile.Std))
	window     = lab.Ours("bufio", by(bigfile.Window)).But("a window of 64 KiB")
	mapped     = lab.Ours("mmap", by(bigfile.Map))
	inOrderMap = lab.Ours("mmap/sequential", by(bigfile.MapInOrder)).But("reads ahead")
	ring       = lab.Ours("tallywheel/uring", by(bigfile.Ring))
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "file-sequential", Plane: lab.Files,
		Question: "Which way to read and write a file 4 KiB at a time is fastest when nothing is cached?",
		Method: "A file of 1 GiB (quick: 256 MiB where disk or memory have no room for that, or the disk takes more than a second to write 256 MiB; file_bytes says which), dropped from the page cache " +
			"before each turn: read in order, read at random, and a new file written in order and synced before the time ends. uring has 64 operations in flight, the others one. Reading in order the kernel " +
			"reads ahead for all of them. At random each reads one block in 40, however long that takes, up to fifteen times the time of a turn; what of the file is cached at the end is shown.",
		Metrics: []lab.Metric{
			lab.MBPerSecond, lab.OpsPerSecond, lab.CPUPerOp, lab.MajorFaultsPerOp, lab.CachedPercent,
			lab.FileBytes,
		},
		Base:        std,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("access", "read", "write", "random") },
		Contestants: []*lab.Contestant{std, window, mapped, inOrderMap, ring},
		Prepare:     bigfile.Cold, Scene: bigfile.Scene,
		Advice: func(v lab.View) string {
			said, ok := v.Beside(lab.Params{"access": "read"}, lab.MBPerSecond, "%.0f", 1, std, window, ring)
			if !ok {
				return ""
			}
			best, sure := v.Best(lab.Params{"access": "read"}, lab.MBPerSecond, window, std, inOrderMap, ring)
			return lab.Or(sure, "To read a file in order "+best.Name+" is the quickest",
				"No way was seen to read a file in order more quickly than all others") + fmt.Sprintf(": 4 KiB at a time make %s MB/s, 64 KiB %s, io_uring %s.", said...)
		},
		Claims: []lab.Claim{
			table(claims.SequentialReads, "read", 378.0/182),
			table(claims.SequentialWrites, "write", 351.0/146),
			table(claims.RandomReads, "random", 289.0/32),
		},
	})
}

// table is the claim of one column of the article's table.
func table(p lab.Published, access string, ratio float64) lab.Claim {
	return p.Judged("bufio, the maps and tallywheel/uring at access="+access, func(v lab.View) (lab.Verdict, bool) {
		asRead := mapped // as who reads in order, or at random, would map it
		if access == "read" {
			asRead = inOrderMap
		}
		m, ok := v.Medians(lab.Params{"access": access}, lab.MBPerSecond, window, asRead, ring)
		overBufio, _ := v.Ratio(ring, window, lab.Params{"access": access}, lab.MBPerSecond)
		overMap, _ := v.Ratio(ring, asRead, lab.Params{"access": access}, lab.MBPerSecond)
		if !ok {
			return lab.Verdict{}, false
		}
		why, ifNot := "64 operations are in flight instead of one.",
			"In order, the kernel reads ahead and writes behind for all of them: what is left is copying."
		if access == "random" {
			why = "Not by the calls that are spared, but by 64 reads in flight instead of one; goroutines can have that, too."
			ifNot = "64 reads in flight instead of one bring less on this disk."
		}
		return lab.All(lab.AtLeast(overBufio, ratio/2, why), lab.AtLeast(overMap, 1, why)).IfNot(ifNot).
			As("%.0f (bufio), %.0f (%s), %.0f (io_uring) MB/s: %v and %v", m[0], m[1], asRead.Name, m[2], overBufio,
				overMap), true
	})
}
