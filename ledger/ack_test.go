package ledger

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// worn is a source that has every count which the verdict looks at.
func worn() Port {
	p := fine("a")
	p.LastLoss = 2e9
	p.Frames.MissingUnseen, p.Frames.MissingCorrupt, p.Frames.Corrupt, p.Frames.Restarts, p.Frames.Forgotten = 3, 1, 2,
		1, 1
	p.Frames.MissingByTime, p.Frames.Requests, p.Frames.Answered, p.Frames.Unanswered = 3, 9, 5, 2
	p.Frames.Dropped = map[string]uint64{"disk_full": 5}
	p.Bytes.Resync, p.Unread, p.Refused = 40, map[string]uint64{"stopped": 9}, map[string]uint64{"max_peers": 2}
	p.Kernel = &Kernel{Overrun: of(1), BufferOverrun: of(2), Framing: of(3), Parity: of(4), Break: of(5)}
	return p
}

// What was acknowledged counts no more, what comes then does, and the books stay.
func TestAcknowledge(t *testing.T) {
	on := func(edit func(*Sheet)) *Sheet {
		s := NewSheet(3e9, 1e9, []Port{worn()})
		s.Clock = &Clock{StepCount: 2}
		s.Recovered = &Recovered{Unsynced: 7}
		edit(&s)
		return &s
	}
	base := on(func(s *Sheet) { s.Ports[0].Known = s.Ports[0].Counts() })
	if v := base.Whole().Judge(); v.Level != Bad || len(v.Reasons) < 12 {
		t.Fatalf("%+v", v)
	}
	same := on(func(s *Sheet) { s.Acknowledge(Ack{At: 4e9}, base.Copy()) })
	if v := same.Judge(); v.Level != Good || v.LastLoss != 0 || v.Since != 4e9 ||
		!strings.Contains(v.Text, "nothing lost since 1970-01-01 00:00:04") {
		t.Errorf("%+v", v)
	}
	if p := same.Ports[0]; p.Frames.MissingUnseen != 3 || p.Frames.Dropped["disk_full"] != 5 ||
		*p.Kernel.Overrun != 1 || p.Unread["stopped"] != 9 {
		t.Errorf("the books have changed: %+v", p)
	}
	if v := same.Whole().Judge(); v.Level != Bad {
		t.Errorf("as a whole: %+v", v)
	}
	for name, edit := range map[string]func(*Port){
		"missing":    func(p *Port) { p.Frames.MissingUnseen++ },
		"by time":    func(p *Port) { p.Frames.MissingByTime++ },
		"unanswered": func(p *Port) { p.Frames.Unanswered++ },
		"corrupt":    func(p *Port) { p.Frames.Corrupt++ },
		"dropped":    func(p *Port) { p.Frames.Dropped["overflow_oldest"] = 1 },
		"unread":     func(p *Port) { p.Unread["stopped"]++ },
		"overrun":    func(p *Port) { p.Kernel.Overrun = of(2) },
		"new cause":  func(p *Port) { p.Unread["failed"]++ },
	} {
		s := on(func(s *Sheet) { edit(&s.Ports[0]); s.Acknowledge(Ack{At: 4e9}, base.Copy()) })
		if v := s.Judge(); v.Level != Bad ||
			v.LostWire.Frames+v.LostHere.Frames+v.LostHere.Bytes+v.Damaged.Frames != 1 {
			t.Errorf("%s: %+v", name, v)
		}
	}
	later := on(func(s *Sheet) { s.Since = 5e9; s.AckedAt(Ack{At: 4e9}, base) }) // another start
	if v := later.Judge(); v.Level != Bad || v.Since != 5e9 || v.LostWire.Frames != 9 {
		t.Errorf("the next start: %+v", v)
	}
	older := on(func(s *Sheet) {
		s.Ports[0].Frames.MissingUnseen = 2
		s.Ports[0].Known = &Counts{MissingUnseen: 1}
		s.Ack = &Ack{At: 2e9}
		s.Acknowledge(Ack{At: 4e9}, base)
	})
	if v := older.Judge(); v.Level != Good || v.Since != 4e9 {
		t.Errorf("drawn up before the word: %+v", v)
	}
	since := on(func(s *Sheet) {
		s.Ports[0].Known = &Counts{MissingUnseen: 1}
		s.AckedAt(Ack{At: 4e9}, base)
		s.Acknowledge(Ack{At: 4e9}, base)
	})
	if v := since.Judge(); v.LostWire.Frames != 8 {
		t.Errorf("drawn up since the word, which says what is known: %+v", v)
	}
}

