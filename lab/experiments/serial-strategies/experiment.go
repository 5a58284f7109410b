// Package serialstrategies asks which way to read a serial port.
package serialstrategies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/readers"
	"github.com/tallywheel/tallywheel/reader"
)

const noCRC = "checks no CRC"

var (
	cEpoll = lab.C("epoll_reader.c", "apt install gcc").As("c/epoll", "serial").But(noCRC)
	ring   = lab.Ours("tallywheel/ring", readers.By(reader.Ring, ""))
	hybrid = lab.Ours("tallywheel/hybrid",
		readers.By(reader.Ring, reader.Hybrid)).But("looks all the time while data flows: a CPU for itself")
	blocking = lab.Ours("tallywheel/blocking", readers.By(reader.Blocking, ""))
	polling  = lab.Ours("tallywheel/polling", readers.By(reader.Polling, "")).But("looks every 10 ms")
	pipeline = lab.Ours("article/pipeline",
		readers.Pipeline).But("four goroutines and a channel operation for each frame, as the article has it; the recorder's own is another")
	// there is one claim on each of these
	selects = lab.Ours("article/select",
		readers.Select).For(steady).But(noCRC +
		"; a channel, and a timer of 10 ms for each wait, as the article has it")
	oldest = lab.Ours("article/drop-oldest",
		readers.Oldest).For(steady).But("two goroutines and a ring of 64 KiB; gives up the oldest frame above 70 % fill and 450 KB/s, as the article has it")
	polled = lab.Ours("article/poll",
		readers.Poll).For(steady).But("ioctl(TIOCGSERIAL), poll and read into a ring, as the article has it")
	whole = lab.Ours("tallywheel/run",
		readers.Record).For(unplugged).But("the whole recorder, which opens the port again and writes the log")
	files    = lab.Ours("os.File", readers.Files).But(noCRC)
	bugst    = lab.Peers("serial").As("go.bug.st/serial", "serial").But(noCRC)
	rust     = lab.Rust("serial.rs").As("rust/blocking", "serial").But(noCRC)
	pyserial = lab.Python("serial_reader.py", "serial", "pip install pyserial").As("pyserial", "serial").But(noCRC)
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "serial-strategies", Plane: lab.Serial,
		Question: "Which way to read a serial port loses nothing, and what does it cost?",
		Method: "One virtual port (a pty) carries frames of 128 bytes with sequence number, time and CRC16: burst: 10 ms at 500 KB/s, ten times a second; " +
			"steady: 400 KB/s; disturbed: as steady, with frames dropped, repeated, damaged and reordered, each once in 150 frames on average, and held up, other ones in each turn, three of each kind at least; unplugged: disturbed, and the port goes for 50 to 200 ms three times a turn at least, which only the whole recorder is for: the others do not open it again; max: as fast as the port takes them. " +
			"Latency is from the moment a frame was due (disturbed: was made; max: was handed over) until the reader had it. " +
			"tallywheel/…, article/drop-oldest and article/poll decode and check every frame; the others look for two bytes, so damaged frames that they take for good can hide lost ones. " +
			"A pty has no baud rate and no UART that overruns: loss here is what a reader itself loses. A quick run has time for every contestant under steady alone, and elsewhere for those that claims are about.",
		Metrics: []lab.Metric{
			lab.SentFrames, lab.LostFrames, lab.LostPercent, lab.ErrorBound, lab.DamagedFrames, lab.DroppedFrames,
			lab.RepeatedFrames, lab.FalseFrames, lab.Unplugged,
			lab.CPUPerOp, lab.LatencyP50, lab.LatencyP99, lab.MBPerSecond, lab.ContextSwitchesPerOp, lab.CPUPercent,
			lab.RSS, lab.LatencyMax, lab.PageFaultsPerOp,
		},
		Base: cEpoll,
		Cells: func(lab.Options) []lab.Params {
			return lab.Cells("condition", "burst", "steady", "disturbed", "unplugged", "max")
		},
		Contestants: append(stay(
			cEpoll.InQuick(steady, burst, most), ring.InQuick(steady, burst),
			hybrid.InQuick(steady, burst, disturbed), blocking.InQuick(steady, burst, disturbed, most),
			polling.InQuick(steady, burst), pipeline.InQuick(steady, most), files.InQuick(steady, burst),
			bugst.InQuick(steady), rust.InQuick(steady), pyserial.InQuick(steady),
		), selects, oldest, polled, whole),
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			s := load.Serial{Ports: 1, Rate: 400_000}
			switch cell["condition"] {
			case "burst":
				s.Rate, s.Burst = 500_000, true
			case "disturbed":
				s.Disturbed = true
			case "unplugged":
				s.Disturbed, s.Unplugs = true, true
			case "max":
				s.Rate = 0
			}
			return s.Scene(b)
		},
		Advice: advice, Claims: judges(),
	})
}

// stay are contestants that do not open a port again that was gone.
func stay(all ...*lab.Contestant) []*lab.Contestant {
	for _, c := range all {
		c.Skip = func(cell lab.Params) bool { return cell.Has(unplugged) }
	}
	return all
}

