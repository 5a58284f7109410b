// Package processmillion asks what it takes to serve a million connections.
package processmillion

import (
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/load"
)

var (
	ours = lab.Ours("tallywheel/direct", million).But("no HTTP: it looks for the end of each head")
	inC  = lab.C("million.c", "apt install gcc liburing-dev", "-luring", "-lpthread").As("c/direct",
		"million").But("no HTTP: it answers whatever comes")
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "process-million", Plane: lab.Processes,
		Question: "What does it take to serve a million connections that are mostly silent?",
		Method: "Connections over loopback, 2,000 to an address from 127.1.0.1 upward, both ends direct descriptors of rings, 16,000 to 18,000 a ring: no limit of descriptors counts them. Each gets one answer " +
			"when it is open, then sends a request every minute; every one must be answered. Latency is from when a request was due. All of the server's own memory is divided by the connections, so that few of them carry what it has without any; the kernel's, some 9 KB for both " +
			"ends of a connection, is not. A million takes 20 GiB of free memory and two files each of fs.file-max, else that row is not run; --full has it.",
		Metrics: []lab.Metric{
			lab.OpenedPerSecond, lab.BytesPerConn, lab.LatencyP50, lab.LatencyP99, lab.LatencyMax,
			lab.OpsPerSecond,
		},
		Base: inC, Turn: 2 * time.Second, Chart: lab.Chart{Over: "connections"},
		Cells: func(o lab.Options) []lab.Params {
			if o.Full {
				return lab.Cells("connections", 1000, 10_000, 100_000, 1_000_000)
			}
			return lab.Cells("connections", 1000, 10_000, 100_000)
		},
		Contestants: []*lab.Contestant{ours, inC},
		Scene: func(_ *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			return load.Million{Connections: cell.Int("connections"), Every: time.Minute, Least: time.Second}.Scene(nil)
		},
		Advice: func(v lab.View) string {
			m, ok := v.Median(ours, large, lab.BytesPerConn)
			n, _ := v.Median(ours, large, lab.OpenedPerSecond)
			if !ok {
				return ""
			}
			return fmt.Sprintf("A connection that is mostly silent holds %.0f bytes of a server on direct descriptors; %.0f thousand a second can come.", m, n/1e3)
		},
		Claims: []lab.Claim{
			claims.MillionConnections.Judged(ours.Name, func(v lab.View) (lab.Verdict, bool) {
				if m, ok := v.Median(ours, whole, lab.OpsPerSecond); ok {
					return lab.Holds(true, fmt.Sprintf("1,000,000 open, %.0f answers a second", m),
						"Each is a slot in a table and a receive that waits; all were answered."), true
				}
				_, ok := v.Median(ours, large, lab.OpsPerSecond)
				return lab.NotHere("a million was not run here: --full, 20 GiB of free memory; 100,000 were"), ok
			}),
			level("With a million, a connection holds at most 600 bytes of the server's own memory.", "≤ 600 B", whole,
				lab.BytesPerConn, 600, "A receive that waits, its place in the ring, and the file."),
			level("At 99 % a request is answered within 50 ms of when it was due.", "≤ 50 ms", large, lab.LatencyP99, 50_000,
				"1,667 requests a second from 100,000 connections leave the CPUs mostly idle."),
			{
				Claim: "Connections come at least 0.8 times as fast as to a server in C.", Source: lab.Goal("≥ 0.8×"),
				Needs: lab.Needs(large, ours, inC),
				Judge: func(v lab.View) (lab.Verdict, bool) {
					r, ok := v.Ratio(ours, inC, large, lab.OpenedPerSecond)
					return lab.AtLeast(r, 0.8,
						"The kernel's part of a connection is most of it, and the client is the same."), ok
				},
			},
		},
	})
}

var (
	large = lab.Params{"connections": "100000"}
	whole = lab.Params{"connections": "1000000"}
)

func level(text, goal string, cell lab.Params, metric lab.Metric, x float64, why string) lab.Claim {
	return lab.Claim{
		Claim: text, Source: lab.Goal(goal), Needs: lab.Needs(cell, ours),
		Judge: func(v lab.View) (lab.Verdict, bool) {
			m, _ := v.Median(ours, cell, metric)
			r, ok := v.Level(ours, cell, metric, x)
			return lab.AtMost(r, 1, why).As("%.0f, %v of it", m, r), ok
		},
	}
}
