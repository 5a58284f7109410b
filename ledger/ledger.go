// Package ledger keeps the balance sheet of a port: what came off the wire, and what became of it.
//
// # The equations
//
// At every moment, for every port:
//
//	bytes   read   = framed + resync + partial
//	frames  ok     = unique + duplicate
//	        ok     = stored + dropped (by cause) + in flight
//	        unique + missing = span of the sequence, summed over devices and their epochs, + late
//	        missing = seen corrupt + never seen
//
// read, framed and resync are counted as bytes pass. partial (bytes held that are not classified
// yet) and in flight (frames held that are not stored yet) are not derived from the equations:
// whoever holds them counts what it really holds and says so when it asks for a [Sheet]. So a sheet
// that balances has been checked, not made to fit.
//
// # Sequences
//
// A framing that numbers its frames lets the book tell a lost frame from one never sent. Numbers
// are followed per device and epoch (a device begins a new epoch, at number 0, when its counter
// starts anew):
//
//   - a number above the next one expected opens a gap: those frames are missing;
//   - a number that lies in a gap fills it: the frame is unique, and reordered;
//   - any other number has been there before: the frame is a duplicate.
//
// A book that goes on where an earlier one was, by [Book.Resume], is told of the gaps that were
// open then. A number in one of them is late: the frame is unique, and reordered, and the
// earlier book has one missing that has come. What earlier books have counted is in no span of
// this one. All other lower numbers are duplicates. But [RestartRun] of those that rise, with no
// higher number of the stream between them, are a device whose counter began anew without a new
// epoch while nobody recorded: they are unique, and late ones between them are not late, what
// they leave out is missing, and Restarts counts one. If the device then goes on, with a jump,
// exactly where it was before, it had sent old frames again: they are duplicates, or late, after
// all, and the restart is taken back.
//
// A missing frame counts as seen corrupt when damaged bytes arrived where it should have been, else
// as never seen.
//
// Numbers count on across 2^64: which of two comes later is decided by the shorter way from one to
// the other.
//
// # Bounds
//
// A book follows the [MaxStreams] devices and epochs that sent last, and [MaxGaps] open gaps in
// each. It remembers the last number of [MaxPositions] in all, so that one that sends again goes
// on where it was, and the last [MaxRestingGaps] of its gaps: a frame that fills an older one is
// taken for a duplicate. A later book is told of so many, and of the [MaxWideGaps] widest of the
// others, and of [MaxCarriedGaps] in all, those of the streams that sent last; where it goes on
// behind a number that is not the last one, of up to [MaxGapsAhead] behind that, as many as a book
// follows of a stream: of one that it is not told of both books count what is missing.
// What it has to forget it counts in Forgotten, by the stream: from then on losses of that stream
// may go unseen, and late frames of it are called duplicates.
// A jump of more than [MaxJump] frames, up or down, is a new sequence, counted in Restarts.
//
// A [Book] is not safe for concurrent use; its owner locks.
package ledger

import (
	"slices"
)

// Bounds, see the package comment.
const (
	MaxStreams     = 1024
	MaxPositions   = 16 << 10
	MaxGaps        = 4096
	MaxRestingGaps = 16
	MaxWideGaps    = 16
	MaxCarriedGaps = 1024
	MaxGapsAhead   = MaxGaps
	MaxJump        = 1 << 32
	RestartRun     = 4

	maxOutages  = 256 // entries kept; the oldest go first, OutageCount goes on
	creditLasts = 64  // good frames for which damage waits for the gap that explains it
)

// Stream names one sequence: a device and its epoch.
type Stream struct{ Device, Epoch uint32 }

