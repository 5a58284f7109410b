package ringcopy

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/ring"
)

// by hands messages of the parameter bytes from one goroutine to another. Load "max": as fast as it
// goes; "paced": one message each 20 µs, for latency.
func by(open func(size int) (queue, error)) contestant.Work {
	return func(t *contestant.Turn) error { return handOn(t, open) }
}

func handOn(t *contestant.Turn, open func(size int) (queue, error)) error {
	size := t.Int("bytes", 64)
	q, err := open(size)
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

// viewed is our ring, whose consumer reads messages in place.
func viewed(size int) (queue, error) { return ringQueue(size, false) }

// copied is our ring, whose consumer copies them out first.
func copied(size int) (queue, error) { return ringQueue(size, true) }

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

// channelQueue is a channel of slices from a pool.
func channelQueue(size int) (q queue, err error) {
	c := make(chan *[]byte, queueBytes/size)
	pool := sync.Pool{New: func() any { b := make([]byte, size); return &b }}
	q.put = func(fill func([]byte)) bool {
		if len(c) == cap(c) { // nobody else puts anything in
			return false
		}
		b := pool.Get().(*[]byte)
		fill(*b)
		c <- b
		return true
	}
	q.take = func(use func([]byte)) bool {
		select {
		case b := <-c:
			use(*b)
			pool.Put(b)
			return true
		default:
			runtime.Gosched()
			return false
		}
	}
	return q, nil
}

// mutexQueue is a queue under a lock.
func mutexQueue(size int) (q queue, err error) {
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
	return q, nil
}
