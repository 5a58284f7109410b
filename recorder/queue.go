package recorder

import (
	"cmp"
	"encoding/binary"
	"slices"

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
	runs   []run // not durable yet; from head on
	head   int
	unseen int    // index of the first run that is not stored yet
	frames int    // not stored yet
	given  uint64 // first record of a run that was given up; 0: none was
}

// run is frames that were read together; first and last are the log's sequences of them. A commit
// may end between the two: the run counts as stored when its last frame is.
type run struct {
	first  uint64
	last   uint64
	at     int64
	n      int
	stream ledger.Stream // whose frames they are, and the highest number of them
	number uint64
}

// add notes that the frame f, read at a time, is in the log under seq.
func (s *staged) add(seq uint64, at int64, f *frame.Frame) {
	s.frames++
	stream := ledger.Stream{Device: f.Device, Epoch: f.Epoch}
	if n := len(s.runs); n > s.unseen && s.runs[n-1].at == at && s.runs[n-1].stream == stream {
		r := &s.runs[n-1]
		r.last, r.number = seq, ledger.Later(f.Seq, r.number)
		r.n++
		return
	}
	if s.head > 32 && s.head > len(s.runs)/2 { // so that it stays in the cache
		s.runs = s.runs[:copy(s.runs, s.runs[s.head:])]
		s.unseen -= s.head
		s.head = 0
	}
	s.runs = append(s.runs, run{seq, seq, at, 1, stream, f.Seq})
}

// settle calls stored and durable for the runs that have become so.
func (s *staged) settle(stored, durable uint64, onStored func(run), onDurable func(n int)) {
	for ; s.unseen < len(s.runs) && s.runs[s.unseen].last <= stored; s.unseen++ {
		s.frames -= s.runs[s.unseen].n
		onStored(s.runs[s.unseen])
	}
	for ; s.head < s.unseen && s.runs[s.head].last <= durable; s.head++ {
		onDurable(s.runs[s.head].n)
	}
	if s.head == len(s.runs) {
		s.runs, s.head, s.unseen = s.runs[:0], 0, 0
	}
}

// reaches is up to which record of the log, at most upTo, all frames have been called stored.
func (s *staged) reaches(upTo uint64) uint64 {
	if s.given > 0 {
		upTo = min(upTo, s.given-1)
	}
	if s.unseen < len(s.runs) {
		upTo = min(upTo, s.runs[s.unseen].first-1)
	}
	return upTo
}

// unsynced is the frames that have been called stored, and not durable.
func (s *staged) unsynced() (u archive.Span) {
	for _, r := range s.runs[s.head:s.unseen] {
		u = u.Join(archive.Span{First: r.first, Last: r.last, N: uint64(r.n)})
	}
	return u
}

// inherit takes over runs that are stored and not durable yet from one that follows nothing that is
// not stored. Nor must s.
func (s *staged) inherit(from *staged) {
	s.runs = append(s.runs[s.head:len(s.runs):len(s.runs)], from.runs[from.head:]...)
	slices.SortFunc(s.runs, func(a, b run) int { return cmp.Compare(a.last, b.last) })
	s.head, s.unseen = 0, len(s.runs)
	*from = staged{}
}

// abandon forgets what is not stored and returns how many frames that are.
func (s *staged) abandon() int {
	n := s.frames
	if s.unseen < len(s.runs) && s.given == 0 {
		s.given = s.runs[s.unseen].first
	}
	s.runs, s.frames = s.runs[:s.unseen], 0
	return n
}
