package ledger

import (
	"fmt"
	"slices"
	"strings"
)

// Ack is somebody's word that what was lost up to a moment is known: the verdict counts from there.
// The books do not change.
type Ack struct {
	At   Time   `json:"at"`
	Note string `json:"note"`
}

// Past is what starts before this one have lost, since the last [Ack].
type Past struct {
	Starts   uint64 `json:"starts"` // those that lost something
	Since    Time   `json:"since"`  // when the first of them began
	LostWire Amount `json:"lost_wire"`
	LostHere Amount `json:"lost_here"`
	Damaged  Amount `json:"damaged"`
	LastLoss Time   `json:"last_loss"`
	// OtherLog is how many of Starts were on another log: one that was in the folder before this
	// one, or one whose sheets somebody has put there.
	OtherLog uint64 `json:"other_log,omitempty"`
	// Unreadable: more may be lost, for the sheets of some starts cannot be read.
	Unreadable bool `json:"unreadable,omitempty"`
	// Partial: the history is longer than what was read of it.
	Partial bool `json:"partial,omitempty"`
	// Unproven is sources whose frames did not prove that none was lost, the first [MaxUnproven].
	Unproven []string `json:"unproven,omitempty"`
	// Doubts is the kinds of reasons, as docs/guide/verdict.md has them, of what no amount says:
	// that something may be lost.
	Doubts []string `json:"doubts,omitempty"`
	// NewDoubts is those of Doubts that only the start has which was the last to bring one.
	NewDoubts *NewDoubts `json:"new_doubts,omitempty"`

	// Newest is what of it is of the start that was added last: starts are added in their order.
	Newest *Closed `json:"newest,omitempty"`
}

// Closed is what a start has lost by its closed books. Of the start that runs those are of sources
// that have left it, as by a reload.
type Closed struct {
	Since    Time   `json:"since"` // of the start
	LostWire Amount `json:"lost_wire"`
	LostHere Amount `json:"lost_here"`
	Damaged  Amount `json:"damaged"`
}

// NewDoubts is what no start had before one, by its closed books.
type NewDoubts struct {
	Since Time     `json:"since"` // of the start
	Kinds []string `json:"kinds"`
}

// of is the start that was added last, by its Since.
func (p *Past) of() Time {
	if p.Newest == nil {
		return 0
	}
	return p.Newest.Since
}

// closedIn is what of p is of the start that runs, which began then.
func (p *Past) closedIn(since Time) Closed {
	if p == nil || p.Newest == nil || p.of() != since {
		return Closed{}
	}
	return *p.Newest
}

// MaxUnproven is how many sources a [Past] names that could not prove that nothing was lost.
const MaxUnproven = 64

// IsEmpty reports whether there is nothing to say of earlier starts.
func (p *Past) IsEmpty() bool {
	return p.Starts == 0 && !p.Unreadable && !p.Partial && len(p.Unproven)+len(p.Doubts) == 0
}

// Add adds the sheet of a start, or of a part of its sources that has left it. What an Ack of that
// start has taken out, as [Sheet.Acknowledge] says, is not counted.
func (p *Past) Add(s *Sheet) {
	if len(s.Leaving) > 0 { // its start was killed before they had a sheet of their own
		whole := *s
		whole.Ports, whole.Leaving = slices.Concat(s.Ports, s.Leaving), nil
		s = &whole
	}
	for i := range s.Ports {
		p.prove(&s.Ports[i])
	}
	defer p.TakeBack(s)
	if p.of() == s.Since {
		p.LastLoss = s.NotLater(p.LastLoss)
	}
	v := s.Judge()
	for _, r := range v.Reasons {
		// the others are states, in amounts, or stand until they are mended
		if r.Level == Watch && r.Count > 0 || r.Kind == kindUnbalanced {
			p.doubt(r.Kind, s.Since)
		}
	}
	if v.LostWire == (Amount{}) && v.LostHere == (Amount{}) && v.Damaged == (Amount{}) {
		return
	}
	newest := Closed{Since: s.Since}
	if p.Starts > 0 && s.Since == p.of() {
		newest = p.closedIn(s.Since)
	} else {
		p.Starts++
		if v.LastLoss != 0 {
			p.LastLoss = 0 // that of a start before it is earlier, whatever the clock was
		}
	}
	if p.Since == 0 {
		p.Since = v.Since
	}
	p.LostWire.add(v.LostWire)
	p.LostHere.add(v.LostHere)
	p.Damaged.add(v.Damaged)
	p.LastLoss = max(p.LastLoss, v.LastLoss)
	newest.LostWire.add(v.LostWire)
	newest.LostHere.add(v.LostHere)
	newest.Damaged.add(v.Damaged)
	p.Newest = &newest // a copy of p may share the one before
}

