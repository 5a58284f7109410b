package loadgen

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestShapesOfAnswers: each way in which HTTP ends an answer is one answer and no failure. Those
// behind which the server closes were counted as answered and as failed, and HEAD was never
// answered.
func TestShapesOfAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		method string
		closes bool
	}{
		"goes on":                {answer: small},
		"Connection: close":      {answer: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", closes: true},
		"HTTP/1.0":               {answer: "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", closes: true},
		"HTTP/1.0 that goes on":  {answer: "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"},
		"a body until the end":   {answer: "HTTP/1.1 200 OK\r\n\r\nok", closes: true},
		"1.0, until the end":     {answer: "HTTP/1.0 200 OK\r\n\r\nok", closes: true},
		"HEAD":                   {answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", method: http.MethodHead},
		"HEAD, without a length": {answer: "HTTP/1.1 200 OK\r\n\r\n", method: http.MethodHead},
	} {
		for _, rate := range []float64{0, 500} {
			t.Run(fmt.Sprintf("%s/rate=%v", name, rate), func(t *testing.T) {
				var served atomic.Uint64
				url := serveRaw(t, func(conn net.Conn) {
					in := bufio.NewReader(conn)
					for {
						if _, err := http.ReadRequest(in); err != nil {
							return
						}
						served.Add(1)
						if _, err := io.WriteString(conn, c.answer); err != nil || c.closes {
							return
						}
					}
				})
				cfg := Config{URL: url, Method: c.method, Connections: 3, Rate: rate, Timeout: time.Minute, Duration: 100 * time.Millisecond}
				if c.method == "" {
					cfg.Exchanges = []Exchange{{Want: Exactly([]byte("ok"))}}
				}
				r, err := Run(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				got := r.Requests + r.Late
				if most := served.Load(); r.Failed() > 0 || got == 0 || got > most || got+3 < most {
					t.Errorf("%d answered of %d, errors %v", got, most, r.Errors)
				}
			})
		}
	}
}

// A connection that ends takes all requests with it that were on their way.
func TestAllThatWereOnTheirWayFail(t *testing.T) {
	var served atomic.Uint64
	url := serveRaw(t, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		for range 8 {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
		}
		served.Add(1)
	})
	r, err := Run(t.Context(), Config{URL: url, Connections: 2, Pipeline: 8, Timeout: time.Minute, Duration: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if n := served.Load(); n < 2 || r.Errors["closed"] != 8*int(n) || len(r.Errors) != 1 {
		t.Errorf("%d connections of 8 requests were closed; errors %v", n, r.Errors)
	}
}

// A length below zero is no answer; it ended the program.
func TestLengthBelowZero(t *testing.T) {
	c := &conn{}
	if _, _, bad := c.answer([]byte("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nabcdefgh")); bad != "no HTTP" {
		t.Errorf("%q", bad)
	}
}

// TestStallAtTheEnd: what is never answered waited longest of all, and was not in the percentiles.
func TestStallAtTheEnd(t *testing.T) {
	const rate, length = 1000, 600 * time.Millisecond
	release := make(chan struct{})
	defer close(release)
	testenv.Calm(t, func() error {
		began := time.Now()
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if time.Since(began) > length/3 {
				<-release
			}
		}))
		s.Start()
		r, err := Run(t.Context(), Config{URL: s.URL, Connections: 2, Rate: rate, Duration: length, Timeout: 2 * length})
		if err != nil {
			t.Fatal(err)
		}
		s.CloseClientConnections()
		if r.AtLeast < 300 || r.LatencyUs.P99 < (length/2).Microseconds() || r.Errors["timeout"] != 2 {
			return fmt.Errorf("a third of %v was answered: %+v", length, r)
		}
		return nil
	})
}

// Time-outs acted in a closed loop only.
func TestTimeoutsInAnOpenLoop(t *testing.T) {
	url := serveRaw(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	r, err := Run(t.Context(), Config{URL: url, Connections: 2, Rate: 1000, Duration: 500 * time.Millisecond, Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if r.Errors["timeout"] < 4 || r.Requests > 0 {
		t.Errorf("%+v: want the requests of two connections to time out several times", r)
	}
}

// The latency of a second is that of all threads together, not the worst of each.
func TestSecondsAreOfAllThreads(t *testing.T) {
	quick, slow := &thread{latency: newHistogram()}, &thread{latency: newHistogram()}
	for _, x := range []*thread{quick, slow} {
		x.errors, x.length, x.counted = map[string]int{}, time.Second, 500*time.Millisecond
	}
	for range 1000 {
		c := &conn{due: []time.Duration{0}}
		quick.now = time.Millisecond
		quick.count(c, 200)
	}
	slow.now = 100 * time.Millisecond
	slow.count(&conn{due: []time.Duration{0}}, 200)
	r := collect(&Config{}, []*thread{quick, slow})
	if len(r.Samples) != 1 || r.Samples[0].P99Us > 2000 || r.Samples[0].Requests != 1001 || r.Samples[0].Seconds != 0.5 {
		t.Errorf("%+v", r.Samples)
	}
}
