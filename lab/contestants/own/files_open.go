package own

import (
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/uring"
)

// openFile opens a file, reads its first 4 KiB and closes it: by a backend of ours; with how=ring
// by a ring that is made for it; with how=map and how=populate by mmap alone, in the second case
// with all its pages made ready.
func openFile(t *contestant.Turn) error {
	cfg, _ := fileConfig(t)
	path, b := t.Text("file"), make([]byte, block)
	var failed error
	err := contestant.Repeat(t, 1, 0, func() {
		switch t.Text("how") {
		case "map":
			failed = errors.Join(failed, mapOnce(path, b, 0))
		case "populate":
			failed = errors.Join(failed, mapOnce(path, b, syscall.MAP_POPULATE))
		case "ring":
			failed = errors.Join(failed, ringOnce(path, b))
		default:
			failed = errors.Join(failed, openOnce(path, b, cfg))
		}
	})
	return errors.Join(err, failed)
}

func openOnce(path string, b []byte, cfg asyncfile.Config) error {
	f, err := asyncfile.Open(path, cfg)
	if err != nil {
		return err
	}
	_, err = f.ReadAt(b, 0)
	return errors.Join(err, f.Close())
}

func ringOnce(path string, b []byte) (err error) {
	r, err := uring.New(uring.Config{Entries: 8})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	plain, err := os.Open(path)
	if err != nil {
		return err
	}
	defer plain.Close()
	f, err := uring.FileOf(plain)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var op uring.Op
	op.Read(f, uring.Wrap(b), 0)
	if err := r.Push(&op); err != nil {
		return err
	}
	if err := r.Wait(1); err != nil {
		return err
	}
	r.Next()
	return op.Err()
}

func mapOnce(path string, b []byte, flags int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	m, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED|flags)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	copy(b, m)
	return syscall.Munmap(m)
}

// touchAtRandom reads one byte at random places of the first mib MiB of a file that is mapped, and
// whose pages were all touched before.
func touchAtRandom(t *contestant.Turn) error {
	f, err := os.Open(t.Text("file"))
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := syscall.Mmap(int(f.Fd()), 0, t.Int("mib", 1)<<20, syscall.PROT_READ, syscall.MAP_SHARED|syscall.MAP_POPULATE)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	if err := sys.AdviseRandom(b); err != nil {
		return err
	}
	var sum byte
	for i := 0; i < len(b); i += os.Getpagesize() {
		sum += b[i]
	}
	rng := rand.New(rand.NewPCG(1, 1))
	const touches = 1 << 16
	err = contestant.Repeat(t, touches, 0, func() {
		for range touches {
			sum += b[rng.Uint64N(uint64(len(b)))]
		}
	})
	runtime.KeepAlive(sum)
	return errors.Join(err, syscall.Munmap(b))
}

// giveBack makes 64 MiB of garbage and gives it back to the kernel, again and again.
func giveBack(t *contestant.Turn) error {
	const bytes = 64 << 20
	return contestant.Repeat(t, 1, bytes, func() {
		sink = make([]byte, bytes)
		for i := 0; i < len(sink); i += os.Getpagesize() {
			sink[i] = 1
		}
		sink = nil
		debug.FreeOSMemory()
	})
}

// readTimes reads a port by os.File and reports how long a read waits, and how long it takes to
// take out and check what came.
func readTimes(t *contestant.Turn) error {
	files, err := openPorts(t)
	if err != nil {
		return err
	}
	var blocked, handled []int64
	over := make(chan struct{})
	go func() {
		defer close(over)
		l, buf, have := &lane{}, make([]byte, 64<<10), 0
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
