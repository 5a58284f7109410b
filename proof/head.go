package proof

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// Entry is a record of a log, or a note between its records, as package seglog stores it.
type Entry struct {
	Seq    uint64
	Time   int64 // ns since 1970
	Stream uint32
	Kind   uint32 // as in a frame of the log
	Data   []byte // as in a frame of the log
}

const entryFront = 24 // bytes of an entry before its data

// encode is the entry as a leaf, behind the 0 with which leaves of RFC 6962 begin: sequence, time,
// stream, kind and data, little-endian, as they stand in the frame of the log. It uses buf.
func (e *Entry) encode(buf []byte) []byte {
	n := 1 + entryFront + len(e.Data)
	b := slices.Grow(buf[:0], n)[:n]
	b[0] = 0
	binary.LittleEndian.PutUint64(b[1:], e.Seq)
	binary.LittleEndian.PutUint64(b[9:], uint64(e.Time))
	binary.LittleEndian.PutUint32(b[17:], e.Stream)
	binary.LittleEndian.PutUint32(b[21:], e.Kind)
	copy(b[1+entryFront:], e.Data)
	return b
}

func decodeEntry(b []byte) (Entry, error) {
	if len(b) < entryFront {
		return Entry{}, errors.New("an entry has 24 bytes at least")
	}
	return Entry{
		binary.LittleEndian.Uint64(b), int64(binary.LittleEndian.Uint64(b[8:])),
		binary.LittleEndian.Uint32(b[16:]), binary.LittleEndian.Uint32(b[20:]), b[entryFront:],
	}, nil
}

// Stream is what the number of a stream stands for.
type Stream struct {
	Number     uint32
	Source     string // "": not known
	Frame      string // framing, by name
	Quarantine bool   // bytes that were no frame
}

// leaf is the stream as a leaf: one line of text.
func (s Stream) leaf() string {
	what := "frames"
	if s.Quarantine {
		what = "quarantine"
	}
	return fmt.Sprintf("%d %s %q %q\n", s.Number, what, s.Source, s.Frame)
}

func parseStream(line string) (s Stream, err error) {
	wrong := fmt.Errorf("%.60q: want a stream: number, frames or quarantine, and two quoted words", line)
	number, rest, _ := strings.Cut(line, " ")
	what, rest, _ := strings.Cut(rest, " ")
	source, err := strconv.QuotedPrefix(rest)
	if err != nil || !strings.HasPrefix(rest[len(source):], " ") {
		return s, wrong
	}
	n, err := strconv.ParseUint(number, 10, 32)
	s.Number, s.Quarantine = uint32(n), what == "quarantine"
	if err == nil {
		s.Source, err = strconv.Unquote(source)
	}
	if err == nil {
		s.Frame, err = strconv.Unquote(rest[len(source)+1:])
	}
	if err != nil || s.leaf() != line+"\n" {
		return s, wrong
	}
	return s, nil
}

// Head says what a segment of a log holds.
type Head struct {
	Log         [16]byte // identity of the log
	Salt        uint32   // of the segment's file: a segment that was written anew has another
	First, Last uint64   // sequences
	Entries     uint64   // that the segment has: some of its sequences may be lost
	Streams     uint32   // that occur in it
	EntriesRoot Hash     // of the tree over its entries, in their order
	StreamsRoot Hash     // of the tree over its streams, by their numbers
}

// The text of a head has one form. It is the leaf of the log's tree.
const headFormat = "tallywheel-segment@v1\nlog %x\nsalt %08x\nfirst %d\nlast %d\nentries %d %s\nstreams %d %s\n"

// Leaf is the text of the head, of which [Head.Hash] is the hash.
func (h Head) Leaf() string {
	return fmt.Sprintf(headFormat, h.Log, h.Salt, h.First, h.Last, h.Entries, h.EntriesRoot, h.Streams, h.StreamsRoot)
}

// Hash is that of the head as a leaf of the log's tree.
func (h Head) Hash() Hash { return tlog.RecordHash([]byte(h.Leaf())) }

// Covers reports whether a sequence lies within the segment.
func (h Head) Covers(seq uint64) bool { return h.First <= seq && seq <= h.Last }

func parseHead(text string) (h Head, err error) {
	var log, entries, streams string
	_, err = fmt.Sscanf(text, strings.Replace(headFormat, "%x", "%s", 1), &log, &h.Salt, &h.First, &h.Last, &h.Entries, &entries, &h.Streams, &streams)
	if b, hexErr := hex.DecodeString(log); err == nil && hexErr == nil && len(b) == len(h.Log) {
		copy(h.Log[:], b)
	}
	if err == nil {
		h.EntriesRoot, err = parseHash(entries)
	}
	if err == nil {
		h.StreamsRoot, err = parseHash(streams)
	}
	if err != nil || h.Leaf() != text {
		return h, errors.New("the head of the segment is not in its form")
	}
	return h, nil
}

