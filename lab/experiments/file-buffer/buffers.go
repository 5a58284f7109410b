package filebuffer

import (
	"io"
	"os"
	"runtime"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

var sink []byte // keeps buffers from living on the stack

// reading reads a cached file again and again with a buffer of the parameter bytes, that is kept or
// made anew for each read.
func reading(fresh bool) contestant.Work {
	return func(t *contestant.Turn) error { return read(t, fresh) }
}

func read(t *contestant.Turn, fresh bool) error {
	size := t.Int("bytes", 4096)
	f, err := os.Open(t.Text("file"))
	if err != nil {
		return err
	}
	defer f.Close()
	sink = make([]byte, size)
	until, err := t.Ready()
	if err != nil {
		return err
	}
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	gc0, pause0 := contestant.Collections()
	calls, total := uint64(0), 0
	for calls%16 != 0 || time.Now().Before(until) {
		if fresh {
			sink = make([]byte, size)
		}
		n, err := f.Read(sink)
		if err == io.EOF {
			if _, err := f.Seek(0, io.SeekStart); err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
		total += n
		calls++
	}
	took, err := t.Done()
	if err != nil {
		return err
	}
	runtime.ReadMemStats(&m1)
	gc1, pause1 := contestant.Collections()
	mb := float64(total) / 1e6
	return t.Result(
		took, calls, contestant.Value{Metric: "MB_per_s", V: mb / took.Seconds()},
		contestant.Value{Metric: "syscalls_per_MB", V: float64(calls) / mb},
		contestant.Value{Metric: "allocs_per_MB", V: float64(m1.Mallocs-m0.Mallocs) / mb},
		contestant.Value{Metric: "gc_cycles", V: gc1 - gc0},
		contestant.Value{Metric: "gc_pause_us", V: pause1 - pause0},
	)
}
