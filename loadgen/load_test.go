package loadgen

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// TestLoadThatIsClosed: a Load that is closed touches no descriptor any more. Close closed its
// numbers again, which were a stranger's files by then, and Run took up the epoll of another Load.
func TestLoadThatIsClosed(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	l, err := New(Config{URL: s.URL, Connections: 4, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var strangers []*os.File
	for range 40 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		strangers = append(strangers, f)
	}
	for _, l := range []*Load{l, {}, nil} {
		_, run := l.Run(t.Context(), time.Millisecond)
		_, once := l.Once(t.Context())
		for _, err := range []error{l.Close(), run, once} {
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("%v: want that it is closed", err)
			}
		}
	}
	for _, f := range strangers {
		if _, err := f.Stat(); err != nil {
			t.Errorf("a stranger's file: %v", err)
		}
	}
}

// TestLoadThatRuns: a Load that runs is not run again, and not closed: two runs shared their
// threads' figures, and Close closed what the run used.
func TestLoadThatRuns(t *testing.T) {
	asked := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }))
	defer s.Close()
	l, err := New(Config{URL: s.URL, Connections: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		r, err := l.Run(ctx, time.Hour)
		if err == nil && (r.Requests+r.Late == 0 || r.Failed() > 0) {
			t.Errorf("%+v", r)
		}
		ended <- err
	}()
	<-asked // it runs
	_, run := l.Run(t.Context(), time.Millisecond)
	_, once := l.Once(t.Context())
	for _, err := range []error{l.Close(), run, once} {
		if !errors.Is(err, ErrRunning) {
			t.Errorf("%v: want that it runs", err)
		}
	}
	end()
	for over := false; !over; {
		select {
		case <-asked:
		case err := <-ended:
			over = true
			if err != nil {
				t.Error(err)
			}
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// A context that is nil is an error, and not the end of the program.
func TestNoContext(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	cfg := Config{URL: s.URL, Connections: 1}
	l, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var none context.Context
	_, run := l.Run(none, time.Millisecond)
	_, once := l.Once(none)
	_, made := NewContext(none, cfg)
	_, ran := Run(none, cfg)
	_, held := Hold(none, HoldConfig{URL: s.URL, Connections: 1})
	for _, err := range []error{run, once, made, ran, held} {
		if err == nil {
			t.Error("no context is no error")
		}
	}
	if _, err := l.Run(t.Context(), time.Millisecond); err != nil {
		t.Errorf("a run behind one without a context: %v", err)
	}
}
