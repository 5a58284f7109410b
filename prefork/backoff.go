package prefork

import (
	"math/rand/v2"
	"time"
)

// backoff says when a slot whose worker ended unasked gets the next one. The zero value has seen no
// end.
type backoff struct {
	ends []time.Time // within the last period
}

// longest bounds what a configuration may ask for.
const longest = 24 * time.Hour

// next notes an end and returns how long to wait, and whether that is because the limit of
// intensity is reached.
func (b *backoff) next(c *Config, now time.Time) (wait time.Duration, resting bool) {
	recent := b.ends[:0]
	for _, at := range b.ends {
		if now.Sub(at) < c.Period {
			recent = append(recent, at)
		}
	}
	b.ends = append(recent, now)
	if len(b.ends) > c.Intensity {
		b.ends = b.ends[:0]
		return c.Period, true
	}
	most := min(c.MaxBackOff, longest)
	wait = min(c.BackOff, most)
	for range len(b.ends) - 1 {
		wait = min(2*wait, most)
	}
	return wait/2 + rand.N(wait+1), false // slots that died together come back apart
}
