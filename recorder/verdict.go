package recorder

import (
	"errors"
	"fmt"

	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// inTheWay says what keeps frames from being recorded now; nil: nothing.
func (r *Recorder) inTheWay() *ledger.LogState {
	s := inTheWay(r.log.Position())
	if n := r.waiting.Load(); s == nil && n > 0 {
		s = &ledger.LogState{Full: true, Stalled: fmt.Sprintf("%d sources that are new to the log wait for room", n)}
	}
	return s
}

// inTheWay says what keeps the log from taking frames at that position; nil: nothing.
func inTheWay(p seglog.Position) *ledger.LogState {
	s := ledger.LogState{Full: p.Full}
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
