// Package ledger keeps the balance sheet of a port: what came off the wire, and what became of it.
//
// # The equations
//
// At every moment, for every port:
//
//	bytes   read   = framed + resync + partial
//	frames  ok     = unique + duplicate
//	        ok     = stored + dropped (by cause) + in flight
//	        unique + missing = span of the sequence, summed over devices and their epochs
//	        missing = seen corrupt + never seen
//
// read, framed and resync are counted as bytes pass. partial (bytes held that are not classified yet) and in flight
// (frames held that are not stored yet) are not derived from the equations: whoever holds them counts what it
// really holds and says so when it asks for a [Sheet]. So a sheet that balances has been checked, not made to fit.
//
// # Sequences
//
// A framing that numbers its frames lets the book tell a lost frame from one never sent. Numbers are followed per
// device and epoch (a device begins a new epoch, at number 0, when its counter starts anew):
//
//   - a number above the next one expected opens a gap: those frames are missing;
//   - a number that lies in a gap fills it: the frame is unique, and reordered;
//   - any other number has been there before: the frame is a duplicate.
//
// A missing frame counts as seen corrupt when damaged bytes arrived where it should have been, else as never seen.
//
// # Bounds
//
// A book follows [MaxStreams] devices and epochs and [MaxGaps] open gaps in each. When there are more, the oldest
// is settled: its counts stay, but a frame that comes later still is taken for a duplicate (gap) or a
// new sequence (stream). A jump of more than [MaxJump] frames is a new sequence, counted in Restarts.
//
// A [Book] is not safe for concurrent use; its owner locks.
package ledger

import "slices"

// Bounds, see the package comment.
const (
	MaxStreams = 1024
	MaxGaps    = 4096
	MaxJump    = 1 << 32

	maxOutages  = 256 // entries kept; the oldest go first, OutageCount goes on
	creditLasts = 64  // good frames for which damage waits for the gap that explains it
)

// Stream names one sequence: a device and its epoch.
type Stream struct{ Device, Epoch uint32 }

// Position is the last number of a stream, to resume a book from.
type Position struct {
	Device uint32 `json:"device"`
	Epoch  uint32 `json:"epoch"`
	Last   uint64 `json:"last"`
}

// Book is the account of one port. Make it with [NewBook].
type Book struct {
	frameSize int // bytes of every frame, 0 if they vary

	bytes   Bytes
	frames  Frames
	plain   uint64 // unique frames of framings without numbers
	settled uint64 // span of streams no longer followed

	streams map[Stream]*sequence
	order   []Stream // as opened, the oldest first
	known   map[uint32]bool
	recent  *sequence // the stream of the last frame
	recentK Stream

	// Damage since the last good frame, and what of earlier damage no gap has explained yet.
	runBytes, runDamaged uint64
	credit, creditLeft   uint64

	outages     []Outage
	outageCount uint64
	outageOpen  bool
}

// NewBook opens an empty book. frameSize is the length in bytes of every frame of the framing, 0 if they vary.
func NewBook(frameSize int) *Book {
	return &Book{frameSize: frameSize, streams: map[Stream]*sequence{}, known: map[uint32]bool{}}
}

// Read posts n bytes taken off the wire.
func (b *Book) Read(n int) { b.bytes.Read += uint64(n) }

// Skip posts n bytes that are in no valid frame.
func (b *Book) Skip(n int) {
	b.bytes.Resync += uint64(n)
	b.runBytes += uint64(n)
}

// Quarantine posts that the log took n of the bytes that Skip posted.
func (b *Book) Quarantine(n int) { b.bytes.Quarantined += uint64(n) }

// Damaged posts one frame that was seen and failed its check. Its bytes are posted by Skip.
func (b *Book) Damaged() {
	b.frames.Corrupt++
	b.runDamaged++
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
	if seq == q.next { // the common case
		q.next++
		b.frames.Unique++
		if b.runBytes|b.credit != 0 {
			b.endRun(0)
		}
		return
	}
	b.outOfLine(q, id, seq)
}

func (b *Book) ok(n int) {
	b.bytes.Framed += uint64(n)
	b.frames.OK++
}

