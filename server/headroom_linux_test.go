package server

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestHeadroom: where the process collects often garbage gathers, while a server runs; without one,
// or with little garbage, nothing is held, and where the collector was told something it is left
// alone. It runs in a process of its own, since the heap is the process's.
func TestHeadroom(t *testing.T) {
	if os.Getenv("TALLYWHEEL_HEADROOM") == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestHeadroom$")
		c.Env = append(os.Environ(), "TALLYWHEEL_HEADROOM=1", "GOGC=100", "GOMEMLIMIT=off")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	var h headroom
	s := &Server{}
	h.add(s, 8<<20)
	runtime.GC()
	testenv.Until(t, time.Minute, "word of a collection", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return !h.last.IsZero() && h.watched
	})
	h.mu.Lock()
	now := h.last
	collect := func(n int, each time.Duration) {
		for range n {
			if h.block == nil {
				now = now.Add(each)
				h.after(now)
			}
		}
	}
	collect(100, oftenCollected+time.Millisecond)
	if h.block != nil {
		t.Error("24 collections a second, and garbage gathers")
	}
	collect(1, time.Hour)
	before := resident(t)
	collect(20, oftenCollected/4)
	if h.block == nil {
		t.Error("100 collections a second, and no garbage gathers")
	}
	h.mu.Unlock()
	if got := resident(t) - before; got > 4<<20 {
		t.Errorf("%d bytes of memory for 8 MiB that nobody touches", got)
	}
	runtime.GC()
	if got := heapGoal(); got < 16<<20 {
		t.Errorf("the next collection comes at %d bytes, want 16 MiB or more", got)
	}
	h.remove(s)
	runtime.GC()
	if got := heapGoal(); got > 8<<20 {
		t.Errorf("the next collection comes at %d bytes although no server runs", got)
	}
	for name, f := range map[string]func(){
		"GOGC":       func() { debug.SetGCPercent(200); h.add(s, 8<<20); debug.SetGCPercent(100) },
		"GOMEMLIMIT": func() { debug.SetMemoryLimit(1 << 30); h.add(s, 8<<20); debug.SetMemoryLimit(math.MaxInt64) },
		"-1":         func() { h.add(s, -1) },
	} {
		if f(); len(h.sizes) > 0 {
			t.Errorf("%s: garbage may gather", name)
		}
	}
}

// TestHeadroomOfAServer: it lasts as long as the server.
func TestHeadroomOfAServer(t *testing.T) {
	s, _ := start(t, Config{Engine: Epoll, Handler: http.NotFoundHandler(), Headroom: 1 << 20})
	held := func() bool {
		garbage.mu.Lock()
		defer garbage.mu.Unlock()
		return garbage.sizes[s] == 1<<20
	}
	if tuned() {
		t.Skip("SKIPPED: GOGC or GOMEMLIMIT is set; run it without")
	}
	testenv.Until(t, time.Minute, "the loops to start", held)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, time.Minute, "the end of the headroom", func() bool { return !held() })
}

func heapGoal() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// resident is the memory that the process has.
func resident(t *testing.T) int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(b), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