// Book is the account of one port. Make it with [NewBook].
type Book struct {
	frameSize int // bytes of every frame, 0 if they vary

	now    int64   // the time that the owner gave last, ns since 1970
	losses moments // … when something was lost or damaged

	bytes   Bytes
	frames  Frames
	plain   uint64 // unique frames of framings without numbers
	settled uint64 // span of streams no longer followed
	told    uint64 // numbers within the spans that earlier books have counted

	streams map[Stream]*sequence
	active  lineup // those that sent last, with their gaps
	resting lineup // those that have not sent for long: their last numbers
	known   map[uint32]bool

	distrusts bool // see Distrust

	recent  *sequence // the stream of the last frame
	recentK Stream

	// Damage since the last good frame, and what of earlier damage no gap has explained yet.
	runBytes, runDamaged uint64
	credit, creditLeft   uint64

	rhythm    rhythm
	lastFrame int64 // when one came, ns since 1970
	silences  uint64
	turns     turns

	unread  map[string]uint64 // bytes that nobody read, by cause
	refused map[string]uint64 // connections that were not taken, by cause

	outages     []Outage
	outageCount uint64
	outageOpen  bool

	ack ackState // see BeginAck
}

// NewBook opens an empty book. frameSize is the length in bytes of every frame of the framing, 0 if
// they vary.
func NewBook(frameSize int) *Book {
	return &Book{frameSize: frameSize, streams: map[Stream]*sequence{}, known: map[uint32]bool{}}
}

// FrameSize changes the length in bytes of frames from now on, 0 if they vary.
func (b *Book) FrameSize(n int) { b.frameSize = n }

// At says what time it is, in ns since 1970: what is posted from now on is of that time.
func (b *Book) At(now int64) { b.now = now }

// Read posts n bytes taken off the wire.
func (b *Book) Read(n int) {
	if g := b.ack.given; g != nil && b.bytes.Read >= g.Read {
		b.knowGiven()
	}
	b.bytes.Read += uint64(n)
}

// Return takes back the last n bytes that Read posted and nobody has classified: another book goes
// on with them.
func (b *Book) Return(n int) { b.bytes.Read -= uint64(n) }

// Skip posts n bytes that are in no valid frame.
func (b *Book) Skip(n int) {
	b.bytes.Resync += uint64(n)
	b.runBytes += uint64(n)
	if b.frames.OK == 0 {
		b.losses.lost(b.now)
	}
}

// Quarantine posts that the log has stored n of the bytes that Skip posted.
func (b *Book) Quarantine(n int) { b.bytes.Quarantined += uint64(n) }

// Damaged posts one frame that was seen and failed its check. Its bytes are posted by Skip.
func (b *Book) Damaged() {
	b.frames.Corrupt++
	b.runDamaged++
	b.losses.lost(b.now)
	b.TurnOver()
}

// Plain posts a valid frame of n bytes of a framing without numbers.
func (b *Book) Plain(n int) {
	b.ok(n)
	b.plain++
	b.frames.Unique++
	b.runBytes, b.runDamaged = 0, 0
}

// Numbered posts a valid frame of n bytes with its number.
func (b *Book) Numbered(n int, id Stream, seq uint64) {
	b.ok(n)
	q := b.recent
	if q == nil || b.recentK != id {
		q = b.stream(id, seq)
		b.recent, b.recentK = q, id
	}
	seq -= q.origin
	if seq == q.next && !q.ahead { // the common case
		q.next++
		b.frames.Unique++
		if b.runBytes|b.credit != 0 {
			b.endRun(0)
		}
		return
	}
	b.outOfLine(q, id, seq)
}

// Later is the one of two numbers that a device gives later.
func Later(a, b uint64) uint64 {
	if int64(a-b) > 0 {
		return a
	}
	return b
}

func (b *Book) ok(n int) {
	b.bytes.Framed += uint64(n)
	b.frames.OK++
}

// outOfLine posts a frame that is not the next one. seq is in the count of q.
func (b *Book) outOfLine(q *sequence, id Stream, seq uint64) {
	f := &b.frames
	switch {
	case seq > q.next && seq-q.next > MaxJump, seq < q.first && q.first-seq > MaxJump:
		b.restart(q, id, []uint64{seq})
		b.endRun(0)
	case seq > q.next && q.isBack(seq):
		b.goBack(q, id)
	case seq >= q.next:
		b.advance(q, seq)
	case seq < q.first && q.resumed:
		b.lower(q, id, seq)
		b.endRun(0)
	case seq < q.first: // older than the first one seen: the span begins earlier than we knew
		if seq+1 < q.first {
			b.miss(q, seq+1, q.first-1, 0)
		}
		q.first = seq
		f.Unique++
		f.Reordered++
		b.endRun(0)
	default:
		if found, g := q.fill(seq); found {
			f.Missing--
			b.losses.came(g.moment, 1)
			if g.corrupt > 0 {
				f.MissingCorrupt--
				b.takeBack(g.generation, 1, missingCorrupt)
			} else {
				f.MissingUnseen--
				b.takeBack(g.generation, 1, missingUnseen)
			}
			f.Unique++
			f.Reordered++
			b.forgets(q, MaxGaps)
		} else if _, late := b.lateFor(q, seq); !late {
			f.Duplicate++
		}
		b.endRun(0)
	}
}

