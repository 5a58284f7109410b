package recorder

import (
	"slices"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/ledger"
)

// LastEnd says how the start before this one has ended.
type LastEnd string

// How a start has ended.
const (
	EndFirst   LastEnd = ""           // there was none, or nobody knows of it
	EndStopped LastEnd = "stopped"    // it was stopped
	EndFailed  LastEnd = "log_failed" // its log failed
	EndUnknown LastEnd = "unknown"    // it left no end: it was killed, the power was cut, or the disk took no more
)

// LastEnd says how the start before this one has ended.
func (r *Recorder) LastEnd() LastEnd { return r.lastEnd }

// endOf says how the start has ended that has left that sheet; nil: there is none.
func endOf(left *archive.StartSheet) LastEnd {
	switch {
	case left == nil:
		return EndFirst
	case left.End == "" && left.Left == "":
		return EndUnknown
	case left.Uncertain:
		return EndFailed
	default:
		return EndStopped
	}
}

// kindLogFailed is the rule about a log that takes nothing more.
const kindLogFailed = "log_failed"

// openOf lists the troubles that the start has told and not ended that has left that sheet. Where
// it left no end its log may have failed: it told that, and could not keep it on the disk that
// failed, and nowhere else would it be found again. So the end of that is told in any case: behind
// a kill it has no beginning, and says as truly that frames are recorded again.
func openOf(left *archive.StartSheet) []archive.Trouble {
	if left == nil {
		return nil
	}
	isFailed := func(t archive.Trouble) bool { return t.Kind == kindLogFailed }
	if endOf(left) != EndUnknown || slices.ContainsFunc(left.Troubles, isFailed) {
		return left.Troubles
	}
	return append(slices.Clip(left.Troubles), archive.Trouble{
		Kind: kindLogFailed, Level: ledger.Bad, Since: left.Sheet.At,
		What: "the start before left no end: its log failed, or it was killed, or the power was cut",
	})
}