func advice(v lab.View) string {
	var parts []string
	for _, condition := range []string{"steady", "burst"} {
		cell := lab.Params{"condition": condition}
		best, sure := v.Best(cell, lab.CPUPerOp, ring, blocking)
		cpu, ok := v.Beside(cell, lab.CPUPercent, "%.1f %%", 1, best, files)
		if !ok {
			return ""
		}
		parts = append(parts, fmt.Sprintf("%s: %s %s, %s of a CPU%s; os.File: %s",
			condition, best.Name, lab.Or(sure, "costs least", "is not beaten"), cpu[0], delay(v, best, cell), cpu[1]))
	}
	return "Of the ways that check every frame as it comes: " + strings.Join(parts, "; ") + "."
}

// delay says within how long frames were read: most of them, where a turn has enough, or all.
func delay(v lab.View, c *lab.Contestant, cell lab.Params) string {
	if p99, ok := v.Median(c, cell, lab.LatencyP99); ok {
		return fmt.Sprintf(", 99 %% of the frames within %.0f µs", p99)
	}
	if longest, ok := v.Largest(c, cell, lab.LatencyMax); ok {
		return fmt.Sprintf(", every frame within %.0f µs", longest)
	}
	return ""
}

var unplugged = lab.Params{"condition": "unplugged"}

var burst, steady, disturbed, most = lab.Params{"condition": "burst"}, lab.Params{"condition": "steady"},
	lab.Params{"condition": "disturbed"}, lab.Params{"condition": "max"}

func judges() []lab.Claim { return slices.Concat(speed(), loss()) }

// speed is the claims on throughput, latency and cost.
func speed() []lab.Claim {
	return []lab.Claim{
		claims.PipelineThroughput.Judged("article/pipeline and tallywheel/blocking at condition=max",
			func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(pipeline, blocking, most, lab.MBPerSecond)
				return lab.AtLeast(r, 1.5, "").IfNot(
					"The work on a frame is far less than what it costs to hand it to another goroutine."), ok
			}),
		claims.RingP99.Judged("tallywheel/ring and os.File at condition=steady", func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Ratio(ring, files, steady, lab.LatencyP99)
			return lab.AtMost(r, 0.5,
				"The article's ring was a mapped tty, which does not exist; this is the ring that works, filled by read."), ok
		}),
		claims.RingSwitches.Judged("tallywheel/ring and os.File at condition=steady",
			func(v lab.View) (lab.Verdict, bool) {
				m, ok := v.Medians(steady, lab.ContextSwitchesPerOp, ring, files)
				if !ok || m[1] == 0 {
					return lab.Verdict{}, false
				}
				r, _ := v.Ratio(ring, files, steady, lab.ContextSwitchesPerOp)
				return lab.AtMost(r, 0.4,
					"Not because it goes around the kernel: its thread waits in one epoll set, and no scheduler is in between.").
					IfNot("It does not go around the kernel: its thread waits in an epoll set, which is a switch for each wait, too.").
					As("%.0f %% fewer: %.2f against %.2f a frame", 100*(1-r.Median), m[0], m[1]), true
			}),
		claims.PipelineP99.Judged("article/pipeline and tallywheel/blocking at condition=steady",
			func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(pipeline, blocking, steady, lab.LatencyP99)
				return lab.AtMost(r, 0.8, "").IfNot("Each stage is a wake-up more between a frame and its reader."), ok
			}),
		claims.PipelineCPU.Judged("article/pipeline, tallywheel/ring and tallywheel/blocking at condition=steady",
			func(v lab.View) (lab.Verdict, bool) {
				four, ok1 := v.Ratio(pipeline, blocking, steady, lab.CPUPerOp)
				ring, ok2 := v.Ratio(ring, blocking, steady, lab.CPUPerOp)
				return lab.All(lab.AtLeast(four, 2, ""), lab.AtLeast(ring, 1.4, "")).
					IfNot("Goroutines that hand on frame by frame cost more; a ring hands on nothing, so it need not.").As("%v for the pipeline, %v for the ring", four, ring), ok1 && ok2
			}),
		claims.SelectRealTime.Judged("article/select at condition=steady", func(v lab.View) (lab.Verdict, bool) {
			const limit = 10_000 // µs, the time-out
			return v.Never(selects, steady, lab.LatencyMax, limit,
				"The time-out bounds how long the reader waits for nothing, not how long a frame waits for the reader: that is up to the scheduler.")
		}),
		claims.SteadyLatency.Judged("article/drop-oldest at condition=steady", func(v lab.View) (lab.Verdict, bool) {
			const why = "At 400 KB/s a reader that is awake has nothing to drop."
			p99, ok1 := v.AtMost(oldest, steady, lab.LatencyP99, 9300, why)
			longest, ok2 := v.Never(oldest, steady, lab.LatencyMax, 12_000, why)
			return lab.All(p99.As("99 %% within %s", p99.Here), longest).
				IfNot("A policy says what is dropped, not when the reader has its CPU."), ok1 && ok2
		}),
		claims.ReadFaults.Judged("os.File at condition=steady", func(v lab.View) (lab.Verdict, bool) {
			// a read that faulted would do so once at least, and brings a frame or few
			verdict, ok := v.AtMost(files, steady, lab.PageFaultsPerOp, 0.1,
				"The bytes are copied into a buffer that is there; what faults there are are the runtime's.")
			return verdict.IfNot("What is touched for the first time is more than the runtime's own: the buffer, too."), ok
		}),
	}
}