// restart begins q anew with the frames of a run, whose numbers rise and are in the count of q: its
// device counts from the beginning again. If it turns out to have sent old frames again, it goes
// back to where q was.
func (b *Book) restart(q *sequence, id Stream, run []uint64) {
	from, was := q.origin, earlier{
		next: q.next + q.origin, resumed: q.resumed, begin: q.begin,
		generation: b.ack.generation, carried: q.carried,
	}
	b.settle(q)
	b.frames.Restarts++
	q = b.open(id, run[0]+from)
	if len(run) > 1 {
		q.before = &was
	}
	b.recent, b.recentK = q, id
	for _, number := range run {
		seq := number + from - q.origin
		if seq > q.next {
			b.miss(q, q.next, seq-1, 0)
		}
		q.next = seq + 1
		b.frames.Unique++
	}
}

// goBack posts the frame with which a device goes on where it was before it seemed to count anew:
// what came since then was there before.
func (b *Book) goBack(q *sequence, id Stream) {
	f, before := &b.frames, q.before
	var missing, corrupt uint64
	for _, g := range q.gaps {
		missing, corrupt = missing+g.size(), corrupt+g.corrupt
		b.losses.came(g.moment, g.size())
		b.takeBack(g.generation, g.corrupt, missingCorrupt)
		b.takeBack(g.generation, g.size()-g.corrupt, missingUnseen)
	}
	span := q.next - q.first
	f.Missing, f.MissingCorrupt, f.MissingUnseen = f.Missing-missing, f.MissingCorrupt-corrupt,
		f.MissingUnseen-(missing-corrupt)
	f.Unique, f.Duplicate = f.Unique-(span-missing), f.Duplicate+(span-missing)
	f.Restarts--
	b.takeBack(before.generation, 1, restarts)
	carried := b.lateAfterAll(q, before.carried)
	q.next = q.first
	b.settle(q)
	q = b.open(id, before.next)
	q.resumed, q.begin = before.resumed, before.begin
	q.carry(carried)
	b.recent, b.recentK = q, id
	b.advance(q, q.next)
}

// miss posts the gap from–to of which corrupt were seen damaged.
func (b *Book) miss(q *sequence, from, to, corrupt uint64) {
	n := to - from + 1
	b.frames.Missing += n
	b.frames.MissingCorrupt += corrupt
	b.frames.MissingUnseen += n - corrupt
	q.insert(gap{from, to, corrupt, b.ack.generation, b.losses.missed(lateNumber, b.now, n)})
	b.forgets(q, MaxGaps)
}

// endRun closes the damage before a good frame and returns how many of the lost frames that damage
// explains.
//
// Damage explains as many frames as failed their check, or as its bytes would fill, and at least
// one. Damage that meets no gap at once may belong to one that shows a little later (a duplicate
// came between): it waits as credit.
func (b *Book) endRun(lost uint64) uint64 {
	seen := b.runDamaged
	if size := uint64(b.frameSize); size > 0 {
		seen = max(seen, (b.runBytes+size/2)/size)
	}
	counted := b.runDamaged
	if lost > 0 && b.runBytes > 0 {
		seen = max(seen, 1)
	}
	b.runBytes, b.runDamaged = 0, 0
	if lost == 0 {
		if counted > 0 {
			b.credit, b.creditLeft = b.credit+counted, creditLasts
		} else if b.creditLeft > 0 {
			b.creditLeft--
		} else {
			b.credit = 0
		}
		return 0
	}
	used := min(lost, seen+b.credit)
	if fromRun := min(used, seen); fromRun > counted {
		b.frames.Corrupt += fromRun - counted
	}
	b.credit -= min(b.credit, used-min(used, seen))
	return used
}

