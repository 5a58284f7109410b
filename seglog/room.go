package seglog

import (
	"fmt"
	"math"
	"strconv"
	"syscall"
)

// noRoom is the log's own finding that a segment would not fit. It is an ENOSPC.
type noRoom struct{ free, want, reserve int64 }

// Error implements error.
func (e noRoom) Error() string {
	return fmt.Sprintf("no room for another segment: %s of the disk are free, it takes %s beside the reserve of %s",
		size(e.free, math.Floor), size(e.want, math.Ceil), size(e.reserve, math.Ceil))
}

// Unwrap makes it the system's own error.
func (e noRoom) Unwrap() error { return syscall.ENOSPC }

// size is a number of bytes for people, rounded so that what they are told adds up.
func size(n int64, round func(float64) float64) string {
	if n < 1<<20 {
		return strconv.FormatFloat(round(float64(n)/(1<<10)), 'f', 0, 64) + " KiB"
	}
	return strconv.FormatFloat(round(float64(n)/(1<<20)*10)/10, 'f', 1, 64) + " MiB"
}

// hasRoom is an error that says that the disk is full when it cannot take that many more segments.
func (s *shelf) hasRoom(segments int64) error {
	free, err := s.cfg.FS.FreeBytes()
	if err != nil { // not known: the write will tell
		return nil
	}
	if e := (noRoom{free, segments * s.cfg.SegmentBytes, max(0, s.cfg.MinFree)}); e.free < e.want+e.reserve {
		return e
	}
	return nil
}

// Room is how many bytes the log may still take, as the disk is now, before it waits or removes
// what is old: what it has ahead, and as many whole segments as fit beside Config.MinFree. An error
// says that the disk does not tell.
func (l *Log) Room() (int64, error) {
	free, err := l.cfg.FS.FreeBytes()
	if err != nil {
		return 0, err
	}
	spares := l.shelf.spares()
	l.mu.Lock()
	rest := max(0, l.seg.size-l.end)
	if l.seg.grows { // it takes its room from what is free
		rest = min(rest, free)
		free -= rest
	}
	l.mu.Unlock()
	segments := max(0, free-max(0, l.cfg.MinFree)) / l.cfg.SegmentBytes
	return rest + (spares+segments)*l.cfg.SegmentBytes, nil
}

// held is what of the disk is held for records to come: the rest of the segment in use, and spare
// ones. Log.mu is held.
func (l *Log) held(spares int64) int64 {
	n := spares * l.cfg.SegmentBytes
	if !l.seg.grows {
		n += max(0, l.seg.size-l.end)
	}
	return n
}

// spares is how many segments are ready for use.
func (s *shelf) spares() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.next))
}
