package processdrift

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/lab/servers"
	"github.com/tallywheel/tallywheel/loadgen"
)

// drift serves, is its own client, whose connections come and go, and looks at itself all the
// while: what it holds grows with the requests if they leak.
func drift(k servers.Kind) contestant.Work {
	return func(t *contestant.Turn) error { return look(t, k) }
}

func look(t *contestant.Turn, k servers.Kind) error {
	s, err := k.New(t, servers.Hello)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = s.Serve(ln) }() // its end is our closing it; before that requests would fail
	c := clients{addr: ln.Addr().String(), anew: t.Text("load") == "new"}
	if _, err := c.ask(200 * time.Millisecond); err != nil { // what is made once is made
		return err
	}
	until, err := t.Ready()
	if err != nil {
		return err
	}
	const parts = 5
	begin := lookAround()
	var ends []state // of the parts
	var rates, served, descriptors, goroutines []float64
	requests, part := uint64(0), time.Until(until)/parts
	for range parts {
		from := lookAround()
		r, err := c.ask(part)
		if err != nil {
			return err
		}
		if n := r.Requests + r.Late; r.Failed() > 0 || n == 0 {
			return fmt.Errorf("%d requests were answered, %d failed: %v", n, r.Failed(), r.Errors)
		}
		requests += r.Requests + r.Late
		to := lookAround()
		rates = append(rates, (to.allocated-from.allocated)/to.at.Sub(from.at).Seconds())
		rest := to.settled()
		ends = append(ends, rest)
		served = append(served, float64(requests)/1000)
		descriptors, goroutines = append(descriptors, rest.descriptors), append(goroutines, rest.goroutines)
	}
	took, err := t.Done()
	if err != nil {
		return err
	}
	first, last := ends[0], ends[parts-1]
	err = t.Result(took, requests,
		contestant.Value{Metric: "descriptor_drift", V: last.descriptors - first.descriptors},
		contestant.Value{Metric: "goroutine_drift", V: last.goroutines - first.goroutines},
		contestant.Value{Metric: "descriptors_per_1000_requests", V: slope(served, descriptors)},
		contestant.Value{Metric: "goroutines_per_1000_requests", V: slope(served, goroutines)},
		contestant.Value{Metric: "allocation_variation_percent", V: contestant.Variation(rates)},
		contestant.Value{
			Metric: "lock_wait_percent",
			V:      100 * (last.locked - begin.locked) / took.Seconds() / float64(runtime.GOMAXPROCS(0)),
		})
	return errors.Join(err, c.close(), s.Close())
}

// clients are 64, each with a connection for as long as the server keeps it, or with one for each
// request: then none is left between two times that they ask, or those that are on their way would
// be counted as held.
type clients struct {
	addr string
	anew bool
	load *loadgen.Load
}

func (c *clients) ask(length time.Duration) (r *loadgen.Result, err error) {
	if c.load == nil {
		c.load, err = loadgen.New(loadgen.Config{
			URL: "http://" + c.addr + "/", Connections: 64, Threads: 1, Close: c.anew,
		})
		if err != nil {
			return nil, err
		}
	}
	if r, err = c.load.Run(context.Background(), length); c.anew {
		err = errors.Join(err, c.close())
	}
	return r, err
}

func (c *clients) close() (err error) {
	if c.load != nil {
		err, c.load = c.load.Close(), nil
	}
	return err
}

// slope is how much y grows with x: the median of the slopes between all pairs of looks (Theil and
// Sen), so that one look at which something was still open changes nothing.
func slope(x, y []float64) float64 {
	var all []float64
	for i := range x {
		for j := range i {
			all = append(all, (y[i]-y[j])/(x[i]-x[j])) // each part has requests
		}
	}
	return lab.Median(all)
}

// state is what a process says of itself.
type state struct {
	at                                         time.Time
	descriptors, goroutines, allocated, locked float64
}

// settled is the state when what the last requests had open is closed: five looks in a row find as
// many descriptors and goroutines, or a while is over. It is the least that was seen.
func (l state) settled() state {
	const while, pause = 200 * time.Millisecond, 2 * time.Millisecond
	same := 0
	for until := time.Now().Add(while); same < 5 && time.Now().Before(until); time.Sleep(pause) {
		now := lookAround()
		if same++; now.descriptors < l.descriptors || now.goroutines < l.goroutines {
			same = 0
		}
		l.descriptors, l.goroutines = min(l.descriptors, now.descriptors), min(l.goroutines, now.goroutines)
	}
	return l
}

func lookAround() (l state) {
	fds, _ := os.ReadDir("/proc/self/fd") // none without /proc
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/sync/mutex/wait/total:seconds"}}
	metrics.Read(s)
	return state{
		time.Now(), float64(len(fds)), float64(runtime.NumGoroutine()), float64(s[0].Value.Uint64()),
		s[1].Value.Float64(),
	}
}
