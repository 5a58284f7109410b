package gateway

import (
	"errors"
	"fmt"
	"io"
	"strconv"
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

// describe reads what the framing says about a record of that stream.
func describe(s Stream, data []byte) frame.Frame {
	if s.Quarantine {
		return frame.Frame{Data: data}
	}
	return framings.Describe(s.Frame, data)
}

// Describe makes a record of the log readable.
func (s *Streams) Describe(rec seglog.Record) (Record, Stream) {
	e, ok := s.By(rec.Stream)
	if !ok {
		e.Source = fmt.Sprintf("stream-%d", rec.Stream)
	}
	r := Record{Source: e.Source, Seq: rec.Seq, Time: time.Unix(0, rec.Time).UTC(), Data: rec.Data}
	if e.Quarantine && len(rec.Data) >= quarantineHeader {
		offset := quarantineOffset(rec.Data)
		r.Offset, r.Data = &offset, rec.Data[quarantineHeader:]
	}
	if f := describe(e, rec.Data); f.Sequenced {
		r.Device, r.Epoch, r.Number, r.DeviceTime = &f.Device, &f.Epoch, &f.Seq, &f.DeviceTime
	}
	r.Len = len(r.Data)
	return r, e
}

// Query asks for records of the log.
type Query struct {
	Source     string // "" means all
	From       uint64 // first sequence
	Since      int64  // ns since 1970: skip records before; 0 means none
	Until      int64  // ns since 1970: end at the first record after; 0 means none
	Limit      int    // at most so many
	Quarantine bool   // quarantined bytes instead of frames
}

// Page is an answer to a Query.
type Page struct {
	Records []Record `json:"records"`
	Cursor  string   `json:"cursor"` // ask for what follows with it; "" when the log ends here
	Gone    uint64   `json:"gone"`   // records asked for that are not in the log any more
}

// scanLimit bounds the records that one page looks at, so that a rare source cannot make a request endless.
const scanLimit = 1 << 20

// Page reads one page.
func (q Query) Page(r *seglog.Reader, streams *Streams) (Page, error) {
	p := Page{Records: []Record{}}
	if q.Since > 0 && q.From <= 1 {
		if err := r.SeekTime(q.Since); err != nil {
			return p, err
		}
	}
	for range scanLimit {
		rec, err := r.Next()
		var gap *seglog.GapError
		switch {
		case errors.As(err, &gap):
			p.Gone += gap.To - gap.From + 1
			continue
		case err == io.EOF:
			return p, nil
		case err != nil:
			return p, err
		case q.Until > 0 && rec.Time > q.Until:
			return p, nil
		}
		p.Cursor = strconv.FormatUint(rec.Seq+1, 10)
		if out, ok := q.Match(streams, rec); ok {
			out.Data = append([]byte(nil), out.Data...)
			if p.Records = append(p.Records, out); len(p.Records) >= q.Limit {
				return p, nil
			}
		}
	}
	return p, nil
}

// Match reports whether a record of the log answers the query, and describes it.
func (q Query) Match(streams *Streams, rec seglog.Record) (Record, bool) {
	e, ok := streams.By(rec.Stream)
	if q.Source != "" && (!ok || e.Source != q.Source) || e.Quarantine != q.Quarantine || q.Since > rec.Time {
		return Record{}, false
	}
	out, _ := streams.Describe(rec)
	return out, true
}
