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
	"time"
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
