package forward

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/forward/batch"
	"github.com/tallywheel/tallywheel/ledger"
)

// Where a lane goes on, two witnesses say: B, the last record that the last message of its subject
// names, and M, the last one that the mark has as acknowledged.
//
//	B ≥ M, and the log has B     the mark is a little older: go on behind B
//	B < M                        the broker has lost what it acknowledged: send again from B on
//	B is not in the log          the log has lost what was durable, or is another one: stop
//	the message is not ours      somebody else publishes there: stop
//	no message, no M             the source is new: begin where the mark of the destination is
//	no message, aged out         go on behind M
//	no message, else             it was purged, or the broker was set back: stop
//
// With reset: resend, what would stop goes on: with the oldest record where messages are gone, and
// behind the last message where it is not ours. Since the log may be ahead of the mark by what a
// second brings, B, where there is one, is what counts.

// created is when a stream was made.
func created(i *jetstream.StreamInfo) ledger.Time { return ledger.Time(i.Created.UnixNano()) }

// beginAnew forgets what the destination had acknowledged, and tells why.
func (d *destination) beginAnew(f *fault) {
	d.slog.Warn("everything that the log has is sent again, for reset is resend", "destination", d.cfg.Name, "why",
		f.why)
	d.mark.forget()
	d.fresh = true
	for _, l := range d.all {
		l.acked, l.had = 0, 0
	}
}

// resume implements link.
func (n *natsLink) resume(ctx context.Context, l *lane) error {
	marked := n.d.mark.Sources[l.String()]
	last, err := ask(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return n.stream.GetLastMsgForSubject(ctx, l.subject)
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		l.at = 0
		return n.without(l, marked)
	}
	if err != nil {
		return natsFault(err)
	}
	l.at = last.Sequence
	h, err := batch.ParseHeader(last.Header)
	marked.Last = max(marked.Last, l.acked)
	if err != nil || h.Source != l.source {
		return n.unless(l, marked.Last, stopped(reasonSequence,
			"message %d of subject %s is not of this recorder: somebody else publishes there; end that, and remove the message, or set reset: resend", last.Sequence, l.subject))
	}
	return n.behindMessage(l, h, marked)
}

// behindMessage has a lane go on where the last message of its subject ends.
func (n *natsLink) behindMessage(l *lane, h batch.Header, marked source) error {
	_, err := n.d.in.Resume(archive.Mark{Log: h.Log, Seq: h.Last, Time: h.Time})
	var no *archive.MarkError
	if err != nil && !errors.As(err, &no) {
		return down(reasonLog, "the log cannot be read at record %d: %v", h.Last, err)
	}
	switch {
	case no == nil || no.Reason == archive.Removed:
		l.resumeAt(h.Last, h.Last < marked.Last, n.d.mark.Through)
		return nil
	case no.Reason == archive.OtherLog:
		return n.unless(l, marked.Last, stopped(reasonOtherLog,
			"the last message of subject %s is of another log: end the other recorder, or give this one another subject; or set reset: resend, if that log is no more", l.subject))
	}
	return n.unless(l, min(marked.Last, no.From-1), stopped(reasonAhead,
		"subject %s has frames up to record %d, which this log has not: it was set back; bring the right log back, or set reset: resend, which goes on with what it has now",
		l.subject, h.Last))
}

// unless stops a lane, unless the configuration has it go on behind a record.
func (n *natsLink) unless(l *lane, acked uint64, f *fault) error {
	if n.d.cfg.Reset != "resend" {
		return f.ofLane()
	}
	n.d.slog.Warn("forwarding goes on all the same, for reset is resend", "destination", n.d.cfg.Name, "source",
		l.source, "why", f.why)
	l.resumeAt(acked, true, 0)
	l.from = max(acked, n.d.in.First()-1)
	return nil
}

// without has a lane go on whose subject has no message.
func (n *natsLink) without(l *lane, marked source) error {
	if marked.Last == 0 {
		l.resumeAt(0, false, n.d.begin())
		return nil
	}
	if n.agedOut(marked) {
		l.resumeAt(marked.Last, false, n.d.mark.Through)
		return nil
	}
	f := stopped(reasonPurged,
		"the messages of subject %s were removed, and not by the limits of the stream: set reset: resend, which sends what the log has", l.subject)
	if n.info.State.LastSeq < marked.Seq {
		f = stopped(reasonBehind,
			"stream %s is older than what it had acknowledged, and has nothing of subject %s: bring the right one back, or set reset: resend, which sends what the log has",
			n.info.Config.Name, l.subject)
	}
	return n.unless(l, 0, f)
}

// agedOut reports whether the limits of the stream may have removed a message.
func (n *natsLink) agedOut(marked source) bool {
	has, now := n.info.Config, n.info.State
	switch age := time.Since(time.Unix(0, int64(marked.At))); {
	case now.LastSeq < marked.Seq:
		return false
	case has.MaxAge > 0 && age >= has.MaxAge:
		return true
	}
	return now.Msgs > 0 && now.FirstSeq > marked.Seq && (has.MaxBytes > 0 || has.MaxMsgs > 0)
}
