package prefork

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

func alone(t *testing.T, cfg Config, listeners ...net.Listener) *Worker {
	t.Helper()
	w, err := newWorker(cfg, 0, listeners)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWorkerAdmits(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	worker := alone(t, Config{InFlight: 2, Queue: 1, RetryAfter: 1500 * time.Millisecond})
	h := worker.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		inside <- struct{}{}
		<-leave
		_, _ = io.WriteString(w, "done")
	}))
	ask := func(ctx context.Context) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		return w
	}
	results := make(chan *httptest.ResponseRecorder)
	for range 2 {
		go func() { results <- ask(t.Context()) }()
		<-inside
	}
	impatient, cancel := context.WithCancel(t.Context())
	go func() { results <- ask(impatient) }()
	testenv.Until(t, time.Minute, "one who waits", func() bool { return worker.count().Waiting == 1 })
	if w := ask(t.Context()); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "2" {
		t.Errorf("two inside, one waits: %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
	cancel()
	if w := <-results; w.Code != http.StatusServiceUnavailable {
		t.Errorf("one who waits no longer gets %d", w.Code)
	}
	go func() { results <- ask(t.Context()) }()
	testenv.Until(t, time.Minute, "one who waits", func() bool { return worker.count().Waiting == 1 })
	worker.drain()
	leave <- struct{}{}
	<-inside // the one that waited
	for range 2 {
		leave <- struct{}{}
	}
	for range 3 {
		if w := <-results; w.Code != http.StatusOK {
			t.Errorf("let in and got %d", w.Code)
		}
	}
	go func() { results <- ask(t.Context()) }()
	<-inside
	leave <- struct{}{}
	if w := <-results; w.Header().Get("Connection") != "close" {
		t.Errorf("a worker that is to end says Connection: %q", w.Header().Get("Connection"))
	}
	if n := worker.count(); n != (Count{Answered: 4, Refused: 2}) {
		t.Errorf("%+v", n)
	}
}

// ending is a server whose Shutdown returns err.
type ending struct {
	err    error
	closed bool
}

func (*ending) Serve(net.Listener) error         { return nil }
func (e *ending) Shutdown(context.Context) error { return e.err }
func (e *ending) Close() error                   { e.closed = true; return nil }

// TestWorkerSaysWhyItEnds: a worker blames the time only if it is up, and says how much it was.
func TestWorkerSaysWhyItEnds(t *testing.T) {
	for want, err := range map[string]error{
		"<nil>": nil,
		"prefork: worker 0: requests did not end within 9s: context deadline exceeded": context.DeadlineExceeded,
		"prefork: worker 0: EOF": io.EOF,
	} {
		w, s := alone(t, Config{DrainFor: 10 * time.Second}), &ending{err: err}
		w.drain()
		if got := fmt.Sprint(w.Serve(s)); got != want || s.closed != (err != nil) {
			t.Errorf("Shutdown returns %v, Serve %q, closed %t; want %q", err, got, s.closed, want)
		}
	}
	w, s := alone(t, Config{DrainFor: 10 * time.Second}), &ending{err: &net.OpError{Op: "close", Err: net.ErrClosed}}
	w.drain()
	if err := w.Serve(s); err != nil {
		t.Errorf("a listener is closed already: %v", err)
	}
}

func TestBackoff(t *testing.T) {
	c := Config{BackOff: 100 * time.Millisecond, MaxBackOff: time.Second, Intensity: 6, Period: time.Minute}
	now := time.Now()
	var b backoff
	for i, middle := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		middle *= time.Millisecond
		wait, resting := b.next(&c, now.Add(time.Duration(i)))
		if resting || wait < middle/2 || wait > middle*3/2 {
			t.Errorf("end %d: wait %v, resting %v; want about %v", i, wait, resting, middle)
		}
	}
	if wait, resting := b.next(&c, now.Add(time.Second)); !resting || wait != time.Minute {
		t.Errorf("one end too many: wait %v, resting %v", wait, resting)
	}
	if wait, resting := b.next(&c, now.Add(2*time.Second)); resting || wait > 150*time.Millisecond {
		t.Errorf("after the rest: wait %v, resting %v", wait, resting)
	}
	b = backoff{}
	for i := range 100 { // one in a while is forgotten
		if wait, resting := b.next(&c, now.Add(time.Duration(i)*time.Hour)); resting || wait > 150*time.Millisecond {
			t.Fatalf("end %d, an hour after the last: wait %v, resting %v", i, wait, resting)
		}
	}
	c = Config{BackOff: time.Nanosecond, MaxBackOff: 1<<63 - 1, Intensity: 1 << 20, Period: time.Hour}
	for range 1000 {
		if wait, _ := b.next(&c, now); wait < 0 {
			t.Fatalf("wait %v", wait)
		}
	}
}

func TestConfigsThatCannotBe(t *testing.T) {
	for want, c := range map[string]Config{
		"workers":         {Workers: -1},
		"1 to 1024":       {Workers: 1025},
		"Queue":           {Queue: 1},
		"LameDuck":        {LameDuck: time.Minute},
		"InFlight":        {InFlight: -1},
		"a time":          {Period: -1},
		"-1 bytes":        {Limit: Limit{Memory: -1}},
		"0 or more":       {MaxConns: -3},
		"Procs is -":      {Procs: -2},
		"at most 1048576": {InFlight: 1 << 21},
		"at least 34":     {Listen: []string{"127.0.0.1:0", "127.0.0.1:0"}, Limit: Limit{Files: 33}},
	} {
		if err := Run(t.Context(), c, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", c, err, want)
		}
	}
}

// TestMaxConns has connections wait at the socket that a worker may not take.
func TestMaxConns(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := alone(t, Config{MaxConns: 1}, ln)
	limited := w.Listeners()[0]
	dial := func() net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	defer dial().Close()
	defer dial().Close()
	first, err := limited.Accept()
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() {
		c, err := limited.Accept()
		if err == nil {
			err = c.Close()
		}
		second <- err
	}()
	select {
	case err := <-second:
		t.Fatalf("a second connection is taken: %v", err)
	default:
	}
	if err := errors.Join(first.Close(), <-second); err != nil {
		t.Error(err)
	}
	held := w.places // all taken: who waits for a place hears of the end
	held <- struct{}{}
	go func() {
		_, err := limited.Accept()
		second <- err
	}()
	if err := limited.Close(); err != nil {
		t.Error(err)
	}
	if err := <-second; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// TestAlone is how other systems serve: one process.
func TestAlone(t *testing.T) {
	cfg, err := Config{Listen: []string{"127.0.0.1:0"}, LameDuck: time.Millisecond}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	addr := make(chan string, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- runAlone(ctx, cfg, func(w *Worker) error {
			addr <- w.Listeners()[0].Addr().String()
			return w.Serve(&http.Server{Handler: w.Handler(http.NotFoundHandler())})
		})
	}()
	res, err := http.Get("http://" + <-addr)
	if err != nil || res.StatusCode != http.StatusNotFound {
		t.Errorf("%v: %v", res, err)
	} else {
		_ = res.Body.Close()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	cfg.Listen = nil
	if err := runAlone(t.Context(), cfg, nil); err == nil || !strings.Contains(err.Error(), "name an address") {
		t.Error(err)
	}
}
