package bigfile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

// Block is what reads bring, in bytes.
const Block = 4096

// Random reads blocks of 4 KiB at random from a file, past the page cache, Depth at a time.
type Random struct {
	Depth, Batch int // 0: the parameters depth and batch
}

// ByRing reads by our batch on a ring, reaped Batch at a time.
func (r Random) ByRing(t *contestant.Turn) error {
	depth, batch := r.of(t)
	return r.read(t, asyncfile.Uring, func(f asyncfile.File, blocks int64) (uint64, error) {
		return readBatched(t, f, blocks, depth, batch)
	})
}

// ByGoroutines reads by os.File and Depth goroutines.
func (r Random) ByGoroutines(t *contestant.Turn) error {
	depth, _ := r.of(t)
	return r.read(t, asyncfile.Std, func(f asyncfile.File, blocks int64) (uint64, error) {
		return readByGoroutines(t, f, blocks, depth)
	})
}

func (r Random) of(t *contestant.Turn) (depth, batch int) {
	return cmp.Or(r.Depth, t.Int("depth", 64)), cmp.Or(r.Batch, t.Int("batch", 1))
}

func (r Random) read(t *contestant.Turn, b asyncfile.Backend,
	reads func(f asyncfile.File, blocks int64) (uint64, error),
) error {
	depth, _ := r.of(t)
	f, err := asyncfile.Open(t.Text("file"), asyncfile.Config{Backend: b, Direct: true, Depth: depth})
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	n, err := reads(f, size/Block)
	if err != nil {
		return err
	}
	took, err := t.Done()
	if err != nil {
		return err
	}
	return t.Result(took, n, contestant.Value{Metric: "MB_per_s", V: float64(n) * Block / 1e6 / took.Seconds()})
}

// places draws where a reader reads: others in each turn, as fio does, or what is below the file,
// as the cache of a disk or of a hypervisor, would have had them before.
func places(reader int) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(reader)))
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
	rng := places(0)
	ops := make([]asyncfile.Op, depth)
	for i := range ops {
		ops[i].Buf = asyncfile.Aligned(Block)
		ops[i].Off = rng.Int64N(blocks) * Block
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
			op.Off = rng.Int64N(blocks) * Block
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
			rng := places(g)
			buf := asyncfile.Aligned(Block)
			for errs[g] == nil && time.Now().Before(until) {
				_, errs[g] = f.ReadAt(buf, rng.Int64N(blocks)*Block)
				n.Add(1)
			}
		})
	}
	all.Wait()
	return n.Load(), errors.Join(errs...)
}

// Backend is a way to open a file.
type Backend struct {
	Config asyncfile.Config
	batch  bool // 64 operations at a time
}

// The backends.
var (
	Std        = Backend{Config: asyncfile.Config{Backend: asyncfile.Std}}
	Window     = Backend{Config: asyncfile.Config{Backend: asyncfile.Std, Buffer: 64 << 10}}
	Map        = Backend{Config: asyncfile.Config{Backend: asyncfile.Mmap}}                   // MADV_RANDOM
	MapInOrder = Backend{Config: asyncfile.Config{Backend: asyncfile.Mmap, Sequential: true}} // MADV_SEQUENTIAL
	MapReady   = Backend{Config: asyncfile.Config{Backend: asyncfile.Mmap, Populate: true}}
	MapHuge    = Backend{Config: asyncfile.Config{Backend: asyncfile.Mmap, Huge: true}}
	Ring       = Backend{Config: asyncfile.Config{Backend: asyncfile.Uring}, batch: true}
)

