package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Level says how a sheet is to be taken.
type Level string

// The levels, from the best to the worst.
const (
	Good  Level = "good"  // nothing is lost, and that is proved
	Watch Level = "watch" // no loss is known; one cannot be ruled out, or something is about to be lost
	Bad   Level = "bad"   // something is lost or damaged, or nothing is recorded
)

// Rank is 0 for good, 1 for watch, 2 for bad.
func (l Level) Rank() int { return slices.Index([]Level{Good, Watch, Bad}, l) }

// Proof says what the frames of a source prove about those that are not there.
type Proof string

// The proofs, from the strongest to the weakest. A sheet from before there were any has "".
const (
	ProofNumbers Proof = "numbered" // a frame that never arrives is missed by its number
	ProofChecks  Proof = "checked"  // damage is seen; a frame that never arrives leaves no trace
	ProofNone    Proof = "counted"  // frames are counted: neither damage nor absence shows
)

// weaker is what the frames of two accounts prove together.
func weaker(a, b Proof) Proof {
	proofs := []Proof{ProofNumbers, ProofChecks, ProofNone} // "" is worth nothing, see Judge
	if i, j := slices.Index(proofs, a), slices.Index(proofs, b); i < 0 || j >= 0 && i > j {
		return a
	}
	return b
}

// Amount is how much was lost or damaged, each part in its own unit.
type Amount struct {
	Frames    uint64 `json:"frames"`
	Bytes     uint64 `json:"bytes"`     // of which nobody knows whose frames they were
	Datagrams uint64 `json:"datagrams"` // … nor how long they were
	Records   uint64 `json:"records"`   // of the log
	// AtMost: nobody knows how many records there were, and Records is the most that can have been.
	AtMost bool `json:"at_most,omitempty"`
}

func (a *Amount) add(b Amount) {
	a.Frames += b.Frames
	a.Bytes += b.Bytes
	a.Datagrams += b.Datagrams
	a.Records += b.Records
	a.AtMost = a.AtMost || b.AtMost
}

// subtract takes out a part of a.
func (a *Amount) subtract(part Amount) {
	a.Frames -= part.Frames
	a.Bytes -= part.Bytes
	a.Datagrams -= part.Datagrams
	a.Records -= part.Records
}

// String names the parts that are not zero, as "3 frames, 17 bytes"; "" if all are.
func (a Amount) String() string {
	var parts []string
	for _, u := range []struct {
		n    uint64
		unit string
	}{{a.Frames, "frame"}, {a.Bytes, "byte"}, {a.Datagrams, "datagram"}, {a.Records, "record"}} {
		if u.n > 0 {
			parts = append(parts, plural(u.n, u.unit))
		}
	}
	if a.AtMost && a.Records > 0 { // which are the last part
		parts[len(parts)-1] = "at most " + parts[len(parts)-1]
	}
	return strings.Join(parts, ", ")
}

func plural(n uint64, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}

// Reason is one thing that keeps a sheet from being good.
type Reason struct {
	Level  Level  `json:"level"`
	Source string `json:"source"` // "": all of them, or the log
	Kind   string `json:"kind"`   // as in the table of docs/guide/verdict.md
	Count  uint64 `json:"count"`  // how many, in Unit; 0: it is a state
	Unit   string `json:"unit"`   // of one: frame, byte, …
	What   string `json:"what"`   // became of them; of a state: what it is
	Text   string `json:"text"`   // the three together
}

// Verdict says what a sheet means.
type Verdict struct {
	Level    Level    `json:"level"`
	Since    Time     `json:"since"`     // what was before does not count
	Text     string   `json:"text"`      // one sentence
	LostWire Amount   `json:"lost_wire"` // before it came to this machine
	LostHere Amount   `json:"lost_here"` // in this machine: by its driver, its kernel or the recorder
	Damaged  Amount   `json:"damaged"`   // arrived, and failed its check
	LastLoss Time     `json:"last_loss"` // when something of this was noticed last; 0: nothing was
	Unknown  []string `json:"unknown"`   // sources that cannot prove absence
	Reasons  []Reason `json:"reasons"`   // why it is not good, the worst first
}

