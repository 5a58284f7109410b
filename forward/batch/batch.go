// Package batch is the form in which frames are forwarded: one message carries some frames of one
// source, in the order of the log. Whoever receives messages decodes them with it.
//
// # Headers
//
// Each message says by its headers what is in it. Numbers are decimal; sequences are those of the
// log of the recorder, in which a source has holes, for others have records there, too.
//
//	Tallywheel-Log         identity of the log: 32 hexadecimal digits
//	Tallywheel-Source      name of the source, as it is configured
//	Tallywheel-Frame       framing of the source, as tally128 or line
//	Tallywheel-First       sequence of the first frame of the message
//	Tallywheel-Last        … of the last one
//	Tallywheel-Count       how many frames the message has, at least 1
//	Tallywheel-Prev        sequence of the source's last frame before this message; 0: there was none
//	Tallywheel-Time        when the last frame was read, ns since 1970
//	Tallywheel-Gone        records that the log removed before they were forwarded, at most: some of
//	                       them may have been frames between Prev and First; not there: none
//	Tallywheel-Quarantine  "1": the records are bytes that were no frame; not there: frames
//	Tallywheel-Batch       "1": the body is a batch; not there: the body is the one frame itself
//
// # Body
//
// The body of a batch has, for each frame, little-endian:
//
//	0   u64   sequence
//	8   i64   when it was read, ns since 1970
//	16  u32   length of the frame in bytes
//	20  …     the frame
//
// # Guarantees
//
// [Parse] accepts a message only if all of this agrees. The Prev of a message is the Last of the
// message before it of the same source and log: a [Chain] checks that, and so finds each gap and
// each double.
package batch

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strconv"
)

// Names of the headers.
const (
	LogHeader        = "Tallywheel-Log"
	SourceHeader     = "Tallywheel-Source"
	FrameHeader      = "Tallywheel-Frame"
	FirstHeader      = "Tallywheel-First"
	LastHeader       = "Tallywheel-Last"
	CountHeader      = "Tallywheel-Count"
	PrevHeader       = "Tallywheel-Prev"
	TimeHeader       = "Tallywheel-Time"
	GoneHeader       = "Tallywheel-Gone"
	QuarantineHeader = "Tallywheel-Quarantine"
	BatchHeader      = "Tallywheel-Batch"

	// CheckpointHeader is that of messages which have no frame, and the text of a checkpoint of the
	// log as their body: see package proof.
	CheckpointHeader = "Tallywheel-Checkpoint"
)

// version is the value of BatchHeader.
const version = "1"

// Overhead is how many bytes stand before each frame of a batch.
const Overhead = 20

// Header is what the headers of a message say.
type Header struct {
	Log        [16]byte
	Source     string
	Frame      string
	First      uint64
	Last       uint64
	Prev       uint64
	Count      int
	Time       int64  // of the last record, ns since 1970
	Gone       uint64 // records, at most
	Quarantine bool   // the records are bytes that were no frame, and no frames
}

// Record is one frame of a message, or, where [Header.Quarantine] is set, bytes that were no frame.
type Record struct {
	Seq  uint64
	Time int64 // when it was read, ns since 1970
	Data []byte
}

// ErrForeign is a message without the headers of this package: something else wrote it.
var ErrForeign = errors.New("this is no message of a recorder")

// Append adds a record to the body of a batch.
func Append(body []byte, r Record) []byte {
	var front [Overhead]byte
	binary.LittleEndian.PutUint64(front[0:], r.Seq)
	binary.LittleEndian.PutUint64(front[8:], uint64(r.Time))
	binary.LittleEndian.PutUint32(front[16:], uint32(len(r.Data)))
	return append(append(body, front[:]...), r.Data...)
}

// Headers are those of a message. bare says that its body is the one frame itself.
func (h Header) Headers(bare bool) map[string][]string {
	all := map[string][]string{}
	number := func(name string, n uint64) { all[name] = []string{strconv.FormatUint(n, 10)} }
	all[LogHeader] = []string{hex.EncodeToString(h.Log[:])}
	all[SourceHeader], all[FrameHeader] = []string{h.Source}, []string{h.Frame}
	number(FirstHeader, h.First)
	number(LastHeader, h.Last)
	number(CountHeader, uint64(h.Count))
	number(PrevHeader, h.Prev)
	all[TimeHeader] = []string{strconv.FormatInt(h.Time, 10)}
	if h.Gone > 0 {
		number(GoneHeader, h.Gone)
	}
	if h.Quarantine {
		all[QuarantineHeader] = []string{"1"}
	}
	if !bare {
		all[BatchHeader] = []string{version}
	}
	return all
}

// Message is one that was parsed.
type Message struct {
	Header
	body []byte
	bare bool
}