// stream returns the sequence of id, opening it at seq when it is new.
func (b *Book) stream(id Stream, seq uint64) *sequence {
	if q := b.streams[id]; q != nil {
		b.touch(q)
		return q
	}
	first := seq
	if b.distrusts && seq > 0 && !b.known[id.Device] {
		b.frames.Joined++
	}
	if b.known[id.Device] {
		b.frames.Restarts++
		if seq <= MaxJump {
			first = 0 // a device that was there before began this epoch under our eyes
		}
	}
	return b.open(id, first)
}

// Distrust says that frames were lost before the book was begun, and nobody knows of which devices:
// the process was killed that had taken them. A device that is known shows it by its numbers. One
// that is heard for the first time, and not with its first number, may have lost those before: they
// are no missing ones, for it may have sent them to nobody, and Joined counts it.
func (b *Book) Distrust() { b.distrusts = true }

func (b *Book) open(id Stream, first uint64) *sequence {
	if len(b.known) >= MaxPositions {
		clear(b.known)
	}
	q := newSequence(id, first)
	b.streams[id], b.known[id.Device] = q, true
	b.touch(q)
	return q
}

// touch makes q the stream that sent last, and lets others rest, or forgets them, as the bounds
// have it.
func (b *Book) touch(q *sequence) {
	if q.in != nil {
		q.in.remove(q)
	}
	b.active.add(q)
	if b.active.n > MaxStreams {
		old := b.active.oldest
		b.forgets(old, MaxRestingGaps)
		old.rest()
		b.active.remove(old)
		b.resting.add(old)
	}
	if b.resting.n > MaxPositions-MaxStreams {
		b.frames.Forgotten++
		b.settle(b.resting.oldest)
	}
}

// forgets drops the oldest gaps of a stream beyond most.
func (b *Book) forgets(q *sequence, most int) {
	if len(q.gaps) <= most {
		return
	}
	q.gaps = slices.Delete(q.gaps, 0, len(q.gaps)-most)
	b.forget(q)
}

// forget counts that some of a stream was forgotten.
func (b *Book) forget(q *sequence) {
	if !q.forgot {
		q.forgot = true
		b.frames.Forgotten++
	}
}

// settle stops following a stream; its counts stay.
func (b *Book) settle(q *sequence) {
	b.settled += q.next - q.first
	q.in.remove(q)
	delete(b.streams, q.id)
	b.recent = nil
}

// Absorb adds the counts of a book that is closed: nothing is held for it any more. Its sequences
// are followed no longer.
func (b *Book) Absorb(from *Book) {
	b.bytes.add(&from.bytes)
	b.frames.add(&from.frames)
	b.silences += from.silences
	for cause, n := range from.unread {
		count(&b.unread, cause, n)
	}
	b.losses.lost(from.losses.last()) // what comes late of it is in no gap of this book
	b.plain += from.plain
	b.settled += from.span()
	b.outageCount += from.outageCount
	b.absorbAck(from)
}

// Follows returns between which numbers the book has followed a stream since it began it: the last
// one before, and the last one of all. They are the same where none has come.
func (b *Book) Follows(id Stream) (before, last uint64, ok bool) {
	q := b.recent
	if q == nil || b.recentK != id {
		if q = b.streams[id]; q == nil {
			return 0, 0, false
		}
	}
	return q.first + q.origin - 1, q.next + q.origin - 1, true
}

// Positions lists the last number of each stream that is remembered, with its gaps, for a later
// Resume: the one that sent last comes last.
func (b *Book) Positions() []Position {
	ps, behind, ahead := make([]Position, 0, len(b.streams)), MaxCarriedGaps, 2*MaxGapsAhead
	for _, l := range []*lineup{&b.active, &b.resting} {
		for q := l.newest; q != nil; q = q.older {
			p := Position{Device: q.id.Device, Epoch: q.id.Epoch, Last: q.next + q.origin - 1}
			left := &behind
			if q.ahead {
				left = &ahead
			}
			if *left > 0 {
				p.Gaps = b.gapsFrom(q, p.Last)
				p.Gaps = p.Gaps[max(0, len(p.Gaps)-*left):]
				*left -= len(p.Gaps)
			}
			if !q.resumed && q.first < q.next {
				first := q.first + q.origin
				p.First = &first
			} else if q.resumed {
				p.Begin = q.begin
			}
			ps = append(ps, p)
		}
	}
	slices.Reverse(ps)
	return ps
}

