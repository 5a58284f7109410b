// Package uringnop asks what an operation on a ring costs before it does anything.
package uringnop

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
)

var (
	inC  = lab.C("uring_nop.c", "apt install gcc liburing-dev", "-luring").As("c/liburing", "nop-ring")
	ours = lab.Ours("tallywheel/uring", nopRing)
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "uring-nop", Plane: lab.Files,
		Question: "What does an io_uring operation cost before it does anything?",
		Method: "Operations that do nothing, depth of them submitted and reaped with one call, on a registered ring of one owner. What C needs is the kernel's part and the library's; what is " +
			"above it is what the Go package keeps books with: slots, generations, owners.",
		Metrics: []lab.Metric{lab.NsPerOp, lab.CPUPerOp, lab.AllocsPerOp}, Base: inC, Turn: 500e6,
		Chart:       lab.Chart{Over: "depth"},
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("depth", 1, 8, 64) },
		Contestants: []*lab.Contestant{inC, ours},
		Advice: func(v lab.View) string {
			m, ok := v.Medians(lab.Params{"depth": "64"}, lab.NsPerOp, ours, inC)
			one, ok2 := v.Median(ours, lab.Params{"depth": "1"}, lab.NsPerOp)
			if !ok || !ok2 {
				return ""
			}
			r, _ := v.Across(ours, lab.Params{"depth": "64"}, ours, lab.Params{"depth": "1"}, lab.NsPerOp)
			return fmt.Sprintf("An operation that does nothing takes %.0f ns where 64 are submitted at a time (C: %.0f), %.0f ns alone: %s.",
				m[0], m[1], one, r.Tell("do not submit in batches", "submit in batches"))
		},
		Claims: []lab.Claim{{
			Claim:  "A ring in pure Go, with its guards, costs within a fifth of liburing in C.",
			Source: lab.Goal("80 ns an operation at depth 64"),
			Needs:  "tallywheel/uring and c/liburing at depth=64",
			Judge: func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(ours, inC, lab.Params{"depth": "64"}, lab.NsPerOp)
				verdict := lab.AtMost(r, 1.2, "Most of it is the kernel's.")
				if m, ok := v.Median(ours, lab.Params{"depth": "64"}, lab.NsPerOp); ok {
					verdict.Here += fmt.Sprintf(", %.0f ns", m)
				}
				return verdict, ok
			},
		}},
	})
}
