// Package httpway asks where the time of a request goes.
package httpway

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/servers"
)

var (
	of  = servers.With(servers.Stamped)
	all = []*lab.Contestant{
		of.NetHTTP, of.UringInline, of.UringCoroutine, of.UringGoroutine, of.EpollInline, of.EpollGoroutine,
	}
	alone = lab.Params{"connections": "1", "rate": "0"}
	busy  = lab.Params{"connections": "64", "rate": "10000"}

	// in the order of the way
	parts = []lab.Metric{
		lab.WayRest, lab.WayRequest, lab.WayQueue, lab.WayRead, lab.WayHandler, lab.WayWrite, lab.WayAnswer,
		lab.WayClient,
	}
)

// The share of the latency that the stations must see, and may, of a client that waits for nothing
// but its answer. They miss its way into the kernel; the load misses its read, since it takes the
// time once it is woken.
const leastShare, mostShare = 0.9, 1.05

func init() {
	lab.Register(&lab.Experiment{
		Name: "http-way", Plane: lab.Network,
		Question: "Where does the time of a request go: queue, handler, write, kernel?",
		Method: "Every request is followed from the client's call that sends it to the client's read that has the answer: by eBPF where the kernel takes it over and where a socket has it or a read takes it, by the handler where it begins and ends. The figures are means " +
			"of all requests and add up to the latency that the load sees. One connection sends as soon as it is answered; of 64 at a fixed rate, latency counts from when a request is due, and what it waits for the load to send it is the client's own. Load and " +
			"server share the CPUs: while one runs the other may wait. Looking costs each request some two microseconds. It needs the right to load programs into the kernel.",
		Metrics: slices.Concat([]lab.Metric{lab.LatencyMean}, parts,
			[]lab.Metric{lab.WayShare, lab.LatencyP50, lab.LatencyP99}),
		Base: of.NetHTTP, Turn: time.Second, Contestants: all,
		Chart: lab.Chart{Parts: lab.Names(parts...)},
		Cells: func(lab.Options) []lab.Params { return []lab.Params{alone, busy} },
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			return load.Way{HTTP: load.HTTP{
				Connections: cell.Int("connections"), Rate: float64(cell.Int("rate")),
			}}.Scene(b)
		},
		Advice: advice, Claims: claims(),
	})
}

func advice(v lab.View) string {
	var said []string
	for _, c := range []*lab.Contestant{of.NetHTTP, of.UringGoroutine, of.UringInline} {
		whole, ok := v.Median(c, alone, lab.LatencyMean)
		waits, ok2 := v.Median(c, alone, lab.WayQueue)
		reads, ok3 := v.Median(c, alone, lab.WayRead)
		works, ok4 := v.Median(c, alone, lab.WayHandler)
		writes, ok5 := v.Median(c, alone, lab.WayWrite)
		if !ok || !ok2 || !ok3 || !ok4 || !ok5 {
			return ""
		}
		said = append(said, fmt.Sprintf("of %.0f µs by %s, %.1f wait to be read, %.1f are the server's before the handler, %.1f the handler's, %.1f the server's behind it",
			whole, c.Name, waits, reads, works, writes))
	}
	return "Of one small request at a time: " + strings.Join(said, "; ") + ". The rest is the kernel's, and the client's."
}

func claims() (all []lab.Claim) {
	for _, c := range []*lab.Contestant{of.NetHTTP, of.UringInline} {
		all = append(all, lab.Claim{
			Claim:  "The stations that a request to " + c.Name + " passes add up to the latency that its client sees.",
			Source: lab.Goal("90 to 105 %"), Needs: lab.Needs(alone, c),
			Judge: func(v lab.View) (lab.Verdict, bool) {
				return v.Share(c, alone, lab.WayShare, leastShare, mostShare,
					"They miss the client's way into the kernel. The load misses its read: it takes the time once it is woken.")
			},
		})
	}
	return all
}
