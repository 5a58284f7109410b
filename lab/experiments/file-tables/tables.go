package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/asyncfile"
)

const (
	block       = 4096
	coldReads   = 10_000
	coldSeconds = 2 // a way that is slower stops after this
)

// access is the first table: 4 KiB at a time, the page cache dropped before each read.
func (l *lab) access() table {
	t := table{
		name: "access", title: fmt.Sprintf("Access by 4 KiB to a file of %d MiB, page cache dropped", l.size>>20),
		columns: []string{"seq. read MB/s", "seq. write MB/s", "random reads/s"},
	}
	for _, w := range []struct {
		name  string
		cfg   asyncfile.Config
		batch bool
	}{
		{"std", asyncfile.Config{Backend: asyncfile.Std}, false},
		{"std, window of 64 KiB", asyncfile.Config{Backend: asyncfile.Std, Buffer: 64 << 10}, false},
		{"mmap", asyncfile.Config{Backend: asyncfile.Mmap}, false},
		{"mmap, sequential", asyncfile.Config{Backend: asyncfile.Mmap, Sequential: true}, false},
		{"std, 64 goroutines", asyncfile.Config{Backend: asyncfile.Std}, true},
		{"uring, depth 64", asyncfile.Config{Backend: asyncfile.Uring}, true},
	} {
		if err := asyncfile.Available(w.cfg.Backend); err != nil {
			fmt.Fprintf(os.Stderr, "not run: %s: %v\n", w.name, err)
			continue
		}
		t.ways = append(t.ways, way{w.name, func() ([]float64, error) {
			read, err1 := l.sequentialRead(w.cfg, w.batch)
			written, err2 := l.sequentialWrite(w.cfg, w.batch)
			random, err3 := l.randomRead(w.cfg, w.batch)
			return []float64{read, written, random}, errors.Join(err1, err2, err3)
		}})
	}
	return t
}

