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

// TimeLayout is how a time is shown to people.
const TimeLayout = "2006-01-02 15:04:05 -07:00"

// String is the moment for people, on the clock of this machine; "an unknown time" for 0.
func (t Time) String() string {
	if t == 0 {
		return "an unknown time"
	}
	return time.Unix(0, int64(t)).Local().Format(TimeLayout)
}

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
	// Quarantined is how much of resync the log has stored, for forensics; the rest was not asked
	// for, found the log busy or full, or was in its hands when it failed.
	Quarantined uint64 `json:"quarantined"`
}

// Frames is the account of a port in frames.
type Frames struct {
	OK             uint64 `json:"ok"`              // valid
	Corrupt        uint64 `json:"corrupt"`         // seen, failed their check
	Unique         uint64 `json:"unique"`          // valid, first of their number
	Duplicate      uint64 `json:"duplicate"`       // valid, number seen before
	Reordered      uint64 `json:"reordered"`       // unique, but later than a higher number
	Late           uint64 `json:"late"`            // unique, and missing in an account before this one
	LateKnown      uint64 `json:"late_known"`      // … which was acknowledged before it came
	Missing        uint64 `json:"missing"`         // numbers never seen valid
	MissingCorrupt uint64 `json:"missing_corrupt"` // … of which damaged bytes came instead
	MissingUnseen  uint64 `json:"missing_unseen"`  // … of which nothing came
	MissingByTime  uint64 `json:"missing_by_time"` // not there when one was expected: see [Rhythm]
	Requests       uint64 `json:"requests"`        // to which an answer was due, of framings that have them
	Answered       uint64 `json:"answered"`        // … and came
	// … and did not come; of the others damage, or an end, leaves it open
	Unanswered uint64 `json:"unanswered"`
	Restarts   uint64 `json:"restarts"` // sequences that began anew
	// sequences too many to remember, or with too many gaps: their losses may go unseen
	Forgotten uint64 `json:"forgotten"`
	// devices that were new behind a kill, and not at their first number: see Book.Distrust
	Joined   uint64            `json:"joined"`
	Stored   uint64            `json:"stored"`    // in the log, visible to its readers
	Durable  uint64            `json:"durable"`   // … and safe from a power cut
	Dropped  map[string]uint64 `json:"dropped"`   // given up after they were valid, by cause
	InFlight uint64            `json:"in_flight"` // held, not stored yet
}

func (y *Bytes) add(o *Bytes) {
	y.Read += o.Read
	y.Framed += o.Framed
	y.Resync += o.Resync
	y.Partial += o.Partial
	y.Quarantined += o.Quarantined
}

func (f *Frames) add(o *Frames) {
	f.OK += o.OK
	f.Corrupt += o.Corrupt
	f.Unique += o.Unique
	f.Duplicate += o.Duplicate
	f.Reordered += o.Reordered
	f.Late += o.Late
	f.LateKnown += o.LateKnown
	f.Missing += o.Missing
	f.MissingCorrupt += o.MissingCorrupt
	f.MissingUnseen += o.MissingUnseen
	f.MissingByTime += o.MissingByTime
	f.Requests += o.Requests
	f.Answered += o.Answered
	f.Unanswered += o.Unanswered
	f.Restarts += o.Restarts
	f.Forgotten += o.Forgotten
	f.Joined += o.Joined
	f.Stored += o.Stored
	f.Durable += o.Durable
	f.InFlight += o.InFlight
	for cause, n := range o.Dropped {
		count(&f.Dropped, cause, n)
	}
}

// Kernel is what the driver counted below us; a nil field is one it does not count.
type Kernel struct {
	Overrun       *uint64 `json:"overrun"`        // UART FIFO full: characters lost in hardware
	BufferOverrun *uint64 `json:"buffer_overrun"` // tty or socket buffer full: bytes (tty) or datagrams (UDP) lost
	Framing       *uint64 `json:"framing"`        // stop bit missing
	Parity        *uint64 `json:"parity"`         // parity wrong
	Break         *uint64 `json:"break"`          // break conditions
}

// Lost is what was lost for want of room: characters or datagrams.
func (k *Kernel) Lost() uint64 {
	if k == nil {
		return 0
	}
	return sum(k.Overrun, k.BufferOverrun)
}

