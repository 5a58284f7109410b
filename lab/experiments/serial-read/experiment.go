// Package serialread asks what one read of a serial port waits for, and how it ends.
package serialread

import (
	"fmt"
	"strings"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/load"
)

var (
	files = lab.Ours("os.File", readTimes)
	// no data comes whatever the rate is
	timeOut = lab.Peers("serial").As("go.bug.st/serial, 1 ms", "timeout").For(at("11520"))
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "serial-read", Plane: lab.Serial,
		Question: "What does one read of a serial port wait for, how long is the work, and how does it end without data?",
		Method: "os.File reads frames of 128 bytes that come at what 115,200 baud and 1 Mbit/s carry; how long each read waits, and how long it takes to check what it brought, are its own clock's. " +
			"go.bug.st/serial reads a silent port with a time-out of 1 ms, and its system calls are counted.",
		Metrics: []lab.Metric{
			lab.BlockedP50, lab.HandledP50, lab.NsPerOp, lab.SyscallsPerOp, lab.Calls("pselect6"),
			lab.Calls("read"), lab.CPUPerOp,
		}, Calls: true, Turn: 500e6,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("bytes_per_s", 11_520, 100_000) },
		Contestants: []*lab.Contestant{files, timeOut},
		Scene: func(b *lab.Bench, c *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			s, err := load.Serial{Ports: 1, Rate: float64(cell.Int("bytes_per_s"))}.Scene(b)
			if err == nil && c == timeOut {
				s.Load = nil
			}
			return s, err
		},
		Advice: func(v lab.View) string {
			wait, ok1 := v.Median(files, at("11520"), lab.BlockedP50)
			work, ok2 := v.Median(files, at("11520"), lab.HandledP50)
			if !ok1 || !ok2 {
				return ""
			}
			return fmt.Sprintf("At 115,200 baud a read waits %.1f ms for its frame, and %.1f µs of work follow: one thread has time for many ports.", wait/1e3, work)
		},
		Claims: []lab.Claim{
			claims.BlockTimes.Judged("os.File at bytes_per_s=11520", func(v lab.View) (lab.Verdict, bool) {
				wait, _ := v.Median(files, at("11520"), lab.BlockedP50)
				work, _ := v.Median(files, at("11520"), lab.HandledP50)
				a, ok1 := v.Level(files, at("11520"), lab.BlockedP50, 1000)
				b, ok2 := v.Level(files, at("11520"), lab.HandledP50, 50)
				const why = "A read waits as long as the line takes for a frame. To check one takes a microsecond or less."
				return lab.All(lab.Within(a, 1, 500, why),
						lab.Within(b, 1, 40, why)).As("a read waits %.1f ms, the work takes %.2f µs", wait/1e3, work),
					ok1 && ok2
			}),
			claims.ReadTime.Judged("os.File at bytes_per_s=100000", func(v lab.View) (lab.Verdict, bool) {
				m, _ := v.Median(files, at("100000"), lab.BlockedP50)
				r, ok := v.Level(files, at("100000"), lab.BlockedP50, 8300)
				return lab.Within(r, 0.5, 2,
						"At 1 Mbit/s, 8N1, 128 bytes take 1.28 ms; in 8.3 ms come 830.").As("%.2f ms, %v of it", m/1e3,
						r),
					ok
			}),
			claims.SelectTimeout.Judged("the system calls of "+timeOut.Name, func(v lab.View) (lab.Verdict, bool) {
				calls, ok := v.Median(timeOut, at("11520"), lab.Calls("pselect6"))
				row := v.Row(timeOut, at("11520"))
				if !ok {
					return lab.Verdict{}, false
				}
				again := strings.Contains(row.Said, "temporarily unavailable") || strings.Contains(row.Said, "EAGAIN")
				return lab.Holds(calls >= 0.9 && again, fmt.Sprintf("%.2f pselect6 a read; %s", calls, row.Said),
					"It does wait in select; what it returns is no error, but nothing."), true
			}),
		},
	})
}

func at(rate string) lab.Params { return lab.Params{"bytes_per_s": rate} }