// each does one operation for every offset that next gives, until it gives a negative one: plainly, or 64 in flight.
func each(f asyncfile.File, kind asyncfile.Kind, batch bool, next func() int64) error {
	if !batch {
		b := make([]byte, block)
		for off := next(); off >= 0; off = next() {
			var err error
			if kind == asyncfile.Read {
				_, err = f.ReadAt(b, off)
			} else {
				_, err = f.WriteAt(b, off)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b, err := asyncfile.NewBatch(f, asyncfile.BatchConfig{Locked: true})
	if err != nil {
		return err
	}
	ops := make([]asyncfile.Op, b.Depth())
	done := make([]*asyncfile.Op, 0, len(ops))
	for i := range ops {
		ops[i] = asyncfile.Op{Kind: kind, Buf: make([]byte, block)}
		done = append(done, &ops[i])
	}
	for more := true; more || b.InFlight() > 0; {
		for _, op := range done {
			if op.Err != nil {
				return op.Err
			}
			if op.Off = next(); op.Off < 0 {
				more = false
				break
			}
			if err := b.SubmitOne(op); err != nil {
				return err
			}
		}
		if done, err = b.Reap(done[:0], min(16, b.InFlight())); err != nil {
			return err
		}
	}
	return b.Close()
}

// ascending gives the blocks of a file in order.
func ascending(size int64) func() int64 {
	at := int64(-block)
	return func() int64 {
		if at += block; at+block > size {
			return -1
		}
		return at
	}
}

func (l *lab) sequentialRead(cfg asyncfile.Config, batch bool) (float64, error) {
	if err := forget(l.file); err != nil {
		return 0, err
	}
	f, err := asyncfile.Open(l.file, cfg)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	err = each(f, asyncfile.Read, batch, ascending(l.size))
	return float64(l.size) / 1e6 / time.Since(start).Seconds(), errors.Join(err, f.Close())
}

// sequentialWrite counts the sync at the end: without it nothing has been written.
func (l *lab) sequentialWrite(cfg asyncfile.Config, batch bool) (float64, error) {
	path := filepath.Join(l.dir, "new")
	cfg.Create = true
	f, err := asyncfile.Open(path, cfg)
	if err != nil {
		return 0, err
	}
	defer os.Remove(path)
	start := time.Now()
	err = errors.Join(each(f, asyncfile.Write, batch, ascending(l.size)), f.Sync())
	return float64(l.size) / 1e6 / time.Since(start).Seconds(), errors.Join(err, f.Close())
}

func (l *lab) randomRead(cfg asyncfile.Config, batch bool) (float64, error) {
	if err := forget(l.file); err != nil {
		return 0, err
	}
	f, err := asyncfile.Open(l.file, cfg)
	if err != nil {
		return 0, err
	}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	n, start := 0, time.Now()
	err = each(f, asyncfile.Read, batch, func() int64 {
		if n == coldReads || n%64 == 0 && time.Since(start) > coldSeconds*time.Second {
			return -1
		}
		n++
		return rng.Int64N(l.size/block) * block
	})
	return float64(n) / time.Since(start).Seconds(), errors.Join(err, f.Close())
}

// buffer is the second table: one reader, hot, with a buffer that is kept or made anew for each read.
func (l *lab) buffer() table {
	t := table{
		name: "buffer", title: "Sequential read of cached data by the size of the buffer",
		columns: []string{"MB/s", "calls/MB", "allocs/MB", "collections", "pause µs"},
	}
	for _, size := range []int{1 << 10, 8 << 10, 64 << 10, 256 << 10} {
		for _, fresh := range []bool{false, true} {
			name := fmt.Sprintf("%d KiB, kept", size>>10)
			if fresh {
				name = fmt.Sprintf("%d KiB, a new one each time", size>>10)
			}
			t.ways = append(t.ways, way{name, func() ([]float64, error) { return l.readAll(size, fresh) }})
		}
	}
	return t
}

var sink []byte // keeps buffers from living on the stack

func (l *lab) readAll(size int, fresh bool) ([]float64, error) {
	f, err := os.Open(l.text)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var m0, m1 runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m0)
	start := time.Now()
	sink = make([]byte, size)
	total, calls := 0, 0
	for {
		if fresh {
			sink = make([]byte, size)
		}
		n, err := f.Read(sink)
		total += n
		calls++
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	took := time.Since(start)
	runtime.ReadMemStats(&m1)
	mb := float64(total) / 1e6
	return []float64{
		mb / took.Seconds(), float64(calls) / mb, float64(m1.Mallocs-m0.Mallocs) / mb, float64(m1.NumGC - m0.NumGC),
		float64(m1.PauseTotalNs-m0.PauseTotalNs) / 1e3,
	}, nil
}

// mapped is the third table: random blocks of a large file, from the page cache and from the disk.
func (l *lab) mapped() table {
	t := table{
		name: "map", title: "Random 4 KiB of a large file: a map beside seek and read",
		columns: []string{"reads/s", "p50 µs", "p99 µs", "minor faults", "major faults"},
	}
	for _, hot := range []bool{true, false} {
		state := "cached"
		if !hot {
			state = "not cached"
		}
		t.ways = append(t.ways, way{"seek and read, " + state, func() ([]float64, error) {
			f, err := os.Open(l.file)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			return l.latency(hot, func(b []byte, off int64) error {
				if _, err := f.Seek(off, io.SeekStart); err != nil {
					return err
				}
				_, err := io.ReadFull(f, b)
				return err
			})
		}})
		for _, w := range []struct {
			name string
			cfg  asyncfile.Config
		}{
			{"ReadAt, ", asyncfile.Config{Backend: asyncfile.Std}},
			{"mmap, ", asyncfile.Config{Backend: asyncfile.Mmap}},
			{"mmap, reads ahead, ", asyncfile.Config{Backend: asyncfile.Mmap, Sequential: true}},
		} {
			t.ways = append(t.ways, way{w.name + state, func() ([]float64, error) {
				f, err := asyncfile.Open(l.file, w.cfg)
				if err != nil {
					return nil, err
				}
				defer f.Close()
				return l.latency(hot, func(b []byte, off int64) error {
					_, err := f.ReadAt(b, off)
					return err
				})
			}})
		}
	}
	return t
}

func (l *lab) latency(hot bool, read func([]byte, int64) error) ([]float64, error) {
	if hot { // all of it into the page cache
		if _, err := l.sequentialRead(asyncfile.Config{Buffer: 1 << 20}, false); err != nil {
			return nil, err
		}
	} else if err := forget(l.file); err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	b := make([]byte, block)
	var took []float64
	var r0, r1 syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r0); err != nil {
		return nil, err
	}
	start := time.Now()
	for len(took) < coldReads && (len(took)%64 != 0 || time.Since(start) < coldSeconds*time.Second) {
		t := time.Now()
		if err := read(b, rng.Int64N(l.size/block)*block); err != nil {
			return nil, err
		}
		took = append(took, float64(time.Since(t).Nanoseconds())/1e3)
	}
	all := time.Since(start)
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r1); err != nil {
		return nil, err
	}
	slices.Sort(took)
	return []float64{
		float64(len(took)) / all.Seconds(), took[len(took)/2], took[len(took)*99/100],
		float64(r1.Minflt - r0.Minflt), float64(r1.Majflt - r0.Majflt),
	}, nil
}

// lines is the fourth table: the lines of a text that is in the page cache.
func (l *lab) lines() table {
	file := func(use func(f *os.File) (int, error)) func() ([]float64, error) {
		return func() ([]float64, error) {
			f, err := os.Open(l.text)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			return counted(f, func() (int, error) { return use(f) })
		}
	}
	ours := func(cfg asyncfile.Config) func() ([]float64, error) {
		return func() ([]float64, error) {
			f, err := asyncfile.Open(l.text, cfg)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			o, err := os.Open(l.text)
			if err != nil {
				return nil, err
			}
			defer o.Close()
			return counted(o, func() (int, error) {
				lines, n := asyncfile.NewLines(f, 0), 0
				for lines.Next() {
					n += len(lines.Bytes()) + 1
				}
				return n, lines.Err()
			})
		}
	}
	return table{
		name: "lines", title: "Lines of a cached text", columns: []string{"MB/s", "allocs/line"},
		ways: []way{
			{"Scanner.Text", file(func(f *os.File) (n int, err error) {
				s := bufio.NewScanner(f)
				for s.Scan() {
					n += len(s.Text()) + 1
				}
				return n, s.Err()
			})},
			{"Scanner.Bytes", file(func(f *os.File) (n int, err error) {
				s := bufio.NewScanner(f)
				for s.Scan() {
					n += len(s.Bytes()) + 1
				}
				return n, s.Err()
			})},
			{"Reader.ReadSlice, 64 KiB", file(func(f *os.File) (n int, err error) {
				for r := bufio.NewReaderSize(f, 64<<10); ; {
					b, err := r.ReadSlice('\n')
					n += len(b)
					if err == io.EOF {
						return n, nil
					} else if err != nil {
						return n, err
					}
				}
			})},
			{"asyncfile.Lines, std", ours(asyncfile.Config{Backend: asyncfile.Std})},
			{"asyncfile.Lines, mmap", ours(asyncfile.Config{Backend: asyncfile.Mmap, Sequential: true})},
		},
	}
}

// counted times a way to read a whole text, and checks that it has read all.
func counted(f *os.File, read func() (int, error)) ([]float64, error) {
	whole, err := os.ReadFile(f.Name())
	if err != nil {
		return nil, err
	}
	lines := bytes.Count(whole, []byte{'\n'})
	size := len(whole)
	whole = nil
	runtime.GC()
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	start := time.Now()
	n, err := read()
	took := time.Since(start)
	runtime.ReadMemStats(&m1)
	if err == nil && n != size {
		err = fmt.Errorf("read %d of %d bytes", n, size)
	}
	return []float64{float64(n) / 1e6 / took.Seconds(), float64(m1.Mallocs-m0.Mallocs) / float64(lines)}, err
}
