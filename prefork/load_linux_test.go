package prefork

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// load asks without a pause, from many clients at a time, and never a second time for an answer
// that did not come.
type load struct {
	addr      string
	good, bad atomic.Int64
	refused   atomic.Int64 // of bad: nobody listened
	stop      atomic.Bool
	clients   sync.WaitGroup
	mu        sync.Mutex
	errs      []error // the first few
}

// begin adds clients; keep has them use a connection for as long as the server does.
func (l *load) begin(n int, keep bool, query string) {
	for range n {
		l.clients.Go(func() {
			for !l.stop.Load() {
				if err := l.connection(keep, query); err != nil {
					l.bad.Add(1)
					if errors.Is(err, syscall.ECONNREFUSED) {
						l.refused.Add(1)
					}
					l.mu.Lock()
					if len(l.errs) < 5 {
						l.errs = append(l.errs, err)
					}
					l.mu.Unlock()
				}
			}
		})
	}
}

// connection asks by one connection until the server says that it closes it.
func (l *load) connection(keep bool, query string) error {
	c, err := net.DialTimeout("tcp", l.addr, time.Minute)
	if err != nil {
		return err
	}
	defer c.Close()
	ask := "GET /" + query + " HTTP/1.1\r\nHost: test\r\n"
	if !keep {
		ask += "Connection: close\r\n"
	}
	ask += "\r\n"
	in := bufio.NewReader(c)
	for n := 0; !l.stop.Load(); n++ {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, ask); err != nil {
			return fmt.Errorf("request %d: %w", n, err)
		}
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return fmt.Errorf("request %d: %w", n, err)
		}
		_, err = io.Copy(io.Discard, res.Body)
		if err = errors.Join(err, res.Body.Close()); err != nil {
			return fmt.Errorf("request %d: %w", n, err)
		}
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("request %d: %s", n, res.Status)
		}
		l.good.Add(1)
		if res.Close {
			return nil
		}
	}
	return nil
}

// end stops the clients and returns how many requests were answered, and how many were not.
func (l *load) end() (good, bad int64) {
	l.stop.Store(true)
	l.clients.Wait()
	return l.good.Load(), l.bad.Load()
}

// TestKillCostsWhatTheWorkerHeld kills workers under load: nobody is turned away, and no kill loses
// more requests than a worker may hold.
func TestKillCostsWhatTheWorkerHeld(t *testing.T) {
	t.Parallel()
	const holds, times = 3, 10
	r := start(t, appConfig{Config: Config{
		Listen: anyPort, Workers: 2, MaxConns: holds, BackOff: time.Millisecond, MaxBackOff: time.Millisecond,
		Intensity: 1000, StartFor: patience,
	}}, nil)
	var answered [2]uint64
	var costs [times]int64
	for i := range times {
		l := &load{addr: r.addr} // of its own: what it loses is lost by this kill
		l.begin(16, false, "?for=1ms")
		testenv.Until(t, patience, "requests are answered", func() bool { return l.good.Load() >= 16 })
		slot := i % 2
		victim := r.status()[slot].PID
		if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		testenv.Until(t, patience, "a successor", func() bool {
			st := r.status()[slot]
			if st.Answered < answered[slot] {
				t.Errorf("kill %d: slot %d has answered %d requests after %d", i, slot, st.Answered, answered[slot])
			}
			answered[slot] = st.Answered
			return st.PID != 0 && st.PID != victim
		})
		if _, costs[i] = l.end(); costs[i] > holds || l.refused.Load() > 0 {
			t.Errorf("kill %d of a worker that holds %d requests costs %d, of which %d were refused: %v", i, holds,
				costs[i], l.refused.Load(), l.errs)
		}
	}
	t.Logf("the kills cost %v requests", costs)
	if n := r.status()[0].Restarts + r.status()[1].Restarts; n != times {
		t.Errorf("%d restarts are counted", n)
	}
}
