package admission_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/tallywheel/tallywheel/admission"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newGate(t testing.TB, cfg admission.Config) *admission.Gate {
	t.Helper()
	g, err := admission.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// caller is one call of Enter, and what the model says of it.
type caller struct {
	urgency int
	cancel  context.CancelFunc
	came    time.Time

	mu    sync.Mutex
	over  bool // Enter has returned
	place *admission.Place
	err   error
}

func (c *caller) result() (bool, *admission.Place, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over, c.place, c.err
}

// model is a gate as its documentation has it: slices, and no concurrency.
type model struct {
	cfg     admission.Config
	inside  []*caller
	waiting []*caller // in the order of coming
	want    map[*caller]error
	closed  bool
}

func (m *model) enter(c *caller) {
	switch {
	case m.closed:
		m.want[c] = admission.ErrClosed
	case m.cfg.Limit == 0 || len(m.inside) < m.cfg.Limit:
		m.want[c] = nil
		m.inside = append(m.inside, c)
	case len(m.waiting) < m.cfg.Queue:
		m.waiting = append(m.waiting, c)
	default:
		victim := -1
		for i, w := range m.waiting {
			if w.urgency > c.urgency && (victim < 0 || w.urgency >= m.waiting[victim].urgency) {
				victim = i
			}
		}
		if victim < 0 {
			m.want[c] = admission.ErrFull
			return
		}
		m.refuse(m.waiting[victim], admission.ErrFull)
		m.waiting = append(m.waiting, c)
	}
}

func (m *model) refuse(c *caller, err error) {
	m.waiting = slices.DeleteFunc(m.waiting, func(w *caller) bool { return w == c })
	m.want[c] = err
}

func (m *model) leave(c *caller) {
	m.inside = slices.DeleteFunc(m.inside, func(w *caller) bool { return w == c })
	m.letIn()
}

func (m *model) letIn() {
	for len(m.waiting) > 0 && len(m.inside) < m.cfg.Limit {
		next := slices.MinFunc(m.waiting, func(a, b *caller) int { return a.urgency - b.urgency })
		m.refuse(next, nil)
		m.inside = append(m.inside, next)
	}
}

func (m *model) pass(now time.Time) {
	if m.cfg.Wait == 0 {
		return
	}
	for _, w := range slices.Clone(m.waiting) {
		if now.Sub(w.came) >= m.cfg.Wait {
			m.refuse(w, admission.ErrLate)
		}
	}
}

// TestGateAgainstAModel drives a gate and a model of it by random steps, on a clock of its own, and
// compares them after each: who is in, who waits, who was refused and why. So somebody who waits
// although there is room is found, too.
func TestGateAgainstAModel(t *testing.T) {
	testenv.Check(t, func(rt *rapid.T) {
		cfg := admission.Config{
			Limit: rapid.IntRange(0, 4).Draw(rt, "limit"),
			Wait:  time.Duration(rapid.IntRange(0, 5).Draw(rt, "wait")) * time.Second,
		}
		if cfg.Limit > 0 {
			cfg.Queue = rapid.IntRange(0, 5).Draw(rt, "queue")
		}
		steps := rapid.SliceOfN(rapid.IntRange(0, 999), 1, 60).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) { driveGate(t, cfg, steps) })
		if t.Failed() {
			rt.FailNow()
		}
	})
}

func driveGate(t *testing.T, cfg admission.Config, steps []int) {
	g := newGate(t, cfg)
	m := &model{cfg: cfg, want: map[*caller]error{}}
	var callers []*caller
	pick := func(of []*caller, n int) *caller { return of[n%len(of)] }
	for _, s := range steps {
		what, n := s%10, s/10
		switch {
		case what < 5: // somebody comes
			ctx, cancel := context.WithCancel(context.Background())
			c := &caller{urgency: n % 8, cancel: cancel, came: time.Now()}
			callers = append(callers, c)
			m.enter(c)
			go func() {
				p, err := g.Enter(ctx, c.urgency)
				c.mu.Lock()
				defer c.mu.Unlock()
				c.over, c.place, c.err = true, p, err
			}()
		case what < 8 && len(m.inside) > 0: // somebody leaves, perhaps twice
			c := pick(m.inside, n)
			_, p, _ := c.result()
			m.leave(c)
			p.Done()
			p.Forget()
		case what == 8 && len(m.waiting) > 0: // somebody gives up
			c := pick(m.waiting, n)
			m.refuse(c, context.Canceled)
			c.cancel()
		case n == 0 && what == 9:
			m.closed = true
			for len(m.waiting) > 0 {
				m.refuse(m.waiting[0], admission.ErrClosed)
			}
			g.Close()
		default:
			time.Sleep(time.Duration(n%3) * time.Second)
			m.pass(time.Now())
		}
		synctest.Wait()
		compare(t, g, m, callers)
	}
	for _, c := range m.inside {
		_, p, _ := c.result()
		p.Done()
	}
	for _, c := range callers {
		c.cancel()
	}
	synctest.Wait()
	if st := g.Stats(); cfg.Wait == 0 && st.Waiting > 0 {
		t.Errorf("somebody waits for ever: %+v", st)
	}
	for _, c := range callers { // those who came in as others left
		if _, p, _ := c.result(); p != nil {
			p.Done()
		}
	}
	synctest.Wait()
	if st := g.Stats(); st.InFlight != 0 || st.Waiting != 0 || st.Admitted != st.Done ||
		st.Admitted+st.Refused() != uint64(len(callers)) {
		t.Errorf("at the end of %d callers: %+v", len(callers), st)
	}
}

