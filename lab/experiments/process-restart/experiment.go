// Package processrestart asks how many requests a restart of a server costs.
package processrestart

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/workers"
)

var (
	ours  = lab.Ours("tallywheel/prefork", workers.Prefork{Workers: 2, Procs: 1}.Serves)
	plain = neverUpgraded(lab.Ours("net/http, own sockets",
		workers.Plain(2)).But("SO_REUSEPORT sockets of each worker's own; Shutdown at SIGTERM"))
	nginx = neverUpgraded(lab.Tool("nginx", "apt install nginx-light").As("nginx").But("two workers; reload by SIGHUP"))
)

func neverUpgraded(c *lab.Contestant) *lab.Contestant {
	c.Skip = func(cell lab.Params) bool { return cell["event"] == "upgrade" }
	return c
}

func init() {
	nginx.Command = nginxCommand
	lab.Register(&lab.Experiment{
		Name: "process-restart", Plane: lab.Processes,
		Question: "How many requests does a restart of a server cost?",
		Method: "Two workers at one address; 16 clients, each with a connection for each request (new) or with one for as long as the server keeps it (kept). In the middle of a turn all workers are " +
			"replaced (restart), they and the master by a program anew (upgrade), or one is killed (kill). A request has failed that got no answer, or no connection. Nobody asks a second time.",
		Metrics: []lab.Metric{lab.FailedPerEvent, lab.OpsPerSecond, lab.LatencyP99, lab.LatencyMax},
		Turn:    3 * time.Second, Cells: cells,
		Contestants: []*lab.Contestant{ours, plain, nginx},
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			return load.Events{Event: cell["event"], Connections: 16, Close: cell["connections"] == "new"}.Scene(b)
		},
		Advice: func(v lab.View) string {
			m, ok := v.Medians(cell("restart", "new"), lab.FailedPerEvent, ours, plain)
			if !ok {
				return ""
			}
			return fmt.Sprintf("A restart costs %.0f requests where the master holds the sockets, %.0f where each worker has its own.", m[0], m[1])
		},
		Claims: judges(),
	})
}

func cell(event, connections string) lab.Params {
	return lab.Params{"event": event, "connections": connections}
}

func cells(lab.Options) (all []lab.Params) {
	for _, event := range []string{"restart", "upgrade", "kill"} {
		all = append(all, cell(event, "new"), cell(event, "kept"))
	}
	return all
}

func nginxCommand(b *lab.Bench, p lab.Params, _ time.Duration) []string {
	conf := filepath.Join(b.Dir, "restart.conf")
	text := fmt.Sprintf(`daemon off; worker_processes 2; worker_shutdown_timeout 2s; pid %[1]s/restart.pid; error_log stderr crit;
events { worker_connections 1024; }
http { access_log off; keepalive_requests 1000000000; server { listen %[2]s reuseport; location / { default_type text/plain; return 200 "Hello, World!"; } } }
`, b.Dir, p["addr"])
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return []string{"-t"} // it says that there is no configuration
	}
	return []string{"-p", b.Dir, "-e", "stderr", "-c", conf}
}

func judges() []lab.Claim {
	goal := func(text, event string) lab.Claim {
		return lab.Claim{
			Claim: text, Source: lab.Goal("0 failed"), Needs: lab.Needs(lab.Params{"event": event}, ours),
			Judge: func(v lab.View) (lab.Verdict, bool) {
				worst, seen := 0.0, false
				for _, connections := range []string{"new", "kept"} {
					if f, ok := v.Figure(ours, cell(event, connections), lab.FailedPerEvent); ok {
						seen = true
						for _, n := range f.Samples {
							worst = max(worst, n)
						}
					}
				}
				return lab.Holds(worst == 0, fmt.Sprintf("at most %.0f failed", worst),
					"The master holds the sockets; who leaves lets its clients leave first."), seen
			},
		}
	}
	return []lab.Claim{
		goal("A rolling restart by prefork costs no request.", "restart"),
		goal("An upgrade by prefork, of workers and master, costs no request.", "upgrade"),
		claims.ReusePort.Judged(lab.Needs(cell("restart", "new"), plain), func(v lab.View) (lab.Verdict, bool) {
			m, ok := v.Medians(cell("restart", "new"), lab.FailedPerEvent, plain)
			if !ok {
				return lab.Verdict{}, false
			}
			return lab.Holds(m[0] == 0, fmt.Sprintf("%.0f requests a restart", m[0]),
				"A socket that its worker closes resets who waits in its queue."), true
		}),
	}
}