// Join adds what starts had lost that are in no sum with those of p.
func (p *Past) Join(o *Past) {
	p.Starts, p.OtherLog, p.Newest = p.Starts+o.Starts, p.OtherLog+o.OtherLog, nil
	if p.Since == 0 || o.Since != 0 && o.Since < p.Since {
		p.Since = o.Since
	}
	p.LostWire.add(o.LostWire)
	p.LostHere.add(o.LostHere)
	p.Damaged.add(o.Damaged)
	p.LastLoss = max(p.LastLoss, o.LastLoss)
	p.Unreadable, p.Partial = p.Unreadable || o.Unreadable, p.Partial || o.Partial
	for _, id := range o.Unproven {
		p.unproven(id)
	}
	for _, kind := range o.Doubts {
		p.doubt(kind, 0)
	}
	p.NewDoubts = nil
}

// TakeBack takes out frames that came late by the sheet of a start: they are missing in the sheet
// of one before it. Where that is not in the sum, nothing is taken out of it.
func (p *Past) TakeBack(s *Sheet) {
	if p.Unreadable || p.Partial {
		return
	}
	n := s.late()
	p.LostWire.Frames -= min(p.LostWire.Frames, n)
	if p.Newest != nil { // most likely of that
		newest := *p.Newest
		newest.LostWire.Frames -= min(newest.LostWire.Frames, n)
		p.Newest = &newest
	}
	if p.LostWire == (Amount{}) && p.LostHere == (Amount{}) && p.Damaged == (Amount{}) {
		p.Starts, p.Since, p.LastLoss, p.OtherLog, p.Newest = 0, 0, 0, 0, nil
	}
}

// late is how many frames of the sheet were missing in an account before it, and not known to be.
func (s *Sheet) late() (n uint64) {
	for i := range s.Ports {
		p := &s.Ports[i]
		if s.Ack != nil {
			p = p.news()
		}
		n += p.Counts().Late
	}
	return n
}

// prove notes a source whose frames did not prove that none was lost. An account that does not say
// what they proved is one of those: a program before there were proofs wrote it.
func (p *Past) prove(of *Port) {
	id, _, _ := strings.Cut(of.ID, "/")
	if of.Proof != ProofNumbers {
		p.unproven(id)
	}
}

func (p *Past) unproven(id string) {
	if len(p.Unproven) < MaxUnproven && !slices.Contains(p.Unproven, id) {
		p.Unproven = append(slices.Clip(p.Unproven), id) // a copy of p may share the others
	}
}

// doubt notes a kind that the start has which began at since.
func (p *Past) doubt(kind string, since Time) {
	if slices.Contains(p.Doubts, kind) {
		return
	}
	p.Doubts = append(slices.Clip(p.Doubts), kind) // as above
	slices.Sort(p.Doubts)
	fresh := &NewDoubts{since, append(slices.Clip(p.newDoubts(since)), kind)}
	slices.Sort(fresh.Kinds)
	p.NewDoubts = fresh
}

// newDoubts is what only the start has that began at since.
func (p *Past) newDoubts(since Time) []string {
	if p.NewDoubts == nil || p.NewDoubts.Since != since {
		return nil
	}
	return p.NewDoubts.Kinds
}

// findDoubts is what the verdict says of what earlier starts had, and closed books of the one that
// runs since then, and its open ones may not.
func (p *Past) findDoubts(since Time) []find {
	if p == nil {
		return nil
	}
	var parts []string
	now := p.newDoubts(since)
	earlier := slices.DeleteFunc(slices.Clone(p.Doubts), func(kind string) bool { return slices.Contains(now, kind) })
	if len(earlier) > 0 {
		parts = append(parts, "earlier: "+strings.Join(earlier, ", "))
	}
	if len(now) > 0 {
		parts = append(parts, strings.Join(now, ", ")+inClosedBooks)
	}
	return when(len(parts) > 0, "%s", strings.Join(parts, "; "))
}

