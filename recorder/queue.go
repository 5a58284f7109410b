package recorder

import (
	"encoding/binary"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/ledger"
)

// backlog holds frames that the log could not take yet, in order: those of front, then those that
// have run over. The zero value is empty; it takes no memory until it is used.
type backlog struct {
	frames int // all of them
	bytes  int // of all frames
	front  queue
	over   *spill // behind front; nil: nothing runs over
}

func (b *backlog) push(at int64, offset uint64, data []byte) {
	b.frames++
	b.bytes += len(data)
	if b.over != nil && b.over.takes(&b.front, len(data)) {
		b.over.push(at, offset, data)
		return
	}
	b.front.push(at, offset, data)
}

// ready reports whether the oldest frame is in memory, and brings it to the front.
func (b *backlog) ready() bool {
	if b.front.frames == 0 && b.over != nil {
		b.over.promote(&b.front)
	}
	return b.front.frames > 0
}

// pop removes the oldest frame, which is ready.
func (b *backlog) pop() {
	n := b.front.pop()
	b.frames--
	b.bytes -= n
	if b.over != nil {
		b.over.left(&b.front)
	}
}

// abandon forgets all frames, and returns how many that are.
func (b *backlog) abandon() (n int) {
	if b.over != nil {
		b.over.abandon()
	}
	n = b.frames
	*b = backlog{over: b.over}
	return n
}

// queue is frames in memory, in order. The zero value is empty.
type queue struct {
	buf    []byte // length u32, time u64, offset u64, bytes; from head on
	head   int
	frames int
	bytes  int // of frames alone
}

const queueHeader = 20

func (q *queue) push(at int64, offset uint64, data []byte) {
	if q.head > len(q.buf)/2 { // move down once the free part in front is the larger one
		q.buf = q.buf[:copy(q.buf, q.buf[q.head:])]
		q.head = 0
	}
	q.buf = binary.LittleEndian.AppendUint32(q.buf, uint32(len(data)))
	q.buf = binary.LittleEndian.AppendUint64(q.buf, uint64(at))
	q.buf = binary.LittleEndian.AppendUint64(q.buf, offset)
	q.buf = append(q.buf, data...)
	q.frames++
	q.bytes += len(data)
}

// first shows the oldest frame; there must be one.
func (q *queue) first() (at int64, offset uint64, data []byte) {
	f := q.buf[q.head:]
	n := binary.LittleEndian.Uint32(f)
	return int64(binary.LittleEndian.Uint64(f[4:])), binary.LittleEndian.Uint64(f[12:]), f[queueHeader:][:n]
}

// pop removes the oldest frame, and returns its bytes.
func (q *queue) pop() (n int) {
	_, _, data := q.first()
	q.head += queueHeader + len(data)
	q.frames--
	q.bytes -= len(data)
	if q.frames == 0 {
		q.buf, q.head = q.buf[:0], 0
	}
	return len(data)
}

// size is the bytes that the frames take with their headers.
func (q *queue) size() int { return len(q.buf) - q.head }

// encoded is the frames with their headers.
func (q *queue) encoded() []byte { return q.buf[q.head:] }

// take moves all frames of another queue behind its own.
func (q *queue) take(from *queue) {
	if q.frames == 0 {
		*q, *from = *from, queue{buf: q.buf[:0]}
		return
	}
	q.buf = append(q.buf, from.encoded()...)
	q.frames, q.bytes = q.frames+from.frames, q.bytes+from.bytes
	*from = queue{buf: from.buf[:0]}
}

// staged follows frames that are in the log's hands until they are stored, and durable.
type staged struct {
	runs   []run // not stored yet; from head on
	head   int
	frames int          // of those
	unsure archive.Span // stored, and not durable
	given  uint64       // first record of a run that was given up; 0: none was
}

// run is frames of one stream that were read together, with records and numbers that follow each
// other. A commit may end between two of them: then what it has stored is cut off.
type run struct {
	begins   uint64 // record of the first frame; each frame has the next one
	n        int
	at       int64
	numbered bool
	stream   ledger.Stream // of a run that is numbered
	number   uint64        // … that of the first frame; each frame has the next one
}

