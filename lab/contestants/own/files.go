package own

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/uring"
)

const block = 4096

// nopRing does operations that do nothing, depth of them in one call.
func nopRing(t *contestant.Turn) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	depth := t.Int("depth", 64)
	r, err := uring.New(uring.Config{Entries: depth, Locked: true, RegisterRing: true})
	if err != nil {
		return err
	}
	ops := make([]uring.Op, depth)
	const rounds = 64
	var failed error
	err = contestant.Repeat(t, rounds*depth, 0, func() {
		for range rounds {
			for i := range ops {
				if err := r.Push(&ops[i]); err != nil {
					failed = err
				}
			}
			if err := r.Wait(depth); err != nil {
				failed = err
			}
			for r.Next() != nil {
			}
		}
	})
	return errors.Join(err, failed, r.Close())
}

// random reads blocks of 4 KiB at random from a file, past the page cache, depth at a time: by our
// batch on a ring (how=uring), reaped batch at a time, or by os.File and as many goroutines
// (how=os).
func random(t *contestant.Turn) error {
	depth, batch := t.Int("depth", 64), t.Int("batch", 1)
	cfg := asyncfile.Config{Backend: asyncfile.Uring, Direct: true, Depth: depth}
	if t.Text("how") == "os" {
		cfg.Backend = asyncfile.Std
	}
	f, err := asyncfile.Open(t.Text("file"), cfg)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	var n uint64
	if cfg.Backend == asyncfile.Std {
		n, err = readByGoroutines(t, f, size/block, depth)
	} else {
		n, err = readBatched(t, f, size/block, depth, batch)
	}
	if err != nil {
		return err
	}
	took, err := t.Done()
	if err != nil {
		return err
	}
	return t.Result(took, n, contestant.Value{Metric: "MB_per_s", V: float64(n) * block / 1e6 / took.Seconds()})
}

// readBatched keeps depth reads in flight from one thread and reaps them batch at a time. A locked
// ring pays for batches only.
func readBatched(t *contestant.Turn, f asyncfile.File, blocks int64, depth, batch int) (n uint64, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b, err := asyncfile.NewBatch(f, asyncfile.BatchConfig{Depth: depth, Locked: batch > 1})
	if err != nil {
		return 0, err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	ops := make([]asyncfile.Op, depth)
	for i := range ops {
		ops[i].Buf = asyncfile.Aligned(block)
		ops[i].Off = rng.Int64N(blocks) * block
	}
	until, err := t.Ready()
	if err != nil {
		return 0, err
	}
	if _, err := b.Submit(ops); err != nil {
		return 0, err
	}
	done := make([]*asyncfile.Op, 0, depth)
	for time.Now().Before(until) {
		if done, err = b.Reap(done[:0], batch); err != nil {
			return n, err
		}
		for i := 0; i < len(done); i++ {
			op := done[i]
			if op.Err != nil {
				return n, op.Err
			}
			op.Off = rng.Int64N(blocks) * block
			if err := b.SubmitOne(op); err != nil {
				return n, err
			}
			if n++; n%uint64(batch) == 0 && i+1 < len(done) { // the disk should not wait for the rest of the list
				if done, err = b.Reap(done, 0); err != nil {
					return n, err
				}
			}
		}
	}
	return n, b.Close()
}

func readByGoroutines(t *contestant.Turn, f asyncfile.File, blocks int64, depth int) (uint64, error) {
	var n atomic.Uint64
	errs := make([]error, depth)
	var all sync.WaitGroup
	until, err := t.Ready()
	if err != nil {
		return 0, err
	}
	for g := range depth {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			buf := asyncfile.Aligned(block)
			for errs[g] == nil && time.Now().Before(until) {
				_, errs[g] = f.ReadAt(buf, rng.Int64N(blocks)*block)
				n.Add(1)
			}
		})
	}
	all.Wait()
	return n.Load(), errors.Join(errs...)
}

// fileConfig is how the parameter backend opens a file.
func fileConfig(t *contestant.Turn) (cfg asyncfile.Config, batch bool) {
	switch t.Text("backend") {
	case "window":
		return asyncfile.Config{Backend: asyncfile.Std, Buffer: 64 << 10}, false
	case "mmap":
		return asyncfile.Config{Backend: asyncfile.Mmap}, false
	case "mmap-sequential":
		return asyncfile.Config{Backend: asyncfile.Mmap, Sequential: true}, false
	case "uring":
		return asyncfile.Config{Backend: asyncfile.Uring}, true
	}
	return asyncfile.Config{Backend: asyncfile.Std}, false
}

// each does one operation of 4 KiB for every offset that next gives, until it gives a negative one:
// plainly, or 64 in flight.
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

