// Package serialoverflow asks where bytes are lost that come faster than they can be kept.
package serialoverflow

import (
	"fmt"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/load"
)

var (
	block  = lab.Ours("tallywheel/block", record(config.OverflowBlock)).But("stops reading")
	oldest = lab.Ours("tallywheel/drop-oldest",
		record(config.OverflowOldest)).But("above 70 % fill gives up the oldest")
	newest = lab.Ours("tallywheel/drop-newest", record(config.OverflowNewest)).But("when full gives up what comes")
	spill  = lab.Ours("tallywheel/spill", record(config.OverflowSpill)).But("runs over into a file")

	all = []*lab.Contestant{block, oldest, newest, spill}
)

// The cells. The article's limit is 450 KB/s; a disk that stands still meets twenty times as much,
// or the log's two buffers of 1 MiB would not be full in a turn of seconds.
var (
	busy  = lab.Params{"rate": "460000", "disk": "works"}
	stuck = lab.Params{"rate": "9200000", "disk": "stands-still"}
	long  = lab.Params{"rate": "460000", "disk": "stands-still"} // with --full: see least
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "serial-overflow", Plane: lab.Serial,
		Question: "What overflows where when bytes come faster than they can be kept, by policy?",
		Method: "A source that does not wait, as a UART does not: what the port's buffer has no room for is lost there. It sends frames of 128 bytes, numbered and with a CRC, to the whole recorder, whose process computes on every CPU for 70 % of the time. In " +
			"one cell the log's disk works; in the others it stands still for four tenths of a turn, so that the log's buffers, the source's of 64 KiB and, where the reading stops, the port's fill one after the other. Lost at the port is frames that were cut, " +
			"too; lost by policy is what the recorder's sheet says. The frames of all rounds are counted together, and what none lost rules out is three divided by their number, at 95 %.",
		Metrics: []lab.Metric{
			lab.SentFrames, lab.LostFrames, lab.LostPercent, lab.ErrorBound, lab.LostAtPort, lab.LostByPolicy,
			lab.CPUPercent, lab.OpsPerSecond, lab.RSS,
		},
		Turn: 4 * time.Second, Least: least,
		Cells: func(o lab.Options) []lab.Params {
			if o.Full {
				return []lab.Params{busy, stuck, long}
			}
			return []lab.Params{busy, stuck}
		},
		Contestants: all,
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			return load.Serial{Ports: 1, Rate: float64(cell.Int("rate")), Overruns: true}.Scene(b)
		},
		Advice: advice,
		Claims: []lab.Claim{
			{
				Claim:  "At 460 KB/s, with its CPUs busy for 70 % of the time, a recorder loses no frame, whatever its policy.",
				Source: lab.Goal("none lost"), Needs: lab.Needs(busy, all...),
				Judge: func(v lab.View) (lab.Verdict, bool) {
					here, _, ok := each(v, busy, func(*lab.Contestant) bool { return true })
					var parts []lab.Verdict
					for _, c := range all {
						part, _ := v.Never(c, busy, lab.LostFrames, 0,
							"The log's disk works, so nothing fills; a policy that drops above a rate would drop for nothing.")
						parts = append(parts, part)
					}
					return lab.All(parts...).As("%s", here).
						IfNot("The log's disk works, so nothing has to fill: what was lost where is beside it."), ok
				},
			},
			{
				Claim:  "While the log's disk stands still, each frame that is lost is counted where that was, at the port or by the policy, and a source that runs over into a file gives none up.",
				Source: lab.Goal("none unaccounted for, none given up"), Needs: lab.Needs(stuck, all...),
				Judge: func(v lab.View) (lab.Verdict, bool) {
					here, wrong, ok := each(v, stuck, func(c *lab.Contestant) bool {
						named := of(v, c, stuck, lab.LostAtPort) + of(v, c, stuck, lab.LostByPolicy)
						return of(v, c, stuck, lab.LostFrames) == named
					})
					gaveUp := of(v, spill, stuck, lab.LostByPolicy)
					why := fmt.Sprintf("%d of %d policies lost frames that nothing names, and the file's source gave up %.0f.", wrong, len(all), gaveUp)
					return lab.NoneIn(v.RoundsOf(spill, stuck, lab.LostFrames), wrong == 0 && gaveUp == 0, here,
						"The sheet balances: each frame that was read is stored, or named with the cause of its loss. The file takes what the log does not, and gives it back in its order; what is lost at the port is the reader's delay on a busy CPU: at 9.2 MB/s a pty has room for 2 ms.").
						IfNot(why), ok
				},
			},
		},
	})
}

// least is a turn in whose four tenths more bytes come than there is room for: 2 MiB in the log's
// buffers, 64 KiB in the source's, and what the port has.
func least(cell lab.Params) time.Duration {
	const room = 5 << 19 // bytes
	if cell["disk"] != stuck["disk"] {
		return 0
	}
	return time.Duration(10.0 / 4 * room / float64(cell.Int("rate")) * float64(time.Second))
}

func of(v lab.View, c *lab.Contestant, cell lab.Params, m lab.Metric) float64 {
	sum, _ := v.Sum(c, cell, m) // whoever asks has looked whether it was measured
	return sum
}

// each says what every policy lost in a cell, and for how many a condition does not hold.
func each(v lab.View, cell lab.Params, holds func(*lab.Contestant) bool) (here string, not int, ok bool) {
	var parts []string
	for _, c := range all {
		text, ok := lost(v, c, cell)
		if !ok {
			return "", 0, false
		}
		if parts = append(parts, text); !holds(c) {
			not++
		}
	}
	return strings.Join(parts, "; "), not, true
}

// lost says how many frames a policy lost, and where.
func lost(v lab.View, c *lab.Contestant, cell lab.Params) (string, bool) {
	bound, ok := v.Median(c, cell, lab.ErrorBound)
	sent, gone := of(v, c, cell, lab.SentFrames), of(v, c, cell, lab.LostFrames)
	text := fmt.Sprintf("%s lost %.0f of %.0f frames, a rate below %s", strings.TrimPrefix(c.Name, "tallywheel/"),
		gone, sent, lab.UpTo(bound))
	if gone > 0 {
		text += fmt.Sprintf(" (%.0f at the port, %.0f by its policy)", of(v, c, cell, lab.LostAtPort),
			of(v, c, cell, lab.LostByPolicy))
	}
	return text, ok
}

func advice(v lab.View) string {
	here, _, ok := each(v, stuck, func(*lab.Contestant) bool { return true })
	if !ok {
		return ""
	}
	return "Where the log's disk stands still: " + here + "."
}
