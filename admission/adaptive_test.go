package admission_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/admission"
)

// machine is a server that answers in base as long as no more than capacity requests are in it;
// beyond that they share it.
type machine struct {
	mu       sync.Mutex
	base     time.Duration
	capacity int
	inside   int
}

func (m *machine) serve() {
	m.mu.Lock()
	m.inside++
	d := time.Duration(float64(m.base) * max(1, float64(m.inside)/float64(m.capacity)))
	m.mu.Unlock()
	time.Sleep(d)
	m.mu.Lock()
	m.inside--
	m.mu.Unlock()
}

func (m *machine) become(base time.Duration, capacity int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.base, m.capacity = base, capacity
}

// load sends requests at random times, so many a second, for a time, and returns the figures since.
func load(t *testing.T, g *admission.Gate, m *machine, perSecond float64, d time.Duration,
	rng *rand.Rand,
) admission.Stats {
	t.Helper()
	before := g.Stats()
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(time.Duration(rng.ExpFloat64() / perSecond * float64(time.Second)))
		go func() {
			p, err := g.Enter(context.Background(), admission.Normal)
			if err != nil {
				return
			}
			defer p.Done()
			m.serve()
		}()
	}
	st := g.Stats()
	st.Done -= before.Done
	st.Full -= before.Full
	return st
}

// TestAdaptiveFindsTheLimit overloads a machine that changes under it. A limit is right that uses
// the machine (no less than its capacity in flight) and lets little queue in it.
func TestAdaptiveFindsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		m := &machine{base: 10 * time.Millisecond, capacity: 20} // 2,000 a second
		g := newGate(t, admission.Config{
			Limit: 4, Queue: 50, Wait: time.Second,
			Adaptive: &admission.Adaptive{Max: 1000, Probe: 10 * time.Second},
		})
		right := func(when string, d time.Duration, st admission.Stats) {
			t.Helper()
			t.Logf("%s: limit %d, latency %v, base %v, %d answered, %d refused", when, st.Limit, st.Latency, st.Base,
				st.Done, st.Full)
			if st.Limit < m.capacity || st.Limit > 3*m.capacity {
				t.Errorf("%s: the limit is %d, want %d to %d", when, st.Limit, m.capacity, 3*m.capacity)
			}
			if got, can := float64(st.Done)/d.Seconds(), float64(m.capacity)/m.base.Seconds(); got < 0.9*can {
				t.Errorf("%s: %.0f a second, want 90 %% of %.0f", when, got, can)
			}
		}
		load(t, g, m, 4000, 20*time.Second, rng)
		right("twice what it can do", 20*time.Second, load(t, g, m, 4000, 20*time.Second, rng))

		m.become(m.base, 8) // 800 a second
		load(t, g, m, 4000, 20*time.Second, rng)
		right("with fewer CPUs", 20*time.Second, load(t, g, m, 4000, 20*time.Second, rng))

		m.become(50*time.Millisecond, 100) // slower, as its database is; 2,000 a second
		load(t, g, m, 4000, 30*time.Second, rng)
		right("slower for good", 20*time.Second, load(t, g, m, 4000, 20*time.Second, rng))

		time.Sleep(5 * time.Second) // what waits is answered
		calm := load(t, g, m, 200, 20*time.Second, rng)
		if calm.Full > 0 || calm.Limit < m.capacity/2 {
			t.Errorf("with little to do: limit %d, %d refused, want none", calm.Limit, calm.Full)
		}
		time.Sleep(5 * time.Second) // the rest leaves
		synctest.Wait()
		if st := g.Stats(); st.InFlight != 0 || st.Waiting != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestForgetIsNotMeasured: streams that last for minutes say nothing of the latency.
func TestForgetIsNotMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, admission.Config{Limit: 10, Adaptive: &admission.Adaptive{}})
		for range 100 {
			stream, err := g.TryEnter()
			if err != nil {
				t.Fatal(err)
			}
			quick, err := g.TryEnter()
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
			quick.Done()
			time.Sleep(time.Minute)
			stream.Forget()
		}
		if st := g.Stats(); st.Latency != 10*time.Millisecond || st.Base != 10*time.Millisecond {
			t.Errorf("latency %v, base %v, want 10ms", st.Latency, st.Base)
		}
	})
}
