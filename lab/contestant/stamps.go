package contestant

import (
	"fmt"
	"sync/atomic"
	"time"
)

// StampsPath is where a server that stamps its requests says what it has stamped.
const StampsPath = "/stamps"

// Stamps adds up when requests came to their handler and left it, by any number of goroutines: the
// time that they were with it is the difference of both sums, by their number.
type Stamps struct{ n, began, ended atomic.Uint64 }

// Stamped is what was added up; the sums are moments of CLOCK_MONOTONIC in ns, modulo 2^64.
type Stamped struct{ Count, BeganNs, EndedNs uint64 }

// Add adds a request.
func (s *Stamps) Add(began, ended time.Duration) {
	s.n.Add(1)
	s.began.Add(uint64(began))
	s.ended.Add(uint64(ended))
}

// Text is what has been added up, for [ReadStamps].
func (s *Stamps) Text() []byte {
	return fmt.Append(nil, s.n.Load(), s.began.Load(), s.ended.Load())
}

// ReadStamps reads what [Stamps.Text] wrote.
func ReadStamps(text string) (s Stamped, err error) {
	if _, err = fmt.Sscan(text, &s.Count, &s.BeganNs, &s.EndedNs); err != nil {
		return s, fmt.Errorf("%q are no stamps: %w", text, err)
	}
	return s, nil
}
