package seglog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// The layout of segments and frames; FORMAT.md draws it.
const (
	magic       = "TALLYLOG"
	version     = 1
	headerBytes = 4096 // the first block, which carries the header twice
	headerCopy  = 2048 // where the second one is
	headerUsed  = 64

	frameHeader = 32
	commitBytes = frameHeader + 32
	alignment   = 8

	kindRecord = 1
	kindCommit = 2
	kindHole   = 3

	// maxRecord bounds the length field, so that a damaged one cannot ask for more.
	maxRecord = 16 << 20
)

const (
	segmentSuffix = ".seg"
	indexSuffix   = ".idx"
	spareSuffix   = ".spare"
	tornSuffix    = ".torn"
	damagedSuffix = ".damaged"
	partSuffix    = ".part"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the first block of a segment.
type header struct {
	id      uint64 // number of the segment in the life of the log
	base    uint64 // sequence of its first record
	durable uint64 // last sequence known durable when it was begun
	created int64  // ns since 1970
	salt    uint32 // makes the CRCs of this segment its own
}

func (h header) encode() []byte {
	b := make([]byte, headerBytes)
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[8:], version)
	binary.LittleEndian.PutUint64(b[16:], h.id)
	binary.LittleEndian.PutUint64(b[24:], h.base)
	binary.LittleEndian.PutUint64(b[32:], h.durable)
	binary.LittleEndian.PutUint64(b[40:], uint64(h.created))
	binary.LittleEndian.PutUint32(b[48:], h.salt)
	binary.LittleEndian.PutUint32(b[12:], headerCRC(b))
	copy(b[headerCopy:], b[:headerUsed])
	return b
}

func headerCRC(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, b[16:headerUsed])
}

func decodeHeader(b []byte) (h header, err error) {
	switch {
	case len(b) < headerUsed:
		return h, fmt.Errorf("header of %d bytes, want %d", len(b), headerUsed)
	case string(b[:8]) != magic:
		return h, fmt.Errorf("does not begin with %s", magic)
	case binary.LittleEndian.Uint32(b[12:]) != headerCRC(b):
		return h, fmt.Errorf("header fails its CRC")
	case binary.LittleEndian.Uint32(b[8:]) != version:
		return h, fmt.Errorf("format version %d, this program reads %d", binary.LittleEndian.Uint32(b[8:]), version)
	}
	h.id = binary.LittleEndian.Uint64(b[16:])
	h.base = binary.LittleEndian.Uint64(b[24:])
	h.durable = binary.LittleEndian.Uint64(b[32:])
	h.created = int64(binary.LittleEndian.Uint64(b[40:]))
	h.salt = binary.LittleEndian.Uint32(b[48:])
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
	at := len(dst)
	dst = dst[:at+frameLen(len(data))]
	f := dst[at:]
	binary.LittleEndian.PutUint32(f[0:], uint32(len(data)))
	binary.LittleEndian.PutUint64(f[8:], seq)
	binary.LittleEndian.PutUint64(f[16:], uint64(time))
	binary.LittleEndian.PutUint32(f[24:], stream)
	binary.LittleEndian.PutUint32(f[28:], kind)
	clear(f[frameHeader+copy(f[frameHeader:], data):])
	binary.LittleEndian.PutUint32(f[4:], frameCRC(f, salt))
	return dst
}

// frameCRC covers all of a frame but the CRC itself, padding included: the length enters by the salt.
func frameCRC(f []byte, salt uint32) uint32 {
	return crc32.Update(salt^binary.LittleEndian.Uint32(f), castagnoli, f[8:])
}

// resalt gives the frames in buf, which are whole, the CRCs of another segment.
func resalt(buf []byte, salt uint32) {
	for len(buf) > 0 {
		n := int(binary.LittleEndian.Uint32(buf))
		binary.LittleEndian.PutUint32(buf[4:], frameCRC(buf[:frameLen(n)], salt))
		buf = buf[frameLen(n):]
	}
}

// rawFrame is one decoded frame; data is a view.
type rawFrame struct {
	kind, stream uint32
	seq          uint64
	time         int64
	data         []byte
	size         int // bytes in the segment
}

// decodeFrame reads the frame at the front of b. ok is false where there is none that is whole and right.
func decodeFrame(b []byte, salt uint32) (f rawFrame, ok bool) {
	if len(b) < frameHeader {
		return f, false
	}
	n := int(binary.LittleEndian.Uint32(b))
	f.kind = binary.LittleEndian.Uint32(b[28:])
	if n > maxRecord || f.kind < kindRecord || f.kind > kindHole || frameLen(n) > len(b) {
		return f, false
	}
	if frameCRC(b[:frameLen(n)], salt) != binary.LittleEndian.Uint32(b[4:]) {
		return f, false
	}
	f.seq = binary.LittleEndian.Uint64(b[8:])
	f.time = int64(binary.LittleEndian.Uint64(b[16:]))
	f.stream = binary.LittleEndian.Uint32(b[24:])
	f.data = b[frameHeader : frameHeader+n]
	f.size = frameLen(n)
	return f, true
}

// frameWants is the number of bytes that the frame at the front of b needs, as far as its length can be believed; 0 if it
// cannot.
func frameWants(b []byte) int {
	if len(b) < frameHeader {
		return frameHeader
	}
	n := binary.LittleEndian.Uint32(b)
	kind := binary.LittleEndian.Uint32(b[28:])
	if n > maxRecord || kind < kindRecord || kind > kindHole {
		return 0
	}
	return frameLen(int(n))
}

// commitFrame closes a batch: bytes is the size of its frames, durable the last sequence that was durable before.
func appendCommit(dst []byte, salt uint32, last uint64, time int64, records, bytes int, durable uint64) []byte {
	var p [commitBytes - frameHeader]byte
	binary.LittleEndian.PutUint64(p[0:], uint64(records))
	binary.LittleEndian.PutUint64(p[8:], uint64(bytes))
	binary.LittleEndian.PutUint64(p[16:], durable)
	return appendFrame(dst, salt, kindCommit, 0, last, time, p[:])
}

func commitDurable(f rawFrame) uint64 {
	if len(f.data) < 24 {
		return 0
	}
	return binary.LittleEndian.Uint64(f.data[16:])
}

// appendHole records that sequences from … the frame's own are lost for good.
func appendHole(dst []byte, salt uint32, from, to uint64, time int64) []byte {
	var p [8]byte
	binary.LittleEndian.PutUint64(p[:], from)
	return appendFrame(dst, salt, kindHole, 0, to, time, p[:])
}

func holeFrom(f rawFrame) uint64 {
	if len(f.data) < 8 {
		return f.seq
	}
	return binary.LittleEndian.Uint64(f.data)
}

func segmentName(base uint64) string { return fmt.Sprintf("%020d%s", base, segmentSuffix) }
func indexName(base uint64) string   { return fmt.Sprintf("%020d%s", base, indexSuffix) }

// segmentBase reads the base out of a segment's name.
func segmentBase(name string) (uint64, bool) {
	s, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(s) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}
