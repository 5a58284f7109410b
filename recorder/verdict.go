package recorder

import (
	"errors"
	"fmt"

	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// inTheWay says what keeps frames from being recorded now, or from being kept; nil: nothing.
func (r *Recorder) inTheWay() *ledger.LogState {
	s := inTheWay(r.position())
	if why := r.unsaved.Load(); why != nil {
		if s == nil {
			s = &ledger.LogState{}
		}
		s.Unsaved = *why
	}
	n := r.waiting.Load()
	if n == 0 || s != nil && (s.Full || s.Stalled != "" || s.Error != "") {
		return s
	}
	if s == nil {
		s = &ledger.LogState{}
	}
	s.Full, s.Stalled = true, fmt.Sprintf("%d sources that are new to the log wait for room", n)
	return s
}

// position is how far the log is, with what it removed for want of room since the start.
func (r *Recorder) position() seglog.Position {
	p := r.log.Position()
	p.Evicted += r.evicted
	return p
}

// inTheWay says what keeps the log from taking frames, or from keeping them, at that position, or
// has kept it from that since the start; nil: nothing.
func inTheWay(p seglog.Position) *ledger.LogState {
	s := ledger.LogState{Full: p.Full, Evicting: p.Evicting, Evicted: p.Evicted}
	if p.Err != nil && !errors.Is(p.Err, seglog.ErrClosed) {
		s.Error = p.Err.Error()
	}
	if p.Stalled != nil {
		s.Stalled = p.Stalled.Error()
	}
	if s == (ledger.LogState{}) {
		return nil
	}
	return &s
}
