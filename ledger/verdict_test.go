package ledger

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fine is a source whose frames prove that nothing is lost.
func fine(id string) Port {
	return Port{
		ID: id, State: StateOpen, Proof: ProofNumbers, Heard: true, Bytes: Bytes{Read: 1280, Framed: 1280},
		Frames: Frames{OK: 10, Unique: 10, Stored: 10, Durable: 10},
	}
}

// verdictCases has one case, or more, for each rule.
var verdictCases = []struct {
	kind  string
	edit  func(*Sheet, *Port)
	level Level
	text  string // part of the sentence
}{
	{"", func(*Sheet, *Port) {}, Good, "nothing lost since "},
	{
		"", func(_ *Sheet, p *Port) { p.Frames.Duplicate, p.Frames.Reordered = 3, 4 }, Good,
		"2 sources, all numbered, all open",
	},
	{"", func(_ *Sheet, p *Port) { p.State = StateStopped }, Good, "nothing lost"},
	{"", func(_ *Sheet, p *Port) { p.Kernel = &Kernel{BufferOverrun: new(uint64)} }, Good, "nothing lost"},
	{"", func(_ *Sheet, p *Port) { p.OutageCount, p.Outages = 1, []Outage{{From: 1, To: 2}} }, Good, "nothing lost"},
	{"unbalanced", func(_ *Sheet, p *Port) { p.Unbalanced = []string{"x"} }, Bad, "the books do not balance: a"},
	{"missing_unseen", func(_ *Sheet, p *Port) { p.Frames.MissingUnseen = 3 }, Bad, "lost since 1970-01-01 "},
	{
		"missing_unseen", func(_ *Sheet, p *Port) { p.Frames.MissingUnseen = 3 }, Bad,
		"3 frames on the wire (3 never seen); last at 1970-01-01 ",
	},
	{
		"missing_corrupt", func(_ *Sheet, p *Port) { p.Frames.MissingCorrupt = 1 }, Bad,
		"1 frame on the wire (1 seen corrupt)",
	},
	{
		"dropped", func(_ *Sheet, p *Port) { p.Frames.Dropped = map[string]uint64{"disk_full": 5} }, Bad,
		"5 frames here (5 dropped: disk full)",
	},
	{"dropped", func(_ *Sheet, p *Port) {
		p.Frames.MissingUnseen, p.Frames.Dropped, p.Unread = 3, map[string]uint64{"too_large": 5},
			map[string]uint64{"stopped": 9}
	}, Bad, "3 frames on the wire (3 never seen), 5 frames, 9 bytes here (9 unread: stopped, 5 dropped: too large)"},
	{"corrupt", func(_ *Sheet, p *Port) { p.Frames.Corrupt = 4 }, Bad, "damaged since 1970-01-01 "},
	{"corrupt", func(_ *Sheet, p *Port) { p.Frames.Corrupt = 4 }, Bad, ": 4 frames; nothing known lost"},
	{
		"overrun", func(_ *Sheet, p *Port) { p.Kernel = &Kernel{Overrun: of(2), BufferOverrun: of(3)} }, Bad,
		"5 bytes here (5 over-run below us)",
	},
	{"overrun", func(_ *Sheet, p *Port) { p.Kernel = &Kernel{BufferOverrun: of(7)} }, Bad, "7 datagrams here"},
	{
		"unread", func(_ *Sheet, p *Port) { p.Unread = map[string]uint64{"stopped": 9} }, Bad,
		"9 bytes here (9 unread: stopped)",
	},
	{
		"uncertain", func(_ *Sheet, p *Port) { p.Unread = map[string]uint64{UnreadUncertain: 1} }, Watch,
		"1 byte uncertain: a killed reader may have taken them: a",
	},
	{
		"no_frame", func(_ *Sheet, p *Port) { p.Frames, p.Bytes = Frames{}, Bytes{Resync: longestFrame + 1} }, Bad,
		"damaged since ",
	},
	{
		"line_errors", func(_ *Sheet, p *Port) {
			p.Proof, p.Kernel = ProofNone, &Kernel{Parity: of(1), Framing: of(2)}
		},
		Bad, ": 3 bytes;",
	},
	{
		"line_errors_checked", func(_ *Sheet, p *Port) { p.Kernel = &Kernel{Parity: of(1)} }, Watch,
		"1 byte with line errors: a",
	},
	{"resync", func(_ *Sheet, p *Port) { p.Bytes.Resync = 12 }, Watch, "nothing known lost since "},
	{"resync", func(_ *Sheet, p *Port) { p.Bytes.Resync = 12 }, Watch, "12 bytes in no frame: a"},
	{
		"resync", func(s *Sheet, p *Port) { p.Bytes.Resync, s.Ports[1].Bytes.Resync = 12, 30 }, Watch,
		"; 42 bytes in no frame: a, b",
	},
	{
		"resync", func(_ *Sheet, p *Port) { p.Frames, p.Bytes = Frames{}, Bytes{Resync: longestFrame} }, Watch,
		"nothing known lost",
	},
	{"not_there", func(_ *Sheet, p *Port) { p.State = StateWaiting }, Watch, "not there: a"},
	{
		"missing_by_time", func(_ *Sheet, p *Port) { p.Frames.MissingByTime = 2 }, Bad,
		"2 frames on the wire (2 missing by time)",
	},
	{
		"unanswered", func(_ *Sheet, p *Port) { p.Frames.Requests, p.Frames.Answered, p.Frames.Unanswered = 9, 7, 2 },
		Bad,
		"2 frames on the wire (2 unanswered)",
	},
	{
		"no_answers", func(_ *Sheet, p *Port) { p.Frames.Requests, p.Frames.Unanswered = 9, 8 }, Watch,
		"8 requests and no answer at all: is only one side of the line heard?: a",
	},
	{"silent", func(_ *Sheet, p *Port) { p.SilentSince = 2e9 }, Watch, "; silent: a"},
	{"not_there", func(_ *Sheet, p *Port) { p.SilentSince, p.State = 2e9, StateWaiting }, Watch, "; not there: a"},
	{"blocked", func(_ *Sheet, p *Port) { p.State = StateBlocked }, Watch, "what it sends waits"},
	{"spilling", func(_ *Sheet, p *Port) { p.Spilled = 1 }, Watch, "frames wait in a file"},
	{
		"spilling", func(_ *Sheet, p *Port) { p.Spilled, p.State = 1, StateBlocked }, Watch,
		"+00:00; frames wait in a file, for the log takes no more: a",
	},
	{"unheard", func(_ *Sheet, p *Port) { p.Heard = false }, Watch, "no frame since it was opened: a"},
	{"", func(s *Sheet, p *Port) { p.Heard = false; s.Ports[1].ID = "a/10.0.0.7" }, Good, "nothing lost"},
	{"few_descriptors", func(_ *Sheet, p *Port) { p.FewDescriptors = true }, Watch, "connections wait to be read"},
	{"restarts", func(_ *Sheet, p *Port) { p.Frames.Restarts = 1 }, Watch, "1 device restart seen: what"},
	{
		"joined", func(_ *Sheet, p *Port) { p.Frames.Joined = 1 }, Watch,
		"1 device new behind a kill or a failed log, and not at its first number: what it sent before may be lost: a",
	},
	{
		"forgotten", func(_ *Sheet, p *Port) { p.Frames.Forgotten = 4 }, Watch,
		"4 sequences too many to follow, or with too many gaps: a",
	},
	{
		"refused", func(_ *Sheet, p *Port) { p.Refused = map[string]uint64{"max_peers": 2} }, Watch,
		"2 connections refused: max peers: a",
	},
	{"unknown", func(_ *Sheet, p *Port) { p.Proof = ProofChecks }, Watch, "cannot know what never arrived: a"},
	{"unknown", func(_ *Sheet, p *Port) { p.Proof = "" }, Watch, "cannot know what never arrived: a"},
	{"unknown", func(s *Sheet, p *Port) {
		for _, id := range strings.Fields("c d e f g") {
			s.Ports = append(s.Ports, Port{ID: id, State: StateOpen, Proof: ProofNone, Heard: true})
		}
	}, Watch, "cannot know what never arrived: c, d, e, f and 1 more"},
	{
		"log_failed", func(s *Sheet, _ *Port) { s.Log = &LogState{Error: "input/output error"} }, Bad,
		"nothing is recorded: input/output error; nothing known lost",
	},
	{
		"disk_full", func(s *Sheet, _ *Port) { s.Log = &LogState{Full: true} }, Bad,
		"the disk is full; nothing known lost",
	},
	{
		"disk_full", func(s *Sheet, _ *Port) { s.Log = &LogState{Full: true, Stalled: "1 KiB are free"} }, Bad,
		"the disk is full, and the log waits: 1 KiB are free; nothing known lost",
	},
	{
		"dropping_oldest", func(s *Sheet, _ *Port) { s.Log = &LogState{Evicting: true, Evicted: 7} }, Watch,
		"the disk is full: the oldest records make room",
	},
	{
		"sheet_unsaved", func(s *Sheet, _ *Port) { s.Log = &LogState{Unsaved: "sheet.json: is a directory"} }, Watch,
		"the sheet on disk cannot be renewed, so after a kill the next start would know less: sheet.json: is a directory",
	},
	{
		"log_stalled", func(s *Sheet, _ *Port) { s.Log = &LogState{Stalled: "no memory"} }, Bad,
		"the log waits, and tries again: no memory",
	},
	{"log_damaged", func(s *Sheet, _ *Port) {
		s.LogDamage = new(LogDamage)
		s.LogDamage.Add(DamagedPlace{From: 3, To: 9})
	}, Bad, "7 records stored that cannot be read: the log is damaged; nothing known lost"},
	{
		"log_damaged", func(s *Sheet, _ *Port) { s.LogDamage = &LogDamage{Records: 7, AtMost: true} }, Bad,
		"cannot be read, at most: ",
	},
	{
		"log_damaged", func(s *Sheet, _ *Port) { s.LogDamage = &LogDamage{Places: 1} }, Bad,
		"every record can be read; nothing known lost",
	},
	{
		"records_gone", func(s *Sheet, _ *Port) {
			s.Recovered = &Recovered{Missing: []MissingRecords{{From: 3, To: 9}}}
		},
		Bad, "7 records here (7 durable and gone",
	},
	{"records_gone", func(s *Sheet, _ *Port) {
		s.Recovered = &Recovered{Missing: []MissingRecords{{From: 3, To: 9, AtMost: true}}}
	}, Bad, "gone from the log before this start, at most)"},
	{
		"records_gone", func(s *Sheet, _ *Port) { s.Recovered = &Recovered{Unsynced: 100} }, Bad,
		"100 not synced before this start",
	},
	{"", func(s *Sheet, _ *Port) { s.Recovered = &Recovered{CutBytes: 100, CutAt: "x"} }, Good, "nothing lost"},
	{"earlier_starts", func(s *Sheet, p *Port) {
		p.LastLoss = 0
		s.Past = &Past{
			Starts: 3, Since: 1e9, LostWire: Amount{Frames: 10}, LostHere: Amount{Frames: 2, Bytes: 7},
			Damaged: Amount{Frames: 1},
		}
	}, Bad, "; earlier: 12 frames, 7 bytes lost, 1 frame damaged in 3 starts since 1970-01-01 "},
	{"earlier_starts", func(s *Sheet, p *Port) {
		p.Frames.MissingUnseen = 7
		s.Past = &Past{
			Starts: 1, Since: 1e9, LostWire: Amount{Frames: 5}, LostHere: Amount{Bytes: 9}, Damaged: Amount{Frames: 1},
			Newest: &Closed{1e9, Amount{Frames: 5}, Amount{Bytes: 9}, Amount{Frames: 1}},
		}
	}, Bad, "lost since 1970-01-01 00:00:01 +00:00: " +
		"12 frames on the wire (7 never seen, 5 frames in books closed since, as by a reload), " +
		"9 bytes here (9 bytes in books closed since, as by a reload); damaged: 1 frame; last at "},
	{"earlier_starts", func(s *Sheet, p *Port) {
		s.Since, p.LastLoss = 2e9, 0
		s.Past = &Past{
			Starts: 3, Since: 1e9, LostWire: Amount{Frames: 12}, Damaged: Amount{Frames: 1}, OtherLog: 1,
			Newest: &Closed{Since: 2e9, Damaged: Amount{Frames: 1}},
		}
	}, Bad, "damaged since 1970-01-01 00:00:02 +00:00: 1 frame; nothing known lost; " +
		"earlier: 12 frames lost in 2 starts since 1970-01-01 00:00:01 +00:00, 1 of them on another log"},
	{
		"unproven", func(s *Sheet, _ *Port) { s.Past = &Past{Unproven: []string{"b"}} }, Watch,
		"; earlier: b could not know what never arrived",
	},
	{
		"earlier_doubts", func(s *Sheet, _ *Port) { s.Past = &Past{Doubts: []string{"refused", "restarts"}} }, Watch,
		"; earlier: refused, restarts",
	},
	{
		"history_unreadable", func(s *Sheet, _ *Port) { s.Past = &Past{Unreadable: true} }, Watch,
		"; what earlier starts lost cannot be read",
	},
	{
		"streams_unknown", func(s *Sheet, _ *Port) { s.StreamsUnknown = []uint32{1} }, Watch,
		"; nobody knows of which sources older records are",
	},
	{"no_source", func(s *Sheet, _ *Port) { s.Ports = nil }, Watch, "no source is recorded"},
	{"clock_steps", func(s *Sheet, _ *Port) { s.Clock = &Clock{StepCount: 2} }, Watch, "2 clock steps and no time"},
	{
		"clock_steps", func(s *Sheet, _ *Port) { s.Clock = &Clock{StepCount: 1, Synchronised: new(bool)} }, Watch,
		"1 clock step and",
	},
	{
		"", func(s *Sheet, _ *Port) { on := true; s.Clock = &Clock{StepCount: 1, Synchronised: &on} }, Good,
		"nothing lost",
	},
	{"", func(s *Sheet, _ *Port) { s.Clock = &Clock{Synchronised: new(bool)} }, Good, "nothing lost"},
	{
		"forward_unbalanced", func(s *Sheet, _ *Port) { s.Forwards([]Forwarding{{Name: "nats", Through: 8}}, 7) }, Bad,
		"do not balance: nats: through ≤ durable: 8 is more than 7",
	},
	{"forward_unbalanced", func(s *Sheet, _ *Port) {
		s.Forwards([]Forwarding{{Name: "nats", Sources: []ForwardSource{{ID: "a", Acknowledged: 2, Forwarded: 1}}}}, 7)
	}, Bad, "a: acknowledged ≤ forwarded: 2 is more than 1"},
	{
		"forward_gone", func(s *Sheet, _ *Port) { s.Forward = []Forwarding{{Name: "nats", Gone: 3}} }, Bad,
		"3 records removed from the log before they were forwarded to nats, at most",
	},
	{"forward_stopped", func(s *Sheet, _ *Port) {
		s.Forward = []Forwarding{{Name: "nats", State: ForwardStopped, Why: "the stream is gone"}}
	}, Watch, "forwarding to nats has stopped: the stream is gone"},
	{"forward_stopped", func(s *Sheet, _ *Port) {
		s.Forward = []Forwarding{{
			Name: "nats", State: ForwardOn,
			Sources: []ForwardSource{{ID: "a", State: ForwardStopped, Why: "it is too large"}},
		}}
	}, Watch, "forwarding a to nats has stopped: it is too large"},
	{
		"forward_down", func(s *Sheet,
			_ *Port,
		) {
			s.Forward = []Forwarding{{Name: "nats", State: ForwardDown, Why: "refused"}}
		}, Watch,
		"nats takes no frames now: refused",
	},
	{
		"forward_holds", func(s *Sheet,
			_ *Port,
		) {
			s.Forward = []Forwarding{{Name: "nats", State: ForwardOn, Holding: true}}
		}, Watch,
		"the log keeps more than log.keep says",
	},
	{
		"", func(s *Sheet, _ *Port) { s.Forwards([]Forwarding{{Name: "nats", State: ForwardOn, Through: 7}}, 7) }, Good,
		"nothing lost",
	},
}

