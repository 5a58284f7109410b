// Package crc asks what it costs to check a frame.
package crc

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
)

var (
	ours   = lab.Ours("tallywheel/crc16", check)
	whole  = lab.Ours("tallywheel/decode", decode).For(lab.Params{"bytes": "126"})
	inC    = lab.C("crc_table.c", "apt install gcc").As("c/table", "crc")
	sigurn = lab.Peers("crc").As("sigurn/crc16", "sigurn")
	howeyc = lab.Peers("crc").As("howeyc/crc16", "howeyc").But("of the same polynomial, by a table")
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "crc", Plane: lab.Memory,
		Question: "What does the CRC-16 of a frame cost?",
		Method:   "CRC-16/MODBUS over blocks that are in the cache; 126 bytes are what a frame of 128 checks. decode is our whole decoder on frames in memory, CRC included.",
		Metrics:  []lab.Metric{lab.NsPerOp, lab.MBPerSecond, lab.AllocsPerOp},
		Base:     sigurn, Turn: 400e6,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("bytes", 126, 4096) },
		Contestants: []*lab.Contestant{ours, whole, inC, sigurn, howeyc},
		Advice: func(v lab.View) string {
			ns, ok := v.Median(ours, lab.Params{"bytes": "126"}, lab.NsPerOp)
			if !ok || ns <= 0 {
				return ""
			}
			const line = 128 * 10 / 3e6 * 1e9 // ns for a frame at 3 Mbaud, 8N1
			return fmt.Sprintf("To check a frame takes %.0f ns, %.2g %% of the time in which a line of 3 Mbaud brings it.", ns, 100*ns/line)
		},
		Claims: []lab.Claim{{
			Claim:  "A CRC-16 by carry-less multiplication is five times as fast as the libraries' tables.",
			Source: lab.Goal("≥ 5× sigurn/crc16"), Needs: "tallywheel/crc16 and sigurn/crc16",
			Judge: func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(sigurn, ours, lab.Params{"bytes": "126"}, lab.NsPerOp)
				return lab.AtLeast(r, 5, "A table takes one load a byte, each of which waits for the one before."), ok
			},
		}},
	})
}
