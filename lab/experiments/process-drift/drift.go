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
	begin := lookAround()
	var ends []state // of the parts
	var rates []float64
	requests, part := uint64(0), time.Until(until)/parts
	for range parts {
		from := lookAround()
		r, err := l.Run(context.Background(), part)
		if err != nil {
			return err
		}
		if r.Failed() > 0 {
			return fmt.Errorf("requests failed: %v", r.Errors)
		}
		requests += r.Requests + r.Late
		to := lookAround()
		rates = append(rates, (to.allocated-from.allocated)/to.at.Sub(from.at).Seconds())
		ends = append(ends, to.settled())
	}
	took, err := t.Done()
	if err != nil {
		return err
	}
	first, last := ends[0], ends[parts-1]
	err = t.Result(took, requests,
		contestant.Value{Metric: "descriptor_drift", V: last.descriptors - first.descriptors},
		contestant.Value{Metric: "goroutine_drift", V: last.goroutines - first.goroutines},
		contestant.Value{Metric: "allocation_variation_percent", V: contestant.Variation(rates)},
		contestant.Value{
			Metric: "lock_wait_percent",
			V:      100 * (last.locked - begin.locked) / took.Seconds() / float64(runtime.GOMAXPROCS(0)),
		})
	return errors.Join(err, l.Close(), s.Close())
}

// state is what a process says of itself.
type state struct {
	at                                         time.Time
	descriptors, goroutines, allocated, locked float64
}

// settled is the state when what the last requests had open is closed: three looks in a row find as
// many descriptors and goroutines, or a while is over. It is the least that was seen.
func (l state) settled() state {
	const while, pause = 200 * time.Millisecond, 2 * time.Millisecond
	same := 0
	for until := time.Now().Add(while); same < 3 && time.Now().Before(until); time.Sleep(pause) {
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
