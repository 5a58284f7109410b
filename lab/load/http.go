package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/loadgen"
)

// HTTP is a load of requests on a server. Connections are open before the time counts.
type HTTP struct {
	Connections int
	Pipeline    int     // 0: 1
	Rate        float64 // requests a second; 0: each connection sends as soon as it is answered
	Close       bool    // a connection for each request

	Path      string             // "": /
	Method    string             // "": GET
	Exchanges []loadgen.Exchange // what is sent and must come back; none: any answer is a good one
	Bytes     int                // of the bodies of a request and its answer, for throughput; 0: none is stated
}

// Scene makes an address for one turn.
func (h HTTP) Scene(*lab.Bench) (*lab.Scene, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	var l *loadgen.Load
	run := func(ctx context.Context, length time.Duration) (func(lab.Metrics), error) {
		if l == nil {
			var err error
			if l, err = loadgen.New(loadgen.Config{
				URL: "http://" + addr + cmp.Or(h.Path, "/"), Method: h.Method, Exchanges: h.Exchanges,
				Connections: h.Connections, Pipeline: h.Pipeline, Rate: h.Rate, Close: h.Close,
				Threads: min(2, h.Connections),
			}); err != nil {
				return nil, err
			}
		}
		r, err := l.Run(ctx, length)
		if err != nil {
			return nil, err
		}
		if n := r.Failed(); n > 0 {
			return nil, fmt.Errorf("%d of %d requests failed: %v", n, uint64(n)+r.Requests+r.Late, r.Errors)
		}
		return func(m lab.Metrics) {
			// The late ones, too: the server has worked for them until now, and of a few large ones
			// they are many.
			m["ops"], m["wall_s"], m["unsent"] = float64(r.Requests+r.Late), r.Drained, float64(r.Unsent)
			if h.Bytes > 0 {
				m["MB_per_s"] = m["ops"] * float64(h.Bytes) / 1e6 / m["wall_s"]
			}
			latencies(m, r.LatencyUs, r.Requests+r.Late)
			m["latency_us_mean"] = r.LatencyUs.Mean
		}, nil
	}
	return &lab.Scene{
		Params: lab.Params{"addr": addr}, Serves: addr, Load: run,
		Close: func() error {
			if l == nil {
				return nil
			}
			return l.Close()
		},
	}, nil
}

// Idle opens connections, asks each for one answer, and lets them rest: what a server holds for
// each is the figure bytes_per_conn.
type Idle struct{ Connections int }

// Scene makes an address for one turn.
func (i Idle) Scene(*lab.Bench) (*lab.Scene, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	var pid int
	run := func(ctx context.Context, _ time.Duration) (func(lab.Metrics), error) {
		if pid == 0 { // the warm-up: what the first connections cost once is not theirs
			l, err := loadgen.New(loadgen.Config{URL: "http://" + addr + "/", Connections: 100, Threads: 1, Rate: 2000})
			if err != nil {
				return nil, err
			}
			_, err = l.Run(ctx, 100*time.Millisecond)
			return func(lab.Metrics) {}, errors.Join(err, l.Close())
		}
		before, err := lab.Resident(pid)
		if err != nil {
			return nil, err
		}
		began := time.Now()
		l, err := loadgen.New(loadgen.Config{URL: "http://" + addr + "/", Connections: i.Connections, Threads: 1})
		if err != nil {
			return nil, err
		}
		r, err := l.Once(ctx)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		took := time.Since(began)
		if n := r.Failed(); n > 0 || r.Requests == 0 {
			return nil, errors.Join(fmt.Errorf("%d of %d requests failed: %v", n, i.Connections, r.Errors), l.Close())
		}
		// The Go runtime gives back what garbage it has within some hundred milliseconds of rest;
		// what is looked for is the least.
		least := int64(0)
		for range 10 {
			time.Sleep(50 * time.Millisecond) // it rests, and so do we
			now, err := lab.Resident(pid)
			if err != nil {
				return nil, errors.Join(err, l.Close())
			}
			if least == 0 || now < least {
				least = now
			}
		}
		return func(m lab.Metrics) {
			m["ops"], m["wall_s"] = float64(r.Requests), took.Seconds()
			m["bytes_per_conn"] = float64(least-before) / float64(i.Connections)
		}, l.Close()
	}
	return &lab.Scene{Params: lab.Params{"addr": addr}, Serves: addr, Started: func(p int) { pid = p }, Load: run}, nil
}

// Answers is one exchange: nothing is sent, and so many bytes of the laboratory's pattern come
// back.
func Answers(bytes int) []loadgen.Exchange {
	return []loadgen.Exchange{{Want: loadgen.Content{Pattern: contestant.Pattern(), Bytes: int64(bytes)}}}
}

// Hello is one exchange: nothing is sent, and the small answer comes back.
func Hello() []loadgen.Exchange {
	return []loadgen.Exchange{{Want: loadgen.Exactly([]byte(contestant.Hello))}}
}

// Bodies is requests that differ, so that an answer to another one shows, and the digests that must
// come back.
func Bodies(bytes int) (all []loadgen.Exchange) {
	const different, apart = 4, 1009
	page := contestant.Page(bytes + different*apart)
	for i := range different {
		body := page[i*apart:][:bytes]
		all = append(all, loadgen.Exchange{Body: body, Want: loadgen.Exactly(contestant.DigestOf(body))})
	}
	return all
}

// freeAddress is an address on loopback that nobody listens at.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
