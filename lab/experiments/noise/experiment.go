// Package noise asks how small a difference this machine can tell.
package noise

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
)

var (
	copyA    = lab.Ours("copy/a", Work(0))
	copyB    = lab.Ours("copy/b", Work(0))
	slower10 = lab.Ours("slower/10", Work(10))
	slower3  = lab.Ours("slower/3", Work(3))
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "noise", Plane: lab.Laboratory,
		Question: "How small a difference can this machine tell?",
		Method: "Four copies of one contestant that only works the CPU: two alike, one that does 10 % more for each operation and one that does 3 % more. What is said of the two alike " +
			"and of the 10 % is what to think of all other comparisons of this run.",
		Metrics: []lab.Metric{lab.NsPerOp, lab.CPUPerOp}, Base: copyA, Turn: 500e6,
		Contestants: []*lab.Contestant{copyA, copyB, slower10, slower3},
		Advice: func(v lab.View) string {
			f, ok := v.Figure(copyA, lab.Params{}, lab.NsPerOp)
			r, ok2 := v.Ratio(copyB, copyA, nil, lab.NsPerOp)
			if !ok || !ok2 {
				return ""
			}
			return fmt.Sprintf("The same work wandered by %.1f %% from round to round; by the rounds of this run, differences of %.1f %% could be told.", 100*(f.Hi-f.Lo)/f.Median, 100*r.Unseen())
		},
		Claims: []lab.Claim{
			{
				Claim:  "Two copies of the same contestant show no difference.",
				Source: lab.Goal("in at least 19 of 20 runs"), Needs: "copy/a and copy/b",
				Judge: func(v lab.View) (lab.Verdict, bool) {
					r, ok := v.Ratio(copyB, copyA, lab.Params{}, lab.NsPerOp)
					return lab.Alike(r, 0.05,
						"The test finds a difference where there is none in less than one run of a hundred."), ok
				},
			},
			{
				Claim: "A slowdown of 10 % is detected.", Source: lab.Goal("a slowdown of 10 % is found"),
				Needs: "slower/10 and copy/a",
				Judge: func(v lab.View) (lab.Verdict, bool) {
					r, ok := v.Ratio(slower10, copyA, lab.Params{}, lab.NsPerOp)
					return lab.AtLeast(r, 1.03,
						"It does a tenth more for each operation, so the ratio should be 1.10."), ok
				},
			},
		},
	})
}
