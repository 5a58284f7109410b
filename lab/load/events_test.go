package load

import (
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/loadgen"
)

// TestThroughout: a load asks until what happens has happened, and is not over before that; what
// went wrong with it is an error.
func TestThroughout(t *testing.T) {
	var asked atomic.Int64
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) })}
	defer s.Close()
	go func() { _ = s.Serve(ln) }()
	l, err := loadgen.New(loadgen.Config{URL: "http://" + ln.Addr().String() + "/", Connections: 2, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const length = 40 * time.Millisecond
	bad := errors.New("it does not end")
	began := time.Now()
	r, err := throughout(t.Context(), l, length, func() error {
		for time.Since(began) < 4*length { // longer than the load asks by itself
			time.Sleep(time.Millisecond)
		}
		before := asked.Load()
		for until := time.Now().Add(10 * time.Second); asked.Load() < before+8; {
			if time.Now().After(until) {
				return errors.New("nobody asks while it happens")
			}
			time.Sleep(time.Millisecond)
		}
		return bad
	})
	if !errors.Is(err, bad) || r == nil || r.Failed() > 0 || r.Seconds < (4*length).Seconds() {
		t.Errorf("%v: %+v, after %v", err, r, time.Since(began))
	}
}