// What a start has lost by sources that have left it is in its own words, also of a copy that was
// saved; what other starts have lost is apart from that, and what came late is in neither.
func TestClosedBooksAreOfTheStartThatRuns(t *testing.T) {
	sheet := func(since Time, lost, late uint64) *Sheet {
		p := fine("a")
		p.Frames.MissingUnseen, p.Frames.Late = lost, late
		s := NewSheet(int64(since+9), int64(since), []Port{p})
		return &s
	}
	var p Past
	p.Add(sheet(1e9, 2, 0))
	p.Add(sheet(2e9, 3, 0))
	p.Add(sheet(2e9, 5, 1))
	before := p
	p.TakeBack(sheet(2e9, 0, 3))
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var saved Past
	if err := json.Unmarshal(b, &saved); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		past  Past
		since Time
		want  string
	}{
		{before, 2e9, "lost since 1970-01-01 00:00:02 +00:00: 7 frames on the wire (7 frames" + inClosedBooks +
			"); earlier: 2 frames lost in 1 start since 1970-01-01 00:00:01 +00:00"},
		{saved, 2e9, "lost since 1970-01-01 00:00:02 +00:00: 4 frames on the wire (4 frames" + inClosedBooks +
			"); earlier: 2 frames lost in 1 start since 1970-01-01 00:00:01 +00:00"},
		{saved, 3e9, "nothing known lost since 1970-01-01 00:00:03 +00:00; " +
			"earlier: 6 frames lost in 2 starts since 1970-01-01 00:00:01 +00:00"},
	} {
		s := sheet(c.since, 0, 0)
		s.Past = &c.past
		if v := s.Judge(); v.Text != c.want || v.Level != Bad {
			t.Errorf("%s: %s; want %s", v.Level, v.Text, c.want)
		}
	}
}

// ackModel is what a device sent, and what somebody knows to be lost.
type ackModel struct {
	next   uint64
	lost   map[uint64]bool // … and known
	noted  map[uint64]bool // while an acknowledgement is being kept
	noting bool
}

func (m *ackModel) news() (n uint64) {
	for _, known := range m.lost {
		if !known {
			n++
		}
	}
	return n
}

// pick is one of the lost numbers.
func (m *ackModel) pick(rng *rand.Rand) (seq uint64, ok bool) {
	if len(m.lost) == 0 {
		return 0, false
	}
	all := slices.Sorted(maps.Keys(m.lost))
	return all[rng.IntN(len(all))], true
}

// Whatever is lost, damaged, comes late or is acknowledged, in any order: what counts is what was
// lost and is not known, to the frame, also where the word cannot be kept.
func TestAcknowledgedCountsFollowEachFrame(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 7))
		b, m := NewBook(0), ackModel{lost: map[uint64]bool{}}
		b.Resume(Position{Device: 1, Epoch: 1, Last: 99})
		m.next = 100
		acked := false
		for step := range 150 {
			id := Stream{1, 1}
			switch rng.IntN(7) {
			case 0, 1:
				for n := rng.IntN(4); n >= 0; n-- {
					m.lost[m.next] = false
					m.next++
				}
				if rng.IntN(3) == 0 {
					b.Damaged()
					b.Skip(10)
				}
				fallthrough
			case 2:
				b.Numbered(1, id, m.next)
				m.next++
			case 3, 4:
				if seq, ok := m.pick(rng); ok {
					b.Numbered(1, id, seq)
					delete(m.lost, seq)
					delete(m.noted, seq)
				}
			case 5:
				b.BeginAck(nil)
				m.noting, m.noted = true, map[uint64]bool{}
				for seq := range m.lost {
					m.noted[seq] = true
				}
			case 6:
				if kept := rng.IntN(2) == 0; m.noting {
					b.EndAck(kept)
					for seq := range m.noted {
						m.lost[seq] = m.lost[seq] || kept
					}
					acked, m.noting = acked || kept, false
				}
			}
			p := b.Sheet("a", StateOpen, Held{}, nil)
			s := NewSheet(1, 1, []Port{p})
			s.Ports[0].Frames.Corrupt, s.Ports[0].Known = 0, p.Known.copy()
			if acked {
				s.Ack = &Ack{At: 1}
			}
			if v := s.Judge(); v.LostWire.Frames != m.news() {
				t.Fatalf("seed %d, step %d: %d frames are new by the verdict, %d in truth", seed, step,
					v.LostWire.Frames, m.news())
			}
		}
	}
}

// An answer, and a frame by time, that come after all take back what was acknowledged, and no more.
func TestAcknowledgedFramesThatComeLateByTime(t *testing.T) {
	second := time.Second
	for _, early := range []bool{true, false} {
		b := NewBook(0)
		b.Expect(Rhythm{Interval: second})
		b.Restart(0)
		ack := func() {
			b.BeginAck(nil)
			b.EndAck(true)
		}
		b.Arrived(1, second)
		if !early { // what is lost before the word
			ack()
		}
		b.Arrived(1, 4*second) // two missing
		b.Asked(4 * second)
		b.Overdue(9*second, second) // one unanswered
		if early {
			ack()
		}
		b.Arrived(3, 4*second+1) // they come late
		b.Answered()
		p := b.Sheet("a", StateOpen, Held{}, nil)
		if f, k := p.Frames, p.Known; f.MissingByTime != 0 || f.Unanswered != 0 || k.MissingByTime != 0 ||
			k.Unanswered != 0 {
			t.Errorf("early %v: %+v, known %+v", early, f, k)
		}
		b.TurnOver()
		b.Arrived(1, 7*second)
		b.Unanswered()
		s := NewSheet(1, 1, []Port{b.Sheet("a", StateOpen, Held{}, nil)})
		s.Ack = &Ack{At: 1}
		if v := s.Judge(); v.LostWire.Frames != 3 {
			t.Errorf("early %v: %+v", early, v.LostWire)
		}
	}
}

