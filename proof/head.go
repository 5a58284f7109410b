package proof

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
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

func (e Entry) equal(other Entry) bool {
	return bytes.Equal(e.Data, other.Data) && e.Seq == other.Seq && e.Time == other.Time && e.Stream == other.Stream &&
		e.Kind == other.Kind
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
	Pages       uint32   // in which they stand
	Streams     uint32   // that occur in it
	PagesRoot   Hash     // of the tree over its pages, in their order
	StreamsRoot Hash     // of the tree over its streams, by their numbers
}

// The text of a head has one form. It is the leaf of the log's tree.
const headFormat = "tallywheel-segment@v1\nlog %x\nsalt %08x\nfirst %d\nlast %d\nentries %d\npages %d %s\nstreams %d %s\n"

// Leaf is the text of the head, of which [Head.Hash] is the hash.
func (h Head) Leaf() string {
	return fmt.Sprintf(headFormat, h.Log, h.Salt, h.First, h.Last, h.Entries, h.Pages, h.PagesRoot, h.Streams,
		h.StreamsRoot)
}

// Hash is that of the head as a leaf of the log's tree.
func (h Head) Hash() Hash { return tlog.RecordHash([]byte(h.Leaf())) }

// Covers reports whether a sequence lies within the segment.
func (h Head) Covers(seq uint64) bool { return h.First <= seq && seq <= h.Last }

func parseHead(text string) (h Head, err error) {
	var log, pages, streams string
	_, err = fmt.Sscanf(text, strings.Replace(headFormat, "%x", "%s", 1), &log, &h.Salt, &h.First, &h.Last, &h.Entries,
		&h.Pages, &pages, &h.Streams, &streams)
	if b, hexErr := hex.DecodeString(log); err == nil && hexErr == nil && len(b) == len(h.Log) {
		copy(h.Log[:], b)
	}
	if err == nil {
		h.PagesRoot, err = parseHash(pages)
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
	binary.LittleEndian.PutUint32(b[8:], uint32(leaf))
	binary.LittleEndian.PutUint32(b[12:], h.Pages)
	binary.LittleEndian.PutUint64(b[16:], h.First)
	binary.LittleEndian.PutUint64(b[24:], h.Last)
	binary.LittleEndian.PutUint64(b[32:], h.Entries)
	binary.LittleEndian.PutUint32(b[40:], h.Streams)
	copy(b[44:], headMagic)
	copy(b[48:], h.PagesRoot[:])
	copy(b[80:], h.StreamsRoot[:])
	copy(b[112:], h.Log[:])
	binary.LittleEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	return b
}

const headMagic = "TWH2"

// DecodeHead reads the head at the front of b. ok is false if it is not that of the leaf, or
// damaged.
func DecodeHead(b []byte, leaf int64) (h Head, ok bool) {
	if len(b) < HeadBytes || crc32.Checksum(b[4:HeadBytes], castagnoli) != binary.LittleEndian.Uint32(b) ||
		string(b[44:48]) != headMagic || binary.LittleEndian.Uint32(b[8:]) != uint32(leaf) {
		return h, false
	}
	return Head{
		Log: [16]byte(b[112:]), Salt: binary.LittleEndian.Uint32(b[4:]),
		First: binary.LittleEndian.Uint64(b[16:]), Last: binary.LittleEndian.Uint64(b[24:]),
		Entries: binary.LittleEndian.Uint64(b[32:]), Pages: binary.LittleEndian.Uint32(b[12:]),
		Streams:   binary.LittleEndian.Uint32(b[40:]),
		PagesRoot: Hash(b[48:80]), StreamsRoot: Hash(b[80:112]),
	}, true
}
