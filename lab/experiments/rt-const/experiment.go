// Package rtconst asks what it costs a start to have its constants: from the compiler, from the
// compiler and checked, or computed.
package rtconst

import (
	"fmt"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/startup"
)

var (
	start = startup.Work(func() startup.Reader { return &reader{} })

	inGo    = lab.Ours("go", start).But("its compiler evaluates no functions: they stand as numbers in the source")
	inC     = lab.Ours("c", start).But("the checksum by macros and enumerators, the hash as numbers in the source")
	trimmed = lab.Ours("c, --gc-sections",
		start).But("a section for each function and constant, of which the linker keeps those that are used")
	rust = lab.Ours("rust", start).But("by const fn")

	computed = lab.Params{"constants": "computed"}
	checked  = lab.Params{"constants": "checked"}
	compiled = lab.Params{"constants": "compiled"}
)

// sections has gcc and ld keep by itself what is used.
var sections = []string{"-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"}

// program is what a contestant starts in a cell.
func program(c *lab.Contestant, cell lab.Params) lab.Program {
	how := cell["constants"]
	switch c {
	case inGo:
		return lab.PeersWith("constants/"+how, false, "-s -w")
	case rust:
		return lab.Rust("const.rs", "--cfg", how)
	}
	flags := []string{"-D" + strings.ToUpper(how)}
	if c == trimmed {
		flags = append(flags, sections...)
	}
	return lab.C("const.c", "apt install gcc", flags...)
}

func scene(b *lab.Bench, c *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
	argv, err := b.Program(program(c, cell))
	return &lab.Scene{Params: lab.Params{"program": strings.Join(argv, "\n")}}, err
}

func init() {
	lab.Register(&lab.Experiment{
		Name: "rt-const", Plane: lab.RealTime,
		Question: "What does it cost a start to have constants by the compiler, and to check them?",
		Method: "A program that needs the table of a CRC-32, the checksum of uboot-spl-v2024.07-arm64, and the SHA-256 of that and of an address, which has to be what is stored. computed: it makes all of them at its start. checked: the compiler made table and checksum; " +
			"the start makes the checksum again by that table, and the hash. compiled: the compiler made all, and the start compares. constants_ns_p50 is what the program says that took it, at the first use, with the page faults of that: the median of a turn's starts, for the claims are of what it costs; how much starts scatter is the question of rt-start. " +
			"It prints checksum and hash, and the laboratory compares them with Go's standard library. Latency is that of rt-start, from the execution to the line. loaded_bytes are the sections of the file that are loaded: the file itself is padded to pages.",
		Metrics: []lab.Metric{lab.ConstantsP50, lab.LoadedBytes, lab.LatencyP50, lab.LatencyP95},
		Base:    inC, Turn: 500 * time.Millisecond,
		Cells:       func(lab.Options) []lab.Params { return []lab.Params{computed, checked, compiled} },
		Contestants: []*lab.Contestant{inGo, inC, trimmed, rust},
		Scene:       scene,
		Advice: func(v lab.View) string {
			a, ok := v.Medians(computed, lab.ConstantsP50, inGo, rust)
			b, ok2 := v.Medians(checked, lab.ConstantsP50, inGo, rust)
			l, ok3 := v.Median(inGo, computed, lab.LatencyP50)
			if !ok || !ok2 || !ok3 {
				return ""
			}
			text := fmt.Sprintf("To make a table, a checksum and a hash takes a Go program %.1f µs of a start of %.0f, to check those of the compiler %.1f; Rust %.1f and %.1f.", a[0]/1e3, l, b[0]/1e3, a[1]/1e3, b[1]/1e3)
			switch r, ok := v.Across(inGo, compiled, inGo, computed, lab.LatencyP50); {
			case !ok || !r.Enough() || !r.Quiet():
			case r.Hi < 1:
				text += fmt.Sprintf(" A start with constants of the compiler takes %.2f of the time: take them.", r.Median)
			case r.Unseen() <= 0.05:
				text += " A start is no more than 5 % shorter by constants of the compiler: take them for what is larger or slower."
			}
			return text
		},
		Claims: judges(),
	})
}

func judges() []lab.Claim {
	return []lab.Claim{
		claims.ConstAtCompileTime.Judged("rust with constants computed and compiled",
			func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Across(rust, compiled, rust, computed, lab.ConstantsP50)
				return lab.AtMost(r, 0.25,
					"What is left is a comparison with what is stored, and two looks at the clock. The article has no figure; a quarter of what it takes to compute them is let pass here.").
					IfNot("What is left, a comparison and two looks at the clock, is more than the quarter that is let pass here of what it takes to compute them."), ok
			}),
		claims.SameConstants.Judged(lab.Needs(compiled, inC, rust), func(v lab.View) (lab.Verdict, bool) {
			_, ok := v.Medians(compiled, lab.ConstantsP50, inC, rust)
			return lab.Holds(true, fmt.Sprintf("checksum %08x and hash %x… of both, and of Go's standard library", crc, hash[:4]),
				"A start with another one is an error, and has no figures."), ok
		}),
		claims.TrimmedConstants.Judged(lab.Needs(checked, trimmed, inC), func(v lab.View) (lab.Verdict, bool) {
			m, ok := v.Medians(checked, lab.LoadedBytes, trimmed, inC)
			if !ok {
				return lab.Verdict{}, false
			}
			return lab.Holds(false, fmt.Sprintf("the check holds with it; %.0f of %.0f bytes are loaded", m[0], m[1]),
				"It takes away what nothing refers to, and the check refers to what it needs. rustc links with it always."), true
		}),
	}
}