// sequential reads or writes (access=read, write) a file 4 KiB at a time, in order, or reads it at
// random (access=random), the page cache dropped before. What is written is synced before the time
// ends.
func sequential(t *contestant.Turn) error {
	cfg, batch := fileConfig(t)
	path, kind := t.Text("file"), asyncfile.Read
	if t.Text("access") == "write" {
		path, kind = t.Text("dir")+"/written", asyncfile.Write
		cfg.Create = true
		defer os.Remove(path)
	} else if err := forget(path); err != nil {
		return err
	}
	f, err := asyncfile.Open(path, cfg)
	if err != nil {
		return err
	}
	defer f.Close()
	size := int64(t.Int("size_mib", 256)) << 20
	until, err := t.Ready()
	if err != nil {
		return err
	}
	n := uint64(0)
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	err = each(f, kind, batch, func() int64 {
		if int64(n)*block >= size || n%64 == 0 && !time.Now().Before(until) {
			return -1
		}
		n++
		if t.Text("access") == "random" {
			return rng.Int64N(size/block) * block
		}
		return int64(n-1) * block
	})
	if kind == asyncfile.Write {
		err = errors.Join(err, f.Sync())
	}
	if err != nil {
		return err
	}
	took, err := t.Done()
	if err != nil {
		return err
	}
	return t.Result(took, n, contestant.Value{Metric: "MB_per_s", V: float64(n) * block / 1e6 / took.Seconds()})
}

// forget drops a file from the page cache.
func forget(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = errors.Join(f.Sync(), sys.DropCache(f))
	if err == nil {
		var left float64
		if left, err = sys.Cached(f); err == nil && left > cachedAtMost {
			err = fmt.Errorf("%.0f %% of the file stayed in the page cache: nothing can be read cold here", 100*left)
		}
	}
	return errors.Join(err, f.Close())
}

// recall reads a file, so that it is in the page cache.
func recall(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(struct{ io.Writer }{io.Discard}, f) // not by splice: into the page cache
	return errors.Join(err, f.Close())
}

// cachedAtMost is the share of a file that may be in the page cache where it is said to be cold.
const cachedAtMost = 0.01

var sink []byte // keeps buffers from living on the stack

// buffer reads a cached file again and again with a buffer of the parameter bytes, that is kept or,
// how=fresh, made anew for each read.
func buffer(t *contestant.Turn) error {
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
		if t.Text("how") == "fresh" {
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
		contestant.Value{Metric: "gc_cycles", V: gc1 - gc0}, contestant.Value{Metric: "gc_pause_us", V: pause1 - pause0},
	)
}

// lines cuts a cached text into lines: by bufio.Scanner (how=scanner-text, scanner-bytes),
// bufio.Reader.ReadSlice with 64 KiB (how=readslice), or asyncfile.Lines over a backend.
func lines(t *contestant.Turn) error {
	path := t.Text("file")
	var pass func() (n int, lines uint64, err error)
	std := func(use func(f *os.File) (int, uint64, error)) func() (int, uint64, error) {
		return func() (int, uint64, error) {
			f, err := os.Open(path)
			if err != nil {
				return 0, 0, err
			}
			defer f.Close()
			return use(f)
		}
	}
	switch t.Text("how") {
	case "scanner-text":
		pass = std(func(f *os.File) (n int, k uint64, err error) {
			s := bufio.NewScanner(f)
			for ; s.Scan(); k++ {
				n += len(s.Text()) + 1
			}
			return n, k, s.Err()
		})
	case "scanner-bytes":
		pass = std(func(f *os.File) (n int, k uint64, err error) {
			s := bufio.NewScanner(f)
			for ; s.Scan(); k++ {
				n += len(s.Bytes()) + 1
			}
			return n, k, s.Err()
		})
	case "readslice":
		pass = std(func(f *os.File) (n int, k uint64, err error) {
			for r := bufio.NewReaderSize(f, 64<<10); ; k++ {
				b, err := r.ReadSlice('\n')
				n += len(b)
				if err == io.EOF {
					return n, k, nil
				} else if err != nil {
					return n, k, err
				}
			}
		})
	default:
		cfg, _ := fileConfig(t)
		pass = func() (n int, k uint64, err error) {
			f, err := asyncfile.Open(path, cfg)
			if err != nil {
				return 0, 0, err
			}
			defer f.Close()
			l := asyncfile.NewLines(f, 0)
			for ; l.Next(); k++ {
				n += len(l.Bytes()) + 1
			}
			return n, k, l.Err()
		}
	}
	return passes(t, path, pass)
}

