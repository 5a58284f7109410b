package archive

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/framings"
	"github.com/tallywheel/tallywheel/seglog"
)

// Record is a record as the API and `log export --format ndjson` show it.
type Record struct {
	Source     string    `json:"source"`
	Seq        uint64    `json:"seq"` // sequence in the log
	Time       time.Time `json:"time"`
	DeviceTime *int64    `json:"device_time"` // device's clock, ns; null where the framing has none
	Device     *uint32   `json:"device,omitempty"`
	Epoch      *uint32   `json:"epoch,omitempty"`
	Number     *uint64   `json:"number,omitempty"` // the frame's number, given by the device
	Offset     *uint64   `json:"offset,omitempty"` // quarantined bytes: where they were in what was read
	Len        int       `json:"len"`
	Data       []byte    `json:"data"` // base64 in JSON; a view in memory
}

// Frame is what the framing says about a record of that stream.
func Frame(of *Stream, data []byte) frame.Frame {
	if of.Quarantine {
		return frame.Frame{Data: data}
	}
	return framings.Describe(of.Frame, data)
}

// unnamed is the name of a source whose stream is in no table.
func unnamed(stream uint32) string { return fmt.Sprintf("stream-%d", stream) }

// Describe makes a record of the log readable.
func (s *Streams) Describe(rec seglog.Record) (Record, Stream) {
	e, ok := s.By(rec.Stream)
	if !ok {
		e.Source = unnamed(rec.Stream)
	}
	return Describe(e, rec), e
}

// Describe makes a record of that stream readable.
func Describe(e Stream, rec seglog.Record) Record {
	r := Record{Source: e.Source, Seq: rec.Seq, Time: time.Unix(0, rec.Time).UTC(), Data: Payload(&e, rec.Data)}
	if offset, ok := WasteOffset(&e, rec.Data); ok {
		r.Offset = &offset
	}
	if f := Frame(&e, rec.Data); f.Sequenced {
		r.Device, r.Epoch, r.Number, r.DeviceTime = &f.Device, &f.Epoch, &f.Seq, &f.DeviceTime
	}
	r.Len = len(r.Data)
	return r
}

// Payload is what was on the wire of a record of that stream.
func Payload(of *Stream, data []byte) []byte {
	if of.Quarantine && len(data) >= quarantineHeader {
		return data[quarantineHeader:]
	}
	return data
}

// WasteOffset is where in what was read of its source a record of quarantined bytes stood. ok is
// false of other records.
func WasteOffset(of *Stream, data []byte) (offset uint64, ok bool) {
	if !of.Quarantine || len(data) < quarantineHeader {
		return 0, false
	}
	return binary.LittleEndian.Uint64(data), true
}

// quarantineHeader stands before quarantined bytes: their offset in what was read of the source,
// u64 little-endian. It begins at 0 with each start, and again with a reload that changes more of
// the source than overflow, buffer and quarantine; each peer has its own.
const quarantineHeader = 8

// Quarantined is the record of bytes that were no frame, which stood at offset in what was read.
func Quarantined(offset uint64, b []byte) []byte {
	rec := binary.LittleEndian.AppendUint64(make([]byte, 0, quarantineHeader+len(b)), offset)
	return append(rec, b...)
}
