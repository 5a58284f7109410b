package seglog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
	"strings"
)

// The layout of segments and frames; FORMAT.md draws it.
const (
	magic       = "TALLYLOG"
	version     = 2    // of the segments that this program begins; it reads version 1, too
	headerBytes = 4096 // the first block, which carries the header twice
	headerCopy  = 2048 // where the second one is
	headerV1    = 64   // bytes that version 1 uses of each
	saltAt      = 48   // where the salt is in each
	headerV2    = 128

	frameHeader = 32
	commitBytes = frameHeader + 32
	offsetBytes = 8 // a wire offset, at the front of the data of some frames
	alignment   = 8

	kindRecord = 1
	kindCommit = 2
	kindHole   = 3
	kindWire   = 4 // a record with its wire offset
	kindLane   = 5
	kindDrop   = 6
	kindMax    = 15 // those from 7 on are for later programs: this one passes over them

	// maxRecord bounds the length field, so that a damaged one cannot ask for more.
	maxRecord = 16 << 20
)

// What a header may say of its segment.
const flagRepaired = 1 // Repair wrote it: it is not what it was when the next segment was begun

const (
	segmentSuffix = ".seg"
	indexSuffix   = ".idx"
	spareSuffix   = ".spare"
	tornSuffix    = ".torn"
	damagedSuffix = ".damaged"
	movedSuffix   = ".moved"
	partSuffix    = ".part"
	untoldSuffix  = ".untold"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the first block of a segment.
type header struct {
	version uint32
	id      uint64 // number of the segment in the life of the log
	base    uint64 // sequence of its first record
	durable uint64 // last sequence known durable when it was begun
	created int64  // ns since 1970
	salt    uint32 // makes the CRCs of this segment its own

	// Since version 2.
	flags uint32
	log   [16]byte // the identity of the log
	prior prior    // the segment before it
}

// used is how many bytes of its block the header takes.
func (h header) used() int {
	if h.version < 2 {
		return headerV1
	}
	return headerV2
}

// image is the header as it stands in the first block, twice.
func (h header) image() []byte {
	b := make([]byte, headerV2)
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[8:], h.version)
	binary.LittleEndian.PutUint64(b[16:], h.id)
	binary.LittleEndian.PutUint64(b[24:], h.base)
	binary.LittleEndian.PutUint64(b[32:], h.durable)
	binary.LittleEndian.PutUint64(b[40:], uint64(h.created))
	binary.LittleEndian.PutUint32(b[48:], h.salt)
	if h.version >= 2 {
		binary.LittleEndian.PutUint32(b[52:], h.flags)
		binary.LittleEndian.PutUint64(b[56:], h.prior.base)
		copy(b[64:], h.log[:])
		copy(b[80:], h.prior.hash[:])
		binary.LittleEndian.PutUint32(b[112:], h.prior.kind)
	}
	binary.LittleEndian.PutUint32(b[12:], headerCRC(b))
	if h.version >= 2 {
		binary.LittleEndian.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
	}
	return b[:h.used()]
}

// encode is the first block.
func (h header) encode() []byte {
	b, image := make([]byte, headerBytes), h.image()
	copy(b, image)
	copy(b[headerCopy:], image)
	return b
}

// harm is where the first block is not as it was written; -1: nowhere.
func (h header) harm(block []byte) int64 {
	image, rest := h.image(), zeros[h.used():]
	whole := func(half []byte) bool {
		return bytes.Equal(half[:len(image)], image) && bytes.Equal(half[len(image):], rest)
	}
	if whole(block[:headerCopy]) && whole(block[headerCopy:headerBytes]) {
		return -1
	}
	for i, b := range h.encode() {
		if block[i] != b {
			return int64(i)
		}
	}
	return -1
}

var zeros [headerCopy]byte

// headerCRC covers what every version has, so that a program knows a version that it does not read.
func headerCRC(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, b[16:headerV1])
}

func decodeHeader(b []byte) (h header, err error) {
	switch {
	case len(b) < headerV2:
		return h, fmt.Errorf("header of %d bytes, want %d", len(b), headerV2)
	case string(b[:8]) != magic:
		return h, fmt.Errorf("does not begin with %s", magic)
	case binary.LittleEndian.Uint32(b[12:]) != headerCRC(b):
		return h, fmt.Errorf("header fails its CRC")
	}
	h.version = binary.LittleEndian.Uint32(b[8:])
	switch {
	case h.version < 1 || h.version > version:
		return h, fmt.Errorf("%w: it has version %d, this program reads 1 to %d", ErrVersion, h.version, version)
	case h.version >= 2 && binary.LittleEndian.Uint32(b[124:]) != crc32.Checksum(b[:124], castagnoli):
		return h, fmt.Errorf("header fails its second CRC")
	}
	h.id = binary.LittleEndian.Uint64(b[16:])
	h.base = binary.LittleEndian.Uint64(b[24:])
	h.durable = binary.LittleEndian.Uint64(b[32:])
	if h.base > maxSequence || h.durable > maxSequence {
		return h, fmt.Errorf("header names a record that no log comes to")
	}
	h.created = int64(binary.LittleEndian.Uint64(b[40:]))
	h.salt = binary.LittleEndian.Uint32(b[48:])
	if h.version >= 2 {
		h.flags = binary.LittleEndian.Uint32(b[52:])
		h.prior.base = binary.LittleEndian.Uint64(b[56:])
		copy(h.log[:], b[64:])
		copy(h.prior.hash[:], b[80:])
		h.prior.kind = binary.LittleEndian.Uint32(b[112:])
	}
	return h, nil
}

