// Package serialbuffer asks how large a read buffer should be.
package serialbuffer

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/readers"
	"github.com/tallywheel/tallywheel/reader"
)

const (
	datagram  = 256     // bytes, as in the article
	perSecond = 100_000 // datagrams
)

var (
	port     = lab.Params{"input": "serial"}
	one      = lab.Params{"input": "serial", "bytes": "4096"} // where the buffer is the reader's own
	oneUDP   = lab.Params{"input": "udp", "bytes": "4096"}
	files    = lab.Ours("os.File", readers.Files).For(port).InQuick(lab.Cells("bytes", 128, 1024, 4096, 65536)...)
	buffered = lab.Ours("bufio.Reader", readers.Buffered).For(port).InQuick(lab.Cells("bytes", 128, 4096, 65536)...)
	ring     = lab.Ours("tallywheel/ring", readers.By(reader.Ring, "")).For(one).But(ownBuffer)
	udp      = lab.Ours("net.UDPConn", readers.Datagrams).For(lab.Params{"input": "udp"})
	ringUDP  = lab.Ours("tallywheel/ring", readers.RingDatagrams).For(oneUDP).But(ownBuffer)
)

// nextToNoLoss is a loss in percent, of which less counts as that much: of so few no ratio is.
const nextToNoLoss = 0.1

const ownBuffer = "has a buffer of its own, whatever the parameter says"

func init() {
	lab.Register(&lab.Experiment{
		Name: "serial-buffer", Plane: lab.Serial,
		Question: "How large should a read buffer be, and what does bufio.Reader change?",
		Method: fmt.Sprintf("One goroutine reads with a buffer of 128 B to 64 KiB: a serial port at 400 KB/s, by Read and through a bufio.Reader a frame at a time, and "+
			"%d datagrams of %d bytes a second, each when it is due. A sender that was kept from that for more than %v leaves out what was due before, so that loss is of the rate and not of a burst: sent_frames says how many it has sent. System calls are counted in a turn apart, in which the reader is slow, so that there are fewer of them a byte. A quick run has time for every size with datagrams, and for some with the port.", perSecond, datagram, load.UDPLate),
		Metrics: []lab.Metric{
			lab.CPUPerOp, lab.CPUPercent, lab.SentFrames, lab.LostPercent, lab.SyscallsPerOp,
			lab.ContextSwitchesPerOp,
		},
		Base: files, Chart: lab.Chart{Over: "bytes", Metric: lab.CPUPercent.String()}, Calls: true,
		Cells: func(lab.Options) (cells []lab.Params) {
			for _, input := range []string{"serial", "udp"} {
				for _, c := range lab.Cells("bytes", 128, 512, 1<<10, 4<<10, 8<<10, 16<<10, 64<<10) {
					c["input"] = input
					cells = append(cells, c)
				}
			}
			return cells
		},
		Contestants: []*lab.Contestant{files, buffered, ring, udp, ringUDP},
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			if cell["input"] == "udp" {
				return load.UDP{PerSecond: perSecond, Size: datagram}.Scene()
			}
			return load.Serial{Ports: 1, Rate: 400_000}.Scene(b)
		},
		Advice: advice, Claims: judges(),
	})
}

func advice(v lab.View) string {
	small, large := lab.Params{"input": "serial", "bytes": "4096"}, lab.Params{"input": "serial", "bytes": "65536"}
	m, ok1 := v.Beside(small, lab.CPUPercent, "%.1f", 1, files, buffered)
	r, ok2 := v.Across(files, large, files, small, lab.CPUPerOp)
	if !ok1 || !ok2 {
		return ""
	}
	text := fmt.Sprintf("A serial port at 400 KB/s takes %s %% of a CPU by Read with 4 KiB, %s through bufio.Reader; 64 KiB instead of 4 %s.",
		m[0], m[1], lab.Or(r.Sure(), fmt.Sprintf("take %v of the CPU time", r),
			fmt.Sprintf("make no difference that was seen (%v)", r)))
	if cut, ok := v.Median(udp, lab.Params{"input": "udp", "bytes": "128"}, lab.LostPercent); ok {
		text += fmt.Sprintf(" Of datagrams of %d B a buffer of 128 B cut %.0f %%.", datagram, cut)
	}
	return text
}

func judges() []lab.Claim {
	return []lab.Claim{
		claims.BufferCPU.Judged("net.UDPConn at input=udp with 128, 8192 and 65536 bytes",
			func(v lab.View) (lab.Verdict, bool) {
				of := func(bytes string) lab.Params { return lab.Params{"input": "udp", "bytes": bytes} }
				m, ok := v.Median(udp, of("128"), lab.CPUPerOp)
				some, ok2 := v.Across(udp, of("8192"), udp, of("128"), lab.CPUPerOp)
				more, ok3 := v.Across(udp, of("65536"), udp, of("128"), lab.CPUPerOp)
				return lab.All(lab.AtMost(some, 0.5, ""), lab.AtMost(more, 0.5, "")).IfNot(
					"A read brings one datagram, however large the buffer is (udp(7)): the number of calls is the same.").
					As("%.2f µs a datagram with 128 B; with 8 KiB %v of it, with 64 KiB %v", m, some, more), ok && ok2 && ok3
			}),
		claims.BufferLoss.Judged("net.UDPConn at input=udp with 8192 and 65536 bytes",
			func(v lab.View) (lab.Verdict, bool) {
				large := lab.Params{"input": "udp", "bytes": "65536"}
				small := lab.Params{"input": "udp", "bytes": "8192"}
				m, ok1 := v.Total(udp, large, lab.LostPercent)
				n, ok2 := v.Total(udp, small, lab.LostPercent)
				r, ok3 := v.AcrossFrom(udp, large, udp, small, lab.LostPercent, nextToNoLoss)
				return lab.AtLeast(r, 5, "").IfNot(
					"A read takes a datagram out of the socket's queue whole; nothing of it stays (udp(7)). Loss comes from a queue that is full, whatever the buffer.").
					As("%.3f %% of all with 64 KiB, %.3f %% with 8 KiB; a round %v, where less than %.1f %% counts as that much", m, n, r, nextToNoLoss), ok1 && ok2 && ok3
			}),
		claims.BufferCalls.Judged("the system calls of net.UDPConn at input=udp with 128 bytes",
			func(v lab.View) (lab.Verdict, bool) {
				m, ok := v.Median(udp, lab.Params{"input": "udp", "bytes": "128"}, lab.SyscallsPerOp)
				return lab.Holds(m >= 7, fmt.Sprintf("%.2f calls a datagram", m), "").IfNot(
					"A read takes a datagram whole, so there are no more reads than datagrams, and a wait at most beside each."), ok
			}),
		claims.BufferPieces.Judged("net.UDPConn at input=udp with 128 bytes", func(v lab.View) (lab.Verdict, bool) {
			lost, ok := v.Median(udp, lab.Params{"input": "udp", "bytes": "128"}, lab.LostPercent)
			if !ok {
				return lab.Verdict{}, false
			}
			return lab.CannotBe(fmt.Sprintf("%.0f %% cut", lost),
				"What does not fit into the buffer of a read is thrown away by the kernel (udp(7)): each datagram is cut in two and its second half is gone."), true
		}),
		claims.BufioCost.Judged("bufio.Reader and os.File at input=serial, bytes=4096",
			func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(buffered, files, lab.Params{"input": "serial", "bytes": "4096"}, lab.CPUPerOp)
				return lab.AtLeast(r, 1.05, "").IfNot("The wait for each frame is what costs, with or without bufio."), ok
			}),
	}
}
