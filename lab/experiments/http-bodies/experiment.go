// Package httpbodies asks what bodies cost, by engine and by the way handlers run.
package httpbodies

import (
	"fmt"
	"strconv"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/servers"
)

const connections = 32

var (
	of            = servers.With(servers.Bodies)
	cRing, cEpoll = servers.C()
	net           = of.NetHTTP
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "http-bodies", Plane: lab.Network,
		Question: "What do bodies cost, received and sent?",
		Method: fmt.Sprintf("direction=post: a body of so many bytes, which the handler reads to its end by io.CopyBuffer, with net/http by 8 KB, as io.Discard would; its answer is the length and a sum over it. direction=get: an answer of so many bytes, from memory that never changes. "+
			"%d connections with keep-alive over loopback, which send again as soon as they are answered. All that comes back is compared: bodies differ from request to request, and an answer of another length, content or request ends the turn with an error. "+
			"The CPU time of the server for each request decides; requests a second say how much server and load fit on the same CPUs. The quick run asks for the settings that have a goal, --full for all six.", connections),
		Metrics: []lab.Metric{
			lab.CPUPerOp, lab.MBPerSecond, lab.OpsPerSecond, lab.LatencyP50, lab.LatencyP99,
			lab.CPUPerMB, lab.RSS,
		},
		Base: net, Turn: time.Second,
		Cells:       cells,
		Contestants: append(of.OwnAuto(), of.FastHTTP, cRing, cEpoll),
		Scene:       scene,
		Advice:      advice,
		Claims:      claims(),
	})
}

func cells(o lab.Options) []lab.Params {
	if !o.Full {
		return []lab.Params{cell("post", 64<<10), cell("get", 10<<10), cell("get", 1<<20)}
	}
	var all []lab.Params
	for _, direction := range []string{"post", "get"} {
		for _, bytes := range []int{10 << 10, 64 << 10, 1 << 20} {
			all = append(all, cell(direction, bytes))
		}
	}
	return all
}

func cell(direction string, bytes int) lab.Params {
	return lab.Params{"direction": direction, "bytes": strconv.Itoa(bytes)}
}

func scene(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
	bytes := cell.Int("bytes")
	l := load.HTTP{Connections: connections, Bytes: bytes}
	if cell["direction"] == "post" {
		l.Method, l.Exchanges = "POST", load.Bodies(bytes)
	} else {
		l.Exchanges = load.Answers(bytes)
	}
	return l.Scene(b)
}

var cpu = lab.CPUPerOp

func advice(v lab.View) string {
	who := []*lab.Contestant{net, of.Auto, of.UringCoroutine, of.UringInline}
	post, ok1 := v.Beside(cell("post", 64<<10), cpu, "%.0f", 1, who...)
	get, ok2 := v.Beside(cell("get", 1<<20), cpu, "%.0f", 1, who...)
	if !ok1 || !ok2 {
		return ""
	}
	return fmt.Sprintf("A body of 64 KB costs %s µs by net/http, %s on goroutines, %s as a coroutine, %s inline; an answer of 1 MB %s, %s, %s and %s.",
		append(post, get...)...)
}

func claims() []lab.Claim {
	const (
		read = "What is received is copied by the kernel once for everybody; what is above is copies and memory of the server's own."
		sent = "An answer in memory can be sent from where it lies; each copy of a megabyte costs as much as dozens of small requests."
		goal = "≤ %.2f×"
	)
	every := []*lab.Contestant{of.Auto, of.UringCoroutine, of.UringInline}
	post := cell("post", 64<<10)
	all := []lab.Claim{
		lab.AllAtMost("Inline, a body of 64 KB costs two thirds of what it does by net/http.",
			lab.Goal(fmt.Sprintf(goal, 0.65)), []*lab.Contestant{of.UringInline}, net, post, cpu, 0.65, read),
		lab.AllAtMost("As a coroutine, a body of 64 KB costs two thirds of what it does by net/http.",
			lab.Goal(fmt.Sprintf(goal, 0.65)), []*lab.Contestant{of.UringCoroutine}, net, post, cpu, 0.65, read),
		lab.AllAtMost("On goroutines, a body of 64 KB costs three quarters of what it does by net/http.",
			lab.Goal(fmt.Sprintf(goal, 0.75)), []*lab.Contestant{of.Auto}, net, post, cpu, 0.75, read),
		lab.AllAtMost("In every mode a body of 64 KB costs at most a fifth more than by fasthttp.",
			lab.Goal(fmt.Sprintf(goal, 1.2)), every, of.FastHTTP, post, cpu, 1.2, read),
	}
	for _, bytes := range []int{10 << 10, 1 << 20} {
		for _, than := range []*lab.Contestant{net, of.FastHTTP} {
			all = append(all, lab.AllAtMost(fmt.Sprintf("In every mode an answer of %d KB costs no more than by %s.",
				bytes>>10, than.Name), lab.Goal(fmt.Sprintf(goal, 1.0)), every, than, cell("get", bytes), cpu, 1, sent))
		}
	}
	return all
}
