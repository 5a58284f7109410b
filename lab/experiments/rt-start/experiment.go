// Package rtstart asks how long a program takes from its execution to its first line, and how much
// that scatters.
package rtstart

import (
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/lab/startup"
)

var (
	start = startup.Work(func() startup.Reader { return greeting{} })

	static  = lab.Ours("go, static", start).But("CGO_ENABLED=0")
	dynamic = lab.Ours("go, cgo", start).But("linked with the C library")
	cStatic = lab.Ours("c, static", start)
	c       = lab.Ours("c, dynamic", start)
	rust    = lab.Ours("rust", start)
	python  = lab.Ours("python", start)

	warm = lab.Params{"cache": "warm"}
	cold = lab.Params{"cache": "cold"}

	// What each of them starts.
	programs = map[string]lab.Program{
		static.Name: lab.PeersWith("hello", false, "-s -w"), dynamic.Name: lab.PeersWith("hello", true, "-s -w"),
		cStatic.Name: lab.C("hello.c", "apt install gcc libc6-dev", "-static"),
		c.Name:       lab.C("hello.c", "apt install gcc"),
		rust.Name:    lab.Rust("hello.rs"), python.Name: lab.Python("hello.py", "os", "apt install python3"),
	}
)

// greeting is what each of them prints.
type greeting struct{}

func (greeting) Read(line string) error {
	if line != "hello" {
		return fmt.Errorf("the program has printed %q", line)
	}
	return nil
}

func (greeting) Values(string) ([]contestant.Value, error) { return nil, nil }

func init() {
	lab.Register(&lab.Experiment{
		Name: "rt-start", Plane: lab.RealTime,
		Question: "How long does a program take from its execution to its first line?",
		Method: "A program that prints a line is executed again and again, 50 times at least, one after the other; latency is from before it is executed to the moment at which its line has been read. Linked statically, or with the C library at each start. " +
			"Warm, all of it is in the page cache. Cold, nothing of it is: it is a copy on the disk of --dir, with copies of the libraries and of the program that links them, which are taken out of the cache before each start.",
		Metrics: []lab.Metric{lab.LatencyP50, lab.LatencyMean, lab.Stddev, lab.LatencyP95, lab.LatencyMax},
		Base:    static, Turn: time.Second,
		Cells:       func(lab.Options) []lab.Params { return []lab.Params{warm, cold} },
		Contestants: []*lab.Contestant{static, dynamic, cStatic, c, rust, python},
		Scene:       scene,
		Advice: func(v lab.View) string {
			said, ok := v.Beside(warm, lab.LatencyP50, "%.2f", 1e3, static, cStatic)
			if !ok {
				return ""
			}
			text := fmt.Sprintf("A static Go program that is in the page cache is at its first line after %s ms, one in C after %s.", said...)
			if v.Beats(static, dynamic, warm, lab.LatencyP50) {
				r, _ := v.Ratio(dynamic, static, warm, lab.LatencyP50)
				text += fmt.Sprintf(" Linked with the C library it takes %.2f times as long: build with CGO_ENABLED=0 where a start matters.", r.Median)
			}
			return text
		},
		Claims: []lab.Claim{
			claims.StaticStart.Judged(lab.Needs(cold, static, dynamic), func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(static, dynamic, cold, lab.LatencyP50)
				return lab.AtMost(r, 0.9,
					"128.3 ÷ 147.6 is 0.87, and 0.9 is asked for here. Nobody has to look for libraries and their symbols. Cold, from this machine's disk, not from NAND.").
					IfNot("128.3 ÷ 147.6 is 0.87, and 0.9 is asked for here. From this machine's disk, not from NAND, the libraries are not what a cold start waits for."), ok
			}),
			claims.StaticScatter.Judged(lab.Needs(cold, static, dynamic), func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(static, dynamic, cold, lab.Stddev)
				return lab.AtMost(r, 0.5, "").IfNot(
					"1.7 ÷ 9.4 is 0.18, and 0.5 is asked for here. What scatters on a machine as this are its disk and its scheduler, which are the same for both."), ok
			}),
		},
	})
}
