package proof

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// A page is a leaf of a segment's tree: some entries of one stream that follow each other there. It
// begins with the stream's number, and has of each entry: sequence and time, less those of the one
// before it on the page; kind; length of the data; data. The time is a signed varint, the other
// numbers are unsigned ones, as encoding/binary has them. A page is full with its first entry that
// brings it to 4 KiB.
const pageBytes = 4 << 10

// page is one that fills.
type page struct {
	b       []byte // behind the 0 with which leaves of RFC 6962 begin
	last    Entry  // without its data
	n       int    // entries
	follows bool   // one of them is to be proven
}

func (p *page) reset(stream uint32) {
	if cap(p.b) > 8*pageBytes { // an entry was large
		p.b = nil
	}
	p.b = binary.AppendUvarint(append(p.b[:0], 0), uint64(stream))
	p.last, p.n, p.follows = Entry{}, 0, false
}

func (p *page) add(e *Entry) {
	p.b = binary.AppendUvarint(p.b, e.Seq-p.last.Seq)
	p.b = binary.AppendVarint(p.b, e.Time-p.last.Time)
	p.b = binary.AppendUvarint(p.b, uint64(e.Kind))
	p.b = binary.AppendUvarint(p.b, uint64(len(e.Data)))
	p.b = append(p.b, e.Data...)
	p.last.Seq, p.last.Time = e.Seq, e.Time
	p.n++
}

// errPage is a page that is not in its form, or has not what is asked for.
var errPage = errors.New("the page is not in its form, or has no such entry")

// entryOn is the entry of that sequence on a page, which is whole. Sequences rise.
func entryOn(b []byte, seq uint64) (found Entry, err error) {
	bad := false
	number := func() (v uint64) {
		v, n := binary.Uvarint(b)
		if bad = bad || n <= 0; !bad {
			b = b[n:]
		}
		return v
	}
	small := func() uint32 {
		v := number()
		bad = bad || v > math.MaxUint32
		return uint32(v)
	}
	e := Entry{Stream: small()}
	for len(b) > 0 && !bad {
		before := e.Seq
		e.Seq += number()
		since, n := binary.Varint(b)
		if bad = bad || n <= 0 || e.Seq <= before; bad {
			break
		}
		b = b[n:]
		e.Time += since
		e.Kind = small()
		length := number()
		if bad = bad || length > uint64(len(b)); bad {
			break
		}
		if e.Data, b = b[:length:length], b[length:]; e.Seq == seq {
			found = e
		}
	}
	if bad || found.Seq == 0 {
		return Entry{}, errPage
	}
	return found, nil
}

// Segment makes the head of a segment whose entries are shown to it in their order. The zero value
// is empty.
type Segment struct {
	entries uint64
	tree    Tree             // over the pages that are full, but for one that waits
	waits   []byte           // full, and to be hashed with the next one; empty: none
	pages   map[uint32]*page // of each stream that occurs, the one that fills
	near    *page            // of the last entry
	of      uint32           // its stream
	follow  uint64           // sequence of the entry that is to be proven; 0: none
	leaf    []byte           // the page with that one
	stream  uint32           // its stream
}

// Add takes the next entry. It keeps nothing of it.
func (s *Segment) Add(e Entry) {
	p := s.near
	if p == nil || s.of != e.Stream {
		if p = s.pages[e.Stream]; p == nil {
			p = s.begin(e.Stream)
		}
		s.near, s.of = p, e.Stream
	}
	if s.follow != 0 && e.Seq == s.follow {
		p.follows = true
	}
	p.add(&e)
	s.entries++
	if len(p.b) > pageBytes {
		s.full(e.Stream, p)
	}
}

func (s *Segment) begin(stream uint32) *page {
	if s.pages == nil {
		s.pages = map[uint32]*page{}
	}
	p := &page{}
	p.reset(stream)
	s.pages[stream] = p
	return p
}

// full makes a page a leaf, and begins the next one of its stream.
func (s *Segment) full(stream uint32, p *page) {
	if p.follows {
		leaf := s.tree.size
		if len(s.waits) > 0 {
			leaf++
		}
		s.tree.Follow(leaf)
		s.leaf, s.stream = bytes.Clone(p.b[1:]), stream
	}
	if len(s.waits) == 0 {
		s.waits, p.b = p.b, s.waits
	} else {
		x, y := sumBoth(s.waits, p.b)
		s.tree.Add(x)
		s.tree.Add(y)
		s.waits = s.waits[:0]
	}
	p.reset(stream)
}

// Reset makes the segment empty. The entry of that sequence is to be proven; 0: none is.
func (s *Segment) Reset(follow uint64) {
	*s = Segment{tree: Tree{peaks: s.tree.peaks[:0]}, follow: follow}
}

// Follows is the sequence that Reset was given.
func (s *Segment) Follows() uint64 { return s.follow }

// Head ends the segment, and completes a head, which says where in which log it is. Named says what
// a stream stands for.
func (s *Segment) Head(h Head, named func(number uint32) Stream) Head {
	for _, number := range slices.Sorted(maps.Keys(s.pages)) {
		if p := s.pages[number]; p.n > 0 {
			s.full(number, p)
		}
	}
	if len(s.waits) > 0 {
		s.tree.Add(sha256.Sum256(s.waits))
		s.waits = s.waits[:0]
	}
	streams := s.named(named, 0)
	h.Entries, h.Pages, h.PagesRoot = s.entries, uint32(s.tree.size), s.tree.Root()
	h.Streams, h.StreamsRoot = uint32(streams.size), streams.Root()
	return h
}

// named is the tree over the streams that occur, which follows the one of a number.
func (s *Segment) named(named func(number uint32) Stream, follow uint32) *Tree {
	var t Tree
	for i, number := range slices.Sorted(maps.Keys(s.pages)) {
		if follow == number {
			t.Follow(int64(i))
		}
		e := named(number)
		e.Number = number
		t.Add(tlog.RecordHash([]byte(e.leaf())))
	}
	return &t
}

// Prove ends the segment, and begins the proof of the entry that [Segment.Reset] named: all of it
// but the head's place in the log. ok is false if there is no such entry.
func (s *Segment) Prove(h Head, named func(number uint32) Stream) (p Proof, ok bool) {
	h = s.Head(h, named)
	if s.leaf == nil {
		return p, false
	}
	e, err := entryOn(s.leaf, s.follow)
	if err != nil {
		panic("proof: a page cannot be read that was just written")
	}
	streams := s.named(named, s.stream)
	stream := named(s.stream)
	stream.Number = s.stream
	return Proof{
		Entry: e, Page: s.leaf, Index: s.tree.leaf, Path: s.tree.Path(),
		Stream: stream, StreamIndex: streams.leaf, StreamPath: streams.Path(),
		Head: h,
	}, true
}
