package own

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/crc16"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/ring"
)

// crc checks blocks of the parameter bytes (126, the checked part of a frame).
func crc(t *contestant.Turn) error {
	b := make([]byte, t.Int("bytes", 126))
	for i := range b {
		b[i] = byte(i * 7)
	}
	const count = 256
	var sum uint16
	return contestant.Repeat(t, count, len(b), func() {
		for range count {
			sum ^= crc16.Modbus(b)
		}
	})
}

// decode decodes frames that lie in memory, CRC included.
func decode(t *contestant.Turn) error {
	const count = 512
	b := make([]byte, count*tally128.Size)
	for i := range count {
		tally128.Encode(b[i*tally128.Size:], tally128.Header{Seq: uint64(i)}, nil)
	}
	var n counter
	return contestant.Repeat(t, count, tally128.Size, func() {
		var dec tally128.Decoder
		n = 0
		if dec.Decode(b, &n); n != count {
			panic(fmt.Sprintf("%d of %d frames", n, count))
		}
	})
}

// ringCopy hands messages of the parameter bytes from one goroutine to another: by our ring, whose
// consumer reads them in place (how=view) or copies them out first (how=copy); by a channel of
// slices from a pool (how=channel); by a queue under a lock (how=mutex). Load "max": as fast as it
// goes; "paced": one message each 20 µs, for latency.
func ringCopy(t *contestant.Turn) error {
	size := t.Int("bytes", 64)
	q, err := newQueue(t.Text("how"), size)
	if err != nil {
		return err
	}
	until, err := t.Ready()
	if err != nil {
		return err
	}
	var stop atomic.Bool
	var received uint64
	var sum uint64
	var latencies []int64
	var consumer sync.WaitGroup
	paced := t.Text("load") == "paced"
	consumer.Go(func() {
		use := func(b []byte) {
			if paced {
				latencies = append(latencies, time.Now().UnixNano()-int64(binary.LittleEndian.Uint64(b)))
			}
			for i := 0; i+8 <= len(b); i += 8 { // whoever reads a message reads all of it
				sum += binary.LittleEndian.Uint64(b[i:])
			}
			received++
		}
		for q.take(use) || !stop.Load() {
		}
		for q.take(use) {
		}
	})
	sent := uint64(0)
	began := time.Now()
	fill := func(b []byte) {
		at := time.Now().UnixNano()
		if paced {
			at = began.UnixNano() + int64(sent)*int64(20*time.Microsecond) // when it was due
		}
		binary.LittleEndian.PutUint64(b, uint64(at))
	}
	if !paced {
		fill = func(b []byte) { binary.LittleEndian.PutUint64(b, sent) }
	}
	for i := 0; i&255 != 0 || time.Now().Before(until); i++ {
		for paced && time.Since(began) < time.Duration(sent)*20*time.Microsecond {
			runtime.Gosched()
		}
		for !q.put(fill) {
			runtime.Gosched()
		}
		sent++
	}
	stop.Store(true)
	consumer.Wait()
	took, err := t.Done()
	if err != nil {
		return err
	}
	if received != sent {
		return fmt.Errorf("%d of %d messages came", received, sent)
	}
	v := []contestant.Value{{Metric: "MB_per_s", V: float64(sent) * float64(size) / 1e6 / took.Seconds()}}
	return t.Result(took, sent, append(v, contestant.Latencies(latencies)...)...)
}

// queue is a way to hand messages on. put fills one message, take shows all there are; both report
// whether they could.
type queue struct {
	put  func(fill func([]byte)) bool
	take func(use func([]byte)) bool
}

const queueBytes = 1 << 20

func newQueue(how string, size int) (queue, error) {
	switch how {
	case "view", "copy":
		return ringQueue(size, how == "copy")
	case "channel":
		return channelQueue(size), nil
	case "mutex":
		return mutexQueue(size), nil
	}
	return queue{}, fmt.Errorf("how=%s: want view, copy, channel or mutex", how)
}

func ringQueue(size int, copyOut bool) (q queue, err error) {
	r, err := ring.New(queueBytes)
	if err != nil {
		return q, err
	}
	own := make([]byte, size)
	q.put = func(fill func([]byte)) bool {
		space := r.Space()
		if len(space) < size {
			return false
		}
		fill(space[:size])
		r.Publish(size)
		return true
	}
	q.take = func(use func([]byte)) bool {
		view := r.View()
		n := len(view) / size * size
		for at := 0; at < n; at += size {
			m := view[at : at+size]
			if copyOut {
				copy(own, m)
				m = own
			}
			use(m)
		}
		if n == 0 {
			runtime.Gosched()
			return false
		}
		r.Release(n)
		return true
	}
	return q, nil
}

func channelQueue(size int) (q queue) {
	c := make(chan []byte, 1024)
	pool := sync.Pool{New: func() any { b := make([]byte, size); return &b }}
	q.put = func(fill func([]byte)) bool {
		b := *pool.Get().(*[]byte)
		fill(b)
		c <- b
		return true
	}
	q.take = func(use func([]byte)) bool {
		select {
		case b := <-c:
			use(b)
			pool.Put(&b)
			return true
		default:
			runtime.Gosched()
			return false
		}
	}
	return q
}

