package ledger

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Time is a moment in ns since 1970; in JSON it is RFC 3339 in UTC, null when 0.
type Time int64

// MarshalJSON implements [json.Marshaler].
func (t Time) MarshalJSON() ([]byte, error) {
	if t == 0 {
		return []byte("null"), nil
	}
	return json.Marshal(time.Unix(0, int64(t)).UTC())
}

// UnmarshalJSON implements [json.Unmarshaler].
func (t *Time) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*t = 0
		return nil
	}
	var v time.Time
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*t = Time(v.UnixNano())
	return nil
}

// Bytes is the account of a port in bytes.
type Bytes struct {
	Read    uint64 `json:"read"`    // taken off the wire
	Framed  uint64 `json:"framed"`  // in valid frames
	Resync  uint64 `json:"resync"`  // in no valid frame
	Partial uint64 `json:"partial"` // held, not classified yet
	// Quarantined is how much of resync the log took, for forensics; the rest was not asked for, or found the log busy or full.
	Quarantined uint64 `json:"quarantined"`
}

// Frames is the account of a port in frames.
type Frames struct {
	OK             uint64            `json:"ok"`              // valid
	Corrupt        uint64            `json:"corrupt"`         // seen, failed their check
	Unique         uint64            `json:"unique"`          // valid, first of their number
	Duplicate      uint64            `json:"duplicate"`       // valid, number seen before
	Reordered      uint64            `json:"reordered"`       // unique, but later than a higher number
	Missing        uint64            `json:"missing"`         // numbers never seen valid
	MissingCorrupt uint64            `json:"missing_corrupt"` // … of which damaged bytes came instead
	MissingUnseen  uint64            `json:"missing_unseen"`  // … of which nothing came
	Restarts       uint64            `json:"restarts"`        // sequences that began anew
	Stored         uint64            `json:"stored"`          // in the log, visible to its readers
	Durable        uint64            `json:"durable"`         // … and safe from a power cut
	Dropped        map[string]uint64 `json:"dropped"`         // given up after they were valid, by cause
	InFlight       uint64            `json:"in_flight"`       // held, not stored yet
}

// Kernel is what the driver counted below us; a nil field is one it does not count.
type Kernel struct {
	Overrun       *uint64 `json:"overrun"`        // UART FIFO full: characters lost in hardware
	BufferOverrun *uint64 `json:"buffer_overrun"` // tty or socket buffer full: bytes (tty) or datagrams (UDP) lost
	Framing       *uint64 `json:"framing"`        // stop bit missing
	Parity        *uint64 `json:"parity"`         // parity wrong
	Break         *uint64 `json:"break"`          // break conditions
}

// Outage is a time in which the port could not be read; To is 0 while it lasts.
type Outage struct {
	From  Time   `json:"from"`
	To    Time   `json:"to"`
	Cause string `json:"cause"`
}

// Port is the balance sheet of one port.
type Port struct {
	ID          string   `json:"id"`
	State       string   `json:"state"`
	Bytes       Bytes    `json:"bytes"`
	Frames      Frames   `json:"frames"`
	Kernel      *Kernel  `json:"kernel"`
	Outages     []Outage `json:"outages"`
	OutageCount uint64   `json:"outage_count"`
	Unbalanced  []string `json:"unbalanced,omitempty"` // the equations that do not hold
}

// Sheet is the balance sheet of all ports at one moment.
type Sheet struct {
	At       Time   `json:"at"`
	Since    Time   `json:"since"`
	Balanced bool   `json:"balanced"`
	Ports    []Port `json:"ports"`
}

// Held is what the owner of a book holds at the moment of a sheet, counted where it is held.
type Held struct {
	Bytes  uint64 // read and not classified
	Frames uint64 // valid and neither stored nor dropped
}

// Sheet draws up the account of the port and checks every equation.
func (b *Book) Sheet(id, state string, held Held, kernel *Kernel) Port {
	p := Port{ID: id, State: state, Bytes: b.bytes, Frames: b.frames, Kernel: kernel, OutageCount: b.outageCount}
	p.Bytes.Partial = held.Bytes
	p.Frames.InFlight = held.Frames
	p.Frames.Dropped = maps.Clone(b.frames.Dropped)
	if p.Frames.Dropped == nil {
		p.Frames.Dropped = map[string]uint64{}
	}
	p.Outages = append([]Outage{}, b.outages...)
	p.Unbalanced = p.check(b.span() + b.plain)
	return p
}

func (b *Book) span() uint64 {
	n := b.settled
	for _, q := range b.streams {
		n += q.next - q.first
	}
	return n
}

// check lists the equations that do not hold; span is that of all sequences, frames without numbers included.
func (p *Port) check(span uint64) (wrong []string) {
	y, f := p.Bytes, p.Frames
	var dropped uint64
	for _, n := range f.Dropped {
		dropped += n
	}
	for _, e := range []struct {
		name        string
		left, right uint64
	}{
		{"read = framed + resync + partial", y.Read, y.Framed + y.Resync + y.Partial},
		{"ok = unique + duplicate", f.OK, f.Unique + f.Duplicate},
		{"ok = stored + dropped + in_flight", f.OK, f.Stored + dropped + f.InFlight},
		{"unique + missing = span", f.Unique + f.Missing, span},
		{"missing = missing_corrupt + missing_unseen", f.Missing, f.MissingCorrupt + f.MissingUnseen},
	} {
		if e.left != e.right {
			wrong = append(wrong, fmt.Sprintf("%s: %d is not %d", e.name, e.left, e.right))
		}
	}
	if f.Durable > f.Stored {
		wrong = append(wrong, fmt.Sprintf("durable ≤ stored: %d is more than %d", f.Durable, f.Stored))
	}
	if y.Quarantined > y.Resync {
		wrong = append(wrong, fmt.Sprintf("quarantined ≤ resync: %d is more than %d", y.Quarantined, y.Resync))
	}
	return wrong
}

// NewSheet puts the ports' accounts together.
func NewSheet(at, since int64, ports []Port) Sheet {
	s := Sheet{At: Time(at), Since: Time(since), Ports: ports}
	if s.Ports == nil {
		s.Ports = []Port{}
	}
	s.Balanced = !slices.ContainsFunc(s.Ports, func(p Port) bool { return len(p.Unbalanced) > 0 })
	return s
}

// Lost is the number of frames of the port that were sent and are not, and will not be, in the log.
func (p *Port) Lost() uint64 {
	n := p.Frames.Missing
	for _, d := range p.Frames.Dropped {
		n += d
	}
	return n
}
