package ledger

import "time"

// turns follows the last request on a line whose frames are requests and answers. Its times are of
// a clock that nobody sets.
type turns struct {
	waiting bool          // for the answer to it
	since   time.Duration // when it came
	overdue bool          // the answer has not come in time: it is counted as unanswered
}

// Asked posts a request to which an answer is due, at a time of that clock.
func (b *Book) Asked(now time.Duration) {
	b.frames.Requests++
	b.AnswerDue(now)
}

// AnswerDue says that the answer to a request which another book has posted is waited for.
func (b *Book) AnswerDue(now time.Duration) { b.turns = turns{waiting: true, since: now} }

// IsAnswerDue reports whether the frame that was posted last is a request that may be answered yet.
func (b *Book) IsAnswerDue() bool { return b.turns.waiting }

// Answered posts that a frame answers the request before it. One that was overdue is taken back.
func (b *Book) Answered() {
	b.frames.Answered++
	if b.turns.overdue {
		b.frames.Unanswered--
		b.losses.cameLast(lateAnswer, 1)
		b.takeBack(b.ack.overdueIn, 1, unanswered)
	}
}

// Unanswered posts that the request before a frame got no answer, once.
func (b *Book) Unanswered() {
	if !b.turns.overdue {
		b.unanswered()
	}
}

// Overdue posts the last request as unanswered if nothing came behind it for so long, once; false:
// it does not.
func (b *Book) Overdue(now, within time.Duration) bool {
	t := &b.turns
	if !t.waiting || t.overdue || now-t.since < within {
		return false
	}
	t.overdue = true
	b.unanswered()
	return true
}

func (b *Book) unanswered() {
	b.frames.Unanswered++
	b.ack.overdueIn = b.ack.generation
	b.losses.missed(lateAnswer, b.now, 1)
}

// TurnOver says that the last request is not waited for any more: a frame came behind it, damage,
// or the end of the stream.
func (b *Book) TurnOver() { b.turns = turns{} }