// What the articles' words on losses are taken to mean, as rates.
const (
	pollLoses = 0.003 // “feasible”: no more than the article's own table has for DMA and polling
	chainLoss = 0.01  // “chain loss”: beside each frame that a fault takes, others that were sent whole
	seamless  = 0.003
)

// loss is the claims on what is lost. What a UART loses, a pty does not.
func loss() []lab.Claim {
	return []lab.Claim{
		claims.PollAndRing.Judged("article/poll at condition=steady", func(v lab.View) (lab.Verdict, bool) {
			verdict, ok := v.RateAtMost(polled, steady, lab.LostFrames, lab.SentFrames, pollLoses,
				"poll and a ring do it; TIOCGSERIAL tells how a UART is set, not what it has received, and a pty refuses it.")
			verdict = verdict.IfNot("poll and a ring do it only as far as the reader has its CPU; TIOCGSERIAL tells how a UART is set, not what it has received, and a pty refuses it.")
			if !ok {
				return verdict, false
			}
			said := v.Row(polled, steady).Said
			if said != readers.ToldSettings {
				noUART := lab.NotHere("a UART: a pty knows no TIOCGSERIAL").As("%s", cmp.Or(said, "–"))
				verdict = lab.All(verdict, noUART)
			}
			return verdict, true
		}),
		claims.BurstLoss.Judged("tallywheel/blocking and tallywheel/hybrid at condition=burst",
			func(v lab.View) (lab.Verdict, bool) {
				m, ok := v.Medians(burst, lab.LostPercent, blocking, hybrid)
				if !ok {
					return lab.Verdict{}, false
				}
				return lab.NotHere("a UART whose FIFO overruns: the article lost frames there. A pty has none, and its 20 KiB hold four bursts.").
					As("%.2f %% against %.2f %% on a pty", m[0], m[1]), true
			}),
		claims.BurstLossPolling.Judged("tallywheel/polling at condition=burst", func(v lab.View) (lab.Verdict, bool) {
			sent, ok1 := v.Sum(polling, burst, lab.SentFrames)
			lost, ok2 := v.Sum(polling, burst, lab.LostFrames)
			return lab.NotHere("a UART whose FIFO overruns, and its DMA.").As("%s on a pty", lostOf(lost, sent)), ok1 &&
				ok2
		}),
		{
			Claim:  "A recorder stores every frame of a device that is unplugged again and again, and disturbed.",
			Source: lab.Goal("none lost"), Needs: lab.Needs(unplugged, whole),
			Judge: func(v lab.View) (lab.Verdict, bool) {
				sent, ok1 := v.Sum(whole, unplugged, lab.SentFrames)
				lost, ok2 := v.Sum(whole, unplugged, lab.LostFrames)
				times, ok3 := v.Sum(whole, unplugged, lab.Unplugged)
				if times == 0 {
					return lab.NotHere("a turn long enough that the port is unplugged in it"), ok1 && ok2 && ok3
				}
				// The port goes only when all that was sent has been read, or nobody has read for
				// 5 s: what is lost is not the machine's, and one frame refutes it.
				here := fmt.Sprintf("unplugged %.0f times: %s", times, lostOf(lost, sent))
				return lab.NoneIn(v.RoundsOf(whole, unplugged, lab.LostFrames), lost == 0, here,
					"It opens the port again when it is there; what the device makes meanwhile is not sent, and is named as missing by its numbers."), ok1 && ok2 && ok3
			},
		},
		claims.BrownOut.Judged("tallywheel/blocking and tallywheel/hybrid at condition=disturbed",
			func(v lab.View) (lab.Verdict, bool) {
				const why = "Frames that were sent whole, while others were damaged, dropped and repeated: a decoder that finds the next frame loses no other, however it waits. The voltage of a USB line is not among the faults."
				waits, ok1 := v.RateAtLeast(blocking, disturbed, lab.LostFrames, lab.SentFrames, chainLoss, "")
				looks, ok2 := v.RateAtMost(hybrid, disturbed, lab.LostFrames, lab.SentFrames, seamless, "")
				return lab.All(waits, looks).IfNot(why).As("lost by waiting: %s; hybrid: %s", waits.Here, looks.Here),
					ok1 && ok2
			}),
	}
}

// lostOf says how many were lost, and where none were what that rules out at 95 %: more than 3 in
// so many (the rule of three).
func lostOf(lost, sent float64) string {
	if lost == 0 {
		return fmt.Sprintf("none of %.0f frames lost: a rate below %s", sent, lab.UpTo(3/max(1, sent)))
	}
	return fmt.Sprintf("%.0f of %.0f frames lost: %.1e", lost, sent, lost/max(1, sent))
}
