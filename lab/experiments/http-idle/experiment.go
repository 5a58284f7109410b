// Package httpidle asks what connections cost that say nothing.
package httpidle

import (
	"fmt"
	"slices"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/servers"
)

var (
	of    = servers.With(servers.Hello)
	cRing = servers.HelloRing()
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "http-idle", Plane: lab.Network,
		Question: "How much memory does a connection hold that is open and silent?",
		Method: "A server answers 100 connections, which close; then so many connect, get one answer each, and rest. What the process's own memory (RssAnon) is larger than before, by connection, is the least of " +
			"half a second of rest. The kernel's memory for sockets, some 5 KB at both ends together, is the same for all and not in it.",
		Metrics: []lab.Metric{lab.BytesPerConn, lab.OpsPerSecond}, Base: of.NetHTTP,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("connections", 10000) },
		Contestants: slices.Concat(of.Own(), of.Peers(), []*lab.Contestant{cRing}, servers.HelloOthers()),
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			return load.Idle{Connections: cell.Int("connections")}.Scene(b)
		},
		Advice: func(v lab.View) string {
			said, ok := v.Beside(nil, lab.BytesPerConn, "%.1f", 1e3, of.NetHTTP, of.UringGoroutine,
				of.UringCoroutine, of.UringInline)
			if !ok {
				return ""
			}
			return fmt.Sprintf("A silent connection holds %s KB with net/http, %s on a goroutine, %s as a coroutine, %s inline.", said...)
		},
		Claims: []lab.Claim{
			claims.ConnectionMemory.Judged("net/http and gnet", func(v lab.View) (lab.Verdict, bool) {
				m, ok := v.Medians(nil, lab.BytesPerConn, of.NetHTTP, of.Gnet)
				if !ok {
					return lab.Verdict{}, false
				}
				std, _ := v.Level(of.NetHTTP, nil, lab.BytesPerConn, 2000)
				lean, _ := v.Level(of.Gnet, nil, lab.BytesPerConn, 200)
				const why = "net/http keeps a goroutine, and a buffer for each direction, of 4 KiB: from half to twice the article's figures is let pass here."
				return lab.All(lab.Within(std, 0.5, 2, why), lab.Within(lean, 0.5, 2, why)).As("%.1f KB and %.2f KB",
					m[0]/1e3, m[1]/1e3), true
			}),
			atMost("Inline a silent connection holds 2.5 KB.", of.UringInline, 2560),
			atMost("As a coroutine a silent connection holds 6 KB.", of.UringCoroutine, 6144),
		},
	})
}

func atMost(text string, who *lab.Contestant, bytes float64) lab.Claim {
	return lab.Claim{
		Claim: text, Source: lab.Goal(fmt.Sprintf("≤ %.1f KB", bytes/1024)), Needs: who.Name,
		Judge: func(v lab.View) (lab.Verdict, bool) {
			m, _ := v.Median(who, nil, lab.BytesPerConn)
			r, ok := v.Level(who, nil, lab.BytesPerConn, bytes)
			return lab.AtMost(r, 1,
				"Two operations of the ring, the connection's state and, for a coroutine, its stack.").As("%.1f KB, %v",
				m/1024, r), ok
		},
	}
}