// ParseHeader reads headers, for those who have no body. It is [ErrForeign] where there are none.
func ParseHeader(headers map[string][]string) (h Header, err error) {
	one := func(name string) string {
		if v := headers[name]; len(v) == 1 {
			return v[0]
		}
		return ""
	}
	if len(headers[LogHeader]) == 0 && len(headers[LastHeader]) == 0 {
		return h, ErrForeign
	}
	id, err := hex.DecodeString(one(LogHeader))
	if err != nil || copy(h.Log[:], id) != len(h.Log) || len(id) != len(h.Log) {
		return h, fmt.Errorf("%s: %q: want 32 hexadecimal digits", LogHeader, one(LogHeader))
	}
	number := func(name string, into *uint64) {
		n, bad := strconv.ParseUint(one(name), 10, 63)
		if bad != nil && err == nil {
			err = fmt.Errorf("%s: %q: want a number", name, one(name))
		}
		*into = n
	}
	var count, at uint64
	number(FirstHeader, &h.First)
	number(LastHeader, &h.Last)
	number(PrevHeader, &h.Prev)
	number(CountHeader, &count)
	number(TimeHeader, &at)
	if one(GoneHeader) != "" {
		number(GoneHeader, &h.Gone)
	}
	if err != nil {
		return h, err
	}
	h.Count, h.Time = int(min(count, 1<<30)), int64(at)
	h.Source, h.Frame, h.Quarantine = one(SourceHeader), one(FrameHeader), one(QuarantineHeader) != ""
	if h.First == 0 || h.First > h.Last || h.Prev >= h.First || count == 0 || count-1 > h.Last-h.First {
		return h, fmt.Errorf("%d frames from %d to %d behind %d: that cannot be", count, h.First, h.Last, h.Prev)
	}
	return h, nil
}

// Parse reads a message, which keeps body. It is [ErrForeign] where the headers are missing.
func Parse(headers map[string][]string, body []byte) (m Message, err error) {
	if m.Header, err = ParseHeader(headers); err != nil {
		return m, err
	}
	m.body = body
	form := headers[BatchHeader]
	if m.bare = len(form) == 0; m.bare {
		if m.Count != 1 {
			return m, fmt.Errorf("%d frames in a message without %s: want 1", m.Count, BatchHeader)
		}
		return m, nil
	}
	if form[0] != version {
		return m, fmt.Errorf("%s: %q is not known; take a newer program", BatchHeader, form[0])
	}
	return m, m.check()
}

// check goes through the body.
func (m *Message) check() error {
	n, before, b := 0, m.Prev, m.body
	for ; len(b) > 0; n++ {
		r, rest, ok := next(b)
		if !ok {
			return fmt.Errorf("the body ends amid frame %d", n+1)
		}
		if r.Seq <= before || n == 0 && r.Seq != m.First {
			return fmt.Errorf("frame %d has the sequence %d behind %d", n+1, r.Seq, before)
		}
		before, b = r.Seq, rest
	}
	if n != m.Count || before != m.Last {
		return fmt.Errorf("%d frames up to %d, where the headers say %d up to %d", n, before, m.Count, m.Last)
	}
	return nil
}

// next takes a record off the front of a body.
func next(b []byte) (r Record, rest []byte, ok bool) {
	if len(b) < Overhead {
		return r, nil, false
	}
	n := uint64(binary.LittleEndian.Uint32(b[16:]))
	if n > uint64(len(b)-Overhead) {
		return r, nil, false
	}
	end := Overhead + int(n)
	r = Record{binary.LittleEndian.Uint64(b), int64(binary.LittleEndian.Uint64(b[8:])), b[Overhead:end:end]}
	return r, b[end:], true
}

// Records are those of the message, in order. Their data is a view of its body.
func (m Message) Records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		if m.bare {
			yield(Record{m.First, m.Time, m.body})
			return
		}
		for b := m.body; len(b) > 0; {
			r, rest, ok := next(b)
			if !ok || !yield(r) {
				return
			}
			b = rest
		}
	}
}

// Chain follows the messages of sources, and says what is missing between them, or came twice. The
// zero value is ready to use. It keeps one entry for each source of each log.
type Chain struct{ last map[link]uint64 }

type link struct {
	log        [16]byte
	source     string
	quarantine bool
}

// GapError says that messages of a source are missing: the source's frames behind After up to Prev,
// or its bytes that were no frame.
type GapError struct {
	Source      string
	After, Prev uint64
	Quarantine  bool
}

// Error implements error.
func (e *GapError) Error() string {
	what := "frames"
	if e.Quarantine {
		what = "bytes that were no frame,"
	}
	return fmt.Sprintf("source %s: the %s behind record %d up to record %d are missing", e.Source, what, e.After,
		e.Prev)
}

// DoubleError says that a message has frames of a source that came before.
type DoubleError struct {
	Source      string
	Last, First uint64
}

// Error implements error.
func (e *DoubleError) Error() string {
	return fmt.Sprintf("source %s: record %d comes again, behind record %d", e.Source, e.First, e.Last)
}

// Next checks a message against the one before it of its source. The first one of a source may be
// any. The chain goes on behind it in each case, but for a double, behind which it stays.
func (c *Chain) Next(h Header) error {
	if c.last == nil {
		c.last = map[link]uint64{}
	}
	of := link{h.Log, h.Source, h.Quarantine}
	last, known := c.last[of]
	if known && h.First <= last {
		return &DoubleError{h.Source, last, h.First}
	}
	c.last[of] = h.Last
	if known && h.Prev != last {
		return &GapError{h.Source, last, h.Prev, h.Quarantine}
	}
	return nil
}
