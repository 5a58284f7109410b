package seglog

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Kind is what an entry of the log is. Records are what the log is for. The others are notes that
// its owner keeps between them, in the same order: each takes a sequence, and readers pass over it
// unless they ask for notes.
type Kind uint8

// The kinds of entries.
const (
	KindRecord Kind = iota
	KindLane        // binds a lane to a stream: Record.Lane
	KindDrop        // tells of what was dropped: Record.Drop
)

// NoOffset says that a wire offset is not known.
const NoOffset = math.MaxUint64

// maxCause bounds the cause of a drop, in bytes.
const maxCause = 255

// Lane says which lane the records of a stream come from, from here on: a wire offset means nothing
// without it. A lane is the time from one opening of a wire to its end, with a random number.
type Lane struct {
	ID     [16]byte
	Offset uint64 // where in the wire the lane opens; NoOffset
}

// Drop says that bytes of the wire were taken and are in no record.
type Drop struct {
	From, To uint64 // wire offsets of the first byte, and of the byte behind the last
	N        uint64 // frames in it
	Cause    string // at most 255 bytes
}

// AppendAt is Append of a record whose first byte stood at that offset of the wire. NoOffset makes
// it Append. The offset costs eight bytes.
func (l *Log) AppendAt(stream uint32, time int64, offset uint64, data []byte) (uint64, error) {
	return l.append(wireEntry(stream, time, offset, data))
}

// TryAppendAt is TryAppend of a record whose first byte stood at that offset of the wire.
func (l *Log) TryAppendAt(stream uint32, time int64, offset uint64, data []byte) (uint64, error) {
	return l.tryAppend(wireEntry(stream, time, offset, data))
}

func wireEntry(stream uint32, time int64, offset uint64, data []byte) *entry {
	if offset == NoOffset {
		return &entry{kindRecord, stream, time, offset, data}
	}
	return &entry{kindWire, stream, time, offset, data}
}

// TryAppendLane notes that a lane opens: records of the stream are of it from here on. It never
// waits, as TryAppend.
func (l *Log) TryAppendLane(stream uint32, time int64, lane Lane) (uint64, error) {
	var b [24]byte
	binary.LittleEndian.PutUint64(b[copy(b[:], lane.ID[:]):], lane.Offset)
	return l.tryAppend(&entry{kindLane, stream, time, NoOffset, b[:]})
}

// TryAppendDrop notes what of a stream's lane was dropped. It never waits, as TryAppend. A drop
// whose To is below its From is an error.
func (l *Log) TryAppendDrop(stream uint32, time int64, d Drop) (uint64, error) {
	if d.To < d.From {
		return 0, fmt.Errorf("seglog: a drop from offset %d to %d: want the higher one last", d.From, d.To)
	}
	if len(d.Cause) > maxCause {
		return 0, fmt.Errorf("%w: a cause of %d bytes, at most %d", ErrTooLarge, len(d.Cause), maxCause)
	}
	var b [24 + maxCause]byte
	binary.LittleEndian.PutUint64(b[0:], d.From)
	binary.LittleEndian.PutUint64(b[8:], d.To)
	binary.LittleEndian.PutUint64(b[16:], d.N)
	n := 24 + copy(b[24:], d.Cause)
	return l.tryAppend(&entry{kindDrop, stream, time, NoOffset, b[:n]})
}

// Lane is what a note of KindLane says. ok is false where the entry is something else.
func (r Record) Lane() (lane Lane, ok bool) {
	if r.Kind != KindLane || len(r.Data) < 24 {
		return lane, false
	}
	lane.Offset = binary.LittleEndian.Uint64(r.Data[copy(lane.ID[:], r.Data):])
	return lane, true
}

// Drop is what a note of KindDrop says. ok is false where the entry is something else.
func (r Record) Drop() (d Drop, ok bool) {
	if r.Kind != KindDrop || len(r.Data) < 24 {
		return d, false
	}
	return Drop{
		From: binary.LittleEndian.Uint64(r.Data), To: binary.LittleEndian.Uint64(r.Data[8:]),
		N:     binary.LittleEndian.Uint64(r.Data[16:]),
		Cause: string(r.Data[24:]),
	}, true
}

// record is what readers get of a frame. known is false for a kind of a later program's.
func (f rawFrame) record() (r Record, known bool) {
	r = Record{Seq: f.seq, Time: f.time, Stream: f.stream, Data: f.data, Offset: NoOffset}
	switch f.kind {
	case kindRecord:
	case kindWire:
		if len(f.data) < offsetBytes {
			return r, false
		}
		r.Offset, r.Data = binary.LittleEndian.Uint64(f.data), f.data[offsetBytes:]
	case kindLane:
		r.Kind = KindLane
	case kindDrop:
		r.Kind = KindDrop
	default:
		return r, false
	}
	return r, true
}

// isRecord reports whether the frame is a record, and not a note.
func (f rawFrame) isRecord() bool {
	r, known := f.record()
	return known && r.Kind == KindRecord
}
