package processdrift

import (
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// TestSettled: what is closed, or ends, in a moment is not counted as held.
func TestSettled(t *testing.T) {
	var files []*os.File
	for range 8 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, r, w)
	}
	over := make(chan struct{})
	for range 8 {
		go func() { <-over }()
	}
	busy := lookAround()
	close(over)
	for _, f := range files {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if now := busy.settled(); now.descriptors > busy.descriptors-16 || now.goroutines > busy.goroutines-8 {
		t.Errorf("%+v, and when all is closed %+v", busy, now)
	}
}

// TestSlope: what leaks is found however slowly it does, and what was still open at one look is not
// taken for a leak.
func TestSlope(t *testing.T) {
	served := []float64{1, 2, 3, 4, 5} // thousands of requests
	for _, c := range []struct {
		held []float64
		want float64
	}{
		{[]float64{9, 9, 9, 9, 9}, 0},
		{[]float64{9, 10, 11, 12, 13}, 1},
		{[]float64{9, 9, 10, 10, 11}, 0.5},
		{[]float64{9, 9, 9, 9, 73}, 0},
		{[]float64{73, 9, 9, 9, 9}, 0},
	} {
		if got := slope(served, c.held); got != c.want {
			t.Errorf("%v: %v, want %v", c.held, got, c.want)
		}
	}
}

// TestNoneIsOpenAtRest: clients with a connection for each request leave none behind.
func TestNoneIsOpenAtRest(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var s http.Server
	defer s.Close()
	go func() { _ = s.Serve(ln) }()
	c := clients{addr: ln.Addr().String(), anew: true}
	before := lookAround()
	r, err := c.ask(50 * time.Millisecond)
	if err != nil || r.Requests+uint64(r.Failed()) == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	for until := time.Now().Add(10 * time.Second); ; {
		if now := lookAround().settled(); now.descriptors <= before.descriptors {
			return
		} else if time.Now().After(until) {
			t.Fatalf("%v descriptors before, %v when nobody asks", before.descriptors, now.descriptors)
		}
	}
}
