package loadgen

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
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
		"goes on": {answer: small},
		"Connection: close": {
			answer: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
			closes: true,
		},
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
				cfg := Config{
					URL: url, Method: c.method, Connections: 3, Rate: rate, Timeout: time.Minute,
					Duration: 100 * time.Millisecond,
				}
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
	r, err := Run(t.Context(),
		Config{URL: url, Connections: 2, Pipeline: 8, Timeout: time.Minute, Duration: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if n := served.Load(); n < 2 || r.Errors["closed"] != 8*int(n) || len(r.Errors) != 1 {
		t.Errorf("%d connections of 8 requests were closed; errors %v", n, r.Errors)
	}
}

// TestHeads: where an answer ends is what RFC 9112 says, and a head that says two things of it, or
// none that can be trusted, is no answer. A length below zero ended the program; of two lengths the
// first counted, and +5 was one.
func TestHeads(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for head, want := range map[string]framing{
		ok:                                  {status: 200, length: -1},
		ok + "Content-Length: 5":            {status: 200, length: 5},
		ok + "content-length:\t005 ":        {status: 200, length: 5},
		ok + "Content-Length: 5, 5":         {status: 200, length: 5},
		"HTTP/1.1 200":                      {status: 200, length: -1},
		"HTTP/1.0 404 Not Found":            {status: 404, length: -1, old: true},
		ok + "Transfer-Encoding: Chunked":   {status: 200, length: -1, coded: true, chunked: true},
		ok + "Transfer-Encoding: gzip":      {status: 200, length: -1, coded: true},
		ok + "Connection: x, Close":         {status: 200, length: -1, close: true},
		ok + "Connection: Keep-Alive":       {status: 200, length: -1, keep: true},
		ok + "X: y\r\nContent-Lengthy: 5,6": {status: 200, length: -1},
		ok + "Content-Length: 5\r\nDate: Wed, 25 Nov 2026 10:00:00 GMT\r\nContent-Length: 5": {status: 200, length: 5},
		ok + "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked": {
			status: 200, length: -1,
			coded: true, chunked: true,
		},
	} {
		var f framing
		if good := f.read([]byte(head)); !good || f != want {
			t.Errorf("%q: %v, %+v; want %+v", head, good, f, want)
		}
	}
	for _, head := range []string{
		"", "HTTP/1.1 20", "HTTP/1.1 +20 OK", "HTTP/1.1 2000", "HTTP/1.1  200", "HTTP/1.x 200 OK", "HTTP/2.0 200 OK",
		"HTTP/1.1 099 x", "ICY 200 OK",
		ok + "Content-Length: -5", ok + "Content-Length: +5", ok + "Content-Length:", ok + "Content-Length: 0x5",
		ok + "Content-Length: 5 5",
		ok + "Content-Length: 5, 6", ok + "Content-Length: 5,", ok + "Content-Length: 5\r\nContent-Length: 6",
		ok + "Content-Length: 9999999999999999999",
		ok + "Content-Length: 5\r\nTransfer-Encoding: chunked", ok + "Transfer-Encoding: chunked\r\nContent-Length: 5",
		ok + "Transfer-Encoding: chunked, chunked", ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip",
		ok + "Content-Length : 5", ok + " Content-Length: 5", ok + "Content-Length", ok + ": 5",
	} {
		if c := (&conn{}); true {
			if _, _, bad := c.answer([]byte(head + "\r\n\r\nhello, you")); bad != noHTTP {
				t.Errorf("%q: %q, want an error", head, bad)
			}
		}
	}
	for part, want := range map[string]string{ // of which no more comes; that was a time-out
		"": "", "HTT": "", "HTTP/1.1 200 OK\r": "", ok: "", ok + "Content-Length: 5\r\n": "",
		"garbage": noHTTP, "220 mail\r\n": noHTTP, "H\x00": noHTTP, "HTTP/2": noHTTP, "\r\n": noHTTP,
		"HTTP/1.1 200 OK\n": noHTTP, "HTTP/1.1 200 OK\nContent-Length: 2\n\nok": noHTTP,
	} {
		if _, _, bad := (&conn{}).answer([]byte(part)); bad != want {
			t.Errorf("a part, %q: %q, want %q", part, bad, want)
		}
	}
	if _, _, bad := (&conn{}).answer([]byte("HTTP/1.1 101 Switching Protocols\r\n\r\n")); bad != "status 101" {
		t.Errorf("another protocol: %q", bad)
	}
}

// TestAnswersWithoutARequest: what comes where nothing is due is no answer to the next request, as
// which it was counted, and does not go on beside it.
func TestAnswersWithoutARequest(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		each func(c net.Conn, in *bufio.Reader)
	}{
		"behind the answer": {Config{}, func(c net.Conn, _ *bufio.Reader) { _, _ = io.WriteString(c, small+small) }},
		"behind several": {Config{Pipeline: 4}, func(c net.Conn, in *bufio.Reader) {
			for range 3 {
				_, _ = http.ReadRequest(in)
			}
			_, _ = io.WriteString(c, strings.Repeat(small, 5))
		}},
		"while nothing is due": {Config{Rate: 50}, func(c net.Conn, _ *bufio.Reader) {
			_, _ = io.WriteString(c, small)
			_, _ = io.WriteString(c, small)
		}},
		"no HTTP": {Config{Rate: 50}, func(c net.Conn, _ *bufio.Reader) { _, _ = io.WriteString(c, small+"!") }},
	} {
		t.Run(name, func(t *testing.T) {
			var served atomic.Int64
			url := serveRaw(t, func(conn net.Conn) {
				in := bufio.NewReader(conn)
				for {
					if _, err := http.ReadRequest(in); err != nil {
						return
					}
					served.Add(int64(max(c.cfg.Pipeline, 1)))
					c.each(conn, in)
				}
			})
			c.cfg.URL, c.cfg.Connections, c.cfg.Duration, c.cfg.Timeout = url, 2, 200*time.Millisecond, time.Minute
			r, err := Run(t.Context(), c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			got, n := int64(r.Requests+r.Late), served.Load()
			if got == 0 || r.Errors[unasked] == 0 || len(r.Errors) > 1 {
				t.Errorf("%d answered, errors %v", got, r.Errors)
			}
			if c.cfg.Rate == 0 && got != n { // what comes by itself may find the next request sent
				t.Errorf("%d answered, the server has answered %d", got, n)
			}
		})
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
		r, err := Run(t.Context(),
			Config{URL: s.URL, Connections: 2, Rate: rate, Duration: length, Timeout: 2 * length})
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

// Answers that came after a short time-out were taken for good ones, since it was looked for them
// 50 to 150 ms later.
func TestShortTimeouts(t *testing.T) {
	const late = 40 * time.Millisecond
	url := serveRaw(t, func(c net.Conn) {
		for r := bufio.NewReader(c); ; time.Sleep(late) {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			time.Sleep(late)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
		}
	})
	for _, rate := range []float64{0, 100} {
		testenv.Calm(t, func() error {
			r, err := Run(t.Context(),
				Config{URL: url, Connections: 2, Rate: rate, Duration: 400 * time.Millisecond, Timeout: late / 4})
			if err != nil {
				t.Fatal(err)
			}
			if r.Errors[timedOut] < 10 || r.Requests > 0 {
				return fmt.Errorf("rate %v, every answer is %v late: %+v", rate, late, r)
			}
			return nil
		})
	}
}

// Time-outs acted in a closed loop only.
func TestTimeoutsInAnOpenLoop(t *testing.T) {
	url := serveRaw(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	r, err := Run(t.Context(),
		Config{URL: url, Connections: 2, Rate: 1000, Duration: 500 * time.Millisecond, Timeout: 100 * time.Millisecond})
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
	if len(r.Samples) != 1 || r.Samples[0].P99Us > 2000 || r.Samples[0].Requests != 1001 ||
		r.Samples[0].Seconds != 0.5 {
		t.Errorf("%+v", r.Samples)
	}
	slow.counted, slow.length, slow.now = 3200*time.Millisecond, 4*time.Second, 3100*time.Millisecond
	for i := range 100 {
		slow.count(&conn{due: []time.Duration{slow.now - time.Duration(i+1)*10*time.Millisecond}}, 200)
	}
	r = collect(&Config{}, []*thread{quick, slow})
	if len(r.Samples) != 4 || r.Samples[1].Requests+r.Samples[2].Requests != 0 || r.Samples[1].P99Us != 0 {
		t.Fatalf("%+v", r.Samples)
	}
	if s := r.Samples[3]; s.Requests != 100 || math.Abs(s.Seconds-0.2) > 1e-6 || s.P99Us < 980_000 ||
		s.P99Us > 1_000_000 || s.P99Us > r.LatencyUs.Max*101/100 {
		t.Errorf("%+v", s)
	}
}