func of(n uint64) *uint64 { return &n }

// Each rule of the verdict, alone: its level, its reason and its words.
func TestVerdict(t *testing.T) {
	tried := map[string]bool{}
	for _, c := range verdictCases {
		s := Sheet{Since: 1e9, Ports: []Port{fine("a"), fine("b")}}
		s.Ports[0].LastLoss = 2e9
		c.edit(&s, &s.Ports[0])
		v := s.Judge()
		if v.Level != c.level || !strings.Contains(v.Text, c.text) {
			t.Errorf("%s: %s: %q; want %s and %q", c.kind, v.Level, v.Text, c.level, c.text)
		}
		if c.kind != "" {
			tried[c.kind] = true
			if !slices.ContainsFunc(v.Reasons, func(r Reason) bool { return r.Kind == c.kind && r.Level == c.level }) {
				t.Errorf("%s: the reasons are %+v", c.kind, v.Reasons)
			}
		}
		if lossy := v.LostWire.String()+v.LostHere.String()+v.Damaged.String() != ""; lossy != (v.LastLoss != 0) {
			t.Errorf("%s: lost or damaged: %v, last at %d", c.kind, lossy, v.LastLoss)
		}
	}
	for _, kind := range kinds() {
		if !tried[kind[0]] {
			t.Errorf("no case tries %s", kind[0])
		}
	}
}

