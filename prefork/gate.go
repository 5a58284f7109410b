package prefork

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// gate lets so many requests in at a time.
type gate struct {
	places  chan struct{} // nil: no limit
	queue   int64
	waiting atomic.Int64
	inside  atomic.Int64

	answered, refused atomic.Uint64
}

func newGate(inFlight, queue int) *gate {
	g := &gate{queue: int64(queue)}
	if inFlight > 0 {
		g.places = make(chan struct{}, inFlight)
	}
	return g
}

// enter waits for a place, if one may wait, until ctx ends.
func (g *gate) enter(ctx context.Context) bool {
	if g.places == nil {
		g.inside.Add(1)
		return true
	}
	select {
	case g.places <- struct{}{}:
		g.inside.Add(1)
		return true
	default:
	}
	defer g.waiting.Add(-1)
	if g.waiting.Add(1) > g.queue {
		return false
	}
	select {
	case g.places <- struct{}{}:
		g.inside.Add(1)
		return true
	case <-ctx.Done():
		return false
	}
}

func (g *gate) leave() {
	g.answered.Add(1)
	g.inside.Add(-1)
	if g.places != nil {
		<-g.places
	}
}

// handler puts the gate before h, and says Connection: close once the worker is to end.
func (g *gate) handler(h http.Handler, retryAfter time.Duration, draining <-chan struct{}) http.Handler {
	retry := strconv.FormatInt(int64((retryAfter+time.Second-1)/time.Second), 10)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-draining:
			w.Header().Set("Connection", "close")
		default:
		}
		if !g.enter(r.Context()) {
			g.refused.Add(1)
			w.Header().Set("Retry-After", retry)
			http.Error(w, "this server works on as many requests as it may; try again", http.StatusServiceUnavailable)
			return
		}
		defer g.leave()
		h.ServeHTTP(w, r)
	})
}