// Each does one operation of 4 KiB for every offset that next gives, until it gives a negative one:
// plainly, or by a ring 64 in flight.
func (b Backend) Each(f asyncfile.File, kind asyncfile.Kind, next func() int64) error {
	if b.batch {
		return eachBatched(f, kind, next)
	}
	buf := make([]byte, Block)
	for off := next(); off >= 0; off = next() {
		var err error
		if kind == asyncfile.Read {
			_, err = f.ReadAt(buf, off)
		} else {
			_, err = f.WriteAt(buf, off)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func eachBatched(f asyncfile.File, kind asyncfile.Kind, next func() int64) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b, err := asyncfile.NewBatch(f, asyncfile.BatchConfig{Locked: true})
	if err != nil {
		return err
	}
	ops := make([]asyncfile.Op, b.Depth())
	done := make([]*asyncfile.Op, 0, len(ops))
	for i := range ops {
		ops[i] = asyncfile.Op{Kind: kind, Buf: make([]byte, Block)}
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

// Forget drops a file from the page cache.
func Forget(path string) error {
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

// recall reads a file, so that it is in the page cache, unless it is there already.
func recall(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	if share, err := sys.Cached(f); err == nil && share == 1 {
		return f.Close()
	}
	_, err = io.Copy(struct{ io.Writer }{io.Discard}, f) // not by splice: into the page cache
	return errors.Join(err, f.Close())
}

// cachedAtMost is the share of a file that may be in the page cache where it is said to be cold.
const cachedAtMost = 0.01

// Pass reads a file to its end, and returns how many bytes and items that were.
type Pass func(f *os.File) (n int, items uint64, err error)

// Whole is a contestant that opens the file of the experiment, and reads it by read, again and
// again.
func Whole(read Pass) contestant.Work {
	return func(t *contestant.Turn) error {
		path := t.Text("file")
		return Passes(t, path, func() (int, uint64, error) {
			f, err := os.Open(path)
			if err != nil {
				return 0, 0, err
			}
			defer f.Close()
			return read(f)
		})
	}
}

// Passes reads a whole file again and again, and checks that all of it was read each time.
func Passes(t *contestant.Turn, path string, pass func() (int, uint64, error)) error {
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
		took, items, contestant.Value{Metric: "gc_cycles", V: gc1 - gc0},
		contestant.Value{Metric: "MB_per_s", V: float64(total) / 1e6 / took.Seconds()},
		contestant.Value{Metric: "allocs_per_op", V: float64(m1.Mallocs-m0.Mallocs) / float64(items)},
		contestant.Value{Metric: "allocs_per_MB", V: float64(m1.Mallocs-m0.Mallocs) / (float64(total) / 1e6)},
	)
}

// What a turn reads of a cold file: one block in so many, 100,000 at most, and less only where the
// disk takes so many times the turn's time for that.
const (
	coldShare = 40
	coldReads = 100_000
	patience  = 15 // a map that reads ahead reads all of the file for a few of its blocks
)

// ColdReads is how many blocks of a cold file of so many bytes a turn reads at random. It is the
// same for all contestants and lengths of a turn: who is quicker, or has more time, would find more
// of the file cached by its own reads.
func ColdReads(size int64) uint64 { return uint64(min(coldReads, size/Block/coldShare)) }

// Until is when a turn ends that reads so many blocks of a cold file and began now, whatever it has
// read.
func Until(t *contestant.Turn) time.Time { return time.Now().Add(patience * t.Seconds()) }

// OfFile are the figures that say how much of a file of which reads were cold is cached at the end.
func OfFile(f *os.File) ([]contestant.Value, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	cached, err := sys.Cached(f)
	return []contestant.Value{
		{Metric: "cached_percent", V: 100 * cached}, {Metric: "file_bytes", V: float64(info.Size())},
	}, err
}

// prepared opens the file of a turn once it is prepared.
func prepared(t *contestant.Turn) (*os.File, error) {
	if err := prepare(t); err != nil {
		return nil, err
	}
	return os.Open(t.Text("file"))
}

// SeekAndRead reads blocks of 4 KiB at random by Seek and Read. state=cold drops the page cache
// before.
func SeekAndRead(t *contestant.Turn) error {
	f, err := prepared(t)
	if err != nil {
		return err
	}
	defer f.Close()
	return readAtRandom(t, func(b []byte, off int64) (int, error) {
		if _, err := f.Seek(off, io.SeekStart); err != nil {
			return 0, err
		}
		return io.ReadFull(f, b)
	})
}

// ReadAt reads blocks of 4 KiB at random by ReadAt. state=cold drops the page cache before.
func (b Backend) ReadAt(t *contestant.Turn) error {
	if err := prepare(t); err != nil { // before pages of it are mapped
		return err
	}
	f, err := asyncfile.Open(t.Text("file"), b.Config)
	if err != nil {
		return err
	}
	defer f.Close()
	return readAtRandom(t, f.ReadAt)
}

// PlainMap reads blocks of 4 KiB at random from a map of which the kernel was told nothing, as the
// article has it. state=cold drops the page cache before.
func PlainMap(t *contestant.Turn) error {
	f, err := prepared(t)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	m, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	return errors.Join(readAtRandom(t, func(b []byte, off int64) (int, error) { return copy(b, m[off:]), nil }),
		syscall.Munmap(m))
}

// prepare has the file in the page cache, or out of it, as the parameter state wants it.
func prepare(t *contestant.Turn) error {
	if t.Text("state") == "cold" {
		return Forget(t.Text("file"))
	}
	return recall(t.Text("file"))
}

func readAtRandom(t *contestant.Turn, read func(b []byte, off int64) (int, error)) error {
	plain, err := os.Open(t.Text("file"))
	if err != nil {
		return err
	}
	defer plain.Close()
	info, err := plain.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	until, err := t.Ready()
	if err != nil {
		return err
	}
	rng := places(0)
	b := make([]byte, Block)
	var took []int64
	n := uint64(0)
	most := uint64(math.MaxUint64)
	if t.Text("state") == "cold" {
		most, until = ColdReads(size), Until(t)
	}
	for now := time.Now(); now.Before(until) && n < most; n++ {
		if _, err := read(b, rng.Int64N(size/Block)*Block); err != nil {
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
	file, err := OfFile(plain)
	if err != nil {
		return err
	}
	return t.Result(length, n, append(contestant.Latencies(took), file...)...)
}
