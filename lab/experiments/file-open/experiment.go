// Package fileopen asks what it costs to begin with a file.
package fileopen

import (
	"fmt"
	"syscall"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/bigfile"
	"github.com/tallywheel/tallywheel/lab/claims"
)

const mib = 256

var (
	std      = lab.Ours("std", backend(bigfile.Std))
	window   = lab.Ours("bufio", backend(bigfile.Window)).But("with a buffer of 64 KiB")
	ourMap   = lab.Ours("asyncfile/mmap", backend(bigfile.Map))
	ourReady = lab.Ours("asyncfile/mmap+populate",
		backend(bigfile.MapReady)).But("Populate: by madvise, MADV_POPULATE_READ")
	ourHuge = lab.Ours("asyncfile/mmap+huge",
		backend(bigfile.MapHuge)).But("Huge: advice, which most file systems do not follow")
	ourRing   = lab.Ours("asyncfile/uring", backend(bigfile.Ring)).But("whose ring is one for all files")
	ownRing   = lab.Ours("uring", by(ringOnce)).But("with a ring of its own")
	plainMap  = lab.Ours("mmap", mapped(0))
	populated = lab.Ours("mmap+populate", mapped(syscall.MAP_POPULATE))
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "file-open", Plane: lab.Files,
		Question: "What does it cost to open a file, read its first 4 KiB and close it again?",
		Method: fmt.Sprintf("A cached file of %d MiB, opened and closed again and again: by the backends of package asyncfile, and by mmap alone, with and without MAP_POPULATE, which makes all pages "+
			"ready; and by a ring that is made for the one file.", mib),
		Metrics: []lab.Metric{lab.NsPerOp, lab.CPUPerOp, lab.PageFaultsPerOp, lab.RSS}, Base: std, Turn: 400e6,
		Contestants: []*lab.Contestant{std, window, ourMap, ourReady, ourHuge, ourRing, ownRing, plainMap, populated},
		Prepare:     bigfile.Binary(mib),
		Scene:       bigfile.Scene,
		Advice: func(v lab.View) string {
			m, ok := v.Medians(nil, lab.NsPerOp, std, plainMap, populated, ownRing)
			if !ok {
				return ""
			}
			one, _ := v.Ratio(plainMap, std, nil, lab.NsPerOp)
			own, _ := v.Ratio(ownRing, std, nil, lab.NsPerOp)
			return fmt.Sprintf("To begin with a file costs %.0f µs by read; by a map: %s, %.0f µs; by a ring of its own: %s, %.0f µs; MAP_POPULATE takes %.1f ms for %d MiB that are cached.",
				m[0]/1e3, one.Tell("more", "less"), m[1]/1e3, own.Tell("more", "less"), m[3]/1e3, m[2]/1e6, mib)
		},
		Claims: []lab.Claim{
			claims.Populate.Judged("mmap+populate", func(v lab.View) (lab.Verdict, bool) {
				const perMiB = 2.3e9 / (16 << 10)
				m, _ := v.Median(populated, nil, lab.NsPerOp)
				r, ok := v.Level(populated, nil, lab.NsPerOp, perMiB*mib)
				return lab.Within(r, 1.0/3, 3,
					"What is cached is mapped in large pieces; what is not is read from the disk first, and that is as slow as the disk.").
					IfNot("It is up to the kernel, and to what is cached: it is more than three times off what was published, on another machine.").
					As("%.1f ms for %d MiB that are cached: %.2f s for 16 GiB, %v of what was published", m/1e6, mib,
						m*(16<<10)/mib/1e9, r), ok
			}),
			claims.Backends.Judged("bufio, asyncfile/mmap and uring", func(v lab.View) (lab.Verdict, bool) {
				low, ok1 := v.Ratio(ourMap, window, nil, lab.NsPerOp)
				high, ok2 := v.Ratio(ownRing, ourMap, nil, lab.NsPerOp)
				const why = "A ring is two maps and some ten system calls; a program makes one for all its files."
				return lab.All(lab.AtLeast(low, 1, why),
						lab.AtLeast(high, 1, why)).As("the map takes %v of bufio, the ring %v of the map", low, high),
					ok1 && ok2
			}),
			claims.BackendMemory.Judged("bufio, asyncfile/mmap and uring", func(v lab.View) (lab.Verdict, bool) {
				byMap, ok1 := v.Ratio(ourMap, window, nil, lab.RSS)
				byRing, ok2 := v.Ratio(ownRing, window, nil, lab.RSS)
				const why = "A buffer of bufio is some KiB, a map is pages that the kernel has anyway, and a ring is some KiB again: the program itself is larger than all of them."
				return lab.All(lab.AtLeast(byMap, 1.05, ""), lab.AtLeast(byRing, 1.05, "")).IfNot(why).
					As("the map takes %v of bufio's memory, the ring %v", byMap, byRing), ok1 && ok2
			}),
		},
	})
}
