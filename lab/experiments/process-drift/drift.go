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

	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/lab/servers"
	"github.com/tallywheel/tallywheel/loadgen"
)

// drift serves, is its own client, whose connections come and go, and looks at
// itself all the while: what is more at the end than at the beginning is a leak.
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
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	l, err := loadgen.New(loadgen.Config{
		URL: "http://" + ln.Addr().String() + "/", Connections: 64, Threads: 1,
		Close: t.Text("load") == "new",
	})
	if err != nil {
		return err
	}
	if _, err := l.Run(context.Background(), 200*time.Millisecond); err != nil { // what is made once is made
		return err
	}
	until, err := t.Ready()
	if err != nil {
		return err
	}
	const parts = 5
	looks := []state{lookAround()}
	requests, part := uint64(0), time.Until(until)/parts
	for range parts {
		r, err := l.Run(context.Background(), part)
		if err != nil {
			return err
		}
		if r.Failed() > 0 {
			return fmt.Errorf("requests failed: %v", r.Errors)
		}
		requests += r.Requests + r.Late
		looks = append(looks, lookAround())
	}
	took, err := t.Done()
	if err != nil {
		return err
	}
	first, last := looks[1], looks[parts]
	var rates []float64
	for i := 1; i < len(looks); i++ {
		rates = append(rates, looks[i].allocated-looks[i-1].allocated)
	}
	err = t.Result(took, requests,
		contestant.Value{Metric: "descriptor_drift", V: last.descriptors - first.descriptors},
		contestant.Value{Metric: "goroutine_drift", V: last.goroutines - first.goroutines},
		contestant.Value{Metric: "allocation_variation_percent", V: contestant.Variation(rates)},
		contestant.Value{
			Metric: "lock_wait_percent",
			V:      100 * (last.locked - looks[0].locked) / took.Seconds() / float64(runtime.GOMAXPROCS(0)),
		})
	return errors.Join(err, l.Close(), s.Close())
}

// state is what a process says of itself.
type state struct{ descriptors, goroutines, allocated, locked float64 }

func lookAround() (l state) {
	fds, _ := os.ReadDir("/proc/self/fd") // none without /proc
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/sync/mutex/wait/total:seconds"}}
	metrics.Read(s)
	return state{float64(len(fds)), float64(runtime.NumGoroutine()), float64(s[0].Value.Uint64()), s[1].Value.Float64()}
}