func compare(t *testing.T, g *admission.Gate, m *model, callers []*caller) {
	t.Helper()
	for i, c := range callers {
		want, decided := m.want[c]
		over, p, err := c.result()
		if over != decided || over && (!errors.Is(err, want) || (p != nil) != (want == nil)) {
			t.Fatalf("caller %d of urgency %d: returned %v with %v, want %v with %v", i, c.urgency, over, err, decided,
				want)
		}
	}
	if st := g.Stats(); st.InFlight != len(m.inside) || st.Waiting != len(m.waiting) {
		t.Fatalf("%d in flight and %d waiting, want %d and %d", st.InFlight, st.Waiting, len(m.inside), len(m.waiting))
	}
}

// TestGateUnderLoad has many come and go at once, with deadlines that end at the moment when places
// come free: nobody is beyond the limit, and no place is lost.
func TestGateUnderLoad(t *testing.T) {
	const limit, callers, rounds = 3, 32, 300
	g := newGate(t, admission.Config{Limit: limit, Queue: callers, Wait: 50 * time.Microsecond})
	places := make(chan struct{}, limit)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for range rounds {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*10*time.Microsecond)
				p, err := g.Enter(ctx, i%8)
				if err == nil {
					select {
					case places <- struct{}{}:
					default:
						t.Error("more in flight than the limit")
					}
					<-places
					p.Done()
				}
				cancel()
			}
		})
	}
	all.Wait()
	st := g.Stats()
	if st.InFlight != 0 || st.Waiting != 0 || st.Admitted+st.Refused() != callers*rounds {
		t.Errorf("%+v", st)
	}
	for range limit {
		if _, err := g.TryEnter(); err != nil {
			t.Errorf("a place was lost: %v", err)
		}
	}
	if _, err := g.TryEnter(); !errors.Is(err, admission.ErrFull) {
		t.Errorf("one more than the limit: %v", err)
	}
}

// TestAPlaceForOneWhoGoes: the caller's context ends in the moment in which a place comes free for
// it. It has the place, or it is free.
func TestAPlaceForOneWhoGoes(t *testing.T) {
	g := newGate(t, admission.Config{Limit: 1, Queue: 1})
	for range 3000 {
		first, err := g.TryEnter()
		if err != nil {
			t.Fatalf("a place was lost: %v", err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var both sync.WaitGroup
		both.Go(func() {
			if p, err := g.Enter(ctx, admission.Normal); err == nil {
				p.Done()
			}
		})
		for g.Stats().Waiting == 0 {
			runtime.Gosched()
		}
		cancel()
		first.Done()
		both.Wait()
	}
}

func TestWrongConfigurations(t *testing.T) {
	for want, cfg := range map[string]admission.Config{
		"Limit is -1":               {Limit: -1},
		"Queue is 1048577":          {Limit: 1, Queue: admission.MaxLimit + 1},
		"without Limit":             {Queue: 1},
		"Wait is -1s":               {Limit: 1, Wait: -time.Second},
		"needs a place to begin":    {Adaptive: &admission.Adaptive{}},
		"Adaptive.Min is 5 and Max": {Limit: 1, Adaptive: &admission.Adaptive{Min: 5, Max: 4}},
		"Tolerance is 1":            {Limit: 1, Adaptive: &admission.Adaptive{Tolerance: 1}},
		"at least 1ms":              {Limit: 1, Adaptive: &admission.Adaptive{Window: 1}},
		"at least ten windows, 10s": {Limit: 1, Adaptive: &admission.Adaptive{Window: time.Second, Probe: time.Second}},
	} {
		if _, err := admission.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
}

func TestHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, admission.Config{Limit: 1, Queue: 1})
		release := make(chan struct{})
		h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-release
		}), admission.HTTP{
			Urgency:    func(r *http.Request) int { return len(r.URL.Path) },
			RetryAfter: 1500 * time.Millisecond,
		})
		codes := make(chan int, 4)
		ask := func(path string) {
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
				if w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") != "2" {
					t.Errorf("Retry-After is %q, want 2", w.Header().Get("Retry-After"))
				}
				codes <- w.Code
			}()
			synctest.Wait()
		}
		ask("/")
		ask("/patient")
		ask("/patient") // no more urgent than the one that waits
		ask("/now")     // displaces it
		for range 2 {
			if c := <-codes; c != http.StatusServiceUnavailable {
				t.Errorf("status %d, want 503", c)
			}
		}
		close(release)
		for range 2 {
			if c := <-codes; c != http.StatusOK {
				t.Errorf("status %d, want 200", c)
			}
		}
		g.Close()
		ask("/")
		if c := <-codes; c != http.StatusServiceUnavailable {
			t.Errorf("status %d behind Close, want 503", c)
		}
	})
}

func BenchmarkEnter(b *testing.B) {
	g := newGate(b, admission.Config{Limit: 64})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p, err := g.Enter(b.Context(), admission.Normal)
			if err == nil {
				p.Done()
			}
		}
	})
}
