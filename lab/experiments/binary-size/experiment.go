// Package binarysize asks what is in a Go program that could be left out.
package binarysize

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

var (
	static   = lab.PeersWith("small", false, "").As("static", "size")
	stripped = lab.PeersWith("small", false, "-s -w").As("static, -s -w", "size")
	withC    = lab.PeersWith("small", true, "").As("cgo",
		"size").But("linked with the C library, where there is a C compiler")
	both = lab.PeersWith("small", true, "-s -w").As("cgo, -s -w",
		"size").But("linked with the C library, where there is a C compiler")
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "binary-size", Plane: lab.Network,
		Question: "How large is a small server in Go, and what do the linker's flags take off?",
		Method: "A server of package net/http with one handler, built in four ways by the Go command of this machine; the size of the file, in bytes. -s leaves out the symbol table, -w the " +
			"debugger's data; a panic still names functions and lines.",
		Metrics: []lab.Metric{lab.BinaryBytes}, Base: static, Turn: 150e6,
		Contestants: []*lab.Contestant{static, stripped, withC, both},
		Advice: func(v lab.View) string {
			m, ok := v.Medians(nil, lab.BinaryBytes, static, stripped)
			if !ok {
				return ""
			}
			return lab.Or(m[1] < m[0],
				fmt.Sprintf("-s -w takes %.1f MB of %.1f off, which are the symbol table and the debugger's data.",
					(m[0]-m[1])/1e6, m[0]/1e6),
				fmt.Sprintf("-s -w takes nothing off: %.1f MB with it, %.1f without.", m[1]/1e6, m[0]/1e6))
		},
		Claims: []lab.Claim{
			claim(claims.StaticSize, static, withC, 0.7, "",
				"The pure Go resolver replaces the C library's, which is linked dynamically and is not in the file."),
			claim(claims.StrippedSize, stripped, static, 0.72,
				"What is left is code, and the tables that the garbage collector and panics need.",
				"Code, and the tables that the garbage collector and panics need, are more of it here."),
		},
	})
}

func claim(p lab.Published, a, b *lab.Contestant, x float64, why, ifNot string) lab.Claim {
	return p.Judged(lab.Needs(nil, a, b), func(v lab.View) (lab.Verdict, bool) {
		m, ok := v.Medians(nil, lab.BinaryBytes, a, b)
		if !ok || m[1] == 0 {
			return lab.Verdict{}, false
		}
		// the same in every round
		return lab.Holds(m[0]/m[1] <= x, fmt.Sprintf("%.1f → %.1f MB, %.2f×", m[1]/1e6, m[0]/1e6, m[0]/m[1]),
			why).IfNot(ifNot), true
	})
}