// findUnproven is what the verdict says of sources that could not know what never arrived, and of
// which it does not say so now.
func (p *Past) findUnproven(now []Port) []find {
	if p == nil {
		return nil
	}
	gone := slices.DeleteFunc(slices.Clone(p.Unproven), func(id string) bool {
		return slices.ContainsFunc(now, func(p Port) bool { return p.ID == id && p.Proof != ProofNumbers })
	})
	return when(len(gone) > 0, "earlier: %s could not know what never arrived", Some(gone))
}

// find is what the verdict says of it, of the start that runs since then, too.
func (p *Past) find(since Time) []find {
	if p == nil {
		return nil
	}
	var parts []string
	if text := p.earlier(since); text != "" {
		parts = append(parts, text)
	}
	if now := p.closedIn(since); now.String() != "" {
		parts = append(parts, now.String()+inClosedBooks)
	}
	return when(len(parts) > 0, "%s", strings.Join(parts, "; "))
}

// inClosedBooks is where sources have lost something that have left the start that runs.
const inClosedBooks = " in books closed since, as by a reload"

// earlier is what starts have lost before the one that runs since then, in words; "": nothing.
func (p *Past) earlier(since Time) string {
	if p == nil || p.Starts == 0 {
		return ""
	}
	starts, lost := p.Starts, Closed{LostWire: p.LostWire, LostHere: p.LostHere, Damaged: p.Damaged}
	if now := p.closedIn(since); now.Since != 0 {
		starts--
		lost.LostWire.subtract(now.LostWire)
		lost.LostHere.subtract(now.LostHere)
		lost.Damaged.subtract(now.Damaged)
	}
	if starts == 0 {
		return ""
	}
	other := ""
	if p.OtherLog > 0 {
		other = fmt.Sprintf(", %d of them on another log", p.OtherLog)
	}
	return fmt.Sprintf("earlier: %s in %s since %s%s", lost, plural(starts, "start"), p.Since, other)
}

// String is "3 frames lost, 1 frame damaged"; "" if neither was.
func (c Closed) String() string {
	var parts []string
	lost := c.LostWire
	lost.add(c.LostHere)
	if text := lost.String(); text != "" {
		parts = append(parts, text+" lost")
	}
	if text := c.Damaged.String(); text != "" {
		parts = append(parts, text+" damaged")
	}
	return strings.Join(parts, ", ")
}

// Counts is what the verdict looks at of a port, as far as it grows.
type Counts struct {
	Corrupt        uint64            `json:"corrupt,omitempty"`
	MissingCorrupt uint64            `json:"missing_corrupt,omitempty"`
	MissingUnseen  uint64            `json:"missing_unseen,omitempty"`
	MissingByTime  uint64            `json:"missing_by_time,omitempty"`
	Late           uint64            `json:"late,omitempty"` // without those of gaps that were known before
	Unanswered     uint64            `json:"unanswered,omitempty"`
	Restarts       uint64            `json:"restarts,omitempty"`
	Forgotten      uint64            `json:"forgotten,omitempty"`
	Joined         uint64            `json:"joined,omitempty"`
	Resync         uint64            `json:"resync,omitempty"`
	Dropped        map[string]uint64 `json:"dropped,omitempty"`
	Unread         map[string]uint64 `json:"unread,omitempty"`
	Refused        map[string]uint64 `json:"refused,omitempty"`
	Kernel         *Kernel           `json:"kernel,omitempty"`
}

// SheetKnown is what of a sheet beside its ports counts no more.
type SheetKnown struct {
	ClockSteps uint64 `json:"clock_steps"`
}

// Acknowledge makes the verdict count from a, which was given in the start that s is of; base is
// the sheet of that moment. A sheet that was drawn up since says itself what of its counts is
// known; of one that is older, or of a program that did not say it, that is what base has.
func (s *Sheet) Acknowledge(a Ack, base *Sheet) {
	isSince := s.Ack != nil && s.Ack.At == a.At
	if s.Ack = &a; !isSince || s.Known == nil {
		s.Known = base.known()
	}
	of := map[string]*Port{}
	for i := range base.Ports {
		of[base.Ports[i].ID] = &base.Ports[i]
	}
	for i := range s.Ports {
		p := &s.Ports[i]
		b := of[p.ID]
		if isSince && (p.Known != nil || b == nil || b.Known != nil) {
			continue
		}
		if p.Known = nil; b != nil {
			p.Known = b.Counts()
			p.Known.lower(p.Counts())
		}
	}
}

