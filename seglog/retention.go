package seglog

import (
	"math"
	"time"
)

const retentionPeriod = 10 * time.Second // how often the age of segments is looked at

// overdue reports whether the oldest sealed segment is beyond a limit, and may go: not before it
// has its head. The active segment and the spare count as whole.
func (s *shelf) overdue() bool {
	hold, total := uint64(math.MaxUint64), 2*s.cfg.SegmentBytes
	if s.cfg.Hold != nil {
		hold = s.cfg.Hold()
	}
	if s.cfg.Beside != nil && s.cfg.KeepBytes > 0 {
		total += s.cfg.Beside()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	over := s.beyond(total)
	s.holding = over && s.old[0].last >= hold
	return over && !s.holding && !(s.proving && s.old[0].last > s.proven)
}

// beyond reports whether the oldest sealed segment is beyond a limit, with total beside the sealed
// ones. mu is held.
func (s *shelf) beyond(total int64) bool {
	if len(s.old) == 0 {
		return false
	}
	for _, o := range s.old {
		total += o.bytes
	}
	return s.cfg.KeepBytes > 0 && total > s.cfg.KeepBytes ||
		s.cfg.KeepAge > 0 && s.cfg.Age(s.old[0].time) > s.cfg.KeepAge
}

// held reports whether Config.Hold keeps what would go.
func (s *shelf) held() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holding
}

// BytesAfter is about how many bytes of the log hold the records behind seq: of a segment that is
// behind it in part, the same part of its bytes.
func (l *Log) BytesAfter(seq uint64) (n int64) {
	for _, o := range l.shelf.sealed() {
		n += share(o.base, o.last, seq, o.bytes)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return n + share(l.seg.base, l.stored, seq, min(l.end, l.seg.size))
}

// share is the part of bytes behind seq, of records from first to last.
func share(first, last, seq uint64, bytes int64) int64 {
	if seq < first {
		return bytes
	} else if seq >= last {
		return 0
	}
	return int64(float64(bytes) * float64(last-seq) / float64(last-first+1))
}
