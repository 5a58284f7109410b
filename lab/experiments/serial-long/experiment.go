// Package seriallong asks what readers lose in half an hour.
package seriallong

import (
	"fmt"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/readers"
	"github.com/tallywheel/tallywheel/reader"
)

var (
	blocking = lab.Ours("tallywheel/blocking", readers.By(reader.Blocking, ""))
	polling  = lab.Ours("tallywheel/polling", readers.By(reader.Polling, "")).But("looks every 10 ms")
	hybrid   = lab.Ours("tallywheel/hybrid",
		readers.By(reader.Ring, reader.Hybrid)).But("looks all the time while data flows: a CPU for itself")
	all = []*lab.Contestant{blocking, polling, hybrid}
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "serial-long", Plane: lab.Serial,
		Question: "How many frames do readers lose in half an hour at 400 KB/s?",
		Method: "Frames of 128 bytes with sequence number and CRC through a virtual port, at 400 KB/s: with --full for half an hour each, else for as long as there is time. One turn each: frames are counted, and what " +
			"none lost rules out is three divided by their number, at 95 %. A pty makes no errors of its own: these are the readers'.",
		Metrics: []lab.Metric{
			lab.SentFrames, lab.LostFrames, lab.LostPercent, lab.ErrorBound, lab.CPUPercent,
			lab.LatencyP99, lab.LatencyMax, lab.Wall,
		},
		Once: true, Turn: 30 * time.Minute,
		Contestants: all,
		Scene: func(b *lab.Bench, _ *lab.Contestant, _ lab.Params) (*lab.Scene, error) {
			return load.Serial{Ports: 1, Rate: 400_000}.Scene(b)
		},
		Advice: func(v lab.View) string {
			var parts []string
			for _, c := range all {
				text, ok := lost(v, c)
				if !ok {
					return ""
				}
				parts = append(parts, text)
			}
			return "At 400 KB/s: " + strings.Join(parts, "; ") + "."
		},
		Claims: []lab.Claim{
			claims.ErrorRates.Judged("tallywheel/blocking, tallywheel/polling and tallywheel/hybrid",
				func(v lab.View) (lab.Verdict, bool) {
					var here []string
					for _, c := range all {
						text, ok := lost(v, c)
						if !ok {
							return lab.Verdict{}, false
						}
						here = append(here, text)
					}
					return lab.NotHere("a line that makes errors: what a pty delivers is what was sent, so this is what the readers lose.").As("%s", strings.Join(here, "; ")), true
				}),
		},
	})
}

// lost says how many frames a reader lost.
func lost(v lab.View, c *lab.Contestant) (string, bool) {
	sent, ok1 := v.Sum(c, nil, lab.SentFrames)
	gone, ok2 := v.Sum(c, nil, lab.LostFrames)
	bound, ok3 := v.Median(c, nil, lab.ErrorBound)
	return fmt.Sprintf("%s lost %.0f of %.0f frames, a rate below %s", strings.TrimPrefix(c.Name, "tallywheel/"),
		gone, sent, lab.UpTo(bound)), ok1 && ok2 && ok3
}