// known is what is known beside the ports once all of s is.
func (s *Sheet) known() *SheetKnown {
	if s.Clock == nil {
		return &SheetKnown{}
	}
	return &SheetKnown{s.Clock.StepCount}
}

// AckedAt makes the verdict count from a. base is the sheet of that moment: what of the ports is
// known they say themselves. A base of another start, or nil, has nothing that s counts.
func (s *Sheet) AckedAt(a Ack, base *Sheet) {
	s.Ack = &a
	if base != nil && base.Since == s.Since {
		s.Known = base.known()
	}
}

// Whole is the sheet as if nothing had been acknowledged, and nothing had been before it.
func (s *Sheet) Whole() *Sheet {
	w := *s
	w.Ack, w.Known, w.Past = nil, nil, nil
	return &w
}

// ackState is what of a book is known. What is missing is of a generation, which each BeginAck
// ends: a frame that comes late is taken out of what is known if it was missed before that.
type ackState struct {
	generation               uint32
	known, noted             *Counts // nil: nothing
	knownBefore, notedBefore uint32  // their generations are below
	given                    *Noted  // see GoOnAck; it is in no state, for whoever goes on is given it again
	owedIn                   uint32  // the generation of what the rhythm may take back
	overdueIn                uint32  // … and of the request that may still be answered
}

// BeginAck notes what the book has counted by now, and kernel, the driver's counts: EndAck makes it
// known. What comes between the two is new.
func (b *Book) BeginAck(kernel *Kernel) Noted {
	b.knowGiven()
	p := Port{Bytes: b.bytes, Frames: b.frames, Unread: b.unread, Refused: b.refused, Kernel: kernel}
	b.ack.generation++
	b.ack.noted, b.ack.notedBefore = p.Counts(), b.ack.generation
	return Noted{Counts: b.ack.noted.copy(), Generation: b.ack.generation, Read: b.bytes.Read}
}

// EndAck makes known what BeginAck has noted, or forgets the note.
func (b *Book) EndAck(known bool) {
	if known && b.ack.noted != nil {
		b.ack.known, b.ack.knownBefore = b.ack.noted, b.ack.notedBefore
	}
	if b.ack.noted = nil; known {
		b.KnowCarried()
	}
}

// takeBack takes n frames that came late out of what is known, or noted, if they were missed in a
// generation that it has: then what is lost next is new. of is their count.
func (b *Book) takeBack(generation uint32, n uint64, of func(*Counts) *uint64) {
	if b.ack.known != nil && generation < b.ack.knownBefore {
		*of(b.ack.known) -= min(n, *of(b.ack.known))
	}
	if b.ack.noted != nil && generation < b.ack.notedBefore {
		*of(b.ack.noted) -= min(n, *of(b.ack.noted))
	}
}

func missingCorrupt(c *Counts) *uint64 { return &c.MissingCorrupt }
func missingUnseen(c *Counts) *uint64  { return &c.MissingUnseen }
func missingByTime(c *Counts) *uint64  { return &c.MissingByTime }
func restarts(c *Counts) *uint64       { return &c.Restarts }
func unanswered(c *Counts) *uint64     { return &c.Unanswered }

// absorbAck takes over what of another book is known.
func (b *Book) absorbAck(from *Book) {
	b.knowGiven()
	from.knowGiven()
	add := func(to **Counts, of *Counts) {
		if of == nil {
			return
		}
		if *to == nil {
			*to = &Counts{}
		}
		(*to).each(of, func(to *uint64, of uint64) { *to += of })
	}
	add(&b.ack.known, from.ack.known)
	add(&b.ack.noted, from.ack.noted)
}

// Counts is those of the port.
func (p *Port) Counts() *Counts {
	f := &p.Frames
	return &Counts{
		Corrupt: f.Corrupt, MissingCorrupt: f.MissingCorrupt, MissingUnseen: f.MissingUnseen,
		MissingByTime: f.MissingByTime,
		Late:          f.Late - min(f.Late, f.LateKnown), Unanswered: f.Unanswered, Restarts: f.Restarts,
		Forgotten: f.Forgotten,
		Joined:    f.Joined,
		Resync:    p.Bytes.Resync,
		Dropped:   copied(f.Dropped), Unread: copied(p.Unread), Refused: copied(p.Refused), Kernel: p.Kernel.copied(),
	}
}

