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
		Method: "os.File reads frames of 128 bytes that come at what 115,200 baud and 1 Mbit/s carry; how long each read waits, and how long it takes to check what it brought, are its own clock's. How long a read waits is the pace of the sender, which on a pty keeps to the rate it was told; the work is the reader's own. " +
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
			work, ok := v.Median(files, at("11520"), lab.HandledP50)
			if !ok || work == 0 {
				return ""
			}
			const frame = 128 * 10 / 115_200.0 * 1e6 // µs
			return fmt.Sprintf("At 115,200 baud a frame of 128 bytes takes %.1f ms, and %.1f µs of work follow a read: in that time one thread does the work of %.0f frames, the reads aside.",
				frame/1e3, work, frame/work)
		},
		Claims: []lab.Claim{
			claims.BlockTimes.Judged("os.File at bytes_per_s=11520", func(v lab.View) (lab.Verdict, bool) {
				wait, ok1 := v.Median(files, at("11520"), lab.BlockedP50)
				work, _ := v.Median(files, at("11520"), lab.HandledP50)
				r, ok2 := v.Level(files, at("11520"), lab.HandledP50, 50)
				line := lab.NotHere("a device that sends when it likes: on a pty a read waits as long as the sender was told to make it wait.")
				return lab.All(lab.Within(r, 1, 40, ""), line).
					IfNot("What follows a read is the check of a frame and a copy of it.").
					As("the work takes %.2f µs (a read waited %.1f ms, the sender's pace)", work, wait/1e3), ok1 && ok2
			}),
			claims.ReadTime.Judged("os.File at bytes_per_s=100000", func(v lab.View) (lab.Verdict, bool) {
				wait, ok := v.Median(files, at("100000"), lab.BlockedP50)
				return lab.NotHere("a UART: on a pty the sender keeps the pace, so how long a read takes is what it was told.").
					As("by arithmetic: at 1 Mbit/s, 8N1, 128 bytes take 1.28 ms, and in 8.3 ms come 830; the sender's pace here: %.2f ms",
						wait/1e3), ok
			}),
			claims.SelectTimeout.Judged("the system calls of "+timeOut.Name, func(v lab.View) (lab.Verdict, bool) {
				calls, ok := v.Median(timeOut, at("11520"), lab.Calls("pselect6"))
				row := v.Row(timeOut, at("11520"))
				if !ok {
					return lab.Verdict{}, false
				}
				again := strings.Contains(row.Said, "temporarily unavailable") || strings.Contains(row.Said, "EAGAIN")
				return lab.Holds(calls >= 0.9 && again, fmt.Sprintf("%.2f pselect6 a read; %s", calls, row.Said),
					"It waits in select, and what it returns when the time is out is that error.").
					IfNot("It does wait in select; what it returns is no error, but nothing."), true
			}),
		},
	})
}

func at(rate string) lab.Params { return lab.Params{"bytes_per_s": rate} }
