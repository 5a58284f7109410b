package admission_test

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
	"time"

	"github.com/tallywheel/tallywheel/admission"
)

func newPool(t testing.TB, cfg admission.PoolConfig) *admission.Pool {
	t.Helper()
	p, err := admission.NewPool(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func closePool(t testing.TB, p *admission.Pool) {
	t.Helper()
	if err := p.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestPoolGrowsAndShrinks goes through the rules one by one: core goroutines, the queue, more
// goroutines, the policy, and back after the time that they are kept.
func TestPoolGrowsAndShrinks(t *testing.T) {
	for _, full := range []admission.Policy{admission.Wait, admission.Refuse, admission.CallerRuns} {
		t.Run(string(full), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { growAndShrink(t, full) })
		})
	}
}

func growAndShrink(t *testing.T, full admission.Policy) {
	const core, most, queue = 2, 4, 3
	p := newPool(t, admission.PoolConfig{Core: core, Max: most, Queue: queue, KeepAlive: time.Minute, Full: full})
	release := make(chan struct{})
	hold := func() { <-release }
	is := func(when string, goroutines, working, waiting int) {
		t.Helper()
		synctest.Wait()
		if st := p.Stats(); st.Goroutines != goroutines || st.Working != working || st.Waiting != waiting {
			t.Errorf("%s: %+v, want %d goroutines, %d working, %d waiting", when, st, goroutines, working, waiting)
		}
	}
	submit := func(n int) {
		t.Helper()
		for range n {
			if err := p.Submit(t.Context(), hold); err != nil {
				t.Fatal(err)
			}
		}
	}
	submit(core)
	is("core", core, core, 0)
	submit(queue)
	is("queue", core, core, queue)
	submit(most - core)
	is("max", most, most, queue)

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	ran := false
	err := p.Submit(ctx, func() { ran = true })
	switch full {
	case admission.CallerRuns:
		if err != nil || !ran || p.Stats().ByCaller != 1 {
			t.Errorf("%v, ran %v, %+v", err, ran, p.Stats())
		}
	case admission.Refuse:
		if !errors.Is(err, admission.ErrFull) || ran {
			t.Errorf("%v, ran %v", err, ran)
		}
	default:
		if !errors.Is(err, context.DeadlineExceeded) || ran {
			t.Errorf("%v, ran %v", err, ran)
		}
	}
	close(release)
	is("done", most, 0, 0)
	time.Sleep(time.Minute + time.Second)
	is("a minute later", core, 0, 0)
	submit(1)
	closePool(t, p)
	is("closed", 0, 0, 0)
	if err := p.Submit(t.Context(), hold); !errors.Is(err, admission.ErrClosed) {
		t.Errorf("behind Close: %v", err)
	}
	if st := p.Stats(); st.Done != most+queue+1 {
		t.Errorf("%d done, want %d", st.Done, most+queue+1)
	}
}

// TestPoolDoesWhatItTakes submits from many goroutines while the pool is closed: what Submit took
// is done, once, and nothing else is.
func TestPoolDoesWhatItTakes(t *testing.T) {
	for _, full := range []admission.Policy{admission.Wait, admission.Refuse, admission.CallerRuns} {
		for _, queue := range []int{0, 1, 16} {
			t.Run(fmt.Sprint(full, queue), func(t *testing.T) {
				for range 50 {
					p := newPool(t,
						admission.PoolConfig{Core: 1, Max: 3, Queue: queue, KeepAlive: time.Microsecond, Full: full})
					var taken, done atomic.Int64
					var all sync.WaitGroup
					for range 8 {
						all.Go(func() {
							for range 50 {
								if p.Submit(context.Background(), func() { done.Add(1); runtime.Gosched() }) == nil {
									taken.Add(1)
								}
							}
						})
					}
					for st := p.Stats(); st.Done+st.ByCaller+st.Refused < 100; st = p.Stats() {
						runtime.Gosched()
					}
					closePool(t, p)
					all.Wait()
					if taken.Load() != done.Load() {
						t.Fatalf("%d taken, %d done", taken.Load(), done.Load())
					}
				}
			})
		}
	}
}

func TestPoolOutlivesItsFunctions(t *testing.T) {
	var panics []any
	p := newPool(t, admission.PoolConfig{Core: 1, Panicked: func(r any) { panics = append(panics, r) }})
	for _, f := range []func(){func() { panic("no") }, runtime.Goexit, func() {}} {
		if err := p.Submit(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	closePool(t, p)
	if st := p.Stats(); st.Done != 3 || st.Goroutines != 0 || st.Working != 0 || len(panics) != 1 || panics[0] != "no" {
		t.Errorf("%+v, panics %v", st, panics)
	}
	if err := p.Submit(t.Context(), nil); err == nil {
		t.Error("a nil function is taken")
	}
}

func TestCloseOfAPoolGivesUp(t *testing.T) {
	p := newPool(t, admission.PoolConfig{Core: 1})
	release := make(chan struct{})
	if err := p.Submit(t.Context(), func() { <-release }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close while a function works: %v", err)
	}
	close(release)
	closePool(t, p)
}

func TestWrongPools(t *testing.T) {
	for want, cfg := range map[string]admission.PoolConfig{
		"Core is 0":       {},
		"Max is 1":        {Core: 2, Max: 1},
		"Queue is -1":     {Core: 1, Queue: -1},
		"KeepAlive is -1": {Core: 1, KeepAlive: -1},
		`Full is "abort"`: {Core: 1, Full: "abort"},
	} {
		if _, err := admission.NewPool(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
}

func BenchmarkPool(b *testing.B) {
	p := newPool(b, admission.PoolConfig{Core: 64, Queue: 1024})
	b.ReportAllocs()
	var all sync.WaitGroup
	f := func() { all.Done() }
	for b.Loop() {
		all.Add(1)
		if err := p.Submit(context.Background(), f); err != nil {
			b.Fatal(err)
		}
	}
	all.Wait()
	closePool(b, p)
}