// Plus is the counts of both; nil of two that are nil.
func (k *Kernel) Plus(o *Kernel) *Kernel {
	if k == nil {
		k, o = o, nil
	}
	if o == nil {
		return k.copied()
	}
	of := func(a, b *uint64) *uint64 {
		if a == nil && b == nil {
			return nil
		}
		n := sum(a, b)
		return &n
	}
	return &Kernel{
		of(k.Overrun, o.Overrun), of(k.BufferOverrun, o.BufferOverrun), of(k.Framing, o.Framing),
		of(k.Parity, o.Parity), of(k.Break, o.Break),
	}
}

// Outage is a time in which the port could not be read; To is 0 while it lasts.
type Outage struct {
	From  Time   `json:"from"`
	To    Time   `json:"to"`
	Cause string `json:"cause"`
}

// States of a port.
const (
	StateOpen    = "open"
	StateWaiting = "waiting" // not there, or not connected
	StateBlocked = "blocked" // not read, because the log cannot take more
	StateStopped = "stopped"
)

// Port is the balance sheet of one port.
type Port struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Why   string `json:"why"`   // what keeps it from being open now; "": it is open, or was not tried yet
	Proof Proof  `json:"proof"` // what its frames prove about those that are not there
	Heard bool   `json:"heard"` // a valid frame has come since it was opened last
	// SilentSince is when its last frame came, where that is longer ago than it may be, and no
	// bytes came that may still be frames.
	SilentSince Time    `json:"silent_since"`
	Silences    uint64  `json:"silences"` // times that it was silent for so long, and went on, or was gone
	Bytes       Bytes   `json:"bytes"`
	Frames      Frames  `json:"frames"`
	Kernel      *Kernel `json:"kernel"`
	// Spilled is the bytes of frames in flight that have run over into a file; with isolate:
	// process bytes that were read, and are in no frame yet, in the file and in the memory that is
	// before it.
	Spilled uint64 `json:"spilled_bytes"`
	// Unread is bytes that the kernel had taken from the sender and that were thrown away before
	// they were read, by cause; those of UnreadUncertain may have been.
	Unread map[string]uint64 `json:"unread"`
	// FewDescriptors says that connections wait to be read, for the process has no descriptors for
	// them.
	FewDescriptors bool `json:"few_descriptors,omitempty"`
	// Refused is connections that were ended unread, by cause.
	Refused     map[string]uint64 `json:"refused,omitempty"`
	Outages     []Outage          `json:"outages"`
	OutageCount uint64            `json:"outage_count"`
	// when something was found to be lost or damaged last, and has not come since
	LastLoss   Time     `json:"last_loss"`
	Unbalanced []string `json:"unbalanced,omitempty"` // the equations that do not hold
	// Known is how much of the counts was acknowledged in this start, and has not come late since;
	// null: nothing was acknowledged while the source had these books.
	Known *Counts `json:"known,omitempty"`
	// Book is which book of this process the account is of: a source that is started anew has
	// another. Hub is that of its source, if it is a peer. 0: it is not known.
	Book uint64 `json:"-"`
	Hub  uint64 `json:"-"`
}

// Clock is what is known of the clock that the times of records and outages come from.
type Clock struct {
	Synchronised *bool       `json:"synchronised"` // whether a time service keeps it; null: not known
	StepCount    uint64      `json:"step_count"`
	Steps        []ClockStep `json:"steps"` // the last ones
}

// ClockStep is a moment at which the clock was set: times before and behind it do not compare.
type ClockStep struct {
	At Time  `json:"at"` // by the clock as it is since then
	By int64 `json:"by"` // ns; negative: it was set back
	// Between: it was set back before this start, and behind the one before: by so much at least,
	// and At is when this one began.
	Between bool `json:"between_starts,omitempty"`
}

