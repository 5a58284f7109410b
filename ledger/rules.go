package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// find is one thing that a rule has found: 3 frames that were never seen.
type find struct {
	n      uint64 // 0: it is not counted
	unit   string
	what   string
	atMost bool // nobody knows how many there are: n is the most that there can be
}

func (f find) String() string {
	if f.n == 0 {
		return f.what
	}
	return plural(f.n, f.unit) + " " + f.what
}

// amount is what was lost or damaged.
func (f find) amount() (a Amount) {
	switch f.unit {
	case "frame":
		a.Frames = f.n
	case "byte":
		a.Bytes = f.n
	case "datagram":
		a.Datagrams = f.n
	case "record":
		a.Records, a.AtMost = f.n, f.atMost
	}
	return a
}

// sourceRule is a rule about one source.
type sourceRule struct {
	kind  string
	level Level
	where func(*Verdict) *Amount // where the amounts go; nil: nothing is known to be lost
	finds func(*Sheet, *Port) []find
}

// sheetRule is a rule about what concerns all sources.
type sheetRule struct {
	kind  string
	level Level
	where func(*Verdict) *Amount
	finds func(*Sheet) []find
}

func wire(v *Verdict) *Amount    { return &v.LostWire }
func here(v *Verdict) *Amount    { return &v.LostHere }
func damaged(v *Verdict) *Amount { return &v.Damaged }

// longestFrame is the most bytes that a frame of any framing has: more than that before the first
// valid frame is not the end of one that was cut.
const longestFrame = 16 << 10

// kindCorrupt is the rule whose frames may be missing, too: by their numbers.
const kindCorrupt = "corrupt"

// kindUnbalanced is the rule about books that are wrong.
const kindUnbalanced = "unbalanced"

// What is said of numbers that are missing.
const (
	causeUnseen  = "never seen"
	causeCorrupt = "seen corrupt"
)

