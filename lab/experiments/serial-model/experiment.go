// Package serialmodel asks what a serial line can carry by arithmetic, and how well a program keeps
// up with it.
package serialmodel

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/contestant"
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
	fifo        = 16   // bytes, of a 16550A
	trigger     = 14   // bytes, the highest level of a 16550A
	half        = 8    // bytes, the level that Linux sets (drivers/tty/serial/8250)
	ttyBytes    = 4096 // that a tty holds at least
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

// SafeBaud is the highest baud rate at which a FIFO of 16 bytes does not overrun if every interrupt
// comes at a trigger and is served within the latency.
func SafeBaud(trigger float64, latency time.Duration) float64 {
	return (fifo - trigger) * bitsPerByte / latency.Seconds()
}

var (
	ring = lab.Ours("tallywheel/ring", readers.By(reader.Ring, ""))
	// the table: nothing is measured
	none = lab.Ours("arithmetic, 8N1", by(Bits(8, false, 1)))
	even = lab.Ours("arithmetic, 8E1", by(Bits(8, true, 1)))
	two  = lab.Ours("arithmetic, 8E2", by(Bits(8, true, 2)))

	rates = lab.Cells("baud", 9600, 115200, 921600, 3000000)
)

// table is what the arithmetic says, and pace what the sender of a pty decides, by name.
var (
	table = lab.Names(lab.PredictedMBPerSecond, lab.FramingPercent, lab.ServeWithin, lab.ServeHalfWithin)
	pace  = lab.Names(lab.MBPerSecond, lab.OpsPerSecond, lab.NsPerOp)
)

// by says what a line carries whose bytes take so many bits, at the baud rate of the cell.
func by(bits float64) contestant.Work {
	return func(t *contestant.Turn) error {
		baud := float64(t.Int("baud", 115200))
		if _, err := t.Ready(); err != nil {
			return err
		}
		took, err := t.Done()
		if err != nil {
			return err
		}
		served := func(trigger float64) float64 { return (fifo - trigger) * bits / baud * 1e6 }
		return t.Result(
			max(1, took), 1, contestant.Value{Metric: "predicted_MB_per_s", V: baud / bits / 1e6},
			contestant.Value{Metric: "framing_percent", V: 100 * (1 - 8/bits)},
			contestant.Value{Metric: "serve_within_us", V: served(trigger)},
			contestant.Value{Metric: "serve_half_within_us", V: served(half)},
		)
	}
}

func init() {
	lab.Register(&lab.Experiment{
		Name: "serial-model", Plane: lab.Serial,
		Question: "What can a serial line carry, by arithmetic, and does a program keep up with it?",
		Method: "What a line carries is arithmetic, and three rows say it: baud ÷ bits a byte, of which one is the start bit, eight are data, and the others parity and stop bits (TIA-232); interrupts of a 16550A, whose FIFO holds 16 bytes, must be served within (FIFO − trigger) × bits ÷ baud (its data sheet). " +
			"Measured is only how long the reader takes to have a frame that a pty brings at that rate, from the moment it was due. A pty has neither clock nor FIFO, and the sender keeps the pace, so throughput says nothing and is not shown. " +
			"The FIFO's rate is up to which it would not overrun if interrupts were served no sooner than the longest of these latencies: a bound from below, since an interrupt is served before any program.",
		Metrics: []lab.Metric{
			lab.LatencyP50, lab.LatencyP99, lab.LatencyMax, lab.SafeBaud, lab.LostFrames,
			lab.PredictedMBPerSecond, lab.FramingPercent, lab.ServeWithin, lab.ServeHalfWithin,
		},
		Chart: lab.Chart{Over: "baud"}, Turn: 2 * time.Second,
		Cells:       func(lab.Options) []lab.Params { return rates },
		Contestants: []*lab.Contestant{ring, none, even, two},
		Scene: func(b *lab.Bench, c *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			if c != ring {
				return &lab.Scene{}, nil
			}
			return load.Serial{Ports: 1, Rate: ByteRate(float64(cell.Int("baud")))}.Scene(b)
		},
		Derive: func(_ lab.Params, _ time.Duration, m lab.Metrics) {
			_, arithmetic := m[lab.PredictedMBPerSecond.String()]
			maps.DeleteFunc(m, func(name string, _ float64) bool {
				if arithmetic { // nothing was timed
					return !slices.Contains(table, name) && name != "ops"
				}
				return slices.Contains(pace, name)
			})
			if longest := m[lab.LatencyMax.String()]; longest > 0 {
				m[lab.SafeBaud.String()] = SafeBaud(trigger, time.Duration(longest*1e3))
			}
		},
		Advice: func(v lab.View) string {
			worst := 0.0
			for _, cell := range rates {
				longest, _ := v.Largest(ring, cell, lab.LatencyMax)
				worst = max(worst, longest)
			}
			if worst == 0 {
				return ""
			}
			served := time.Duration(worst * 1e3)
			return fmt.Sprintf("The longest wait of the reader in all rounds was %.0f µs, in which the 4 KiB that a tty holds at least fill up at %.1f Mbaud; a FIFO of 16 bytes that interrupts at 14 would need interrupts that are served sooner than that from %.3g baud on.",
				worst, ttyBytes*bitsPerByte/worst, SafeBaud(trigger, served))
		},
		Claims: judges(),
	})
}

func judges() []lab.Claim {
	return []lab.Claim{
		claims.BaudLimit.Judged("any", func(v lab.View) (lab.Verdict, bool) {
			return lab.CannotBe(fmt.Sprintf("by arithmetic: %.2f KB/s", ByteRate(115200)/1e3),
				"8N1 needs ten bits a byte: 115,200 baud carry at most 11.52 KB/s (TIA-232, 16550A data sheet). 468 KB/s need 4.7 Mbaud."), len(v.Rows) > 0
		}),
		claims.ClockFormula.Judged("any", func(v lab.View) (lab.Verdict, bool) {
			return lab.NotHere("two UARTs with clocks of their own; on a pty the sender keeps the pace.").
				As("by arithmetic: a clock that differs by δ changes the rate by δ, not 2δ, up to %.1f %% for both ends; beyond that frames are damaged",
					100*Tolerance()), len(v.Rows) > 0
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
			slow, quick := SafeBaud(trigger, 20*time.Microsecond), SafeBaud(trigger, 5*time.Microsecond)
			return lab.Holds(slow < 500_000,
				fmt.Sprintf("by arithmetic: no overrun up to %.1f Mbit/s where interrupts are served within 20 µs, up to %.1f Mbit/s within 5 µs", slow/1e6, quick/1e6),
				"(FIFO − trigger) × bits ÷ latency, with the trigger at its highest; the article's own formula gives eight times as much."), len(v.Rows) > 0
		}),
		claims.Trigger12.Judged("–", func(lab.View) (lab.Verdict, bool) {
			return lab.NotHere("a UART with a FIFO and a device at its other end; a pty has neither"), true
		}),
	}
}
