package probe

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestFollowExchanges: every exchange passes every station once, in several pieces too, and the
// times between stations are those that the server and the client spent there.
func TestFollowExchanges(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6"} {
		t.Run(network, func(t *testing.T) {
			addr := map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"}[network]
			ln, err := net.Listen(network, addr)
			if err != nil {
				t.Skipf("SKIPPED: no %s on loopback: %v; run this where loopback has it", network, err)
			}
			defer ln.Close()
			e := followed(t, ln)
			const connections, times, worked, rested = 3, 20, time.Millisecond, 2 * time.Millisecond
			ended := make(chan error, connections)
			go func() {
				for range connections {
					c, err := ln.Accept()
					if err != nil {
						ended <- err
						continue
					}
					go func() { ended <- answer(c, worked) }()
				}
			}()
			all := time.Duration(0)
			for range connections { // one after the other: sockets get the memory of those before them
				took, err := ask(network, ln.Addr().String(), times, rested)
				if err != nil {
					t.Fatal(err)
				}
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				all += took
			}
			passed, err := e.Read()
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range passed {
				if p.Count != connections*times {
					t.Errorf("station %d: %d passed, want %d", i, p.Count, connections*times)
				}
			}
			between := func(from, to Station) time.Duration {
				return time.Duration(passed[to].SumNs - passed[from].SumNs)
			}
			for s := RequestSent; s < AnswerRead; s++ {
				if took := between(s, s+1); took < 0 || took > all {
					t.Errorf("from station %d to the next: %v of %v", s, took, all)
				}
			}
			if took := between(RequestRead, AnswerSent); took < connections*times*worked {
				t.Errorf("the server worked %v, want %v at least", took, connections*times*worked)
			}
			if took := between(RequestSent, AnswerRead); took > all || took < all/2 {
				t.Errorf("all stations: %v; the client saw %v", took, all)
			}
		})
	}
}

// answer answers each request of two pieces by two pieces, after a while.
func answer(c net.Conn, after time.Duration) error {
	defer c.Close()
	var request [2]byte
	for {
		if _, err := io.ReadFull(c, request[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		time.Sleep(after)
		for _, b := range request {
			if _, err := c.Write([]byte{b}); err != nil {
				return err
			}
		}
	}
}

// ask makes exchanges, with a rest between them, and says how long they took without it.
func ask(network, addr string, times int, rest time.Duration) (took time.Duration, err error) {
	c, err := net.Dial(network, addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var piece [2]byte
	for range times {
		time.Sleep(rest)
		began := time.Now()
		for _, b := range "ab" {
			if _, err := c.Write([]byte{byte(b)}); err != nil {
				return 0, err
			}
		}
		if _, err := io.ReadFull(c, piece[:]); err != nil {
			return 0, err
		}
		took += time.Since(began)
	}
	return took, nil
}

// TestFollowOtherPorts: a connection to another port passes no station.
func TestFollowOtherPorts(t *testing.T) {
	var ports [2]net.Listener
	for i := range ports {
		ln, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		ports[i] = ln
	}
	e := followed(t, ports[0])
	ended := make(chan error, 1)
	go func() {
		c, err := ports[1].Accept()
		if err == nil {
			err = answer(c, 0)
		}
		ended <- err
	}()
	if _, err := ask("tcp4", ports[1].Addr().String(), 3, 0); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if passed, err := e.Read(); err != nil || passed != [stationCount]Passed{} {
		t.Errorf("%v, %v: want nothing", passed, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Read(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
	for _, port := range []int{-1, 0, 65536} {
		if _, err := FollowExchanges(port); !errors.Is(err, ErrOptions) {
			t.Errorf("port %d: %v", port, err)
		}
	}
}

// followed follows the exchanges of a listener until the test ends.
func followed(t *testing.T, ln net.Listener) *Exchanges {
	t.Helper()
	e, err := FollowExchanges(ln.Addr().(*net.TCPAddr).Port)
	allowed(t, err)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}