// sourceRules are asked of each source. docs/guide/verdict.md has the same table with the reasons.
var sourceRules = []sourceRule{
	{kindUnbalanced, Bad, nil, func(_ *Sheet, p *Port) []find {
		return when(len(p.Unbalanced) > 0, "the books do not balance")
	}},
	{
		"missing_unseen", Bad, wire,
		func(_ *Sheet, p *Port) []find { return counts(p.Frames.MissingUnseen, "frame", causeUnseen) },
	},
	{
		"missing_corrupt", Bad, wire,
		func(_ *Sheet, p *Port) []find { return counts(p.Frames.MissingCorrupt, "frame", causeCorrupt) },
	},
	{"missing_by_time", Bad, wire, func(_ *Sheet, p *Port) []find {
		return counts(p.Frames.MissingByTime, "frame", "missing by time")
	}},
	{"unanswered", Bad, wire, func(_ *Sheet, p *Port) []find {
		if p.Frames.Answered == 0 {
			return nil
		}
		return counts(p.Frames.Unanswered, "frame", "unanswered")
	}},
	{"dropped", Bad, here, func(_ *Sheet, p *Port) (all []find) {
		for _, cause := range slices.Sorted(maps.Keys(p.Frames.Dropped)) {
			all = append(all, counts(p.Frames.Dropped[cause], "frame", "dropped: "+words(cause))...)
		}
		return all
	}},
	{kindCorrupt, Bad, damaged, func(_ *Sheet, p *Port) []find { return counts(p.Frames.Corrupt, "frame", "damaged") }},
	{"overrun", Bad, here, overruns},
	{"unread", Bad, here, func(_ *Sheet, p *Port) (all []find) {
		for _, cause := range slices.Sorted(maps.Keys(p.Unread)) {
			if cause != UnreadUncertain {
				all = append(all, counts(p.Unread[cause], "byte", "unread: "+words(cause))...)
			}
		}
		return all
	}},
	{"no_frame", Bad, damaged, func(_ *Sheet, p *Port) []find {
		if p.Frames.OK > 0 || p.Bytes.Resync <= longestFrame {
			return nil
		}
		return counts(p.Bytes.Resync, "byte", "in no valid frame: is the framing right, and the baud rate?")
	}},
	{"line_errors", Bad, damaged, func(_ *Sheet, p *Port) []find {
		if p.Proof != ProofNone { // else a check has seen what it cost
			return nil
		}
		return counts(p.lineErrors(), "byte", "with line errors")
	}},
	{"line_errors_checked", Watch, nil, func(_ *Sheet, p *Port) []find {
		if p.Proof == ProofNone {
			return nil
		}
		return counts(p.lineErrors(), "byte", "with line errors")
	}},
	{"uncertain", Watch, nil, func(_ *Sheet, p *Port) []find {
		return counts(p.Unread[UnreadUncertain], "byte", "uncertain: a killed reader may have taken them")
	}},
	{"resync", Watch, nil, func(_ *Sheet, p *Port) []find { return counts(p.Bytes.Resync, "byte", "in no frame") }},
	{"no_answers", Watch, nil, func(_ *Sheet, p *Port) []find {
		if p.Frames.Answered > 0 {
			return nil
		}
		return counts(p.Frames.Unanswered, "request", "and no answer at all: is only one side of the line heard?")
	}},
	{"not_there", Watch, nil, func(_ *Sheet, p *Port) []find { return when(p.State == StateWaiting, "not there") }},
	{"silent", Watch, nil, func(_ *Sheet, p *Port) []find {
		return when(p.SilentSince != 0 && p.State != StateWaiting && p.State != StateBlocked, "silent")
	}},
	{"blocked", Watch, nil, func(_ *Sheet, p *Port) []find {
		// While a file takes what runs over, the reading stops for moments.
		return when(p.State == StateBlocked && p.Spilled == 0, "what it sends waits, for the log takes no more")
	}},
	{"spilling", Watch, nil, func(_ *Sheet, p *Port) []find {
		return when(p.Spilled > 0, "frames wait in a file, for the log takes no more")
	}},
	{"few_descriptors", Watch, nil, func(_ *Sheet, p *Port) []find {
		return when(p.FewDescriptors, "connections wait to be read, for there are no descriptors for them")
	}},
	{"unheard", Watch, nil, func(s *Sheet, p *Port) []find {
		return when(!p.Heard && p.State != StateWaiting && !s.hasPeers(p.ID), "no frame since it was opened")
	}},
	{"restarts", Watch, nil, func(_ *Sheet, p *Port) []find {
		return counts(p.Frames.Restarts, "device restart", "seen: what was sent just before one leaves no trace")
	}},
	{"joined", Watch, nil, func(_ *Sheet, p *Port) []find {
		return counts(p.Frames.Joined, "device",
			"new behind a kill or a failed log, and not at its first number: what it sent before may be lost")
	}},
	{"forgotten", Watch, nil, func(_ *Sheet, p *Port) []find {
		return counts(p.Frames.Forgotten, "sequence", "too many to follow, or with too many gaps")
	}},
	{"refused", Watch, nil, func(_ *Sheet, p *Port) (all []find) {
		for _, cause := range slices.Sorted(maps.Keys(p.Refused)) {
			all = append(all, counts(p.Refused[cause], "connection", "refused: "+words(cause))...)
		}
		return all
	}},
	{"unknown", Watch, nil, func(_ *Sheet, p *Port) []find {
		return when(p.Proof != ProofNumbers, "cannot know what never arrived")
	}},
}

// kindPast is the rule about earlier starts, whose words stand behind those about this one.
const kindPast = "earlier_starts"

