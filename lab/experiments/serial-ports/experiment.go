// Package serialports asks what the number of serial ports costs.
package serialports

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/readers"
	"github.com/tallywheel/tallywheel/reader"
)

const noCRC = "checks no CRC"

var (
	cEpoll     = lab.C("epoll_reader.c", "apt install gcc").As("c/epoll", "serial").But(noCRC)
	ring       = lab.Ours("tallywheel/ring", readers.By(reader.Ring, ""))
	throughput = lab.Ours("tallywheel/throughput",
		readers.By(reader.Ring, reader.Throughput)).But("looks once in 5 ms while data flows")
	whole = lab.Ours("tallywheel/run", readers.Record).InQuick(one, many)
	files = lab.Ours("os.File", readers.Files).But(noCRC).InQuick(one)
	bugst = lab.Peers("serial").As("go.bug.st/serial", "serial").But(noCRC).InQuick(many)

	one, many = lab.Params{"ports": "1"}, lab.Params{"ports": "256"}
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "serial-ports", Plane: lab.Serial,
		Question: "What does it cost to read many serial ports at once?",
		Method: "1 to 256 virtual ports, each with frames of 128 bytes at 11.52 KB/s, what 115,200 baud carry. CPU time is that of the reader alone. " +
			"tallywheel/run is the whole recorder: it decodes, books, writes a log that is synced in batches, and serves its page. A quick run has time for os.File at one port alone, for go.bug.st/serial at 256, and for tallywheel/run at both.",
		Metrics: []lab.Metric{
			lab.CPUPerOp, lab.CPUPercent, lab.LatencyP99, lab.LostFrames, lab.ErrorBound,
			lab.ContextSwitchesPerOp, lab.RSS,
		},
		Base: cEpoll, Chart: lab.Chart{Over: "ports", Metric: lab.CPUPercent.String()},
		Cells: func(o lab.Options) []lab.Params {
			if o.Full {
				return lab.Cells("ports", 1, 4, 16, 64, 256)
			}
			return lab.Cells("ports", 1, 32, 256)
		},
		Contestants: []*lab.Contestant{cEpoll, ring, throughput, whole, files, bugst},
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			return load.Serial{Ports: cell.Int("ports"), Rate: 11_520}.Scene(b)
		},
		Advice: func(v lab.View) string {
			said, ok := v.Beside(many, lab.CPUPercent, "%.1f", 1, ring, throughput, bugst)
			if !ok {
				return ""
			}
			saves := v.Beats(throughput, ring, many, lab.CPUPerOp)
			return lab.Or(saves, "For many ports use mode throughput where 5 ms of delay do no harm",
				"Mode throughput saves nothing that was seen") +
				fmt.Sprintf(": 256 ports cost %s %% of a CPU in mode latency, in mode throughput %s, with go.bug.st/serial %s.", said...)
		},
		Claims: []lab.Claim{
			{
				Claim:  "One thread with one epoll set reads 256 ports with a third of the CPU time of a goroutine for each port.",
				Source: lab.Goal("at most ⅓ of go.bug.st/serial"),
				Needs:  "tallywheel/ring and go.bug.st/serial at ports=256",
				Judge: func(v lab.View) (lab.Verdict, bool) {
					r, ok := v.Ratio(ring, bugst, many, lab.CPUPerOp)
					return lab.AtMost(r, 1.0/3, "Per frame a goroutine is woken, scheduled and put to sleep again."), ok
				},
			},
			{
				Claim:  "A Go program can read serial ports at the cost of a C program.",
				Source: lab.Goal("256 ports within 1.1× of one epoll loop in C"),
				Needs:  "tallywheel/ring and c/epoll at ports=256",
				Judge: func(v lab.View) (lab.Verdict, bool) {
					r, ok := v.Ratio(ring, cEpoll, many, lab.CPUPerOp)
					return lab.AtMost(r, 1.1, "The Go program also checks the CRC of each frame."), ok
				},
			},
		},
	})
}