// The past is the sum of the starts that have lost something.
func TestPast(t *testing.T) {
	var p Past
	for i, lost := range []uint64{0, 3, 0, 9} {
		s := NewSheet(2e9, int64(i+1)*1e9, []Port{fine("a")})
		s.Ports[0].Frames.MissingUnseen, s.Ports[0].LastLoss = lost, Time(i)*1e9+5
		p.Add(&s)
	}
	if p.Starts != 2 || p.Since != 2e9 || p.LostWire.Frames != 12 || p.LastLoss != 3e9+5 {
		t.Errorf("%+v", p)
	}
}

// How many records are gone may not be known: nor is it later.
func TestPastDoesNotKnowMore(t *testing.T) {
	s := NewSheet(2e9, 1e9, []Port{fine("a")})
	s.Recovered = &Recovered{Missing: []MissingRecords{{From: 3, To: 9, AtMost: true}}}
	var p, all Past
	p.Add(&s)
	all.Join(&p)
	now := NewSheet(19e9, 11e9, []Port{fine("a")})
	now.Past = &all
	if text := now.Judge().Text; !strings.Contains(text, "earlier: at most 7 records lost in 1 start") {
		t.Error(text)
	}
}

// What sources had lost that were leaving when their start was killed is in the past, too.
func TestPastHasWhatWasLeaving(t *testing.T) {
	lost := func(id string, n uint64) Port {
		return Port{
			ID: id, Proof: ProofNumbers,
			Frames: Frames{OK: 10, Unique: 10, Stored: 10, Missing: n, MissingUnseen: n},
		}
	}
	s := NewSheet(9e9, 1e9, []Port{lost("a", 2)})
	s.Leaving = []Port{lost("a", 3)}
	var p Past
	p.Add(&s)
	if p.LostWire.Frames != 5 || p.Starts != 1 || len(s.Ports) != 1 {
		t.Errorf("%+v; want 5 frames of one start", p)
	}
}

// An account that does not say what its frames proved could not know what never arrived: nor does
// one that is joined with it.
func TestNoProofIsNoneInThePast(t *testing.T) {
	for _, proof := range []Proof{"", ProofNone, ProofChecks, ProofNumbers} {
		gone := Port{ID: "gone", Proof: proof, Heard: true}
		s := NewSheet(9e9, 1e9, []Port{fine("a"), gone})
		if proof == ProofChecks { // it was leaving
			s.Ports, s.Leaving = s.Ports[:1], s.Ports[1:]
		}
		var p Past
		p.Add(&s)
		now := NewSheet(19e9, 11e9, []Port{fine("a")})
		now.Past = &p
		want := Watch
		if proof == ProofNumbers {
			want = Good
		}
		if v := now.Judge(); v.Level != want || p.IsEmpty() != (want == Good) {
			t.Errorf("%q in the past: %s: %s; want %s", proof, v.Level, v.Text, want)
		}
		numbered := fine("gone")
		if one, other := numbered.Join(&gone), gone.Join(&numbered); one.Proof != proof || other.Proof != proof {
			t.Errorf("%q and %q prove together %q, or %q", proof, ProofNumbers, one.Proof, other.Proof)
		}
	}
}

// What books had that the running start has closed is not said to be of an earlier start, also by a
// sum that was saved between.
func TestDoubtsOfClosedBooksAreNotEarlier(t *testing.T) {
	with := func(since Time, restarts, refused uint64) *Sheet {
		p := Port{ID: "a", Proof: ProofNumbers}
		p.Frames.Restarts = restarts
		if refused > 0 {
			p.Refused = map[string]uint64{"full": refused}
		}
		s := NewSheet(int64(since+9), int64(since), []Port{p})
		return &s
	}
	var p Past
	for i, c := range []struct {
		add  *Sheet
		now  Time
		want string
	}{
		{with(1e9, 1, 0), 1e9, "restarts" + inClosedBooks},
		{with(2e9, 1, 0), 2e9, "earlier: restarts"},
		{with(2e9, 0, 1), 2e9, "earlier: restarts; refused" + inClosedBooks},
		{with(2e9, 0, 1), 3e9, "earlier: refused, restarts"},
	} {
		p.Add(c.add)
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		p = Past{}
		if err := json.Unmarshal(b, &p); err != nil {
			t.Fatal(err)
		}
		s := with(c.now, 0, 0)
		s.Past = &p
		text := s.Judge().Text
		if !strings.HasSuffix(text, "; "+c.want) {
			t.Errorf("%d: %q, want %q at its end", i, text, c.want)
		}
	}
}
