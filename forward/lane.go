package forward

import (
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/forward/batch"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// laneKey is what a lane carries: the frames of a source, or its bytes that were no frame.
type laneKey struct {
	source     string
	quarantine bool
}

// String is the key in a mark: no name of a source has a space.
func (k laneKey) String() string {
	if k.quarantine {
		return k.source + " " + quarantineToken
	}
	return k.source
}

// lane is the way of one source to one destination. It belongs to the goroutine of its walker.
type lane struct {
	laneKey
	subject string
	from    uint64 // records up to it are not to be sent
	acked   uint64 // last record that the destination has
	at      uint64 // sequence of the message that has it, at the destination; 0: none
	had     uint64 // last record that the destination had once acknowledged
	fault   *fault // nil: it goes on
	told    string // the fault that was logged last

	tail    uint64   // last record that was put into a message
	gone    uint64   // records removed from the log since, at most
	filling *message // nil: nothing
	flying  *message // the one on its way; nil: none
	lost    *message // it was on its way when the link broke, and may have arrived
	parted  bool     // it is in walker.parts
	listed  bool     // … in walker.flying
	book    ledger.ForwardSource
}

// message is some records of a lane.
type message struct {
	batch.Header
	body  []byte
	bare  bool
	since int64     // when its first record was read, ns since 1970
	again int       // of its records, which the destination had once acknowledged
	sent  time.Time // zero: it is not on its way
	done  chan result
}

// result is what became of a message.
type result struct {
	seq uint64 // of the message, at the destination
	err error
}

// resumeAt has a lane go on behind a record that the destination has. behind says that it had
// acknowledged more; through is up to where everything was acknowledged.
func (l *lane) resumeAt(acked uint64, behind bool, through uint64) {
	if l.lost != nil && l.lost.Last == acked {
		l.count(l.lost)
	}
	l.lost = nil
	l.acked, l.tail, l.from = acked, acked, acked
	if !behind {
		l.from = max(acked, through)
	}
}

// room reports whether the filling message takes a record of that size, within the bounds.
func (l *lane) room(of *archive.Stream, size, frames, bytes int) bool {
	m := l.filling
	return m == nil || m.Frame == of.Frame && m.Count < frames && len(m.body)+batch.Overhead+size <= bytes
}

// put adds a record to the filling message, which is made if there is none, with the room of body.
func (l *lane) put(log [16]byte, of *archive.Stream, rec seglog.Record, data []byte, bare bool, body []byte) {
	m := l.filling
	if m == nil {
		m = &message{
			Header: batch.Header{
				Log: log, Source: l.source, Frame: of.Frame, First: rec.Seq, Prev: l.tail, Gone: l.gone,
				Quarantine: l.quarantine,
			},
			bare: bare, body: body[:0], since: rec.Time, done: make(chan result, 1),
		}
		l.filling, l.gone = m, 0
	}
	m.Count++
	m.Last, m.Time = rec.Seq, rec.Time
	if rec.Seq <= l.had {
		m.again++
	}
	if bare {
		m.body = append(m.body, data...)
	} else {
		m.body = batch.Append(m.body, batch.Record{Seq: rec.Seq, Time: rec.Time, Data: data})
	}
	l.tail = rec.Seq
}

// oldest is the first record of the lane that is read and not acknowledged, and when it was read;
// 0: there is none.
func (l *lane) oldest() (seq uint64, at int64) {
	for _, m := range []*message{l.flying, l.filling} {
		if m != nil {
			return m.First, m.since
		}
	}
	return 0, 0
}

// acknowledged notes that the message on its way has arrived.
func (l *lane) acknowledged(seq uint64) *message {
	m := l.flying
	l.flying, l.acked, l.at = nil, m.Last, seq
	l.count(m)
	return m
}

// count takes a message that has arrived into the book.
func (l *lane) count(m *message) {
	b := &l.book
	b.Acknowledged += uint64(m.Count)
	b.Bytes += uint64(len(m.body))
	if !m.bare {
		b.Bytes -= uint64(m.Count * batch.Overhead)
	}
	b.Resent += uint64(m.again)
	b.Last = m.Last
}

// stop has the lane send nothing more for now.
func (l *lane) stop(f *fault) {
	l.fault, l.filling, l.flying, l.tail, l.from = f, nil, nil, l.acked, l.acked
}

// account is that of the lane now.
func (l *lane) account() ledger.ForwardSource {
	b := l.book
	b.State, b.Forwarded = ledger.ForwardOn, b.Acknowledged
	if l.flying != nil {
		b.Forwarded += uint64(l.flying.Count)
	}
	if l.fault != nil {
		b.State, b.Reason, b.Why = ledger.ForwardStopped, l.fault.reason, l.fault.why
	}
	for _, m := range []*message{l.flying, l.filling} {
		if m != nil {
			b.Pending += uint64(m.Count)
		}
	}
	return b
}