// Handed is Positions with no gaps but those that earlier books have handed on, for a book that
// goes on while this one stays open: the others are this one's to count.
func (b *Book) Handed() []Position {
	ps := b.Positions()
	for i, p := range ps {
		q := b.streams[Stream{p.Device, p.Epoch}]
		ps[i].Gaps = slices.DeleteFunc(p.Gaps, func(g Gap) bool { return !slices.Contains(q.carried, g) })
	}
	return ps
}

// Stored posts n frames accepted by the log and visible to its readers.
func (b *Book) Stored(n uint64) { b.frames.Stored += n }

// Durable posts n stored frames that a power cut cannot take any more.
func (b *Book) Durable(n uint64) { b.frames.Durable += n }

// Unstore takes back frames that Stored and Durable have posted, and bytes that Quarantine has: the
// log does not have them any more. Whoever calls it says by Drop what became of the frames.
func (b *Book) Unstore(frames, waste uint64) {
	f, y := &b.frames, &b.bytes
	f.Stored -= min(frames, f.Stored)
	f.Durable = min(f.Durable, f.Stored)
	y.Quarantined -= min(waste, y.Quarantined)
}

// Drop posts n valid frames given up, by cause.
func (b *Book) Drop(cause string, n uint64) {
	count(&b.frames.Dropped, cause, n)
	b.losses.lost(b.now)
}

// UnreadUncertain is the cause of up to so many bytes that a reader may have taken when it was
// killed, or not: nothing says that any is lost.
const UnreadUncertain = "reader_killed"

// Unread posts n bytes that the kernel had taken from the sender and that were thrown away before
// they were read, by cause. They are in no equation: nobody knows what they were.
func (b *Book) Unread(cause string, n uint64) {
	if n > 0 {
		count(&b.unread, cause, n)
	}
	if n > 0 && cause != UnreadUncertain {
		b.losses.lost(b.now)
	}
}

// Reread takes back what Unread has posted: it waits still, and is read, or posted again.
func (b *Book) Reread(cause string, n uint64) {
	if count(&b.unread, cause, -min(n, b.unread[cause])); b.unread[cause] == 0 {
		delete(b.unread, cause)
	}
}

// Overrun says that what the driver or the kernel has lost has grown; they keep the count.
func (b *Book) Overrun() { b.losses.lost(b.now) }

// Refuse posts n connections that were not taken, by cause. Their bytes are posted by Unread.
func (b *Book) Refuse(cause string, n uint64) { count(&b.refused, cause, n) }

func count(by *map[string]uint64, cause string, n uint64) {
	if *by == nil {
		*by = map[string]uint64{}
	}
	(*by)[cause] += n
}

// Frames returns the counts of frames so far; InFlight is not set.
func (b *Book) Frames() Frames { return b.frames }

// LastLoss returns when something was lost or damaged last that has not come since, in ns since
// 1970; 0: nothing was.
func (b *Book) LastLoss() int64 { return b.losses.last() }

// SetBack says that the clock was set back to a time, in ns since 1970. What was lost before has no
// later one: else it would stay the last loss, whatever is lost from now on.
func (b *Book) SetBack(to int64) { b.losses.setBack(to) }

// Reordered returns how many frames came after higher numbers of their streams, and were not there
// before: the last one posted did if there is one more.
func (b *Book) Reordered() uint64 { return b.frames.Reordered }

// Forget says that the owner of the book had to forget some of a stream.
func (b *Book) Forget(id Stream) {
	if q := b.streams[id]; q != nil {
		b.forget(q)
	}
}

// Valid returns the valid frames posted so far.
func (b *Book) Valid() uint64 { return b.frames.OK }

// BytesRead returns the bytes read so far.
func (b *Book) BytesRead() uint64 { return b.bytes.Read }
