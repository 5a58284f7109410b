// Package locks asks what goroutines wait for locks where they share something.
package locks

import (
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

var (
	channel  = lab.Ours("a channel", contend(sharedChannel))
	channels = lab.Ours("channels, one each", contend(ownChannels))
	writer   = lab.Ours("a bufio.Writer", contend(sharedWriter)).But("under a lock, as package bufio asks for")
	writers  = lab.Ours("bufio.Writers, one each", contend(ownWriters))
	storing  = lab.Ours("sync.Map: Store", contend(stores))
	loading  = lab.Ours("sync.Map: Load", contend(loads))
)

// letPass is the share of the CPUs' time, in percent, that counts as waiting for locks.
const letPass = 1

func init() {
	lab.Register(&lab.Experiment{
		Name: "locks", Plane: lab.Memory,
		Question: "Do goroutines that share a channel, a bufio.Writer or a sync.Map wait for its lock?",
		Method: "Eight goroutines do the same as often as they can: hand on by a channel, write 100 bytes, store or load one key. lock_wait_percent is what they have waited for locks, of the runtime and of package sync " +
			"(runtime/metrics), of the time of all CPUs: more than 100 where more of them wait than there are CPUs.",
		Metrics: []lab.Metric{lab.LockWait, lab.NsPerOp, lab.CPUPerOp}, Turn: 300 * time.Millisecond,
		Contestants: []*lab.Contestant{channel, channels, writer, writers, storing, loading},
		Advice: func(v lab.View) string {
			m, ok := v.Medians(nil, lab.LockWait, channel, writer, storing)
			c, ok1 := v.Ratio(channel, channels, nil, lab.NsPerOp)
			w, ok2 := v.Ratio(writer, writers, nil, lab.NsPerOp)
			if !ok || !ok1 || !ok2 {
				return ""
			}
			return fmt.Sprintf("Eight goroutines wait for the lock of one channel %.1f %% of the CPUs' time, and an operation takes, against one each: %s; for that of one bufio.Writer %.1f %%: %s; of one key of a sync.Map, which all store, %.1f %%.",
				m[0], c.Tell("longer", "less long"), m[1], w.Tell("longer", "less long"), m[2])
		},
		Claims: []lab.Claim{
			claims.ChannelsNoLocks.Judged(channel.Name, func(v lab.View) (lab.Verdict, bool) {
				verdict, ok := v.AtMost(channel, nil, lab.LockWait, letPass, "The lock of a channel is held for as long as a copy takes.")
				return verdict.IfNot("A channel has a lock in it (runtime/chan.go, hchan.lock); what it spares is to forget to take it."), ok
			}),
			claims.BufioLocks.Judged(writers.Name, func(v lab.View) (lab.Verdict, bool) {
				verdict, ok := v.AtLeast(writers, nil, lab.LockWait, letPass, "Writers that share nothing wait for each other.")
				return verdict.IfNot("A bufio.Reader or Writer has no lock, and must not be shared without one."), ok
			}),
			claims.SyncMapLocks.Judged(lab.Needs(nil, storing, loading), func(v lab.View) (lab.Verdict, bool) {
				const why = "Nobody waits for one."
				store, ok1 := v.AtMost(storing, nil, lab.LockWait, letPass, why)
				load, ok2 := v.AtMost(loading, nil, lab.LockWait, letPass, why)
				return lab.All(store, load).IfNot("Loads need none; who stores takes a lock.").
					As("Store: %s; Load: %s", store.Here, load.Here), ok1 && ok2
			}),
		},
	})
}
