package stranger

import (
	"sync"
	"testing"
	"time"
)

// stillness knows when the machine stood still: then frames come late that nobody held back, a
// pause may be a silence, and what was sent waits longer to be read.
type stillness struct {
	mu    sync.Mutex
	seen  time.Time // when somebody looked last
	times []window
}

// watch looks until the test ends.
func (s *stillness) watch(t *testing.T) {
	s.seen = time.Now()
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	go func() {
		tick := time.NewTicker(beat / 50)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				s.look()
			}
		}
	}()
}

func (s *stillness) look() []window {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.seen) > beat/4 {
		s.times = append(s.times, window{s.seen, now})
	}
	s.seen = now
	return s.times
}

// stood reports whether it stood still at all.
func (s *stillness) stood() bool { return len(s.look()) > 0 }

// before is a moment from which the machine ran for so long until another.
func (s *stillness) before(at time.Time, length time.Duration) time.Time {
	from := at.Add(-length)
	times := s.look()
	for i := len(times) - 1; i >= 0 && times[i].to.After(from); i-- {
		from = from.Add(-times[i].to.Sub(times[i].from))
	}
	return from
}
