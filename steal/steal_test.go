package steal

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, cfg Config) *Pool {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestEachOnce: whatever is submitted and spawned, by trees of any shape and queues of any size,
// each task is done once, and Close waits for all.
func TestEachOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := Config{
			Workers: rapid.IntRange(1, 8).Draw(rt, "workers"), Local: rapid.IntRange(2, 32).Draw(rt, "local"),
			Global: rapid.IntRange(1, 32).Draw(rt, "global"),
		}
		roots, width, depth := rapid.IntRange(0, 20).Draw(rt, "roots"), rapid.IntRange(0, 6).Draw(rt, "width"),
			rapid.IntRange(0, 3).Draw(rt, "depth")
		p := open(t, cfg)
		var done sync.Map
		var twice atomic.Int64
		var grow func(name string, left int) Task
		grow = func(name string, left int) Task {
			return func(w *Worker) {
				if _, was := done.LoadOrStore(name, true); was {
					twice.Add(1)
				}
				for i := range width {
					if left > 0 {
						w.Spawn(grow(fmt.Sprint(name, ".", i), left-1))
					}
				}
			}
		}
		for i := range roots {
			if err := p.Submit(context.Background(), grow(fmt.Sprint(i), depth)); err != nil {
				rt.Fatal(err)
			}
		}
		p.Close()
		want, level := 0, roots
		for range depth + 1 {
			want += level
			level *= width
		}
		n := 0
		done.Range(func(any, any) bool { n++; return true })
		if s := p.Stats(); n != want || twice.Load() > 0 || s.Done != uint64(want) {
			rt.Fatalf("%d tasks done, %d twice, %+v; want %d", n, twice.Load(), s, want)
		}
	})
}

// TestStealing: while one worker is kept busy by a task, others do what that has spawned.
func TestStealing(t *testing.T) {
	p := open(t, Config{Workers: 4})
	const n = 100
	var left sync.WaitGroup
	left.Add(n)
	err := p.Submit(context.Background(), func(w *Worker) {
		for range n {
			w.Spawn(func(*Worker) { left.Done() })
		}
		left.Wait() // it does not do them itself
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if s := p.Stats(); s.Stolen < n || s.Done != n+1 {
		t.Errorf("%+v; want %d stolen", s, n)
	}
}

// TestSpawnAfterClose: what a task spawns once Close has been called is done by others, too, so
// that it may wait for them.
func TestSpawnAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, Config{Workers: 2})
		closing := make(chan struct{})
		err := p.Submit(context.Background(), func(w *Worker) {
			<-closing
			other := make(chan struct{})
			w.Spawn(func(*Worker) { close(other) })
			<-other
		})
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan struct{})
		go func() { p.Close(); close(closed) }()
		synctest.Wait() // Close waits, and so does the other worker
		close(closing)
		<-closed
		if s := p.Stats(); s.Done != 2 || s.Stolen != 1 {
			t.Errorf("%+v; want 2 done, 1 of them stolen", s)
		}
	})
}

// TestBounds: a full common queue has Submit wait, as long as its context lasts; a worker whose
// queues are full does the tasks itself.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, Config{Workers: 1, Local: 4, Global: 2})
		goOn := make(chan struct{})
		order := []int{}
		submit := func(ctx context.Context, i int) error {
			return p.Submit(ctx, func(*Worker) { order = append(order, i) })
		}
		if err := p.Submit(context.Background(), func(w *Worker) {
			<-goOn
			for i := range 20 {
				w.Spawn(func(*Worker) { order = append(order, 100+i) })
			}
		}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for i := range 2 {
			if err := submit(context.Background(), i); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		refused, waits := make(chan error, 1), make(chan error, 1)
		go func() { refused <- submit(ctx, 2) }()
		go func() { waits <- submit(context.Background(), 3) }()
		synctest.Wait()
		cancel()
		if err := <-refused; !errors.Is(err, context.Canceled) {
			t.Errorf("the one whose context ended: %v", err)
		}
		close(goOn)
		if err := <-waits; err != nil {
			t.Error(err)
		}
		p.Close()
		s := p.Stats()
		if len(order) != 23 || s.Done != 24 || s.Nested == 0 {
			t.Errorf("%d tasks, %+v: %v", len(order), s, order)
		}
		if err := submit(context.Background(), 4); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// TestFair: one who spawns for ever does not keep from others what they have submitted, nor its own
// oldest task.
func TestFair(t *testing.T) {
	p := open(t, Config{Workers: 1})
	var over atomic.Bool
	var again Task
	again = func(w *Worker) {
		if !over.Load() {
			w.Spawn(again)
		}
	}
	oldest, other := make(chan struct{}), make(chan struct{})
	err := errors.Join(
		p.Submit(context.Background(), func(w *Worker) {
			w.Spawn(func(*Worker) { close(oldest) })
			w.Spawn(again)
		}),
		p.Submit(context.Background(), func(*Worker) { close(other) }))
	if err != nil {
		t.Fatal(err)
	}
	<-oldest
	<-other
	over.Store(true)
	p.Close()
}

func TestPanics(t *testing.T) {
	var said atomic.Value
	p := open(t, Config{Workers: 1, Panicked: func(v any) { said.Store(v) }})
	if err := errors.Join(p.Submit(context.Background(), func(*Worker) { panic("no") }),
		p.Submit(context.Background(), func(*Worker) {})); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if s := p.Stats(); said.Load() != "no" || s.Done != 2 {
		t.Errorf("it was told %v: %+v", said.Load(), s)
	}
}

func TestConfig(t *testing.T) {
	for want, cfg := range map[string]Config{
		"Workers is -1": {Workers: -1}, "Workers is 1025": {Workers: 1025}, "Local is 1": {Local: 1},
		"Global is -1": {Global: -1}, "Global is 1048577": {Global: 1<<20 + 1},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %s", cfg, err, want)
		}
	}
	p := open(t, Config{})
	if len(p.workers) != runtime.GOMAXPROCS(0) {
		t.Errorf("%d workers", len(p.workers))
	}
	p.Close()
}

// BenchmarkSpawn is a task that a worker spawns and does.
func BenchmarkSpawn(b *testing.B) {
	p := open(b, Config{})
	err := p.Submit(context.Background(), func(w *Worker) {
		for range b.N {
			w.Spawn(func(*Worker) {})
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	p.Close()
}

// TestNoTask: a task that is none is refused at once, and not taken for an empty queue later.
func TestNoTask(t *testing.T) {
	p := open(t, Config{Workers: 1})
	if err := p.Submit(context.Background(), nil); !errors.Is(err, ErrNoTask) {
		t.Errorf("Submit(nil): %v", err)
	}
	var told any
	err := p.Submit(context.Background(), func(w *Worker) {
		defer func() { told = recover() }()
		w.Spawn(nil)
	})
	if p.Close(); err != nil || told != ErrNoTask {
		t.Errorf("Spawn(nil): %v, told %v", err, told)
	}
}
