// Package filerandom asks how many random reads one thread keeps going.
package filerandom

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/bigfile"
)

var (
	fioRing = fio("io_uring")
	fioSync = fio("psync")
	inC     = lab.C("uring_random.c", "apt install gcc liburing-dev", "-luring").As("c/liburing", "random")
	ring    = lab.Ours("tallywheel/uring", bigfile.Random{}.ByRing)
	files   = lab.Ours("os.File", bigfile.Random{}.ByGoroutines)
)

func fio(engine string) *lab.Contestant {
	return lab.FIO("fio/"+engine, func(b *lab.Bench, cell lab.Params) []string {
		depth, batch := cell["depth"], cell["batch"]
		args := []string{
			"--filename=" + bigfile.Path(b), "--rw=randread", "--bs=4k", "--direct=1",
			"--ioengine=" + engine, "--norandommap", "--randrepeat=0",
		}
		if engine == "psync" {
			return append(args, "--thread", "--numjobs="+depth, "--group_reporting")
		}
		return append(args, "--iodepth="+depth, "--iodepth_batch_submit="+batch, "--iodepth_batch_complete_min="+batch,
			"--iodepth_batch_complete_max="+depth)
	})
}

func init() {
	lab.Register(&lab.Experiment{
		Name: "file-random", Plane: lab.Files,
		Question: "How many random reads of 4 KiB past the page cache can be kept going, and what do they cost?",
		Method: "O_DIRECT reads of a large file, depth of them in flight, submitted and reaped batch at a time by one thread; os.File and fio/psync have depth goroutines or " +
			"threads instead. No ring has its file or its buffers registered: fio does so only if it is asked to, and our batch takes any memory. fio's CPU time is what it says of its job.",
		Metrics: []lab.Metric{
			lab.OpsPerSecond, lab.CPUPerOp, lab.ContextSwitchesPerOp, lab.SyscallsPerOp,
			lab.LatencyP99,
		},
		Base: fioRing, Chart: lab.Chart{Over: "depth", Along: "batch"}, Calls: true,
		Cells: func(lab.Options) []lab.Params {
			return []lab.Params{
				{"depth": "1", "batch": "1"},
				{"depth": "8", "batch": "1"},
				{"depth": "64", "batch": "16"},
			}
		},
		Contestants: []*lab.Contestant{fioRing, fioSync, inC, ring, files},
		Prepare:     bigfile.Large, Scene: bigfile.Scene,
		Advice: func(v lab.View) string {
			deep := lab.Params{"depth": "64"}
			r, ok1 := v.Ratio(ring, files, deep, lab.OpsPerSecond)
			c, ok2 := v.Medians(deep, lab.CPUPerOp, ring, files)
			if !ok1 || !ok2 {
				return ""
			}
			cpu, _ := v.Ratio(ring, files, deep, lab.CPUPerOp)
			alone, _ := v.Ratio(ring, files, lab.Params{"depth": "1"}, lab.OpsPerSecond)
			return fmt.Sprintf("Of random reads that miss the cache, io_uring in batches against 64 goroutines: %s, %v, and CPU time: %s, %.1f µs a read and %.1f µs. One read at a time: %s.",
				r.Tell("more", "fewer"), r, cpu.Tell("more", "less"), c[0], c[1],
				alone.Tell("quicker by io_uring", "slower by it"))
		},
		Claims: []lab.Claim{
			{
				Claim:  "io_uring in pure Go keeps up with fio.",
				Source: lab.Goal("≥ 0.95× of fio's io_uring at depth 64, ≥ 0.90× at 8"),
				Needs:  "tallywheel/uring and fio/io_uring",
				Judge: func(v lab.View) (lab.Verdict, bool) {
					a, ok1 := v.Ratio(ring, fioRing, lab.Params{"depth": "64"}, lab.OpsPerSecond)
					b, ok2 := v.Ratio(ring, fioRing, lab.Params{"depth": "8"}, lab.OpsPerSecond)
					const why = "Both hand the kernel the same batches; the rest is the disk."
					return lab.All(lab.AtLeast(a, 0.95, why), lab.AtLeast(b, 0.90, why)).
						As("%v at 64, %v at 8", a, b), ok1 && ok2
				},
			},
		},
	})
}