func mutexQueue(size int) (q queue) {
	var mu sync.Mutex
	buf, spare := make([]byte, 0, queueBytes), make([]byte, 0, queueBytes)
	q.put = func(fill func([]byte)) bool {
		mu.Lock()
		defer mu.Unlock()
		if len(buf)+size > queueBytes {
			return false
		}
		buf = buf[:len(buf)+size]
		fill(buf[len(buf)-size:])
		return true
	}
	q.take = func(use func([]byte)) bool {
		mu.Lock()
		buf, spare = spare[:0], buf
		mu.Unlock()
		for at := 0; at < len(spare); at += size {
			use(spare[at : at+size])
		}
		if len(spare) == 0 {
			runtime.Gosched()
		}
		return len(spare) > 0
	}
	return q
}

// pool runs tasks: how=fixed: 8 workers behind a channel; dynamic: 4 to 16 workers, one more when
// nobody takes a task at once, one less after a second without work; goroutine: one for each task,
// at most 16 by a channel as semaphore.
func pool(t *contestant.Turn) error {
	switch how := t.Text("how"); how {
	case "fixed", "dynamic":
		lo, hi := 8, 8
		if how == "dynamic" {
			lo, hi = 4, 16
		}
		return contestant.Pools(t, workers(lo, hi))
	case "goroutine":
		slots := make(chan struct{}, 16)
		return contestant.Pools(t, contestant.Pool{
			Submit: func(task func()) {
				slots <- struct{}{}
				go func() {
					task()
					<-slots
				}()
			},
			Close: func() {},
		})
	default:
		return fmt.Errorf("how=%s: want fixed, dynamic or goroutine", how)
	}
}

// workers is a pool of lo to hi workers.
func workers(lo, hi int) contestant.Pool {
	tasks := make(chan func(), 2*lo)
	var n atomic.Int64
	var all sync.WaitGroup
	work := func(stays bool) {
		defer n.Add(-1)
		idle := time.NewTimer(time.Second)
		defer idle.Stop()
		for {
			select {
			case task, ok := <-tasks:
				if !ok {
					return
				}
				task()
				continue
			default:
			}
			idle.Reset(time.Second)
			select {
			case task, ok := <-tasks:
				if !ok {
					return
				}
				task()
			case <-idle.C:
				if !stays {
					return
				}
			}
		}
	}
	for range lo {
		n.Add(1)
		all.Go(func() { work(true) })
	}
	return contestant.Pool{
		Submit: func(task func()) {
			select {
			case tasks <- task:
				if lo == hi || len(tasks) == 0 { // somebody has taken it already
					return
				}
			default:
				defer func() { tasks <- task }()
			}
			if n.Load() < int64(hi) {
				n.Add(1)
				all.Go(func() { work(false) })
			}
		},
		Close: func() { close(tasks); all.Wait() },
	}
}

// mapTTY asks whether a tty can be mapped into memory, as one of the articles does it.
func mapTTY(t *contestant.Turn) error {
	f, err := openPort(t.Paths()[0])
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = syscall.Mmap(int(f.Fd()), 0, 65536, syscall.PROT_READ, syscall.MAP_SHARED); err != nil {
		return t.Answer(false, "mmap of a tty: %v", err)
	}
	return t.Answer(true, "a tty was mapped")
}

// touch reads one byte of each page of a file of the page cache: through a map whose pages are not
// there yet (how=fault), through one whose pages are (how=mapped), by pread of a page (how=pread).
func touch(t *contestant.Turn) error {
	const pages = 4096
	f, err := os.Open(t.Text("file"))
	if err != nil {
		return err
	}
	defer f.Close()
	size := os.Getpagesize()
	fresh := func() ([]byte, error) {
		b, err := syscall.Mmap(int(f.Fd()), 0, pages*size, syscall.PROT_READ, syscall.MAP_SHARED)
		if err == nil {
			err = sys.AdviseRandom(b) // no more than the page that is asked for
		}
		return b, err
	}
	b, err := fresh()
	if err != nil {
		return err
	}
	one := make([]byte, size)
	var sum byte
	var failed error
	err = contestant.Repeat(t, pages, size, func() {
		switch t.Text("how") {
		case "fault":
			failed = errors.Join(failed, syscall.Munmap(b))
			if b, err = fresh(); err != nil {
				failed = errors.Join(failed, err)
				return
			}
			fallthrough
		case "mapped":
			for i := range pages {
				sum += b[i*size]
			}
		default:
			for i := range pages {
				if _, err := f.ReadAt(one, int64(i*size)); err != nil {
					failed = err
				}
				sum += one[0]
			}
		}
	})
	return errors.Join(err, failed)
}

// roundTrip is a ping-pong of one byte between two goroutines over a Unix socket pair of Go files:
// what a wait costs.
func roundTrip(t *contestant.Turn) error {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	a, b := os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
	go func() {
		one := make([]byte, 1)
		for {
			if _, err := b.Read(one); err != nil {
				return
			}
			if _, err := b.Write(one); err != nil {
				return
			}
		}
	}()
	one := make([]byte, 1)
	var failed error
	err = contestant.Repeat(t, 64, 0, func() {
		for range 64 {
			if _, err := a.Write(one); err != nil {
				failed = err
			}
			if _, err := a.Read(one); err != nil {
				failed = err
			}
		}
	})
	return errors.Join(err, failed, a.Close(), b.Close())
}
