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
		Method: "Two workers at one address; 16 clients, each with a connection for each request (new) or with one for as long as the server keeps it (kept). After a quarter of a turn all workers are " +
			"replaced (restart), they and the master by a program anew (upgrade), or one is killed (kill); the clients ask on until that is over, and for a quarter of a turn more. A request has failed that got no answer, or no connection. Nobody asks a second time.",
		Metrics: []lab.Metric{lab.FailedPerEvent, lab.OpsPerSecond, lab.LatencyP99, lab.LatencyMax},
		Turn:    3 * time.Second, Cells: cells,
		Contestants: []*lab.Contestant{ours, plain, nginx},
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			return load.Events{Event: cell["event"], Connections: 16, Close: cell["connections"] == "new"}.Scene(b)
		},
		Advice: func(v lab.View) string {
			a, ok1 := v.Sum(ours, cell("restart", "new"), lab.FailedPerEvent)
			b, ok2 := v.Sum(plain, cell("restart", "new"), lab.FailedPerEvent)
			f, _ := v.Figure(ours, cell("restart", "new"), lab.FailedPerEvent)
			if !ok1 || !ok2 {
				return ""
			}
			return fmt.Sprintf("%d restarts cost %.0f requests where the master holds the sockets, %.0f where each worker has its own.",
				f.N, a, b)
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
				const why = "The master holds the sockets; who leaves lets its clients leave first."
				anew, ok1 := v.Never(ours, cell(event, "new"), lab.FailedPerEvent, 0, why)
				kept, ok2 := v.Never(ours, cell(event, "kept"), lab.FailedPerEvent, 0, why)
				if !ok1 || !ok2 {
					return lab.Verdict{}, false
				}
				return lab.All(anew, kept).As("new connections: %s; kept ones: %s", anew.Here, kept.Here), true
			},
		}
	}
	return []lab.Claim{
		goal("A rolling restart by prefork costs no request.", "restart"),
		goal("An upgrade by prefork, of workers and master, costs no request.", "upgrade"),
		claims.ReusePort.Judged(lab.Needs(cell("restart", "new"), plain), func(v lab.View) (lab.Verdict, bool) {
			verdict, ok := v.Never(plain, cell("restart", "new"), lab.FailedPerEvent, 0,
				"No restart met a connection that waited to be accepted.")
			lost, _ := v.Sum(plain, cell("restart", "new"), lab.FailedPerEvent)
			return verdict.IfNot("A socket that its worker closes resets who waits in its queue.").
				As("%s, %.0f in all", verdict.Here, lost), ok
		}),
	}
}