// Sheet is the balance sheet of all ports at one moment.
type Sheet struct {
	At       Time   `json:"at"`
	Since    Time   `json:"since"`
	Balanced bool   `json:"balanced"`
	Clock    *Clock `json:"clock,omitempty"` // null: nobody watched it
	// Recovered is what the log had lost when this start opened it; null: nothing.
	Recovered *Recovered `json:"recovered,omitempty"`
	// Log is what keeps the log from taking frames; null: nothing does.
	Log *LogState `json:"log,omitempty"`
	// LogDamage is what the log has found damaged of what it has stored; null: nothing.
	LogDamage *LogDamage `json:"log_damage,omitempty"`
	// Forward is the accounts of destinations that frames go on to; null: there are none.
	Forward []Forwarding `json:"forward,omitempty"`
	// ForwardUnbalanced is the laws that they break; null: none.
	ForwardUnbalanced []string `json:"forward_unbalanced,omitempty"`
	// StreamsUnknown is stream numbers of the oldest and of the newest records of earlier starts,
	// and up to 100 that the table of streams once had, which it does not name now: nobody knows
	// which sources those are of.
	StreamsUnknown []uint32 `json:"streams_unknown,omitempty"`

	Verdict *Verdict `json:"verdict,omitempty"` // what [Sheet.Judge] made of it when it was drawn up
	Ack     *Ack     `json:"ack,omitempty"`     // since when the verdict counts; null: all counts
	Past    *Past    `json:"past,omitempty"`    // what earlier starts have lost; null: nothing
	Ports   []Port   `json:"ports"`
	// Leaving is the accounts of sources that were taken out or changed, as long as the log has not
	// stored all that they hold: then they have a sheet of their own. What they lost is in Past.
	Leaving []Port `json:"leaving,omitempty"`
	// Known is what beside the ports was acknowledged in this start; null: it was not.
	Known *SheetKnown `json:"known,omitempty"`
}

// LogState is what keeps a log from taking frames, or from keeping them, or has kept it from that.
type LogState struct {
	Full     bool   `json:"full"`               // its disk is
	Stalled  string `json:"stalled,omitempty"`  // why it waits, and tries again
	Unsaved  string `json:"unsaved,omitempty"`  // why the sheet of each second cannot be kept beside it
	Error    string `json:"error,omitempty"`    // why it has failed: nothing is recorded until the next start
	Evicting bool   `json:"evicting,omitempty"` // `on_full: drop-oldest` removes records that `keep` would keep
	Evicted  uint64 `json:"evicted,omitempty"`  // how many it has removed so since the start
}

// LogDamage is what is damaged of what a log has stored, until it is repaired.
type LogDamage struct {
	Places  uint64         `json:"places"`
	Records uint64         `json:"records"` // that cannot be read
	AtMost  bool           `json:"at_most"` // there may be fewer
	First   []DamagedPlace `json:"first"`   // the first places, in the order of the log
}

// DamagedPlace is one place in a segment of a log.
type DamagedPlace struct {
	Found   Time   `json:"found"`
	Base    uint64 `json:"first_record"` // of the segment by which it was found
	Segment string `json:"segment"`
	Offset  int64  `json:"offset"`
	Bytes   int64  `json:"bytes"` // from Offset on, to where reading goes on; 0: not known
	What    string `json:"what"`
	From    uint64 `json:"from"` // the records that cannot be read; To 0: all can
	To      uint64 `json:"to"`
	AtMost  bool   `json:"at_most"`
}

// Records is how many cannot be read.
func (p DamagedPlace) Records() uint64 {
	if p.To == 0 || p.To < p.From {
		return 0
	}
	return p.To - p.From + 1
}

// Is reports whether both are the same place.
func (p DamagedPlace) Is(o DamagedPlace) bool {
	p.Found, p.Bytes = o.Found, o.Bytes // a program before this did not know how many
	return p == o
}

// Add adds a place.
func (d *LogDamage) Add(p DamagedPlace) {
	d.Places, d.Records, d.AtMost, d.First = d.Places+1, d.Records+p.Records(), d.AtMost || p.AtMost, append(d.First, p)
}

// Recovered is what a log had lost between two starts. What is counted here is in no other sheet,
// and in no book: to add it to what all sheets call missing and dropped counts nothing twice.
type Recovered struct {
	Missing  []MissingRecords `json:"missing"`   // records that had been durable, and are gone: nobody knows whose
	Unsynced uint64           `json:"unsynced"`  // frames that had been stored, were not durable yet, and are gone
	CutBytes int64            `json:"cut_bytes"` // of a batch that was being written: none of it was durable
	CutAt    string           `json:"cut_at"`    // segment and offset, "" if nothing was cut
	// segments behind one that is torn (.torn), and one cut off in its header (.damaged)
	SetAside []string `json:"set_aside"`
}