func (b *Book) outOfLine(q *sequence, id Stream, seq uint64) {
	f := &b.frames
	switch {
	case seq > q.next && seq-q.next > MaxJump:
		b.settle(id)
		f.Restarts++
		b.recent = b.open(id, seq)
		b.recent.next++
		f.Unique++
		b.endRun(0)
	case seq > q.next:
		lost := seq - q.next
		b.miss(q, q.next, seq-1, b.endRun(lost))
		q.next = seq + 1
		f.Unique++
	case seq < q.first && (q.resumed || q.first-seq > MaxJump):
		f.Duplicate++ // an earlier start has counted it; or no sane device counts like this, and its number means nothing
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
		if found, corrupt := q.fill(seq); found {
			f.Missing--
			if corrupt {
				f.MissingCorrupt--
			} else {
				f.MissingUnseen--
			}
			f.Unique++
			f.Reordered++
		} else {
			f.Duplicate++
		}
		b.endRun(0)
	}
}

// miss posts the gap from–to of which corrupt were seen damaged.
func (b *Book) miss(q *sequence, from, to, corrupt uint64) {
	n := to - from + 1
	b.frames.Missing += n
	b.frames.MissingCorrupt += corrupt
	b.frames.MissingUnseen += n - corrupt
	q.insert(gap{from, to, corrupt})
}

// endRun closes the damage before a good frame and returns how many of the lost frames that damage explains.
//
// Damage explains as many frames as failed their check, or as its bytes would fill, and at least one. Damage that
// meets no gap at once may belong to one that shows a little later (a duplicate came between): it waits as credit.
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
		return q
	}
	first := seq
	if b.known[id.Device] {
		b.frames.Restarts++
		if seq <= MaxJump {
			first = 0 // a device that was there before began this epoch under our eyes
		}
	}
	return b.open(id, first)
}

func (b *Book) open(id Stream, first uint64) *sequence {
	if len(b.order) >= MaxStreams {
		b.settle(b.order[0])
	}
	if len(b.known) >= MaxStreams {
		clear(b.known)
	}
	q := &sequence{first: first, next: first}
	b.streams[id], b.known[id.Device] = q, true
	b.order = append(b.order, id)
	return q
}

// settle stops following a stream; its counts stay.
func (b *Book) settle(id Stream) {
	if q := b.streams[id]; q != nil {
		b.settled += q.next - q.first
		delete(b.streams, id)
		b.order = slices.DeleteFunc(b.order, func(s Stream) bool { return s == id })
	}
	b.recent = nil
}

// Resume makes the book expect the number after p.Last, as if this run had seen that frame: what was lost while
// nobody recorded shows as missing.
func (b *Book) Resume(p Position) {
	id := Stream{p.Device, p.Epoch}
	if q := b.streams[id]; q == nil {
		b.open(id, p.Last+1).resumed = true
	} else if p.Last >= q.next && q.next == q.first {
		q.first, q.next = p.Last+1, p.Last+1
	}
}

// Positions lists the last number of each stream followed, for a later Resume.
func (b *Book) Positions() []Position {
	var ps []Position
	for _, id := range b.order {
		if q := b.streams[id]; q.next > 0 {
			ps = append(ps, Position{id.Device, id.Epoch, q.next - 1})
		}
	}
	return ps
}

// Stored posts n frames accepted by the log and visible to its readers.
func (b *Book) Stored(n uint64) { b.frames.Stored += n }

// Durable posts n stored frames that a power cut cannot take any more.
func (b *Book) Durable(n uint64) { b.frames.Durable += n }

// Drop posts n valid frames given up, by cause.
func (b *Book) Drop(cause string, n uint64) {
	if b.frames.Dropped == nil {
		b.frames.Dropped = map[string]uint64{}
	}
	b.frames.Dropped[cause] += n
}

// Frames returns the counts of frames so far; InFlight is not set.
func (b *Book) Frames() Frames { return b.frames }

// BytesRead returns the bytes read so far.
func (b *Book) BytesRead() uint64 { return b.bytes.Read }

// OutageBegins opens an outage at a time in ns since 1970; one that is open already goes on under its first cause.
func (b *Book) OutageBegins(at int64, cause string) {
	if b.outageOpen {
		return
	}
	b.outageOpen = true
	b.outageCount++
	if len(b.outages) == maxOutages {
		b.outages = slices.Delete(b.outages, 0, 1)
	}
	b.outages = append(b.outages, Outage{From: Time(at), Cause: cause})
}

// OutageEnds closes the open outage, if there is one.
func (b *Book) OutageEnds(at int64) {
	if b.outageOpen {
		b.outageOpen = false
		b.outages[len(b.outages)-1].To = Time(at)
	}
}