// frameLen is the space that n bytes of payload take in a segment.
func frameLen(n int) int { return (frameHeader + n + alignment - 1) &^ (alignment - 1) }

// frames appends the frames of a batch, one by one, to dst.
func frames(dst [][]byte, batch []byte) [][]byte {
	for len(batch) > 0 {
		n := frameLen(int(binary.LittleEndian.Uint32(batch)))
		dst, batch = append(dst, batch[:n:n]), batch[n:]
	}
	return dst
}

// appendFrame encodes a frame behind dst, which must have room.
func appendFrame(dst []byte, salt, kind, stream uint32, seq uint64, time int64, data []byte) []byte {
	return appendWire(dst, salt, kind, stream, seq, time, NoOffset, data)
}

// appendWire is appendFrame with a wire offset in front of the data; NoOffset is none.
func appendWire(dst []byte, salt, kind, stream uint32, seq uint64, time int64, offset uint64, data []byte) []byte {
	at, n, front := len(dst), len(data), frameHeader
	if offset != NoOffset {
		n, front = n+offsetBytes, front+offsetBytes
	}
	dst = dst[:at+frameLen(n)]
	f := dst[at:]
	binary.LittleEndian.PutUint32(f[0:], uint32(n))
	binary.LittleEndian.PutUint64(f[8:], seq)
	binary.LittleEndian.PutUint64(f[16:], uint64(time))
	binary.LittleEndian.PutUint32(f[24:], stream)
	binary.LittleEndian.PutUint32(f[28:], kind)
	if offset != NoOffset {
		binary.LittleEndian.PutUint64(f[frameHeader:], offset)
	}
	clear(f[front+copy(f[front:], data):])
	binary.LittleEndian.PutUint32(f[4:], frameCRC(f, salt))
	return dst
}

// frameCRC covers all of a frame but the CRC itself, padding included: the length enters by the
// salt.
func frameCRC(f []byte, salt uint32) uint32 {
	return crc32.Update(salt^binary.LittleEndian.Uint32(f), castagnoli, f[8:])
}

// resalt gives the frames in buf, which are whole, the CRCs of another segment, and returns their
// digest.
func resalt(buf []byte, salt uint32) (digest uint64) {
	for len(buf) > 0 {
		f := buf[:frameLen(int(binary.LittleEndian.Uint32(buf)))]
		crc := frameCRC(f, salt)
		binary.LittleEndian.PutUint32(f[4:], crc)
		digest, buf = fold(digest, crc), buf[len(f):]
	}
	return digest
}

// digestOf is the digest of the frames in buf.
func digestOf(buf []byte) (digest uint64) {
	for len(buf) > 0 {
		digest = fold(digest, binary.LittleEndian.Uint32(buf[4:]))
		buf = buf[frameLen(int(binary.LittleEndian.Uint32(buf))):]
	}
	return digest
}

// fold adds the CRC of a frame to the digest of a batch. The commit frame has that, so that one
// frame binds them all, in their order; it costs a multiplication.
func fold(digest uint64, crc uint32) uint64 { return digest*0x9E3779B97F4A7C15 + uint64(crc) }

// rawFrame is one decoded frame; data is a view.
type rawFrame struct {
	kind, stream uint32
	seq          uint64
	time         int64
	crc          uint32
	data         []byte // with the wire offset in front, where there is one
	size         int    // bytes in the segment
}

// counts reports whether the frame is a record, or something else that has a sequence of its own.
func (f rawFrame) counts() bool { return f.kind != kindCommit && f.kind != kindHole }

// decodeFrame reads the frame at the front of b. ok is false where there is none that is whole and
// right.
func decodeFrame(b []byte, salt uint32) (f rawFrame, ok bool) {
	f.size = frameWants(b)
	if f.size == 0 || f.size > len(b) || frameCRC(b[:f.size], salt) != binary.LittleEndian.Uint32(b[4:]) {
		return f, false
	}
	return parseFrame(b), true
}

// parseFrame is the frame at the front of b, which is known to be whole.
func parseFrame(b []byte) rawFrame {
	n := int(binary.LittleEndian.Uint32(b))
	return rawFrame{
		kind: binary.LittleEndian.Uint32(b[28:]), stream: binary.LittleEndian.Uint32(b[24:]),
		seq: binary.LittleEndian.Uint64(b[8:]), time: int64(binary.LittleEndian.Uint64(b[16:])),
		crc: binary.LittleEndian.Uint32(b[4:]), data: b[frameHeader:][:n], size: frameLen(n),
	}
}

