package recorder

import (
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/ledger"
)

// historyLook is how often the recorder looks whether the history is what it has left. Tests have
// less.
var historyLook = time.Minute

// keep adds sheets to the history.
func (r *Recorder) keep(sheets ...*archive.StartSheet) error {
	r.lookAtHistory(true)
	err := r.writeSheet(func() error { return archive.KeepAll(r.cfg.Log.Dir, sheets) })
	r.markHistory()
	return err
}

// markHistory notes what the history is: from now on it only grows, and only this recorder has
// lines for it.
func (r *Recorder) markHistory() {
	r.marked, r.lookedAt = nil, time.Now()
	_ = r.files.patiently(func() error {
		mark, err := archive.MarkHistory(r.cfg.Log.Dir)
		if err == nil {
			r.marked = &mark
		}
		return err
	})
}

// lookAtHistory tells when somebody has cut, removed or replaced the history since it was marked,
// if it is time for a look, or must be: before it is marked anew. Whoever writes sheets may call
// it.
func (r *Recorder) lookAtHistory(must bool) {
	now := time.Now()
	if r.marked == nil || !must && now.Sub(r.lookedAt) < historyLook {
		return
	}
	r.lookedAt = now
	was := archive.StartSheet{
		Identity: hexIdentity(r.log), History: r.marked,
		Sheet: ledger.Sheet{At: ledger.Time(now.UnixNano())},
	}
	gone := was.HistoryGone(r.cfg.Log.Dir)
	if gone == nil {
		return
	}
	r.tellHistoryGone()
	r.marked = nil
	r.owed = append(r.owed, gone)
	r.acks.forget()
}

// tellHistoryGone tells that the history is not what it was.
func (r *Recorder) tellHistoryGone() {
	r.slog.Warn("sheets.ndjson is not what it was: somebody cut, removed or replaced it; what earlier starts lost is not known, as the verdict says until the next ack")
}