// MissingRecords is a part of the log that is gone.
type MissingRecords struct {
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
	AtMost bool   `json:"at_most"` // how many there were up to To is not known
	What   string `json:"what"`
}

// Gone is how many durable records are missing; with atMost at most so many.
func (r *Recovered) Gone() (n uint64, atMost bool) {
	if r == nil {
		return 0, false
	}
	for _, m := range r.Missing {
		n += m.To - m.From + 1
		atMost = atMost || m.AtMost
	}
	return n, atMost
}

// And is that with what was found when the log was opened once more within the same start. Either
// may be nil.
func (r *Recovered) And(later *Recovered) *Recovered {
	if r == nil {
		return later
	}
	if later == nil {
		return r
	}
	both := Recovered{
		Missing:  append(slices.Clone(r.Missing), later.Missing...),
		Unsynced: r.Unsynced + later.Unsynced, CutBytes: r.CutBytes + later.CutBytes, CutAt: later.CutAt,
		SetAside: append(slices.Clone(r.SetAside), later.SetAside...),
	}
	if both.CutAt == "" {
		both.CutAt = r.CutAt
	}
	return &both
}

// Held is what the owner of a book holds at the moment of a sheet, counted where it is held.
type Held struct {
	Bytes  uint64 // read and not classified
	Frames uint64 // valid and neither stored nor dropped
	// Spilled is the bytes of those of Frames that are in a file.
	Spilled uint64
}

// Sheet draws up the account of the port and checks every equation.
func (b *Book) Sheet(id, state string, held Held, kernel *Kernel) Port {
	p := Port{ID: id, State: state, Bytes: b.bytes, Frames: b.frames, Kernel: kernel, OutageCount: b.outageCount}
	p.LastLoss, p.Silences = Time(b.LastLoss()), b.silences
	p.Bytes.Partial = held.Bytes
	p.Frames.InFlight, p.Spilled = held.Frames, held.Spilled
	p.Frames.Dropped = maps.Clone(b.frames.Dropped)
	if p.Frames.Dropped == nil {
		p.Frames.Dropped = map[string]uint64{}
	}
	p.Unread = maps.Clone(b.unread)
	if p.Unread == nil {
		p.Unread = map[string]uint64{}
	}
	p.Refused = maps.Clone(b.refused)
	p.Outages = append([]Outage{}, b.outages...)
	p.Known = b.knownOf(&p)
	p.Unbalanced = p.check(b.span() + b.plain)
	return p
}

func (b *Book) span() uint64 {
	n := b.settled - b.told
	for _, q := range b.streams {
		n += q.next - q.first
	}
	return n
}

// check lists the equations that do not hold; span is that of all sequences, frames without numbers
// included.
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
		{"unique + missing = span + late", f.Unique + f.Missing, span + f.Late},
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

// Join is the account of a source that had other books before, with what those had counted. It says
// nothing of what is known.
func (p Port) Join(earlier *Port) Port {
	p.Known = nil
	p.Proof = weaker(p.Proof, earlier.Proof)
	p.Frames.Dropped, p.Unread, p.Refused = maps.Clone(p.Frames.Dropped), maps.Clone(p.Unread), maps.Clone(p.Refused)
	p.Bytes.add(&earlier.Bytes)
	p.Frames.add(&earlier.Frames)
	for cause, n := range earlier.Unread {
		count(&p.Unread, cause, n)
	}
	for cause, n := range earlier.Refused {
		count(&p.Refused, cause, n)
	}
	p.Kernel = p.Kernel.Plus(earlier.Kernel)
	p.Silences += earlier.Silences
	p.Outages = slices.Concat(earlier.Outages, p.Outages)
	p.OutageCount += earlier.OutageCount
	p.LastLoss = max(p.LastLoss, earlier.LastLoss)
	p.Unbalanced = slices.Concat(earlier.Unbalanced, p.Unbalanced)
	return p
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
