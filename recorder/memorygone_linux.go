package recorder

import (
	"cmp"
	"errors"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/reader"
	"github.com/tallywheel/tallywheel/seglog"
)

// Behind a kill the sheets of the start may be gone with the folder of the log, or be of another
// log that somebody has put there. Then nothing can be gone on with, and memory knows alone what
// the start had: its books say what the log was given, and behind their checkpoint is what it was
// not.

// errLogGone is what a log says that is not there any more.
var errLogGone = errors.New("the log was taken away")

// goneLog is the log of a start that is over: it takes nothing. What it had is there where the log
// is the one that is open now.
type goneLog struct {
	liveLog
	isThere bool
}

func (goneLog) TryAppendAt(uint32, int64, uint64, []byte) (uint64, error) { return 0, errLogGone }

// hasFailed keeps checkpoints from being saved: the memory is given back.
func (goneLog) hasFailed() bool { return true }

func (g goneLog) stored() uint64 {
	if !g.isThere {
		return 0
	}
	return g.liveLog.stored()
}

func (g goneLog) newest(upTo uint64) (uint64, error) {
	if !g.isThere {
		return 0, nil
	}
	return g.liveLog.newest(upTo)
}

func (g goneLog) since(seq uint64, each func(seglog.Record), lost func(first uint64)) error {
	if !g.isThere {
		return nil
	}
	return g.liveLog.since(seq, each, lost)
}

// closeMemory brings into the history what the spools of a start know that cannot go on, and what
// the shelf says of those that were given back. last is the sheet in the folder: if it is of that
// start, the history has its accounts from there, and what waited is named as bytes.
func (r *Recorder) closeMemory(was isolate.Start, last *archive.StartSheet) {
	end := &archive.StartSheet{
		End: "killed, and its sheets are gone, or its log: this is what its memory knew", Identity: was.Identity,
	}
	isCounted := last != nil && int64(last.Sheet.Since) == was.Since
	if isCounted {
		end.Part, end.Parts = true, last.Parts+1
	}
	var accounts []ledger.Port
	for _, id := range r.iso.sources() {
		if r.iso.closed.has(id, r.iso.left[id].book) {
			continue
		}
		l, err := r.lastOfMemory(r.iso.left[id], id, was.Identity == hexIdentity(r.log), isCounted)
		if err != nil {
			r.slog.Error("nobody knows what waited in memory of a source", "source", id, "error", err)
			continue
		}
		accounts = append(accounts, l.sheet())
	}
	now := time.Now().UnixNano()
	if !isCounted {
		accounts = r.iso.closed.accounts(was.Since, accounts, was.Identity == hexIdentity(r.log), now)
	}
	end.Sheet = ledger.NewSheet(now, was.Since, accounts)
	end.NumberAccounts()
	v := end.Sheet.Judge()
	end.Sheet.Verdict = &v
	r.owed = append(r.owed, end)
}

// lastOfMemory is a lane with what the spool of a source knows, and nothing that is in the history
// already. isThere: the log is the one that the spool was recorded into.
func (r *Recorder) lastOfMemory(left *leftSpool, id string, isThere, isCounted bool) (l *lane, err error) {
	source := left.source
	source.ID = id
	to := goneLog{liveLog{r.log}, isThere}
	if isThere {
		l, err = r.lane(source)
	} else {
		l, err = newLane(source, to, 1, 2)
	}
	if err != nil {
		return nil, err
	}
	l.number = cmp.Or(left.book, l.number)
	now := time.Now().UnixNano()
	if isCounted {
		from, err := left.spool.ConsumerOf(func(uint64) bool { return true })
		if err != nil {
			return nil, err
		}
		l.in.book.At(now)
		l.in.book.Unread(causeGone, from.Unshown())
		return l, nil
	}
	play, err := newSpooled(l, left.spool, to, spool.Steady)
	for more := err == nil; more && err == nil; {
		more, err = play.step()
	}
	if err != nil {
		return nil, err
	}
	if held, err := play.from.Held(); err == nil && !play.ended {
		l.Closed(held, now, reader.ErrRemoved)
		<-l.closed
		play.from.Done(len(held))
	}
	at := r.log.Position()
	l.settle(seglog.Commit{Stored: at.Stored, Durable: at.Durable}, now)
	return l, nil
}
