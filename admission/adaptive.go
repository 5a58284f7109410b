package admission

import (
	"fmt"
	"math"
	"time"
)

// Adaptive finds the limit of a gate by the latency of what is in flight. Once a window it compares
// the mean latency with the base, which is the latency when nothing queues behind the gate:
//
//	gradient = min(1, max(½, Tolerance × base ÷ latency))
//	limit    = 0.8 × limit + 0.2 × (limit × gradient + √limit)
//
// So the limit grows by a fifth of its root as long as latency stays below Tolerance × base, and
// shrinks as it does not. Base is the lowest mean of a window; because what is served may become
// slower for good, it is measured anew each Probe: for one window the limit is √limit, as low as
// lets nothing queue. The gradient is that of Netflix' concurrency-limits, the probe the idea of
// BBR's PROBE_RTT (draft-ietf-ccwg-bbr, 5.3.4).
type Adaptive struct {
	// Min and Max bound the limit. 0: 1, and 16 times Config.Limit.
	Min, Max int

	// Tolerance is how many times the base the latency may be; more than 1. 0: 1.5.
	Tolerance float64

	// Window is how long latencies are averaged, at least 1 ms; longer, until there are ten.
	// 0: 100 ms.
	Window time.Duration

	// Probe is how often the base is measured anew, at least ten windows. 0: 30 s.
	Probe time.Duration
}

const (
	enoughSamples = 10
	smoothing     = 0.2
	probeWindows  = 10 // after so many a probe that got no samples gives up
)

// adaptation is the state of Adaptive. It is the gate's, under its mutex.
type adaptation struct {
	Adaptive
	limit   float64
	latency time.Duration // of the last window
	base    time.Duration // 0: not known yet

	began time.Time // the window; zero: none yet
	sum   time.Duration
	n     int
	most  int // in flight in this window

	probed  time.Time // the last probe's end
	probing time.Time // this probe's begin; zero: none
	drained time.Time // in this probe: since when no more than its limit are in flight; zero: not yet
}

func (a Adaptive) begin(limit int) (*adaptation, error) {
	if a.Min == 0 {
		a.Min = 1
	}
	if a.Max == 0 {
		a.Max = min(16*limit, MaxLimit)
	}
	if a.Tolerance == 0 {
		a.Tolerance = 1.5
	}
	if a.Window == 0 {
		a.Window = 100 * time.Millisecond
	}
	if a.Probe == 0 {
		a.Probe = max(30*time.Second, 10*a.Window)
	}
	switch {
	case a.Min < 1 || a.Max > MaxLimit || a.Min > a.Max:
		return nil, fmt.Errorf("admission: Adaptive.Min is %d and Max %d, want 1 ≤ Min ≤ Max ≤ %d", a.Min, a.Max,
			MaxLimit)
	case !(a.Tolerance > 1) || math.IsInf(a.Tolerance, 0):
		return nil, fmt.Errorf("admission: Adaptive.Tolerance is %v, want more than 1", a.Tolerance)
	case a.Window < time.Millisecond:
		return nil, fmt.Errorf("admission: Adaptive.Window is %v, want at least 1ms", a.Window)
	case a.Probe < 10*a.Window:
		return nil, fmt.Errorf("admission: Adaptive.Probe is %v, want at least ten windows, %v", a.Probe, 10*a.Window)
	}
	return &adaptation{Adaptive: a, limit: float64(min(max(limit, a.Min), a.Max))}, nil
}

// now is the limit that holds at the moment.
func (a *adaptation) now() int {
	if !a.probing.IsZero() {
		return max(a.Min, int(math.Sqrt(a.limit)))
	}
	return int(a.limit)
}

func (a *adaptation) entered(inFlight int) { a.most = max(a.most, inFlight) }

// left takes the latency of one that has left. A probe wants only those that began when it had
// drained.
func (a *adaptation) left(began, now time.Time) {
	if !a.probing.IsZero() && (a.drained.IsZero() || began.Before(a.drained)) {
		return
	}
	a.sum += now.Sub(began)
	a.n++
}

// look ends a window whose time is over, and returns the limit.
func (a *adaptation) look(now time.Time, inFlight, waiting int) int {
	if a.began.IsZero() {
		a.began, a.probed = now, now
	}
	if !a.probing.IsZero() {
		a.probe(now, inFlight)
		return a.now()
	}
	if now.Sub(a.began) < a.Window || a.n < enoughSamples {
		return a.now()
	}
	a.latency = a.sum / time.Duration(a.n)
	if a.base == 0 || a.latency < a.base {
		a.base = a.latency
	}
	if 2*a.most >= int(a.limit) || waiting > 0 { // else the limit limits nobody, and nothing is learned of it
		ratio := a.Tolerance * float64(a.base) / float64(max(a.latency, 1))
		want := a.limit*min(1, max(0.5, ratio)) + math.Sqrt(a.limit)
		a.limit += smoothing * (want - a.limit)
		a.limit = min(max(a.limit, float64(a.Min)), float64(a.Max))
		if now.Sub(a.probed) >= a.Probe {
			a.probing = now
		}
	}
	a.window(now, inFlight)
	return a.now()
}

func (a *adaptation) window(now time.Time, inFlight int) {
	a.began, a.sum, a.n, a.most = now, 0, 0, inFlight
}

// probe measures the base: it waits until no more than its limit are in flight, then takes a window
// of those that have begun since.
func (a *adaptation) probe(now time.Time, inFlight int) {
	if a.drained.IsZero() && inFlight <= a.now() {
		a.drained = now
		a.window(now, inFlight)
	}
	over := now.Sub(a.probing) >= probeWindows*max(a.Window, a.latency)
	switch {
	case !a.drained.IsZero() && a.n >= enoughSamples && now.Sub(a.drained) >= a.Window:
		a.base = a.sum / time.Duration(a.n)
	case !over:
		return
	}
	a.probing, a.drained, a.probed = time.Time{}, time.Time{}, now
	a.window(now, inFlight)
}
