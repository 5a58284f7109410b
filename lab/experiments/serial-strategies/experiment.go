// Package serialstrategies asks which way to read a serial port.
package serialstrategies

import (
	"fmt"
	"strings"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/load"
)

const ringName = "tallywheel/ring"

func init() {
	noCRC := "checks no CRC"
	lab.Register(&lab.Experiment{
		Name: "serial-strategies", Plane: lab.Serial,
		Question: "Which way to read a serial port loses nothing, and what does it cost?",
		Method: "One virtual port (a pty) carries frames of 128 bytes with sequence number, time and CRC16: burst: 10 ms at 500 KB/s, ten times a second; " +
			"steady: 400 KB/s; disturbed: as steady, with frames dropped, repeated, damaged, reordered and held up; max: as fast as the port takes them. " +
			"Latency is from the moment a frame was due (disturbed: was made; max: was handed over) until the reader had it. " +
			"tallywheel/… decode and check every frame; the others look for two bytes, so damaged frames that they take for good can hide lost ones. " +
			"A pty has no baud rate and no UART that overruns: loss here is what a reader itself loses.",
		Metrics: []lab.Metric{lab.CPUPerOp, lab.LatencyP50, lab.LatencyP99, lab.LostFrames, lab.FalseFrames, lab.MBPerSecond, lab.ContextSwitchesPerOp, lab.CPUPercent, lab.RSS},
		Base:    "c/epoll",
		Cells:   func(lab.Options) []lab.Params { return lab.Cells("condition", "burst", "steady", "disturbed", "max") },
		Contestants: []lab.Contestant{
			lab.C("epoll_reader.c", "apt install gcc").As("c/epoll", "serial").But(noCRC),
			lab.Ours(ringName, "serial", "strategy=ring"),
			lab.Ours("tallywheel/hybrid", "serial", "strategy=ring", "mode=hybrid").But("looks all the time while data flows: a CPU for itself"),
			lab.Ours("tallywheel/blocking", "serial", "strategy=blocking"),
			lab.Ours("tallywheel/polling", "serial", "strategy=polling").But("looks every 10 ms"),
			lab.Ours("article/pipeline", "serial", "strategy=pipeline").But("four goroutines and a channel operation for each frame, as the article has it; the recorder's own is another"),
			lab.Ours("os.File", "serial-file").But(noCRC),
			lab.Peers("serial").As("go.bug.st/serial", "serial").But(noCRC),
			lab.Rust("serial.rs").As("rust/blocking", "serial").But(noCRC),
			lab.Python("serial_reader.py", "serial", "pip install pyserial").As("pyserial", "serial").But(noCRC),
		},
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			s := load.Serial{Ports: 1, Rate: 400_000}
			switch cell["condition"] {
			case "burst":
				s.Rate, s.Burst = 500_000, true
			case "disturbed":
				s.Disturbed = true
			case "max":
				s.Rate = 0
			}
			return s.Scene(b)
		},
		Advice: advice, Claims: judges(),
	})
}

func advice(v lab.View) string {
	var parts []string
	for _, condition := range []string{"steady", "burst"} {
		cell := lab.Params{"condition": condition}
		best, sure := v.Best(cell, lab.CPUPerOp, ringName, "tallywheel/blocking")
		cpu, ok1 := v.Median(best, cell, lab.CPUPercent)
		p99, ok2 := v.Median(best, cell, lab.LatencyP99)
		files, ok3 := v.Median("os.File", cell, lab.CPUPercent)
		if !ok1 || !ok2 || !ok3 {
			return ""
		}
		parts = append(parts, fmt.Sprintf("%s: %s %s, %.1f %% of a CPU, 99 %% of the frames within %.0f µs (os.File: %.1f %% of a CPU)",
			condition, best, lab.Or(sure, "costs least", "is not beaten"), cpu, p99, files))
	}
	return "Of the ways that check every frame as it comes: " + strings.Join(parts, "; ") + "."
}

func judges() []lab.Claim {
	burst, steady, most := lab.Params{"condition": "burst"}, lab.Params{"condition": "steady"}, lab.Params{"condition": "max"}
	return []lab.Claim{
		claims.PipelineThroughput.Judged("article/pipeline and tallywheel/blocking at condition=max", func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Ratio("article/pipeline", "tallywheel/blocking", most, lab.MBPerSecond)
			return lab.AtLeast(r, 1.5, "The work on a frame is far less than what it costs to hand it to another goroutine."), ok
		}),
		claims.RingP99.Judged("tallywheel/ring and os.File at condition=steady", func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Ratio(ringName, "os.File", steady, lab.LatencyP99)
			return lab.AtMost(r, 0.5, "The article's ring was a mapped tty, which does not exist; this is the ring that works, filled by read."), ok
		}),
		claims.RingSwitches.Judged("tallywheel/ring and os.File at condition=steady", func(v lab.View) (lab.Verdict, bool) {
			m, ok := v.Medians(steady, lab.ContextSwitchesPerOp, ringName, "os.File")
			if !ok || m[1] == 0 {
				return lab.Verdict{}, false
			}
			r, _ := v.Ratio(ringName, "os.File", steady, lab.ContextSwitchesPerOp)
			return lab.AtMost(r, 0.4, "Not because it goes around the kernel: its thread waits in one epoll set, and no scheduler is in between.").
				As("%.0f %% fewer: %.2f against %.2f a frame", 100*(1-r.Median), m[0], m[1]), true
		}),
		claims.BurstLoss.Judged("tallywheel/blocking and tallywheel/hybrid at condition=burst", func(v lab.View) (lab.Verdict, bool) {
			m, ok := v.Medians(burst, lab.LostPercent, "tallywheel/blocking", "tallywheel/hybrid")
			if !ok {
				return lab.Verdict{}, false
			}
			return lab.NotHere("a UART whose FIFO overruns: the article lost frames there. A pty has none, and its 20 KiB hold four bursts.").
				As("%.2f %% against %.2f %% on a pty", m[0], m[1]), true
		}),
	}
}
