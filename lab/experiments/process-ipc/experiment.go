// Package processipc asks how processes of one machine should talk.
package processipc

import (
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

// wakeTurn is how long a turn in wake is: 99 % takes 500 values, and the pause of 1 ms before each
// may be one of two.
const wakeTurn = 1250 * time.Millisecond

var flood, turns, wake = lab.Params{"load": "flood"}, lab.Params{"load": "turns"}, lab.Params{"load": "wake"}

func inC(how, note string) *lab.Contestant {
	return lab.C("ipc.c", "apt install gcc", "-lpthread", "-lrt").As("c/"+how, "ipc", "how="+how).But(note)
}

var (
	ring      = lab.Ours("tallywheel/ring", talk(rings(0))).But("looks for as long as a wake-up takes, then sleeps")
	futex     = lab.Ours("tallywheel/futex", talk(rings(-1))).But("sleeps at once")
	unix      = lab.Ours("go/unix", talk(socket("unix", stream))).But("a stream")
	seqpacket = lab.Ours("go/seqpacket", talk(socket("unixpacket", packets)))
	pipe      = lab.Ours("go/pipe", talk(pipes))
	fifo      = lab.Ours("go/fifo", talk(fifos)).But("bufio, let go after each message, as the article has it")
	tcp       = lab.Ours("go/tcp", talk(socket("tcp", stream)))

	cRing      = inC("ring", "looks for 20 µs, then sleeps")
	cFutex     = inC("futex", "sleeps at once")
	cUnix      = inC("unix", "a stream")
	cSeqpacket = inC("seqpacket", "")
	cPipe      = inC("pipe", "")
	cTCP       = inC("tcp", "")
	cMQ        = inC("mq", "a POSIX message queue of 10 messages, the most without privileges")
	cSem       = inC("sem", "shared memory under a semaphore of value 1; who finds nothing calls sched_yield")
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "process-ipc", Plane: lab.Processes,
		Question: "How should two processes of one machine talk?",
		Method: "Messages of 128 bytes, each sent by itself, between two processes; who reads a stream takes what is there. flood: one way, as many as go, until the last is there. turns: there and back, one at a time; latency is of the round " +
			"trip. wake: the same, each after a pause of 1 ms, when the other process sleeps; a quick run has there only those that are judged. CPU time is of both processes.",
		Metrics: []lab.Metric{
			lab.OpsPerSecond, lab.LatencyP50, lab.LatencyP99, lab.CPUPerOp,
			lab.ContextSwitchesPerOp,
		},
		Base: unix,
		Least: func(cell lab.Params) time.Duration {
			if cell.Has(wake) {
				return wakeTurn
			}
			return 0
		},
		Cells: func(lab.Options) []lab.Params { return lab.Cells("load", "flood", "turns", "wake") },
		Contestants: append([]*lab.Contestant{ring, unix, cRing},
			awake(futex, seqpacket, pipe, fifo, tcp, cFutex, cUnix, cSeqpacket, cPipe, cTCP, cMQ, cSem)...),
		Advice: func(v lab.View) string {
			r, ok := v.Ratio(ring, unix, flood, lab.OpsPerSecond)
			trip, ok2 := v.Ratio(ring, unix, turns, lab.LatencyP50)
			woken, ok3 := v.Ratio(ring, unix, wake, lab.LatencyP50)
			m, ok4 := v.Medians(turns, lab.LatencyP50, ring, unix)
			if !ok || !ok2 || !ok3 || !ok4 {
				return ""
			}
			return fmt.Sprintf("Against a Unix socket a ring carries %s small messages. A round trip takes %.1f µs and %.1f µs: %s; where the other one sleeps before each: %s.",
				r.Tell(fmt.Sprintf("%.1f times as many", r.Median), fmt.Sprintf("fewer (%.2f×)", r.Median)),
				m[0], m[1], trip.Tell("longer", "quicker"), woken.Tell("longer", "quicker"))
		},
		Claims: judges(),
	})
}

// awake are contestants that are in wake in a full run only: a turn there is long.
func awake(all ...*lab.Contestant) []*lab.Contestant {
	for _, c := range all {
		c.InQuick(flood, turns)
	}
	return all
}

func judges() []lab.Claim {
	return []lab.Claim{
		claims.SharedMemoryFast.Judged("tallywheel/ring and go/pipe in flood", func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Ratio(ring, pipe, flood, lab.OpsPerSecond)
			return lab.AtLeast(r, 2,
				"No call and no copy by the kernel for each message. The article gives no figure; twice a pipe is asked for here.").
				IfNot("It saves a call and a copy by the kernel for each message, which are less than half of what one costs by a pipe here. The article gives no figure; twice a pipe is asked for."), ok
		}),
		claims.SemaphoreMemory.Judged("c/sem and c/pipe in flood", func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Ratio(cSem, cPipe, flood, lab.OpsPerSecond)
			return lab.AtLeast(r, 1, "No call and no copy by the kernel where the lock is free.").
				IfNot("A lock does not say that something has come: who waits has to ask again and again, and takes the lock from the one who would bring it."), ok
		}),
		claims.PipeOneWay.Judged("go/fifo and go/unix in turns", func(v lab.View) (lab.Verdict, bool) {
			m, ok := v.Medians(turns, lab.LatencyP50, fifo, unix)
			if !ok {
				return lab.Verdict{}, false
			}
			return lab.Holds(true, fmt.Sprintf("two FIFOs %.1f µs there and back, one socket %.1f", m[0], m[1]),
				"A FIFO has one direction, so a conversation takes two of them; here both carried one."), true
		}),
		claims.BufferedFIFO.Judged("go/fifo and go/pipe in flood", func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Ratio(fifo, pipe, flood, lab.OpsPerSecond)
			return lab.AtLeast(r, 1.05, "Not by the buffer: let go after each message it saves no call, and is one more copy.").
				IfNot("A buffer that is let go after each message saves no call; it is one more copy."), ok
		}),
		{
			Claim: "Our ring carries ten times the messages of a Unix socket.", Source: lab.Goal("≥ 10×, 128 B"),
			Needs: "tallywheel/ring and go/unix in flood",
			Judge: func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(ring, unix, flood, lab.OpsPerSecond)
				return lab.AtLeast(r, 10, "A message is a copy and one atomic store."), ok
			},
		},
		{
			Claim: "Our ring carries as many messages as one in C.", Source: lab.Goal("≥ 1.0×, 128 B"),
			Needs: "tallywheel/ring and c/ring in flood",
			Judge: func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(ring, cRing, flood, lab.OpsPerSecond)
				return lab.AtLeast(r, 1, "The work is the same; Go's atomic stores are as those in C."), ok
			},
		},
		{
			Claim:  "To be woken by our ring takes at most 1.3 times as long as in C, at 99 %.",
			Source: lab.Goal("≤ 1.3×"), Needs: "tallywheel/ring and c/ring in wake",
			Judge: func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(ring, cRing, wake, lab.LatencyP99)
				return lab.AtMost(r, 1.3, "futex(2) wakes a thread; Go's scheduler has kept its place for it."), ok
			},
		},
	}
}
