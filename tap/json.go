package tap

import (
	"encoding/json"
	"time"
)

// object is a line of the format json. Names that `log export --format ndjson` has mean the same
// here.
type object struct {
	Type       string     `json:"type"` // frame, damage, missing, note, not_shown
	Time       *time.Time `json:"time,omitempty"`
	Source     string     `json:"source,omitempty"`
	GapNs      *int64     `json:"gap_ns,omitempty"` // since the frame before
	Frame      string     `json:"frame,omitempty"`  // framing
	Device     *uint32    `json:"device,omitempty"`
	Epoch      *uint32    `json:"epoch,omitempty"`
	Number     *uint64    `json:"number,omitempty"`
	DeviceTime *int64     `json:"device_time,omitempty"` // ns
	Repeated   bool       `json:"repeated,omitempty"`
	Late       bool       `json:"late,omitempty"`
	What       string     `json:"what,omitempty"`    // damage, note
	Damaged    *int       `json:"damaged,omitempty"` // damage: frames that failed their check
	Bad        bool       `json:"bad,omitempty"`     // note: something is lost
	Count      *uint64    `json:"count,omitempty"`   // missing, not_shown: frames
	From       *uint64    `json:"from,omitempty"`    // missing: the first number
	To         *uint64    `json:"to,omitempty"`      // … and the last
	Len        *int       `json:"len,omitempty"`
	Data       []byte     `json:"data,omitempty"` // base64; of long damage the first part
}

// ndjson is the format for programs: an object a line.
type ndjson struct{ source string }

func (f ndjson) line(b []byte, o object) []byte {
	text, err := json.Marshal(o)
	if err != nil {
		panic("tap: " + err.Error()) // there is nothing in it that cannot be encoded
	}
	return append(append(b, text...), '\n')
}

func (f ndjson) at(kind string, l *line) object {
	at := time.Unix(0, l.at).UTC()
	o := object{Type: kind, Time: &at, Source: f.source}
	if l.gap >= 0 && (kind == "frame" || kind == "damage") {
		o.GapNs = &l.gap
	}
	return o
}

func (f ndjson) frame(b []byte, l *line) []byte {
	o, n := f.at("frame", l), len(l.data)
	o.Frame, o.Len, o.Data, o.Repeated, o.Late = l.frame, &n, l.data, l.fate.Repeated, l.fate.Late
	if l.numbered {
		o.Device, o.Epoch, o.Number, o.DeviceTime = &l.device, &l.epoch, &l.number, &l.devTime
	}
	return f.line(b, o)
}

func (f ndjson) damage(b []byte, l *line) []byte {
	o := f.at("damage", l)
	o.What, o.Damaged, o.Len, o.Data = l.what, &l.marks, &l.bytes, l.data
	return f.line(b, o)
}

func (f ndjson) missing(b []byte, l *line) []byte {
	o, last := f.at("missing", l), l.fate.From+l.fate.Missing-1
	corrupt := int(l.fate.Corrupt)
	o.Device, o.Epoch, o.Count, o.From, o.To, o.Damaged = &l.device, &l.epoch, &l.fate.Missing, &l.fate.From, &last,
		&corrupt
	return f.line(b, o)
}

func (f ndjson) note(b []byte, l *line) []byte {
	o := f.at("note", l)
	o.What, o.Bad = l.text, l.bad
	return f.line(b, o)
}

func (f ndjson) unseen(b []byte, l *line) []byte {
	o := f.at("not_shown", l)
	n := int(l.counts.bytes)
	o.Count, o.Len = &l.counts.frames, &n
	return f.line(b, o)
}
