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
		Method: "1 to 64 goroutines append; each append returns after an fdatasync that holds its record. fio writes and syncs one record at a time on a file filled with zeros: times " +
			"producers, that is what one sync for all of them could give at best. +group: with a group commit around it that gathers what comes during a sync. " +
			"linger: a batch is left open for 64 records or 1 ms, as the article's writer does, and an append returns when its batch is durable. Chains that failed, which append fails with, are counted by kind and part in the recorder's metrics.",
		Metrics: []lab.Metric{
			lab.OpsPerSecond, lab.LatencyP50, lab.LatencyP99, lab.CPUPerOp, lab.RSS, lab.ChainsWhole,
			lab.ChainsFailed,
		},
		Base: ours, Chart: lab.Chart{Over: "producers"},
		Cells: func(lab.Options) []lab.Params { return lab.Cells("producers", 1, 16, 64) },
		Contestants: []*lab.Contestant{
			syncing, ours, ring, linked, linger, chain, pebble, etcd, etcdGroup, raft, raftGroup, bbolt,
			jetstream,
		},
		Advice: func(v lab.View) string {
			m, ok := v.Medians(lab.Params{"producers": "64"}, lab.OpsPerSecond, ours, etcdGroup)
			p, ok2 := v.Median(ours, lab.Params{"producers": "1"}, lab.LatencyP99)
			if !ok || !ok2 {
				return ""
			}
			std := v.Beats(ours, ring, lab.Params{"producers": "64"}, lab.OpsPerSecond)
			return fmt.Sprintf("seglog with its std engine makes %.0f records a second durable from 64 goroutines, %s (etcd's wal in a group commit: %.0f); one producer waits %.0f µs at most for 99 %% of its records.",
				m[0], lab.Or(std, "more than with engine uring", "not more than with engine uring"), m[1], p)
		},
		Claims: judges(),
	})
}

func fio() *lab.Contestant {
	c := lab.FIO("fio/fdatasync", func(*lab.Bench, lab.Params) []string {
		return []string{
			"--filename=fio", "--rw=write", "--bs=224", "--size=16m", "--ioengine=psync", "--fdatasync=1",
			"--overwrite=1",
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
		claims.BatchSuccess.Judged("tallywheel/seglog linked at producers=64", func(v lab.View) (lab.Verdict, bool) {
			m, ok := v.Median(linked, lab.Params{"producers": "64"}, lab.OpsPerSecond)
			return lab.NotHere("what failed for the article: it names no reason for the other 2.8 %, and calls the figure an example. A turn in which an append fails has no figures.").
				As("all of %.0f appends a second succeeded", m), ok
		}),
		atLeast(claims.LinkedLog.Text, claims.LinkedLog.Source,
			linked, ours, "64", 1, "One write of the whole batch does with one operation what the chain does with 64."),
		atLeast(claims.RingSync.Text, claims.RingSync.Source, ring, ours, "64", 1.02,
			"An fsync on a ring goes to a worker thread of the kernel (io_uring: io_fsync always punts), so each commit pays for two wake-ups more."),
		atLeast("A log with leader and followers commits twice as many records as pebble.", lab.Goal("≥ 2×"), ours,
			pebble, "64", 2, "Whoever appends first writes for all who wait."),
		atLeast("A log with leader and followers commits twice as many records as etcd's wal with a group commit around it.", lab.Goal("≥ 2×"), ours, etcdGroup, "64", 2, "No hand-over to a writer goroutine and back."),
		atLeast("One producer commits as fast as the disk syncs.", lab.Goal("≥ 0.95× of fio's fdatasync"), ours,
			syncing, "1", 0.95, "Segments are filled with zeros ahead, so that a sync changes no metadata."),
	}
}