func parseHash(text string) (h Hash, err error) {
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != len(h) {
		return h, fmt.Errorf("%.60q: want the base64 of 32 bytes", text)
	}
	return Hash(b), nil
}

// HeadBytes is the size of a head in a file of heads.
const HeadBytes = 128

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode is the head as it stands in a file of heads, as the leaf of that number.
func (h Head) Encode(leaf int64) []byte {
	b := make([]byte, HeadBytes)
	binary.LittleEndian.PutUint32(b[4:], h.Salt)
	binary.LittleEndian.PutUint64(b[8:], uint64(leaf))
	binary.LittleEndian.PutUint64(b[16:], h.First)
	binary.LittleEndian.PutUint64(b[24:], h.Last)
	binary.LittleEndian.PutUint64(b[32:], h.Entries)
	binary.LittleEndian.PutUint32(b[40:], h.Streams)
	copy(b[44:], headMagic)
	copy(b[48:], h.EntriesRoot[:])
	copy(b[80:], h.StreamsRoot[:])
	copy(b[112:], h.Log[:])
	binary.LittleEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	return b
}

const headMagic = "TWH1"

// DecodeHead reads the head at the front of b. ok is false if it is not that of the leaf, or
// damaged.
func DecodeHead(b []byte, leaf int64) (h Head, ok bool) {
	if len(b) < HeadBytes || crc32.Checksum(b[4:HeadBytes], castagnoli) != binary.LittleEndian.Uint32(b) ||
		string(b[44:48]) != headMagic || binary.LittleEndian.Uint64(b[8:]) != uint64(leaf) {
		return h, false
	}
	return Head{
		Log: [16]byte(b[112:]), Salt: binary.LittleEndian.Uint32(b[4:]),
		First: binary.LittleEndian.Uint64(b[16:]), Last: binary.LittleEndian.Uint64(b[24:]),
		Entries: binary.LittleEndian.Uint64(b[32:]), Streams: binary.LittleEndian.Uint32(b[40:]),
		EntriesRoot: Hash(b[48:80]), StreamsRoot: Hash(b[80:112]),
	}, true
}

// Segment makes the head of a segment whose entries are shown to it in their order. The zero value
// is empty.
type Segment struct {
	entries Tree
	streams map[uint32]bool
	last    uint32 // stream of the last entry
	buf     []byte
	follow  uint64 // sequence of the entry that is to be proven; 0: none
	found   *Entry // that one
}

// Add takes the next entry.
func (s *Segment) Add(e Entry) {
	s.buf = e.encode(s.buf)
	if s.entries.size == 0 || e.Stream != s.last {
		if s.streams == nil {
			s.streams = map[uint32]bool{}
		}
		s.streams[e.Stream], s.last = true, e.Stream
	}
	if s.follow != 0 && e.Seq == s.follow && s.found == nil {
		s.entries.Follow(s.entries.size)
		e.Data = bytes.Clone(e.Data)
		s.found = &e
	}
	s.entries.Add(sha256.Sum256(s.buf))
}

// Entries is how many were added.
func (s *Segment) Entries() int64 { return s.entries.size }

// Reset makes the segment empty. The entry of that sequence is to be proven; 0: none is.
func (s *Segment) Reset(follow uint64) {
	s.entries, s.follow, s.found = Tree{peaks: s.entries.peaks[:0]}, follow, nil
	clear(s.streams)
}

// Follows is the sequence that Reset was given.
func (s *Segment) Follows() uint64 { return s.follow }

// Head completes a head, which says where in which log the segment is. Named says what a stream
// stands for.
func (s *Segment) Head(h Head, named func(number uint32) Stream) Head {
	streams := s.named(named, 0)
	h.Entries, h.EntriesRoot = uint64(s.entries.size), s.entries.Root()
	h.Streams, h.StreamsRoot = uint32(streams.size), streams.Root()
	return h
}

// named is the tree over the streams that occur, which follows the one of a number.
func (s *Segment) named(named func(number uint32) Stream, follow uint32) *Tree {
	var t Tree
	for i, number := range slices.Sorted(maps.Keys(s.streams)) {
		if follow == number {
			t.Follow(int64(i))
		}
		e := named(number)
		e.Number = number
		t.Add(tlog.RecordHash([]byte(e.leaf())))
	}
	return &t
}

// Prove begins the proof of the entry that [Segment.Reset] named: all of it but the head's place in
// the log. ok is false if there is no such entry.
func (s *Segment) Prove(h Head, named func(number uint32) Stream) (p Proof, ok bool) {
	if s.found == nil {
		return p, false
	}
	streams := s.named(named, s.found.Stream)
	stream := named(s.found.Stream)
	stream.Number = s.found.Stream
	return Proof{
		Entry: *s.found, Index: s.entries.leaf, Path: s.entries.Path(),
		Stream: stream, StreamIndex: streams.leaf, StreamPath: streams.Path(),
		Head: s.Head(h, named),
	}, true
}
