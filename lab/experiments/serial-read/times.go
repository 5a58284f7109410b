package serialread

import (
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/lab/readers"
)

// readTimes reads a port by os.File and reports how long a read waits, and how long it takes to
// take out and check what came.
func readTimes(t *contestant.Turn) error {
	files, err := readers.OpenPorts(t)
	if err != nil {
		return err
	}
	var blocked, handled []int64
	over := make(chan struct{})
	go func() {
		defer close(over)
		l, buf, have := &readers.Lane{}, make([]byte, 64<<10), 0
		for {
			began := time.Now()
			n, err := files[0].Read(buf[have : have+4096])
			if err != nil {
				return
			}
			came := time.Now()
			have += n
			done, _ := l.Arrived(buf[:have], n, 0)
			have = copy(buf, buf[done:have])
			if len(blocked) < 1<<20 {
				blocked, handled = append(blocked, int64(came.Sub(began))), append(handled, int64(time.Since(came)))
			}
		}
	}()
	if _, err := t.Ready(); err != nil {
		return err
	}
	t.End()
	took := t.Elapsed()
	if err := files[0].Close(); err != nil {
		return err
	}
	<-over
	return t.Result(took, uint64(len(blocked)), median("blocked_us_p50", blocked), median("handled_us_p50", handled))
}

// median is the median of times in ns, in µs.
func median(metric string, ns []int64) contestant.Value {
	for _, v := range contestant.Latencies(ns) {
		if v.Metric == "latency_us_p50" {
			return contestant.Value{Metric: metric, V: v.V}
		}
	}
	return contestant.Value{Metric: metric}
}
