// Package logdurable asks how many records a second can be made durable.
package logdurable

import (
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/logs"
)

var (
	syncing = fio()
	ours    = lab.Ours("tallywheel/seglog", logs.Std.Durable)
	ring    = lab.Ours("tallywheel/seglog uring", logs.Uring.Durable)
	linked  = lab.Ours("tallywheel/seglog linked", logs.Linked.Durable).But("a linked operation for each record")
	linger  = lab.Ours("tallywheel/seglog linger", logs.Lingering.Durable).But("64 records or 1 ms a batch")
	chain   = lab.Ours("tallywheel/seglog linked linger",
		logs.LingeringLinked.Durable).But("64 linked operations or 1 ms a batch, as the article has it")
	pebble    = peer("pebble").But("its write-ahead log alone")
	etcd      = peer("etcd/wal")
	etcdGroup = peer("etcd/wal+group")
	raft      = peer("raft-wal")
	raftGroup = peer("raft-wal+group")
	bbolt     = peer("bbolt").But("DB.Batch, which waits up to 10 ms for others")
	jetstream = peer("jetstream").But("a server in the same process, SyncAlways")
)

func peer(name string) *lab.Contestant { return lab.Peers("durable").As(name, name) }

func init() {
	lab.Register(&lab.Experiment{
		Name: "log-durable", Plane: lab.Log,
		Question: "How many records of 128 bytes a second can be acknowledged after they are durable?",
		Method: "1 or 64 goroutines append, with --full 16, too; each append returns after an fdatasync that holds its record. fio writes and syncs one record at a time on a file that is laid out before, " +
			fmt.Sprintf("%d bytes, as seglog writes for one with its commit (the others frame records in ways of their own): times producers, that is what one sync for all of them could give at best. ", logs.AloneBytes) +
			"+group: with a group commit around it that gathers what comes during a sync. " +
			"linger: a batch is left open for 64 records or 1 ms, as the article's writer does, and an append returns when its batch is durable. An append whose chain fails ends its turn, and the report has each part that failed, by the kind of the error, as the recorder's metrics have it.",
		Metrics: []lab.Metric{
			lab.OpsPerSecond, lab.LatencyP50, lab.LatencyP99, lab.CPUPerOp, lab.RSS, lab.ChainsWhole,
			lab.ChainsFailed,
		},
		Base: ours, Chart: lab.Chart{Over: "producers"},
		Cells: func(o lab.Options) []lab.Params {
			if o.Full {
				return lab.Cells("producers", 1, 16, 64)
			}
			return lab.Cells("producers", 1, 64) // else eight rounds do not fit
		},
		Contestants: []*lab.Contestant{
			syncing, ours, ring, linked, linger, chain, pebble, etcd, etcdGroup, raft, raftGroup, bbolt,
			jetstream,
		},
		Advice: func(v lab.View) string {
			m, ok := v.Medians(many, lab.OpsPerSecond, ours, ring)
			p, ok2 := v.Median(ours, lab.Params{"producers": "1"}, lab.LatencyP50)
			r, ok3 := v.Ratio(ours, ring, many, lab.OpsPerSecond)
			if !ok || !ok2 || !ok3 {
				return ""
			}
			return fmt.Sprintf("seglog with its std engine makes %.0f records a second durable from 64 goroutines, with engine uring %.0f: %s. One producer alone waits %.0f µs for a record.",
				m[0], m[1], r.Tell("more", "fewer"), p)
		},
		Claims: judges(),
	})
}

func fio() *lab.Contestant {
	c := lab.FIO("fio/fdatasync", func(*lab.Bench, lab.Params) []string {
		return []string{
			"--filename=fio", "--rw=write", fmt.Sprintf("--bs=%d", logs.AloneBytes), "--size=16m",
			"--ioengine=psync", "--fdatasync=1", "--overwrite=1",
		}
	})
	c.Skip = func(cell lab.Params) bool { return cell["producers"] != "1" }
	output := c.Output
	c.Output = func(out []byte, length time.Duration) (lab.Metrics, error) {
		m, err := output(out, length)
		for name := range m { // fio's latencies are those of the write, without the sync
			if len(name) > 7 && name[:7] == "latency" {
				delete(m, name)
			}
		}
		return m, err
	}
	return c
}

var many = lab.Params{"producers": "64"}

func judges() []lab.Claim {
	atLeast := func(claim string, source lab.Source, a, b *lab.Contestant, producers string, ratio float64,
		why string,
	) lab.Claim {
		return lab.Claim{
			Claim: claim, Source: source, Needs: lab.Needs(lab.Params{"producers": producers}, a, b),
			Judge: func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(a, b, lab.Params{"producers": producers}, lab.OpsPerSecond)
				return lab.AtLeast(r, ratio, why), ok
			},
		}
	}
	return []lab.Claim{
		claims.BatchSuccess.Judged(lab.Needs(many, chain), func(v lab.View) (lab.Verdict, bool) {
			m, ok := v.Median(chain, many, lab.OpsPerSecond)
			return lab.NotHere("what failed for the article: it names no reason for the other 2.8 %, and calls the figure an example. A turn in which an append fails has no figures.").
				As("all of %.0f appends a second succeeded", m), ok
		}),
		claims.LinkedLog.Judged(lab.Needs(many, chain, linger), func(v lab.View) (lab.Verdict, bool) {
			const why = "A call hands 64 writes and their sync to the kernel. A twentieth more than by one write of the same batch is asked for here."
			fast, ok1 := v.AtLeast(chain, many, lab.OpsPerSecond, 10_000, why)
			r, ok2 := v.Ratio(chain, linger, many, lab.OpsPerSecond)
			return lab.All(fast, lab.AtLeast(r, 1.05, why)).
				IfNot("One write of the whole batch does with one operation what the chain does with 64.").
				As("%s, %v of one write of the batch", fast.Here, r), ok1 && ok2
		}),
		claims.RingSync.Judged(lab.Needs(many, ring, ours), func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Ratio(ring, ours, many, lab.OpsPerSecond)
			return lab.AtLeast(r, 1.02, "One call hands write and sync to the kernel.").
				IfNot("An fsync on a ring goes to a worker thread of the kernel (io_uring: io_fsync always punts), so each commit pays for two wake-ups more."), ok
		}),
		atLeast("A log with leader and followers commits twice as many records as pebble.", lab.Goal("≥ 2×"), ours,
			pebble, "64", 2, "Whoever appends first writes for all who wait."),
		atLeast("A log with leader and followers commits twice as many records as etcd's wal with a group commit around it.", lab.Goal("≥ 2×"), ours, etcdGroup, "64", 2, "No hand-over to a writer goroutine and back."),
		atLeast("One producer commits as fast as the disk syncs.", lab.Goal("≥ 0.95× of fio's fdatasync"), ours,
			syncing, "1", 0.95, "Segments are filled with zeros ahead, so that a sync changes no metadata."),
	}
}
