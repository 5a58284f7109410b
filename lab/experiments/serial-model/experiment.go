// Package serialmodel asks what a serial line can carry, and whether the arithmetic agrees with the
// measurement.
package serialmodel

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/readers"
	"github.com/tallywheel/tallywheel/reader"
)

// The model of a UART, 8N1. Byte rate: each byte takes a start bit, eight data bits and a stop bit.
// Clock tolerance: the receiver samples the middle of the last bit half a bit wide, after 9.5 bits
// at the most, with a sixteenth of a bit lost to the sampling clock: (0.5 − 1/16) ÷ 9.5 = 4.6 % for
// both ends together. Overrun: from the interrupt on, FIFO − trigger more bytes fit.
const (
	bitsPerByte = 10
	fifo        = 16 // bytes, of a 16550A
	trigger     = 14 // bytes, the highest level of a 16550A
)

// ByteRate is what a line of a baud rate carries at 8N1, in bytes a second.
func ByteRate(baud float64) float64 { return baud / bitsPerByte }

// Bits is how many bits a byte takes on a line.
func Bits(data int, parity bool, stop int) float64 {
	n := 1 + data + stop
	if parity {
		n++
	}
	return float64(n)
}

// Tolerance is how far the clocks of both ends may differ at 8N1.
func Tolerance() float64 { return (0.5 - 1.0/16) / (bitsPerByte - 0.5) }

// SafeBaud is the highest baud rate at which a FIFO does not overrun if every interrupt is served
// within the latency.
func SafeBaud(latency time.Duration) float64 {
	return (fifo - trigger) * bitsPerByte / latency.Seconds()
}

var ring = lab.Ours("tallywheel/ring", readers.By(reader.Ring, ""))

func init() {
	lab.Register(&lab.Experiment{
		Name: "serial-model", Plane: lab.Serial,
		Question: "What can a serial line carry, by arithmetic and by measurement?",
		Method: "A virtual line sends frames as fast as a baud rate allows at 8N1, ten bits a byte. Predicted is baud ÷ 10; measured is what the reader took. " +
			"The longest latency of the reader says, by (FIFO − trigger) × bits ÷ latency, up to which rate a 16550A (FIFO 16, trigger 14) would not overrun if interrupts " +
			"were served no better than this program is: a bound from below, since an interrupt is served before any program.",
		Metrics: []lab.Metric{
			lab.MBPerSecond, lab.PredictedMBPerSecond, lab.LatencyP99, lab.LatencyMax,
			lab.LostFrames,
		},
		Chart: lab.Chart{Over: "baud"}, Turn: 2 * time.Second,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("baud", 9600, 115200, 921600, 3000000) },
		Contestants: []*lab.Contestant{ring},
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			return load.Serial{Ports: 1, Rate: ByteRate(float64(cell.Int("baud")))}.Scene(b)
		},
		Derive: func(cell lab.Params, _ time.Duration, m lab.Metrics) {
			m[lab.PredictedMBPerSecond.String()] = ByteRate(float64(cell.Int("baud"))) / 1e6
		},
		Advice: func(v lab.View) string {
			worst := 0.0
			for _, row := range v.Rows {
				worst = max(worst, slices.Max(append(row.Metrics[lab.LatencyMax.String()].Samples, 0)))
			}
			if worst == 0 {
				return ""
			}
			return fmt.Sprintf("115,200 baud are 11.52 KB/s, whatever reads them. The longest wait of the reader in all rounds was %.0f µs, in which the 4 KiB that a tty holds at least fill up at %.1f Mbaud.",
				worst, 4096*bitsPerByte/worst)
		},
		Claims: judges(),
	})
}

func judges() []lab.Claim {
	return []lab.Claim{
		claims.BaudLimit.Judged("tallywheel/ring at baud=115200", func(v lab.View) (lab.Verdict, bool) {
			m, ok := v.Median(ring, lab.Params{"baud": "115200"}, lab.MBPerSecond)
			return lab.CannotBe(fmt.Sprintf("%.2f KB/s", 1e3*m),
				"8N1 needs ten bits a byte: 115,200 baud carry at most 11.52 KB/s (TIA-232, 16550A data sheet). 468 KB/s need 4.7 Mbaud."), ok
		}),
		claims.ClockFormula.Judged("tallywheel/ring at all rates", func(v lab.View) (lab.Verdict, bool) {
			worst := 0.0
			for _, baud := range []int{9600, 115200, 921600, 3000000} {
				cell := lab.Params{"baud": strconv.Itoa(baud)}
				got, ok1 := v.Median(ring, cell, lab.MBPerSecond)
				want, ok2 := v.Median(ring, cell, lab.PredictedMBPerSecond)
				if !ok1 || !ok2 {
					return lab.Verdict{}, false
				}
				worst = max(worst, 100*max(got/want-1, 1-got/want))
			}
			return lab.NotHere("two UARTs with clocks of their own. On a pty the sender keeps the pace, so what arrives says nothing of the factor (1 − 2δ). By arithmetic it is wrong: a clock that differs by δ changes the rate by δ, up to 4.6 % for both ends, and beyond that frames are damaged.").
				As("at most %.1f %% beside what the sender was told to send", worst), true
		}),
		claims.Framing.Judged("any", func(v lab.View) (lab.Verdict, bool) {
			least, most := 1-8.0/Bits(8, false, 1), 1-8.0/Bits(8, true, 1)
			return lab.Holds(least >= 0.195 && most <= 0.305,
				fmt.Sprintf("by arithmetic: 8N1 %.0f %%, 8E1 %.0f %%, 8E2 %.0f %%", 100*least, 100*most,
					100*(1-8.0/Bits(8, true, 2))),
				"A start bit, perhaps a parity bit, and one or two stop bits around eight bits of data (TIA-232, 16550A data sheet)."), len(v.Rows) > 0
		}),
		claims.ClockLoss.Judged("any", func(v lab.View) (lab.Verdict, bool) {
			const differ = 0.02
			lost := differ // a slower sender sends less
			if differ > Tolerance() {
				lost = 1 // bits are taken for their neighbours
			}
			return lab.Holds(lost >= 0.10 && lost <= 0.12,
				fmt.Sprintf("by arithmetic: %.0f %% less; up to %.1f %% no bit is taken for another", 100*lost,
					100*Tolerance()),
				"A receiver finds each byte's start anew, so a difference adds up over one byte only."), len(v.Rows) > 0
		}),
		claims.NeedsDMA.Judged("any", func(v lab.View) (lab.Verdict, bool) {
			slow, quick := SafeBaud(20*time.Microsecond), SafeBaud(5*time.Microsecond)
			return lab.Holds(slow < 500_000,
				fmt.Sprintf("by arithmetic: no overrun up to %.1f Mbit/s where interrupts are served within 20 µs, up to %.1f Mbit/s within 5 µs", slow/1e6, quick/1e6),
				"(FIFO − trigger) × bits ÷ latency, with the trigger at its highest; the article's own formula gives eight times as much."), len(v.Rows) > 0
		}),
		claims.Trigger12.Judged("–", func(lab.View) (lab.Verdict, bool) {
			return lab.NotHere("a UART with a FIFO and a device at its other end; a pty has neither"), true
		}),
	}
}