// passes reads a whole file again and again, and checks that all of it was read each time.
func passes(t *contestant.Turn, path string, pass func() (int, uint64, error)) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	until, err := t.Ready()
	if err != nil {
		return err
	}
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	gc0, _ := contestant.Collections()
	items, total := uint64(0), 0
	for ok := true; ok; ok = time.Now().Before(until) {
		n, k, err := pass()
		if err == nil && int64(n) != info.Size() {
			err = fmt.Errorf("read %d of %d bytes", n, info.Size())
		}
		if err != nil {
			return err
		}
		items += k
		total += n
	}
	took, err := t.Done()
	if err != nil {
		return err
	}
	runtime.ReadMemStats(&m1)
	gc1, _ := contestant.Collections()
	return t.Result(
		took, items, contestant.Value{Metric: "gc_cycles", V: gc1 - gc0}, contestant.Value{Metric: "MB_per_s", V: float64(total) / 1e6 / took.Seconds()},
		contestant.Value{Metric: "allocs_per_op", V: float64(m1.Mallocs-m0.Mallocs) / float64(items)},
		contestant.Value{Metric: "allocs_per_MB", V: float64(m1.Mallocs-m0.Mallocs) / (float64(total) / 1e6)},
	)
}

// coldShare is one part in so many of a cold file that a turn reads at most.
const coldShare = 16

// seek reads blocks of 4 KiB at random: how=seek, by Seek and Read, else by ReadAt of a backend.
// state=cold drops the page cache before.
func seek(t *contestant.Turn) error {
	path, prepare := t.Text("file"), recall
	if t.Text("state") == "cold" {
		prepare = forget
	}
	if err := prepare(path); err != nil {
		return err
	}
	cfg, _ := fileConfig(t)
	f, err := asyncfile.Open(path, cfg)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := os.Open(path)
	if err != nil {
		return err
	}
	defer plain.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	read := f.ReadAt
	if t.Text("how") == "seek" {
		read = func(b []byte, off int64) (int, error) {
			if _, err := plain.Seek(off, io.SeekStart); err != nil {
				return 0, err
			}
			return io.ReadFull(plain, b)
		}
	}
	until, err := t.Ready()
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	b := make([]byte, block)
	var took []int64
	n := uint64(0)
	most := uint64(math.MaxUint64)
	if t.Text("state") == "cold" { // else a long turn would find more of it cached than a short one
		most = uint64(size / block / coldShare)
	}
	for now := time.Now(); now.Before(until) && n < most; n++ {
		if _, err := read(b, rng.Int64N(size/block)*block); err != nil {
			return err
		}
		then := now
		now = time.Now()
		if len(took) < 1<<20 {
			took = append(took, int64(now.Sub(then)))
		}
	}
	length, err := t.Done()
	if err != nil {
		return err
	}
	cached, err := sys.Cached(plain)
	if err != nil {
		return err
	}
	return t.Result(length, n, append(contestant.Latencies(took), contestant.Value{Metric: "cached_percent", V: 100 * cached})...)
}

// misuse reads records of 128 bytes out of a binary file: with bufio.Scanner as if it were text
// (how=scanner), with reads of one record each (how=tiny), with bufio of its own 4 KiB (how=bufio),
// and as one should (how=chunk: 256 KiB, records taken in place).
func misuse(t *contestant.Turn) error {
	path := t.Text("file")
	const record = 128
	one := make([]byte, record)
	return passes(t, path, func() (n int, k uint64, err error) {
		f, err := os.Open(path)
		if err != nil {
			return 0, 0, err
		}
		defer f.Close()
		switch t.Text("how") {
		case "scanner": // "lines" of binary data, of any length, each made into a string
			s := bufio.NewScanner(f)
			s.Split(func(data []byte, atEOF bool) (int, []byte, error) {
				if i := bytes.IndexByte(data, '\n'); i >= 0 {
					return i + 1, data[:i+1], nil
				}
				if atEOF && len(data) > 0 {
					return len(data), data, nil
				}
				return 0, nil, nil
			})
			for ; s.Scan(); k++ {
				n += len(s.Text())
			}
			return n, k, s.Err()
		case "chunk":
			return recordsOf(f, make([]byte, 256<<10), record)
		case "bufio":
			r := bufio.NewReader(f)
			for {
				if _, err := io.ReadFull(r, one); err == io.EOF {
					return n, k, nil
				} else if err != nil {
					return n, k, err
				}
				n += record
				k++
			}
		}
		return recordsOf(f, one, record)
	})
}

func recordsOf(f *os.File, b []byte, record int) (n int, k uint64, err error) {
	for {
		m, err := io.ReadFull(f, b)
		n += m
		k += uint64(m / record)
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return n, k, nil
		} else if err != nil {
			return n, k, err
		}
	}
}