// frameWants is the number of bytes that the frame at the front of b needs, as far as its length
// can be believed; 0 if it cannot.
func frameWants(b []byte) int {
	if len(b) < frameHeader {
		return frameHeader
	}
	n := binary.LittleEndian.Uint32(b)
	kind := binary.LittleEndian.Uint32(b[28:])
	if n > maxRecord || kind < kindRecord || kind > kindMax {
		return 0
	}
	return frameLen(int(n))
}

// appendCommit closes a batch of that many records: bytes is the size of its frames, time the
// highest of them, durable the last sequence that was durable before.
func appendCommit(dst []byte, h header, last uint64, time int64, records, bytes int, durable, digest uint64) []byte {
	var p [commitBytes - frameHeader]byte
	binary.LittleEndian.PutUint64(p[0:], uint64(records))
	binary.LittleEndian.PutUint64(p[8:], uint64(bytes))
	binary.LittleEndian.PutUint64(p[16:], durable)
	if h.version >= 2 {
		binary.LittleEndian.PutUint64(p[24:], digest)
	}
	return appendFrame(dst, h.salt, kindCommit, 0, last, time, p[:])
}

func commitDurable(f rawFrame) uint64 {
	if len(f.data) < 24 {
		return 0
	}
	return binary.LittleEndian.Uint64(f.data[16:])
}

// commitRecords is how many records the batch of a commit frame has.
func commitRecords(f rawFrame) uint64 {
	if len(f.data) < 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(f.data)
}

// commitBatchBytes is how many bytes of frames stand before a commit frame in its batch.
func commitBatchBytes(f rawFrame) int64 {
	if len(f.data) < 16 {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(f.data[8:])) // negative, if it is beyond all files
}

// closes reports whether the commit frame f is that of a batch whose frames have the digest.
func closes(f rawFrame, version uint32, digest uint64) bool {
	return version < 2 || len(f.data) >= 32 && binary.LittleEndian.Uint64(f.data[24:]) == digest
}

// What a hole may say of itself.
const (
	holeAtMost   = 1 // its records may never have been
	holeFound    = 2 // the opening of a log has made it
	holeGivenUp  = 4 // a repair has made it; untold as long as the mark of that repair is there
	holeUnsynced = 8 // with holeFound: its records were stored, and not known to be durable
)

// holeBytes is the space that a hole takes in a segment.
const holeBytes = frameHeader + 16

// appendHole records that sequences from … the frame's own are lost for good.
func appendHole(dst []byte, salt uint32, from, to uint64, time int64, flags uint64) []byte {
	var p [holeBytes - frameHeader]byte
	binary.LittleEndian.PutUint64(p[0:], from)
	binary.LittleEndian.PutUint64(p[8:], flags)
	return appendFrame(dst, salt, kindHole, 0, to, time, p[:])
}

// holeFlags is what a hole says of itself; 0 where a program before this wrote it.
func holeFlags(f rawFrame) uint64 {
	if len(f.data) < holeBytes-frameHeader {
		return 0
	}
	return binary.LittleEndian.Uint64(f.data[8:])
}

func holeFrom(f rawFrame) uint64 {
	if len(f.data) < 8 {
		return f.seq
	}
	return binary.LittleEndian.Uint64(f.data)
}

func segmentName(base uint64) string { return fmt.Sprintf("%020d%s", base, segmentSuffix) }
func indexName(base uint64) string   { return fmt.Sprintf("%020d%s", base, indexSuffix) }

// segmentBase reads the base out of a segment's name. A file whose name has another number than a
// record can have is no segment, whatever it is: it is left alone.
func segmentBase(name string) (uint64, bool) {
	s, ok := strings.CutSuffix(name, segmentSuffix)
	n, digits := number(s)
	return n, ok && digits && 0 < n && n <= maxSequence
}

// maxSequence bounds the sequences that are believed where nothing but a name, or an empty file,
// says them: no log comes to that, and what is reckoned from there does not overflow.
const maxSequence = math.MaxInt64

// number reads the number that begins the names of the log's files.
func number(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && len(s) == 20
}

// isScratch reports whether name is that of a file that the log makes for later, and writes over: a
// spare segment, or a segment in the making.
func isScratch(name string) bool {
	s, part := strings.CutSuffix(name, partSuffix)
	id, spare := strings.CutSuffix(s, spareSuffix)
	_, digits := number(id)
	_, segment := segmentBase(s)
	return spare && digits || part && segment
}

// indexBase reads the base out of an index's name.
func indexBase(name string) (uint64, bool) {
	s, ok := strings.CutSuffix(name, indexSuffix)
	if !ok {
		return 0, false
	}
	return segmentBase(s + segmentSuffix)
}