// The level is that of the worst reason, and the worst come first.
func TestVerdictTakesTheWorst(t *testing.T) {
	s := NewSheet(2e9, 1e9, []Port{fine("a"), fine("b"), fine("c")})
	s.Ports[0].State, s.Ports[1].Proof = StateWaiting, ProofNone
	s.Ports[2].Frames.MissingUnseen, s.Ports[2].Frames.Corrupt = 2, 1
	v := s.Judge()
	if v.Level != Bad || v.Reasons[0].Level != Bad || v.Reasons[len(v.Reasons)-1].Level != Watch ||
		len(v.Unknown) != 1 || v.Unknown[0] != "b" {
		t.Errorf("%+v", v)
	}
	if !strings.Contains(v.Text,
		"2 frames on the wire (2 never seen); damaged: 1 frame; not there: a; cannot know what never arrived: b") {
		t.Errorf("%q", v.Text)
	}
}

// kinds lists the rules with their levels.
func kinds() (all [][2]string) {
	for _, r := range sourceRules {
		all = append(all, [2]string{r.kind, string(r.level)})
	}
	for _, r := range sheetRules {
		all = append(all, [2]string{r.kind, string(r.level)})
	}
	return all
}

// The guide has each rule, with its level, and no other.
func TestGuideHasTheRules(t *testing.T) {
	guide, err := os.ReadFile("../docs/guide/verdict.md")
	if err != nil {
		t.Fatal(err)
	}
	var told [][2]string
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (good|watch|bad) \\|").FindAllStringSubmatch(string(guide),
		-1) {
		told = append(told, [2]string{m[1], m[2]})
	}
	if want := kinds(); !slices.Equal(told, want) {
		t.Errorf("the guide has %v\nthe rules are %v", told, want)
	}
}

// A place of which a program before this did not know how many bytes it has is the same: since when
// it is known stays.
func TestDamagedPlaceIsTheSameWithItsBytes(t *testing.T) {
	was := DamagedPlace{Found: 1, Segment: "1.seg", Offset: 7, From: 3, To: 9}
	is := was
	is.Found, is.Bytes = 2, 100
	if other := (DamagedPlace{Segment: "1.seg", Offset: 8, From: 3, To: 9}); !is.Is(was) || is.Is(other) {
		t.Errorf("the same: %v, another: %v", is.Is(was), is.Is(other))
	}
}