// last is the record of the last frame.
func (r *run) last() uint64 { return r.begins + uint64(r.n) - 1 }

// highest is the number of the last frame.
func (r *run) highest() uint64 { return r.number + uint64(r.n) - 1 }

// goesOn reports whether one frame of another run is the next of this one.
func (r *run) goesOn(next run) bool {
	if r.last()+1 != next.begins || r.at != next.at || r.numbered != next.numbered {
		return false
	}
	return !r.numbered || r.stream == next.stream && r.highest()+1 == next.number
}

// cut takes the first n frames off, which it returns.
func (r *run) cut(n int) (off run) {
	off = *r
	off.n = n
	r.begins, r.n = r.begins+uint64(n), r.n-n
	if r.numbered {
		r.number += uint64(n)
	}
	return off
}

// add notes that the frame f, read at a time, is in the log under seq.
func (s *staged) add(seq uint64, at int64, f *frame.Frame) {
	s.frames++
	next := run{begins: seq, n: 1, at: at, numbered: f.Sequenced}
	if f.Sequenced {
		next.stream, next.number = ledger.Stream{Device: f.Device, Epoch: f.Epoch}, f.Seq
	}
	if n := len(s.runs); n > s.head && s.runs[n-1].goesOn(next) {
		s.runs[n-1].n++
		return
	}
	if s.head > 32 && s.head > len(s.runs)/2 { // so that it stays in the cache
		s.runs = s.runs[:copy(s.runs, s.runs[s.head:])]
		s.head = 0
	}
	s.runs = append(s.runs, next)
}

// settle calls stored for the runs that have become so, or the part of one, and durable for the
// frames. What is durable ends where a commit did: what one call has stored and not made durable
// becomes so at once, with all that was stored before.
func (s *staged) settle(stored, durable uint64, onStored func(run), onDurable func(n int)) {
	if s.unsure.N > 0 && s.unsure.Last <= durable {
		onDurable(int(s.unsure.N))
		s.unsure = archive.Span{}
	}
	for s.head < len(s.runs) && s.runs[s.head].begins <= stored {
		r := &s.runs[s.head]
		part := r.cut(int(min(uint64(r.n), stored-r.begins+1)))
		if r.n == 0 {
			s.head++
		}
		s.frames -= part.n
		onStored(part)
		if part.begins <= durable {
			n := int(min(uint64(part.n), durable-part.begins+1))
			part.cut(n)
			onDurable(n)
		}
		s.unsure = s.unsure.Join(part.span())
	}
	if s.head == len(s.runs) {
		s.runs, s.head = s.runs[:0], 0
	}
}

// span is the records of a run.
func (r *run) span() archive.Span {
	if r.n == 0 {
		return archive.Span{}
	}
	return archive.Span{First: r.begins, Last: r.last(), N: uint64(r.n)}
}

// reaches is up to which record of the log, at most upTo, all frames have been called stored.
func (s *staged) reaches(upTo uint64) uint64 {
	if s.given > 0 {
		upTo = min(upTo, s.given-1)
	}
	if s.head < len(s.runs) {
		upTo = min(upTo, s.runs[s.head].begins-1)
	}
	return upTo
}

// unsynced is the frames that have been called stored, and not durable.
func (s *staged) unsynced() archive.Span { return s.unsure }

// held is the frames that are not durable yet, and the record of the last of them.
func (s *staged) held() (u archive.Span) {
	u = s.unsure
	for _, r := range s.runs[s.head:] {
		u = u.Join(r.span())
	}
	return u
}

// inherit takes over what is stored and not durable yet from one that follows nothing that is not
// stored.
func (s *staged) inherit(from *staged) {
	s.unsure = s.unsure.Join(from.unsure)
	*from = staged{}
}

// abandon forgets what is not stored, which it returns, and how many frames that are.
func (s *staged) abandon() (lost []run, n int) {
	lost, n = s.runs[s.head:], s.frames
	if len(lost) > 0 && s.given == 0 {
		s.given = lost[0].begins
	}
	s.runs, s.head, s.frames = nil, 0, 0
	return lost, n
}