// Judge draws up the verdict of a sheet. It follows from the sheet alone; the rules are the tables
// in rules.go.
func (s *Sheet) Judge() Verdict {
	v := Verdict{Level: Good, Since: s.Since, Unknown: []string{}, Reasons: []Reason{}}
	if s.Ack != nil && s.Known != nil { // it was given in this start, whatever the clock was since
		v.Since = s.Ack.At
	}
	var said sentence
	for i := range s.Ports {
		p := &s.Ports[i]
		if s.Ack != nil {
			p = p.news()
		}
		if p.Proof != ProofNumbers {
			v.Unknown = append(v.Unknown, p.ID)
		}
		for _, r := range sourceRules {
			for _, f := range r.finds(s, p) {
				v.Reasons = append(v.Reasons, Reason{r.level, p.ID, r.kind, f.n, f.unit, f.what, f.String()})
				v.blame(&said, r.where, r.kind, r.level, p.ID, f, p.LastLoss)
			}
		}
	}
	for _, r := range sheetRules {
		for _, f := range r.finds(s) {
			v.Reasons = append(v.Reasons, Reason{r.level, "", r.kind, f.n, f.unit, f.what, f.String()})
			v.blame(&said, r.where, r.kind, r.level, "", f, s.Since) // found when the log was opened
		}
	}
	if s.Past != nil && (v.LastLoss == 0 || s.Past.of() == s.Since) { // a start before this one lost it earlier
		v.LastLoss = max(v.LastLoss, s.Past.LastLoss)
	}
	slices.SortStableFunc(v.Reasons, func(a, b Reason) int { return cmp.Compare(b.Level.Rank(), a.Level.Rank()) })
	if len(v.Reasons) > 0 {
		v.Level = v.Reasons[0].Level
	}
	v.Text = v.sentence(s, said)
	return v
}

// sentence is what the finds give to say.
type sentence struct{ lostWire, lostHere, damaged, trouble, others []*said }

// said is what several sources may have in common.
type said struct {
	find
	kind    string
	level   Level
	sources []string
}

// blame adds a find to the amounts, and to what there is to say.
func (v *Verdict) blame(s *sentence, where func(*Verdict) *Amount, kind string, level Level, source string, f find,
	last Time,
) {
	list := &s.others
	if where != nil {
		where(v).add(f.amount())
		v.LastLoss = max(v.LastLoss, last)
		list = map[*Amount]*[]*said{
			&v.LostWire: &s.lostWire, &v.LostHere: &s.lostHere,
			&v.Damaged: &s.damaged,
		}[where(v)]
	} else if source == "" && level == Bad {
		list = &s.trouble
	}
	i := slices.IndexFunc(*list, func(o *said) bool { return o.what == f.what })
	if i < 0 {
		i = len(*list)
		*list = append(*list, &said{find: find{unit: f.unit, what: f.what}, kind: kind, level: level})
	}
	o := (*list)[i]
	o.n += f.n
	if source != "" {
		o.sources = append(o.sources, source)
	}
}

// sentence puts the verdict in words.
func (v *Verdict) sentence(s *Sheet, of sentence) string {
	since := v.Since.String()
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	for _, o := range of.trouble { // what is in the way now comes first
		if o.kind != kindPast {
			add("%s", o)
		}
	}
	closed := s.Past.closedIn(s.Since)
	var lost []string
	lose := func(now, before Amount, where string, causes []*said) {
		all := now
		if all.add(before); all.String() == "" {
			return
		}
		why := largest(causes)
		if text := before.String(); text != "" {
			why = append(why, text+inClosedBooks)
		}
		lost = append(lost, fmt.Sprintf("%s %s (%s)", all, where, strings.Join(why, ", ")))
	}
	lose(v.LostWire, closed.LostWire, "on the wire", of.lostWire)
	lose(v.LostHere, closed.LostHere, "here", of.lostHere)
	all := v.Damaged
	all.add(closed.Damaged)
	switch damaged := all.String(); {
	case len(lost) > 0:
		add("lost since %s: %s", since, strings.Join(lost, ", "))
		if damaged != "" {
			add("damaged: %s", damaged)
		}
	case damaged != "":
		add("damaged since %s: %s", since, damaged)
		add("nothing known lost")
	case v.Level == Good:
		add("nothing lost since %s: %s, all numbered, all open", since, plural(uint64(len(s.Ports)), "source"))
	default:
		add("nothing known lost since %s", since)
	}
	if earlier := s.Past.earlier(s.Since); earlier != "" {
		add("%s", earlier)
	}
	if v.LastLoss != 0 {
		add("last at %s", v.LastLoss)
	}
	slices.SortStableFunc(of.others, func(a, b *said) int { return cmp.Compare(b.level.Rank(), a.level.Rank()) })
	for _, o := range of.others {
		text := o.String()
		if len(o.sources) > 0 {
			text += ": " + Some(o.sources)
		}
		add("%s", text)
	}
	return strings.Join(parts, "; ")
}

// named is how many sources a sentence names at most.
const named = 4

// Some names the first of many.
func Some(ids []string) string {
	if len(ids) > named {
		return fmt.Sprintf("%s and %d more", strings.Join(ids[:named], ", "), len(ids)-named)
	}
	return strings.Join(ids, ", ")
}

// largest names the causes with their amounts, the largest first.
func largest(causes []*said) []string {
	slices.SortFunc(causes, func(a, b *said) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.what, b.what)) })
	names := make([]string, len(causes))
	for i, c := range causes {
		names[i] = fmt.Sprintf("%d %s", c.n, c.what)
	}
	return names
}
