package gateway

import (
	"encoding/binary"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/ledger"
)

// backlog holds frames that the log could not take yet, in order. The zero value is empty; it takes no memory until
// it is used.
type backlog struct {
	buf    []byte // length u32, time u64, bytes; from head on
	head   int
	frames int
	bytes  int // of frames alone
}

const backlogHeader = 12

func (b *backlog) push(at int64, data []byte) {
	if b.head > len(b.buf)/2 { // move down once the free part in front is the larger one
		b.buf = b.buf[:copy(b.buf, b.buf[b.head:])]
		b.head = 0
	}
	b.buf = binary.LittleEndian.AppendUint32(b.buf, uint32(len(data)))
	b.buf = binary.LittleEndian.AppendUint64(b.buf, uint64(at))
	b.buf = append(b.buf, data...)
	b.frames++
	b.bytes += len(data)
}

// front shows the oldest frame; there must be one.
func (b *backlog) front() (at int64, data []byte) {
	f := b.buf[b.head:]
	n := binary.LittleEndian.Uint32(f)
	return int64(binary.LittleEndian.Uint64(f[4:])), f[backlogHeader:][:n]
}

func (b *backlog) pop() {
	_, data := b.front()
	b.head += backlogHeader + len(data)
	b.frames--
	b.bytes -= len(data)
	if b.frames == 0 {
		b.buf, b.head = b.buf[:0], 0
	}
}

// staged follows frames that are in the log's hands until they are stored, and durable.
type staged struct {
	runs   []run // not durable yet; from head on
	head   int
	unseen int // index of the first run that is not stored yet
	frames int // not stored yet
}

// run is frames that were read together; last is the log's sequence of the last of them.
type run struct {
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
		r.last, r.number = seq, max(r.number, f.Seq)
		r.n++
		return
	}
	if s.head > 1024 && s.head > len(s.runs)/2 {
		s.runs = s.runs[:copy(s.runs, s.runs[s.head:])]
		s.unseen -= s.head
		s.head = 0
	}
	s.runs = append(s.runs, run{seq, at, 1, stream, f.Seq})
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

// abandon forgets what is not stored and returns how many frames that are.
func (s *staged) abandon() int {
	n := s.frames
	s.runs, s.frames = s.runs[:s.unseen], 0
	return n
}
