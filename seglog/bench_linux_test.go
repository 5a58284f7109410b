package seglog

import (
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// lookEvery is the share of appends whose latency is taken: two looks at the clock are a tenth of
// what an append costs the CPU.
const lookEvery = 8

// BenchmarkAppendDurable is records of 128 bytes, each acknowledged after its fdatasync.
// TALLYWHEEL_BENCH_DIR says where.
func BenchmarkAppendDurable(b *testing.B) {
	for _, producers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("producers=%d", producers), func(b *testing.B) {
			l := open(b, Config{FS: benchDir(b), Sync: SyncAlways})
			awaitSpare(b, l) // a start is not what is measured
			data := make([]byte, 128)
			lat := make([][]time.Duration, producers)
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			var wg sync.WaitGroup
			for p := range producers {
				wg.Go(func() {
					for n := 0; left.Add(-1) >= 0; n++ {
						var t time.Time
						if n%lookEvery == 0 {
							t = time.Now()
						}
						if _, err := l.Append(0, 1, data); err != nil {
							b.Error(err)
							return
						}
						if n%lookEvery == 0 {
							lat[p] = append(lat[p], time.Since(t))
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
			all := slices.Concat(lat...)
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-us")
			b.StopTimer()
			closeLog(b, l)
		})
	}
}

// BenchmarkFdatasync is the bar: one write of the same size and one fdatasync, over a file filled
// with zeros.
func BenchmarkFdatasync(b *testing.B) {
	f, err := os.OpenFile(benchDir(b).(osDir).dir+"/raw", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	const size = 64 << 20
	if err := zero(osFile{f}, 0, size, nil); err != nil {
		b.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	data := make([]byte, frameLen(128)+commitBytes)
	var off int64
	for b.Loop() {
		if _, err := f.WriteAt(data, off%(size-1024)); err != nil {
			b.Fatal(err)
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			b.Fatal(err)
		}
		off += int64(len(data))
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "syncs/s")
}

// BenchmarkAppendUnsynced is records of 128 bytes that the kernel writes back when it likes.
func BenchmarkAppendUnsynced(b *testing.B) {
	for _, producers := range []int{1, 4} {
		b.Run(fmt.Sprintf("producers=%d", producers), func(b *testing.B) {
			l := open(b, Config{FS: benchDir(b), Sync: SyncNever, KeepBytes: 256 << 20})
			data := make([]byte, 128)
			var r0, r1 syscall.Rusage
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r0)
			b.ResetTimer()
			var wg sync.WaitGroup
			for range producers {
				wg.Go(func() {
					for range b.N / producers {
						if _, err := l.Append(0, 1, data); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r1)
			cpu := r1.Utime.Nano() + r1.Stime.Nano() - r0.Utime.Nano() - r0.Stime.Nano()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrecords/s")
			b.ReportMetric(float64(cpu)/float64(b.N), "cpu-ns/record")
			b.StopTimer()
			closeLog(b, l)
		})
	}
}

// awaitSpare waits until the next segment has been made ready.
func awaitSpare(b *testing.B, l *Log) {
	b.Helper()
	for range 10_000 {
		l.shelf.mu.Lock()
		n := len(l.shelf.next)
		l.shelf.mu.Unlock()
		if n > 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	b.Fatal("no spare segment within 10 s")
}

func benchDir(b *testing.B) FS {
	b.Helper()
	path := b.TempDir()
	if base := os.Getenv("TALLYWHEEL_BENCH_DIR"); base != "" {
		var err error
		if path, err = os.MkdirTemp(base, "seglog"); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { os.RemoveAll(path) })
	}
	dir, err := Dir(path)
	if err != nil {
		b.Fatal(err)
	}
	return dir
}

// BenchmarkReadSegments reads the same records from many segments and from few, in turn, warm. The
// size of the many is the smallest that a recorder takes, and the smallest of all but two.
// TALLYWHEEL_BENCH_DIR says where: 7 GB of it.
func BenchmarkReadSegments(b *testing.B) {
	for _, c := range []struct {
		segment int64
		many    int64
	}{{1 << 20, 3000}, {64 << 10, 3000}} {
		b.Run(fmt.Sprintf("segment=%dKiB", c.segment>>10), func(b *testing.B) {
			many, few := filled(b, c.segment, c.segment*c.many), filled(b, c.segment*c.many/50, c.segment*c.many)
			var ratios []float64
			for n := 0; b.Loop(); n++ {
				var took [2]time.Duration
				for i := range 2 {
					i = (i + n) % 2
					from := time.Now()
					readThrough(b, [2]FS{many, few}[i])
					took[i] = time.Since(from)
				}
				ratios = append(ratios, took[0].Seconds()/took[1].Seconds())
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "many/few")
			b.ReportMetric(ratios[0], "least")
			b.ReportMetric(ratios[len(ratios)-1], "most")
		})
	}
}

// filled is a log of as many bytes, in segments of that size.
func filled(b *testing.B, segment, bytes int64) FS {
	b.Helper()
	dir := benchDir(b)
	l := open(b, Config{FS: dir, Sync: SyncNever, SegmentBytes: segment})
	data := make([]byte, 128)
	for range bytes / int64(frameHeader+len(data)) {
		if _, err := l.Append(0, 1, data); err != nil {
			b.Fatal(err)
		}
	}
	closeLog(b, l)
	readThrough(b, dir)
	return dir
}

func readThrough(b *testing.B, dir FS) {
	b.Helper()
	r := NewReader(dir, 0)
	defer r.Close()
	for {
		if _, err := r.Next(); err == io.EOF {
			return
		} else if err != nil {
			b.Fatal(err)
		}
	}
}