// sheetRules are asked of the sheet.
var sheetRules = append([]sheetRule{
	{"log_failed", Bad, nil, func(s *Sheet) []find {
		return when(s.logState().Error != "", "nothing is recorded: %s", s.logState().Error)
	}},
	{"disk_full", Bad, nil, func(s *Sheet) []find {
		if why := s.logState().Stalled; why != "" {
			return when(s.logState().Full, "the disk is full, and the log waits: %s", why)
		}
		return when(s.logState().Full, "the disk is full")
	}},
	{"log_stalled", Bad, nil, func(s *Sheet) []find {
		return when(s.logState().Stalled != "" && !s.logState().Full, "the log waits, and tries again: %s",
			s.logState().Stalled)
	}},
	{"dropping_oldest", Watch, nil, func(s *Sheet) []find {
		return when(s.logState().Evicting,
			"the disk is full: the oldest records make room for new ones, though they should be kept")
	}},
	{"sheet_unsaved", Watch, nil, func(s *Sheet) []find {
		return when(s.logState().Unsaved != "",
			"the sheet on disk cannot be renewed, so after a kill the next start would know less: %s",
			s.logState().Unsaved)
	}},
	{"log_damaged", Bad, nil, func(s *Sheet) []find {
		switch d := s.LogDamage; {
		case d == nil:
			return nil
		case d.Records == 0:
			return when(true, "a segment of the log is damaged, but every record can be read")
		case d.AtMost:
			return counts(d.Records, "record", "stored that cannot be read, at most: the log is damaged")
		default:
			return counts(d.Records, "record", "stored that cannot be read: the log is damaged")
		}
	}},
	{"records_gone", Bad, here, func(s *Sheet) (all []find) {
		if s.Known != nil { // it was known when that was acknowledged
			return nil
		}
		switch n, atMost := s.Recovered.Gone(); {
		case n > 0 && atMost:
			all = []find{{n, "record", "gone from the log before this start, at most", true}}
		case n > 0:
			all = counts(n, "record", "durable and gone from the log before this start")
		}
		if s.Recovered != nil {
			all = append(all, counts(s.Recovered.Unsynced, "record", "not synced before this start")...)
		}
		return all
	}},
	{kindPast, Bad, nil, func(s *Sheet) []find { return s.Past.find(s.Since) }},
	{"history_unreadable", Watch, nil, func(s *Sheet) []find {
		return when(s.Past != nil && s.Past.Unreadable, "what earlier starts lost cannot be read")
	}},
	{"unproven", Watch, nil, func(s *Sheet) []find { return s.Past.findUnproven(s.Ports) }},
	{"earlier_doubts", Watch, nil, func(s *Sheet) []find { return s.Past.findDoubts(s.Since) }},
	{"streams_unknown", Watch, nil, func(s *Sheet) []find {
		return when(len(s.StreamsUnknown) > 0,
			"nobody knows of which sources older records are: streams.json does not name them")
	}},
	{"no_source", Watch, nil, func(s *Sheet) []find { return when(len(s.Ports) == 0, "no source is recorded") }},
	{"clock_steps", Watch, nil, func(s *Sheet) []find {
		c := s.Clock
		if c == nil || c.Synchronised != nil && *c.Synchronised {
			return nil
		}
		steps := c.StepCount
		if s.Known != nil {
			steps -= min(steps, s.Known.ClockSteps)
		}
		return counts(steps, "clock step", "and no time service keeps the clock")
	}},
}, forwardRules...)

// Rule is one rule of the verdict, whether or not it holds.
type Rule struct {
	Kind  string
	Level Level
}

// Rules lists all rules: those about each source, then those about the sheet.
func Rules() (all []Rule) {
	for _, r := range sourceRules {
		all = append(all, Rule{r.kind, r.level})
	}
	for _, r := range sheetRules {
		all = append(all, Rule{r.kind, r.level})
	}
	return all
}

func overruns(_ *Sheet, p *Port) []find {
	const what = "over-run below us"
	switch k := p.Kernel; {
	case k == nil:
		return nil
	case k.Overrun == nil && k.BufferOverrun != nil: // a socket
		return counts(*k.BufferOverrun, "datagram", what)
	default:
		return counts(sum(k.Overrun, k.BufferOverrun), "byte", what)
	}
}

// lineErrors is how many characters came with a wrong parity or without a stop bit.
func (p *Port) lineErrors() uint64 {
	if p.Kernel == nil {
		return 0
	}
	return sum(p.Kernel.Parity, p.Kernel.Framing)
}

func sum(counts ...*uint64) (n uint64) {
	for _, c := range counts {
		if c != nil {
			n += *c
		}
	}
	return n
}

// hasPeers reports whether what a source reads is in the books of its peers.
func (s *Sheet) hasPeers(id string) bool {
	return slices.ContainsFunc(s.Ports, func(p Port) bool { return strings.HasPrefix(p.ID, id+"/") })
}

func (s *Sheet) logState() LogState {
	if s.Log == nil {
		return LogState{}
	}
	return *s.Log
}

func words(cause string) string { return strings.ReplaceAll(cause, "_", " ") }

func when(is bool, format string, args ...any) []find {
	if !is {
		return nil
	}
	return []find{{what: fmt.Sprintf(format, args...)}}
}

func counts(n uint64, unit, what string) []find {
	if n == 0 {
		return nil
	}
	return []find{{n: n, unit: unit, what: what}}
}