// news is the port without what of it is known.
func (p *Port) news() *Port {
	if p.Known == nil {
		return p
	}
	c := p.Counts()
	c.each(p.Known, func(n *uint64, known uint64) { *n -= min(*n, known) })
	q := *p
	f := &q.Frames
	f.Corrupt, f.MissingCorrupt, f.MissingUnseen, f.MissingByTime = c.Corrupt, c.MissingCorrupt, c.MissingUnseen,
		c.MissingByTime
	f.Unanswered, f.Restarts, f.Forgotten, f.Joined, q.Bytes.Resync = c.Unanswered, c.Restarts, c.Forgotten, c.Joined,
		c.Resync
	f.Late, f.LateKnown = c.Late, 0
	f.Dropped, q.Unread, q.Refused, q.Kernel = c.Dropped, c.Unread, c.Refused, c.Kernel
	return &q
}

// lower brings what is known down to what is counted: a driver's counts begin anew with its device.
func (c *Counts) lower(counted *Counts) {
	c.each(counted, func(known *uint64, n uint64) { *known = min(*known, n) })
}

// each calls f with each count, and the same of other.
func (c *Counts) each(other *Counts, f func(to *uint64, of uint64)) {
	f(&c.Corrupt, other.Corrupt)
	f(&c.MissingCorrupt, other.MissingCorrupt)
	f(&c.MissingUnseen, other.MissingUnseen)
	f(&c.MissingByTime, other.MissingByTime)
	f(&c.Late, other.Late)
	f(&c.Unanswered, other.Unanswered)
	f(&c.Restarts, other.Restarts)
	f(&c.Forgotten, other.Forgotten)
	f(&c.Joined, other.Joined)
	f(&c.Resync, other.Resync)
	eachCause(&c.Dropped, other.Dropped, f)
	eachCause(&c.Unread, other.Unread, f)
	eachCause(&c.Refused, other.Refused, f)
	k, o := c.Kernel, other.Kernel
	if k == nil {
		return
	}
	if o == nil {
		o = &Kernel{}
	}
	for _, c := range []struct{ to, of *uint64 }{
		{k.Overrun, o.Overrun}, {k.BufferOverrun, o.BufferOverrun}, {k.Framing, o.Framing}, {k.Parity, o.Parity},
	} {
		if c.to != nil {
			f(c.to, sum(c.of))
		}
	}
}

func eachCause(to *map[string]uint64, of map[string]uint64, f func(*uint64, uint64)) {
	for cause, n := range *to {
		f(&n, of[cause])
		(*to)[cause] = n
	}
	for cause, m := range of {
		if _, ok := (*to)[cause]; ok {
			continue
		}
		n := uint64(0)
		if f(&n, m); n > 0 {
			count(to, cause, n)
		}
	}
}

// copy is the counts by themselves; nil of nil.
func (c *Counts) copy() *Counts {
	if c == nil {
		return nil
	}
	d := *c
	d.Dropped, d.Unread, d.Refused, d.Kernel = copied(c.Dropped), copied(c.Unread), copied(c.Refused), c.Kernel.copied()
	return &d
}

func copied(m map[string]uint64) map[string]uint64 {
	c := make(map[string]uint64, len(m))
	for k, n := range m {
		if n > 0 {
			c[k] = n
		}
	}
	return c
}

func (k *Kernel) copied() *Kernel {
	if k == nil {
		return nil
	}
	of := func(n *uint64) *uint64 {
		if n == nil {
			return nil
		}
		m := *n
		return &m
	}
	return &Kernel{of(k.Overrun), of(k.BufferOverrun), of(k.Framing), of(k.Parity), of(k.Break)}
}

// Copy is a sheet that shares no count with s.
func (s *Sheet) Copy() *Sheet {
	c := *s
	c.Ports = make([]Port, len(s.Ports))
	for i, p := range s.Ports {
		c.Ports[i] = p
		q := &c.Ports[i]
		q.Frames.Dropped, q.Unread, q.Refused, q.Kernel = copied(p.Frames.Dropped), copied(p.Unread), copied(p.Refused),
			p.Kernel.copied()
		q.Known = p.Known.copy()
	}
	return &c
}
