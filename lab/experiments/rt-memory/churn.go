package rtmemory

import (
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// The churn of a device, the same for all contestants (memory.c and memory/src/main.rs in
// lab/contestants have it again): 100 allocations a second, by which an hour has 360,000. Each
// replaces another of 65,536 blocks, drawn by chance, and more go until at most half of the bound
// lives. Sizes change each quarter of an hour: small (16–255 bytes), both, large (1–8 KiB), both.
const (
	slots = 1 << 16
	phase = 90_000
	hour  = 360_000
	block = 2 << 20 // a huge page
	bound = 64 << 20
	kept  = bound / 2
)

// sizes draws them.
type sizes struct{ seed, ops uint64 }

func (s *sizes) draw() uint64 {
	s.seed ^= s.seed << 13
	s.seed ^= s.seed >> 7
	s.seed ^= s.seed << 17
	return s.seed
}

func (s *sizes) next() int {
	small := func(r uint64) int { return int(16 + r%240) }
	large := func(r uint64) int { return int(1024 + r%7168) }
	r, at := s.draw(), s.ops/phase%4
	s.ops++
	switch {
	case at == 0 || at != 2 && r&1 == 1:
		return small(r >> (at & 1))
	case at == 2:
		return large(r)
	}
	return large(r >> 1)
}

// memory is one way to allocate.
type memory interface {
	step(s *sizes) (ok bool)
	live() int
	blocks(most int) (got int) // of 2 MiB, within the bound
}

// churn lets hours pass.
func churn(of func() memory) contestant.Work {
	return func(t *contestant.Turn) error {
		before, err := resident()
		if err != nil {
			return err
		}
		m, s, failed := of(), sizes{seed: 88172645463325252}, 0
		until, err := t.Ready()
		if err != nil {
			return err
		}
		for time.Now().Before(until) {
			for range 1000 {
				if !m.step(&s) {
					failed++
				}
			}
		}
		after, err := resident()
		if err != nil {
			return err
		}
		most := (bound - m.live()) / block
		got := m.blocks(most)
		took, err := t.Done()
		if err != nil {
			return err
		}
		dead := max(0, 100*(1-float64(m.live())/float64(max(1, after-before))))
		return t.Result(took, s.ops,
			contestant.Value{Metric: "fragmentation_percent", V: 100 * (1 - float64(got)/float64(most))},
			contestant.Value{Metric: "failed_allocations", V: float64(failed)},
			contestant.Value{Metric: "dead_percent", V: dead},
			contestant.Value{Metric: "simulated_hours", V: float64(s.ops) / hour})
	}
}

// heap is Go's, with the bound as its limit. It does not refuse: what goes beyond is counted.
type heap struct {
	slot [slots][]byte
	used int
	huge [][]byte
}

func newHeap() memory {
	debug.SetMemoryLimit(bound)
	return &heap{}
}

func (h *heap) live() int { return h.used }

func (h *heap) step(s *sizes) bool {
	n, i := s.next(), int(s.draw()%slots)
	h.letGo(i)
	for h.used+n > kept {
		h.letGo(int(s.draw() % slots))
	}
	b := make([]byte, n)
	b[0], b[n-1] = 1, 1
	h.slot[i] = b
	h.used += n
	return true
}

func (h *heap) letGo(i int) {
	h.used -= len(h.slot[i])
	h.slot[i] = nil
}

// blocks are as many as the runtime has in less memory than the bound.
func (h *heap) blocks(most int) (got int) {
	for ; got < most; got++ {
		b := make([]byte, block)
		for at := 0; at < block; at += 4096 {
			b[at] = 1
		}
		h.huge = append(h.huge, b)
		runtime.GC()
		if mapped() > bound {
			break
		}
	}
	runtime.KeepAlive(h)
	return got
}

// mapped is what the runtime has of the system's memory for the heap, and has not given back.
func mapped() uint64 {
	s := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(s)
	return s[0].Value.Uint64() + s[1].Value.Uint64() + s[2].Value.Uint64()
}

// resident is the memory of this process that is no file's, in bytes.
func resident() (int, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "RssAnon:")
	f := strings.Fields(rest)
	if len(f) == 0 {
		return 0, errors.New("/proc/self/status has no RssAnon, which is in Linux 4.5")
	}
	kb, err := strconv.Atoi(f[0])
	return kb << 10, err
}
