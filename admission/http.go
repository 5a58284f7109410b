package admission

import (
	"errors"
	"net/http"
	"strconv"
	"time"
)

// HTTP says how a gate stands before an http.Handler. The zero value will do.
type HTTP struct {
	// Urgency is the urgency of a request, 0 to 7. nil: all are Normal. RFC 9218 has clients say it
	// in the header Priority: take it only from clients that may say so.
	Urgency func(*http.Request) int

	// RetryAfter is what a client that is refused is told to wait, in whole seconds. 0: 1 s.
	RetryAfter time.Duration
}

// Handler has h work on the requests that the gate lets in. The others get 503 with Retry-After
// (RFC 9110, 15.6.4). A request that was hijacked keeps its place until h returns.
func (g *Gate) Handler(h http.Handler, o HTTP) http.Handler {
	urgency := o.Urgency
	if urgency == nil {
		urgency = func(*http.Request) int { return Normal }
	}
	retry := strconv.FormatInt(max(1, int64((o.RetryAfter+time.Second-1)/time.Second)), 10)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := g.Enter(r.Context(), urgency(r))
		if err != nil {
			w.Header().Set("Retry-After", retry)
			http.Error(w, reason(err), http.StatusServiceUnavailable)
			return
		}
		defer p.Done()
		h.ServeHTTP(w, r)
	})
}

func reason(err error) string {
	if errors.Is(err, ErrClosed) {
		return "this server is about to end; try again"
	}
	return "this server works on as many requests as it may; try again"
}
