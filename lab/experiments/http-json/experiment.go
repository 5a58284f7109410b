// Package httpjson asks what is left of an engine's advantage when requests have work to do.
package httpjson

import (
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/servers"
)

var of = servers.With(servers.JSON)

func init() {
	lab.Register(&lab.Experiment{
		Name: "http-json", Plane: lab.Network,
		Question: "How much of an engine's advantage is left when a request has 20 to 50 µs of work?",
		Method: "As http-plaintext, but each answer is some 1.5 kB of JSON that is encoded anew by encoding/json, the same in every server. The work is 15 to 40 µs, depending on the CPU: " +
			"the difference to http-plaintext says how much.",
		Metrics: []lab.Metric{lab.CPUPerOp, lab.OpsPerSecond, lab.LatencyP50, lab.LatencyP99, lab.RSS},
		Base:    of.NetHTTP, Turn: 1500 * time.Millisecond,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("connections", 64) },
		Contestants: append(of.Own(), of.Peers()...),
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			return load.HTTP{Connections: cell.Int("connections")}.Scene(b)
		},
		Advice: func(v lab.View) string {
			said, ok := v.Beside(nil, lab.CPUPerOp, "%.0f", 1, of.NetHTTP, of.UringGoroutine, of.UringInline)
			if !ok {
				return ""
			}
			return fmt.Sprintf("A request with this work costs %s µs by net/http, %s by handlers on a ring, %s inline.", said...)
		},
		Claims: []lab.Claim{{
			Claim:  "On goroutines of a ring a request with work costs no more than by net/http.",
			Source: lab.Goal("≤ 1.0×"), Needs: "tallywheel/uring-goroutine and net/http",
			Judge: func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(of.UringGoroutine, of.NetHTTP, nil, lab.CPUPerOp)
				return lab.AtMost(r, 1, "The engine's share of a request with work is small."), ok
			},
		}},
	})
}
