package spool

import (
	"encoding/binary"
	"hash/crc32"
)

// Point is how far a consumer is.
type Point struct {
	Done  uint64 // the offset up to which bytes are done with
	Shown uint64 // … and up to which they were shown
	Marks uint64 // the number of marks that were shown
	Time  int64  // when the bytes shown last were read, ns since 1970
	// Steady is when those were read, or the device opened or closed last, by the steady clock, ns.
	Steady int64
}

// Checkpoint is what a consumer needs to go on.
type Checkpoint struct {
	Point
	Sequence uint64 // of the log, up to which what came before Point is stored
	Data     []byte // the owner's: what it had made of the bytes before
}

// checkpointBytes is what stands before the data: number u64, Done u64, Shown u64, Marks u64,
// Sequence u64, length u32, CRC-32C u32 of all else, Time i64, Steady i64.
const checkpointBytes = 64

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// put writes the checkpoint with that number, which counts them from 1, to a slot that has room. A
// test may end it at a step: then the CRC is wrong.
func (c Checkpoint) put(slot []byte, number uint64, step func()) {
	var head [checkpointBytes]byte
	for i, w := range [...]uint64{number, c.Done, c.Shown, c.Marks, c.Sequence} {
		binary.NativeEndian.PutUint64(head[8*i:], w)
	}
	binary.NativeEndian.PutUint32(head[40:], uint32(len(c.Data)))
	binary.NativeEndian.PutUint64(head[48:], uint64(c.Time))
	binary.NativeEndian.PutUint64(head[56:], uint64(c.Steady))
	binary.NativeEndian.PutUint32(head[44:], sumOf(head[:], c.Data))
	copy(slot, head[:])
	step()
	copy(slot[checkpointBytes:], c.Data[:len(c.Data)/2])
	step()
	copy(slot[checkpointBytes+len(c.Data)/2:], c.Data[len(c.Data)/2:])
	step()
}

// sumOf is the CRC of a checkpoint whose field for it is zero.
func sumOf(head, data []byte) uint32 {
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, data)
}

// checkpointOf reads a slot; ok is false where there is none that is whole.
func checkpointOf(slot []byte) (c Checkpoint, number uint64, ok bool) {
	head := [checkpointBytes]byte(slot)
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(head[8*i:]) }
	n, sum := binary.NativeEndian.Uint32(head[40:]), binary.NativeEndian.Uint32(head[44:])
	number, c.Point, c.Sequence = word(0), Point{word(1), word(2), word(3), int64(word(6)), int64(word(7))}, word(4)
	if number == 0 || uint64(n) > uint64(len(slot)-checkpointBytes) {
		return c, 0, false
	}
	c.Data = append([]byte{}, slot[checkpointBytes:][:n]...)
	clear(head[44:48])
	return c, number, sumOf(head[:], c.Data) == sum
}
