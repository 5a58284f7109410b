// Package rtstart asks how long a program takes from its execution to its first line, and how much
// that scatters.
package rtstart

import (
	"fmt"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

var (
	static  = lab.Ours("go, static", start).But("CGO_ENABLED=0")
	dynamic = lab.Ours("go, cgo", start).But("linked with the C library")
	cStatic = lab.Ours("c, static", start)
	c       = lab.Ours("c, dynamic", start)
	rust    = lab.Ours("rust", start)
	python  = lab.Ours("python", start)

	// What each of them starts.
	programs = map[string]lab.Program{
		static.Name: lab.PeersWith("hello", false, "-s -w"), dynamic.Name: lab.PeersWith("hello", true, "-s -w"),
		cStatic.Name: lab.C("hello.c", "apt install gcc libc6-dev", "-static"), c.Name: lab.C("hello.c", "apt install gcc"),
		rust.Name: lab.Rust("hello.rs"), python.Name: lab.Python("hello.py", "os", "apt install python3"),
	}
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "rt-start", Plane: lab.RealTime,
		Question: "How long does a program take from its execution to its first line?",
		Method: "A program that prints a line is executed again and again, one after the other; latency is from before it is executed to the moment at which its line has been read. The programs are in the page cache: " +
			"what a disk, or NAND, adds is not in it. Linked statically, or with the C library at each start.",
		Metrics: []lab.Metric{lab.LatencyP50, lab.Stddev, lab.LatencyP90, lab.LatencyMax},
		Base:    static, Turn: time.Second,
		Contestants: []*lab.Contestant{static, dynamic, cStatic, c, rust, python},
		Scene: func(b *lab.Bench, c *lab.Contestant, _ lab.Params) (*lab.Scene, error) {
			argv, err := b.Program(programs[c.Name])
			return &lab.Scene{Params: lab.Params{"program": strings.Join(argv, "\n")}}, err
		},
		Advice: func(v lab.View) string {
			m, ok := v.Medians(nil, lab.LatencyP50, static, cStatic)
			if !ok {
				return ""
			}
			return fmt.Sprintf("A static Go program is at its first line after %.2f ms, one in C after %.2f. Build with CGO_ENABLED=0 where a start matters.", m[0]/1e3, m[1]/1e3)
		},
		Claims: []lab.Claim{
			claims.StaticStart.Judged(lab.Needs(nil, static, dynamic), func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(static, dynamic, nil, lab.LatencyP50)
				return lab.AtMost(r, 0.9, "128.3 ÷ 147.6 is 0.87, and 0.9 is asked for here. Nobody has to look for libraries and their symbols. From the page cache, not from NAND."), ok
			}),
			claims.StaticScatter.Judged(lab.Needs(nil, static, dynamic), func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(static, dynamic, nil, lab.Stddev)
				return lab.AtMost(r, 0.5, "1.7 ÷ 9.4 is 0.18, and 0.5 is asked for here. What scatters on a machine as this is the scheduler, which is the same for both; pages that a flash is read for are not here."), ok
			}),
		},
	})
}
